// Reads tokenizer.json and tokenizer_config.json into TokenizerParts.
#pragma once

#include <string_view>

#include "base/result.h"
#include "text/text_tokenizer.h"

namespace hone {

// Errors name the field; the caller adds the file.
Result<TokenizerParts> ReadHuggingFaceTokenizer(std::string_view tokenizer_json,
                                                std::string_view tokenizer_config_json);

}  // namespace hone
