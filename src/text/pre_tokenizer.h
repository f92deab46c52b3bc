// Pre-tokenizers: cut text into the pieces that a model sees one by one. Immutable, thread-safe.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/regex.h"

namespace hone {

// Text and its pieces: ranges in order, not empty, not overlapping. Bytes outside of all pieces are dropped.
class Pieces {
 public:
  // Borrows `text`. `at_start`: the text is the very start of what is encoded.
  Pieces(std::string_view text, bool at_start) : text_(text), at_start_(at_start) {
    if (!text.empty()) ranges_.push_back({0, text.size()});
  }
  Pieces(const Pieces&) = delete;
  Pieces& operator=(const Pieces&) = delete;

  std::string_view text() const { return text_; }
  std::string_view At(const TextRange& range) const { return text_.substr(range.begin, range.end - range.begin); }
  const std::vector<TextRange>& ranges() const { return ranges_; }
  // Whether this piece starts where the encoded text starts.
  bool StartsText(const TextRange& range) const { return at_start_ && range.begin == 0; }

  void SetRanges(std::vector<TextRange> ranges) { ranges_ = std::move(ranges); }
  // Other text with other pieces; a piece that starts the new text starts the encoded text if the old first piece did.
  void Replace(std::string text, std::vector<TextRange> ranges) {
    at_start_ = at_start_ && !ranges_.empty() && ranges_.front().begin == 0;
    storage_ = std::move(text);
    text_ = storage_;
    ranges_ = std::move(ranges);
  }

 private:
  std::string storage_;
  std::string_view text_;
  std::vector<TextRange> ranges_;
  bool at_start_;
};

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  // REQUIRES: valid UTF-8.
  virtual void Apply(Pieces* pieces) const = 0;
};

// What becomes of a match when text is split at matches.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };
std::unique_ptr<PreTokenizer> MakeRegexSplit(Regex pattern, SplitBehavior behavior, bool invert);
// REQUIRES: `pattern` is not empty.
std::unique_ptr<PreTokenizer> MakeTextSplit(std::string pattern, SplitBehavior behavior, bool invert);
std::unique_ptr<PreTokenizer> MakeDigits(bool individual);
std::unique_ptr<PreTokenizer> MakePunctuation(SplitBehavior behavior);
std::unique_ptr<PreTokenizer> MakeWhitespace();  // \w+ and [^\w\s]+ are pieces
std::unique_ptr<PreTokenizer> MakeWhitespaceSplit();
std::unique_ptr<PreTokenizer> MakeBertPreTokenizer();
std::unique_ptr<PreTokenizer> MakeFixedLength(size_t characters);

enum class PrependScheme { kAlways, kFirst, kNever };
std::unique_ptr<PreTokenizer> MakeMetaspace(std::string replacement, PrependScheme scheme, bool split);

struct ByteLevelOptions {
  bool add_prefix_space = false;
  bool use_regex = true;   // GPT-2's
  bool map_bytes = false;  // write the byte alphabet (for what follows); false leaves it to a byte-level model
};
std::unique_ptr<PreTokenizer> MakeByteLevel(ByteLevelOptions options);
std::unique_ptr<PreTokenizer> MakeSequencePreTokenizer(std::vector<std::unique_ptr<PreTokenizer>> parts);

// What tokenizer.ggml.pre of a byte-level BPE GGUF stands for. The table is pre_tokenizers.inc.
struct PreKind {
  std::string_view name;
  std::vector<std::string_view> patterns;  // each isolates its matches in the pieces that the one before left
  bool ignore_merges = false;
  bool add_bos = false;     // unless the file says otherwise
  bool space_mark = false;  // ▁ for spaces and raw UTF-8 with <0xNN> tokens, no byte alphabet
  bool nfc = false;         // text is put in NFC first
};
// nullptr if unknown.
const PreKind* FindPreKind(std::string_view name);
std::vector<std::string_view> PreKindNames();
Result<std::unique_ptr<PreTokenizer>> MakePreTokenizer(const PreKind& kind);

}  // namespace hone
