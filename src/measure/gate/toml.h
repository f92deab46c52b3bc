// Inside gate/: the part of TOML that rules need, as JSON. See ParseGateRules for what is read.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "base/result.h"

namespace hone {

// Errors (invalid input) name the line.
Result<nlohmann::ordered_json> ParseSmallToml(std::string_view text);

}  // namespace hone
