// Reads tokenizer.ggml.* of a GGUF file into TokenizerParts, by the meaning that llama.cpp gives the keys.
#pragma once

#include <string_view>

#include "base/result.h"
#include "formats/gguf.h"
#include "text/text_tokenizer.h"

namespace hone {

// `force_pre`: instead of tokenizer.ggml.pre, "" for what the file says. Errors name the file and the key.
Result<TokenizerParts> ReadGgufTokenizer(const GgufFile& file, std::string_view force_pre);

}  // namespace hone
