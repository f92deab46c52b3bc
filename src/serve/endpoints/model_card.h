// What /v1/models says of a model and of an adapter.
#pragma once

#include <string>

#include "serve/context.h"
#include "serve/json_writer.h"

namespace hone {

void WriteModelCard(JsonWriter& json, const ServeContext& context);
void WriteAdapterCard(JsonWriter& json, const ServeContext& context, const std::string& name, const Adapter& adapter);

}  // namespace hone
