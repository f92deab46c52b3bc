// Inside measure/: JSON from files, nested so little that copying, printing and freeing it cannot exhaust the stack.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

namespace hone {

// A discarded value if the text is no JSON or is nested deeper than 64.
nlohmann::ordered_json ParseJson(std::string_view text);

}  // namespace hone
