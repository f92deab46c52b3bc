// The values of tokenizer.ggml.token_type.
#pragma once

#include <cstdint>

namespace hone {

enum GgufTokenType : int64_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

}  // namespace hone
