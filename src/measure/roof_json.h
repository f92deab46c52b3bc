// Inside measure/: a roof as a JSON value and back, for reports that hold one and for the cache.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "base/result.h"
#include "measure/roof.h"

namespace hone {

nlohmann::ordered_json RoofAsJson(const Roof& roof);

// Fills the measured figures of `roof` from what RoofAsJson wrote. Errors name the key that is missing or not a number.
Result<void> ReadRoofFigures(const nlohmann::ordered_json& json, Roof* roof);

// "amx_bf16_gflops": the key of a unit.
const char* UnitKey(ComputeUnit unit);

// A number for people and JSON: rounded to four significant digits, so that noise does not look like knowledge.
double Rounded(double value);

}  // namespace hone
