// TextTokenizer: the one implementation of Tokenizer, put together from parts. gguf_tokenizer.cc and hf_tokenizer.cc
// read files and fill TokenizerParts; everything that happens to a text afterwards happens here.
//
// Encode: added tokens are cut out (those that compare before normalisation, then those after), each stretch between is
// normalised, cut into pieces, and each piece goes to the model. Decode: texts of ids through the decoder chain.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "text/added_tokens.h"
#include "text/decoder.h"
#include "text/model.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"
#include "text/tokenizer.h"

namespace hone {

struct TokenizerParts {
  std::shared_ptr<const Vocabulary> vocabulary;  // with added tokens
  std::vector<std::string> decode_texts;         // by id: what the decoder chain is given
  std::vector<bool> special;                     // by id
  std::vector<AddedToken> added;
  std::unique_ptr<Normalizer> normalizer;       // nullptr: none
  std::unique_ptr<PreTokenizer> pre_tokenizer;  // nullptr: the stretch is one piece
  std::unique_ptr<TokenModel> model;
  DecoderChain decoder;
  // How malformed UTF-8 reaches the model: as pieces of its own, its bytes kept (byte-level), as it is (SentencePiece
  // of GGUF), or as U+FFFD.
  enum class Malformed { kOwnPieces, kAsIs, kReplaced };
  Malformed malformed = Malformed::kReplaced;
  std::vector<int32_t> prefix, suffix;  // what add_special puts before and after
  std::optional<int32_t> bos, eos, unk, pad;
  std::vector<int32_t> end_ids;
};

class TextTokenizer final : public Tokenizer {
 public:
  explicit TextTokenizer(TokenizerParts parts);

  std::vector<int32_t> Encode(std::string_view text, const EncodeOptions& options) const override;
  std::string Decode(std::span<const int32_t> ids, bool skip_special) const override;
  std::string_view kind() const override { return parts_.model->kind(); }
  int vocab_size() const override { return static_cast<int>(parts_.vocabulary->size()); }
  std::optional<int32_t> bos() const override { return parts_.bos; }
  std::optional<int32_t> eos() const override { return parts_.eos; }
  std::optional<int32_t> unk() const override { return parts_.unk; }
  std::optional<int32_t> pad() const override { return parts_.pad; }
  std::vector<int32_t> end_ids() const override { return parts_.end_ids; }
  bool adds_bos() const override;
  bool adds_eos() const override;
  std::optional<int32_t> TokenId(std::string_view text) const override;
  std::string TokenText(int32_t id) const override;
  std::string TokenBytes(int32_t id) const override;
  bool IsSpecial(int32_t id) const override { return IsValid(id) && parts_.special[static_cast<size_t>(id)]; }
  bool IsValid(int32_t id) const override;
  std::unique_ptr<Stream> OpenStream(bool skip_special, bool mid_text) const override;

 private:
  class DecodingStream;
  void EncodeStretch(std::string_view text, bool at_start, bool parse_special, Scratch* scratch,
                     std::vector<int32_t>* ids) const;
  void EncodePieces(std::string_view text, bool at_start, Scratch* scratch, std::vector<int32_t>* ids) const;

  TokenizerParts parts_;
  AddedTokenFinder raw_added_, normalized_added_;
  bool has_normalized_added_ = false;
};

// The ids that end a generation, by the texts that well-known models give to their control tokens. `is_candidate` by
// id.
std::vector<int32_t> WellKnownEndIds(const Vocabulary& vocabulary, const std::vector<bool>& is_candidate);

}  // namespace hone
