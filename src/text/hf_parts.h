// The components of tokenizer.json, each read from its JSON object: normalizer, pre_tokenizer, decoder, post_processor.
#pragma once

#include <memory>
#include <vector>

#include "text/decoder.h"
#include "text/hf_json.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"

namespace hone {

inline constexpr int kMaxSequenceDepth = 16;  // of Sequence in Sequence

Result<std::unique_ptr<Normalizer>> ReadNormalizer(const JsonField& field, int depth = 0);

// `byte_level_model`: the model works on bytes, so that a last ByteLevel need not write the byte alphabet.
Result<std::unique_ptr<PreTokenizer>> ReadPreTokenizer(const JsonField& field, bool byte_level_model);
// Whether the chain ends in ByteLevel.
bool EndsInByteLevel(const JsonField& pre_tokenizer);

Result<DecoderChain> ReadDecoder(const JsonField& field);

// Ids that a post-processor puts around one sequence.
struct TokensAround {
  std::vector<int32_t> prefix, suffix;
};
Result<TokensAround> ReadPostProcessor(const JsonField& field, const std::function<int32_t(std::string_view)>& find_token);

}  // namespace hone
