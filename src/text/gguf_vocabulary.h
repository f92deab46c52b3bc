// A tokenizer.json as GGUF metadata (tokenizer.ggml.*), for byte-level BPE and SentencePiece-like BPE.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "formats/gguf.h"
#include "text/tokenizer.h"

namespace hone {

// The keys for a vocabulary of `vocab` ids (missing ones are filled with unused entries). The pre-tokenizer kind is left out:
// FindGgufPreKind finds it by trying. Errors: a model type that GGUF cannot hold (kUnsupported), a file that is not what it
// should be.
Result<std::vector<std::pair<std::string, GgufValue>>> GgufVocabulary(std::string_view tokenizer_json, std::string_view origin,
                                                                     const Tokenizer& tokenizer, int vocab);

// The name for tokenizer.ggml.pre with which the vocabulary in `file` gives the ids of `tokenizer` on texts that tell the kinds
// apart; "" for vocabularies that have no kind. kUnsupported: no kind does.
Result<std::string> FindGgufPreKind(const GgufFile& file, const Tokenizer& tokenizer);

// The two give the same ids on those texts, special tokens included. An error says on which text they part.
Result<void> CheckSameIds(const Tokenizer& a, const Tokenizer& b);

// Whether the tokenizer composes characters (NFC) first, as Qwen's tokenizer.json does. GGUF cannot say that: ids differ for text
// that is not composed.
bool Normalises(const Tokenizer& tokenizer);

}  // namespace hone
