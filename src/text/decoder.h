// Decoders: the texts of tokens to the text of a sequence. A decoder is a chain of stages, each of which can run on a
// stream: it is given tokens one by one, and passes on what is settled. Decoding a whole sequence is the same stream,
// finished; so the two cannot differ.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/regex.h"

namespace hone {

// One stage at work on one sequence.
class DecoderRun {
 public:
  using Next = std::function<void(std::string)>;
  virtual ~DecoderRun() = default;
  virtual void Push(std::string token, const Next& next) = 0;
  virtual void Finish(const Next& next) { static_cast<void>(next); }
};

// A stage: immutable, thread-safe.
class DecoderStage {
 public:
  virtual ~DecoderStage() = default;
  // `fused`: the stages before made one text of all tokens, which arrives in parts. `mid_text`: a text came before.
  virtual std::unique_ptr<DecoderRun> Open(bool fused, bool mid_text) const = 0;
  virtual bool fuses() const { return false; }
  // What it makes of a token in the middle of a sequence; bytes, perhaps part of a character.
  virtual void MidStream(std::string* token) const = 0;
};

using DecoderChain = std::vector<std::unique_ptr<DecoderStage>>;

std::unique_ptr<DecoderStage> MakeByteLevelDecoder();
std::unique_ptr<DecoderStage> MakeByteFallbackDecoder();
std::unique_ptr<DecoderStage> MakeFuseDecoder();
std::unique_ptr<DecoderStage> MakeStripDecoder(std::string character, size_t start, size_t stop);
// REQUIRES: `pattern` is not empty.
std::unique_ptr<DecoderStage> MakeReplaceDecoder(std::string pattern, std::string content);
std::unique_ptr<DecoderStage> MakeRegexReplaceDecoder(Regex pattern, std::string content);
std::unique_ptr<DecoderStage> MakeMetaspaceDecoder(std::string replacement, bool drop_first);
std::unique_ptr<DecoderStage> MakeWordPieceDecoder(std::string prefix, bool cleanup);
std::unique_ptr<DecoderStage> MakeBpeSuffixDecoder(std::string suffix);
std::unique_ptr<DecoderStage> MakeCtcDecoder(std::string pad, std::string word_delimiter, bool cleanup);
// Tokens joined by a space: what the library does where a file names no decoder.
std::unique_ptr<DecoderStage> MakeSpaceJoinDecoder();
// Tokens are raw bytes; whole characters come out (GGUF).
std::unique_ptr<DecoderStage> MakeUtf8Decoder();

// A chain at work on one sequence.
class DecoderStream {
 public:
  // Borrows the chain. `mid_text`: the sequence goes on from a text before it; what only concerns a text's start is
  // left out.
  DecoderStream(const DecoderChain& chain, bool mid_text);
  void Push(std::string token, std::string* out) { Pass(0, std::move(token), out); }
  void Finish(std::string* out);

 private:
  void Pass(size_t stage, std::string token, std::string* out);
  std::vector<std::unique_ptr<DecoderRun>> runs_;
};

}  // namespace hone
