// What is doubtful about a model that is made into another, with the tensors that hone's families have no use for: none is lost
// silently.
#pragma once

#include <string>
#include <vector>

#include "formats/checkpoint.h"

namespace hone {

// checkpoint.warnings(), and for a folder a line with such tensors; `become` says what happens to them: "left out", "copied as they
// are".
std::vector<std::string> WarningsAndUnused(const Checkpoint& checkpoint, const char* become);

}  // namespace hone
