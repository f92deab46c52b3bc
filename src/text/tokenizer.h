// Tokenizer: text to token ids and back, from a GGUF file's tokenizer.ggml.* or a Hugging Face tokenizer.json.
//
// Promises: ids and texts equal those of the reference of each form: the `tokenizers` library for tokenizer.json,
// llama.cpp for GGUF. Encode and Decode never fail: any bytes, any ids. Time is near linear in the text whatever it
// holds. Refuses: a component type it does not know, by name. Details, kinds and limits: docs/tokenizers.md. Read next:
// text_tokenizer.h (how parts make a tokenizer), gguf_tokenizer.cc, hf_tokenizer.cc.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace hone {

class Checkpoint;
class GgufFile;

struct EncodeOptions {
  bool add_special = false;    // what the tokenizer adds by itself: BOS, EOS, [CLS] ...
  bool parse_special = false;  // special tokens written in the text become their ids; false: they are text
};

// Immutable; every member may be called from many threads at once.
class Tokenizer {
 public:
  // From whatever the checkpoint is: a GGUF, or a folder with tokenizer.json (tokenizer_config.json is read if it is
  // there). `force_pre` replaces tokenizer.ggml.pre of a byte-level BPE GGUF; "" takes what the file says.
  static Result<std::shared_ptr<const Tokenizer>> FromCheckpoint(const Checkpoint& checkpoint,
                                                                 std::string_view force_pre = "");
  static Result<std::shared_ptr<const Tokenizer>> FromGguf(const GgufFile& file, std::string_view force_pre = "");
  // The texts of the two files; the second may be empty. `origin` (a path) stands in error messages.
  static Result<std::shared_ptr<const Tokenizer>> FromJson(std::string_view tokenizer_json,
                                                           std::string_view tokenizer_config_json, std::string origin);

  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;
  virtual ~Tokenizer() = default;

  // The text may hold any bytes. A malformed UTF-8 sequence counts as U+FFFD where characters matter; byte-level
  // tokenizers of GGUF files keep its bytes.
  virtual std::vector<int32_t> Encode(std::string_view text, const EncodeOptions& options = {}) const = 0;
  // Ids out of range are skipped. The result is always valid UTF-8: malformed bytes become U+FFFD by the reference's
  // rule. `skip_special`: special tokens leave no text.
  virtual std::string Decode(std::span<const int32_t> ids, bool skip_special) const = 0;

  virtual std::string_view kind() const = 0;  // "bpe" (byte-level or not), "spm", "unigram", "wordpiece", "wordlevel"
  virtual int vocab_size() const = 0;         // one more than the largest id
  virtual std::optional<int32_t> bos() const = 0;
  virtual std::optional<int32_t> eos() const = 0;
  virtual std::optional<int32_t> unk() const = 0;
  virtual std::optional<int32_t> pad() const = 0;
  // Every id that ends a generation, ascending: EOS, end of turn, end of message, and control tokens with well-known
  // texts
  // (<|im_end|>, <|eot_id|>, <end_of_turn> ...).
  virtual std::vector<int32_t> end_ids() const = 0;
  // Whether `add_special` puts BOS first (so that a chat template that writes BOS itself must not get it twice).
  virtual bool adds_bos() const = 0;
  virtual bool adds_eos() const = 0;

  virtual std::optional<int32_t> TokenId(std::string_view text) const = 0;  // by vocabulary text, exact
  virtual std::string TokenText(
      int32_t id) const = 0;  // the vocabulary's own spelling ("Ġthe", "▁the"); "" if out of range
  virtual std::string TokenBytes(
      int32_t id) const = 0;                     // raw bytes that it adds when decoded mid-stream; "" if out of range
  virtual bool IsSpecial(int32_t id) const = 0;  // skipped by Decode(skip_special)
  virtual bool IsValid(int32_t id) const = 0;    // names an entry of the vocabulary

 protected:
  Tokenizer() = default;
  friend class StreamDecoder;
  // What a StreamDecoder drives.
  class Stream {
   public:
    virtual ~Stream() = default;
    virtual void Push(int32_t id, std::string* out) = 0;
    virtual void Finish(std::string* out) = 0;
  };
  virtual std::unique_ptr<Stream> OpenStream(bool skip_special, bool mid_text) const = 0;
};

}  // namespace hone
