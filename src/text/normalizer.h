// Normalizers: what is done to text before it is cut into pieces. Immutable, thread-safe.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/regex.h"
#include "text/unicode.h"

namespace hone {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  // REQUIRES: valid UTF-8, unless a factory below says that it takes any bytes.
  virtual void Apply(std::string* text) const = 0;
};

std::unique_ptr<Normalizer> MakeSequenceNormalizer(std::vector<std::unique_ptr<Normalizer>> parts);
std::unique_ptr<Normalizer> MakeFormNormalizer(NormalForm form);  // any bytes; malformed ones stay
std::unique_ptr<Normalizer> MakeLowercaseNormalizer();
std::unique_ptr<Normalizer> MakeStripNormalizer(bool left, bool right);
std::unique_ptr<Normalizer> MakeStripAccentsNormalizer();
std::unique_ptr<Normalizer> MakeNmtNormalizer();
std::unique_ptr<Normalizer> MakeByteLevelNormalizer();
// Any bytes. Empty text stays empty.
std::unique_ptr<Normalizer> MakePrependNormalizer(std::string prefix);
// Any bytes. REQUIRES: `pattern` is not empty.
std::unique_ptr<Normalizer> MakeReplaceNormalizer(std::string pattern, std::string content);
std::unique_ptr<Normalizer> MakeRegexReplaceNormalizer(Regex pattern, std::string content);

struct BertNormalizerOptions {
  bool clean_text = true, handle_chinese_chars = true, strip_accents = true, lowercase = true;
};
std::unique_ptr<Normalizer> MakeBertNormalizer(BertNormalizerOptions options);

// A map from strings to strings as SentencePiece compiles it: a double array trie of prefixes (XOR-compressed; Kanda
// 2018) and a block of texts that end in NUL.
class CharsMap {
 public:
  // Checks that the sizes fit; places inside are checked as they are used.
  static Result<CharsMap> Parse(std::string blob);
  struct Match {
    size_t bytes;                  // of the prefix
    std::string_view replacement;  // lives as long as the map
  };
  std::optional<Match> Shortest(std::string_view text) const { return Find(text, false); }
  std::optional<Match> Longest(std::string_view text) const { return Find(text, true); }

 private:
  std::optional<Match> Find(std::string_view text, bool longest) const;
  std::vector<uint32_t> units_;
  std::string texts_;
};
std::unique_ptr<Normalizer> MakePrecompiledNormalizer(CharsMap map);

// SentencePiece's own normalisation for GGUF unigram files, any bytes: the map's longest match, spaces to ▁.
struct SpmNormalizerOptions {
  bool add_space_prefix = false, remove_extra_whitespaces = false;
};
std::unique_ptr<Normalizer> MakeSpmNormalizer(std::optional<CharsMap> map, SpmNormalizerOptions options);

}  // namespace hone
