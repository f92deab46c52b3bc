// The known name nearest to a mistyped one, for errors that suggest what was meant.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hone {

// The element of `known` with the smallest edit distance (insert, delete, replace, swap neighbours), if that is at most a
// third of the longer length (at least 1); "" if nothing is near. Ties: the first. Names over 64 bytes match nothing.
std::string NearestName(std::string_view name, const std::vector<std::string>& known);

}  // namespace hone
