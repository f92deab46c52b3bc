// The names of the parts of a split GGUF model.
#pragma once

#include <cstdint>
#include <string>

namespace hone {

// "-00001-of-00003.gguf" for no 0 of 3: names count from 1, the key split.no from 0.
std::string GgufSplitSuffix(uint64_t no, uint64_t count);

}  // namespace hone
