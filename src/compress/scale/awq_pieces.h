// What AWQ's search has found for a layer, as a piece of a work file (work_file.h): a killed job does not search it again.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "compress/scale/awq.h"

namespace hone {

// Of the entries whose names begin with `prefix`.
std::string EncodeAwqChoice(const AwqChoice& choice, std::string_view prefix);
// Adds what a piece holds to *choice. The error says that the piece is none.
Result<void> DecodeAwqChoice(std::string_view piece, AwqChoice* choice);

}  // namespace hone
