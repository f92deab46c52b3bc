// The normalizers of tokenizer.json, by the behaviour of the `tokenizers` library.
#include "text/normalizer.h"

#include <algorithm>

#include "text/byte_level.h"
#include "text/utf8.h"

namespace hone {
namespace {

// Calls emit(code, out) for each character and keeps what it wrote.
template <typename Emit>
void MapCharacters(std::string* text, Emit&& emit) {
  std::string out;
  out.reserve(text->size());
  for (size_t pos = 0; pos < text->size();) {
    const Utf8Char c = Utf8At(*text, pos);
    emit(c.code, &out);
    pos += c.bytes;
  }
  *text = std::move(out);
}

// A normalizer made of one function.
template <typename Function>
class FunctionNormalizer final : public Normalizer {
 public:
  explicit FunctionNormalizer(Function function) : function_(std::move(function)) {}
  void Apply(std::string* text) const override { function_(text); }

 private:
  Function function_;
};

template <typename Function>
std::unique_ptr<Normalizer> Make(Function function) {
  return std::make_unique<FunctionNormalizer<Function>>(std::move(function));
}

void Lower(std::string* text) { MapCharacters(text, AppendLower); }

void NmtCharacter(char32_t c, std::string* out) {
  if ((c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F) return;
  const bool space = c == 9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 || (c >= 0x200B && c <= 0x200F) ||
                     c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
  AppendUtf8(space ? U' ' : c, out);
}

void BertClean(char32_t c, std::string* out) {
  if (IsWhiteSpace(c)) {
    out->push_back(' ');
  } else if (c != 0 && c != 0xFFFD && !IsControlOrFormat(c)) {
    AppendUtf8(c, out);
  }
}

void SetIdeographsApart(char32_t c, std::string* out) {
  const bool apart = IsCjkIdeograph(c);
  if (apart) out->push_back(' ');
  AppendUtf8(c, out);
  if (apart) out->push_back(' ');
}

}  // namespace

std::unique_ptr<Normalizer> MakeSequenceNormalizer(std::vector<std::unique_ptr<Normalizer>> parts) {
  return Make([parts = std::move(parts)](std::string* text) {
    for (const auto& part : parts) part->Apply(text);
  });
}

std::unique_ptr<Normalizer> MakeFormNormalizer(NormalForm form) {
  return Make([form](std::string* text) {
    std::string out;
    for (std::string_view rest = *text; !rest.empty();) {
      const size_t good = ValidUtf8Prefix(rest);
      out += Normalize(rest.substr(0, good), form);
      rest.remove_prefix(good);
      if (rest.empty()) break;
      const size_t bad = Utf8At(rest, 0).bytes;
      out.append(rest.substr(0, bad));
      rest.remove_prefix(bad);
    }
    *text = std::move(out);
  });
}

std::unique_ptr<Normalizer> MakeLowercaseNormalizer() { return Make(Lower); }

std::unique_ptr<Normalizer> MakeStripNormalizer(bool left, bool right) {
  return Make([left, right](std::string* text) {
    size_t begin = 0, end = text->size();
    while (left && begin < end) {
      const Utf8Char c = Utf8At(*text, begin);
      if (!IsWhiteSpace(c.code)) break;
      begin += c.bytes;
    }
    while (right && end > begin) {
      size_t start = end - 1;
      while (start > begin && (static_cast<unsigned char>((*text)[start]) & 0xC0) == 0x80) --start;
      if (!IsWhiteSpace(Utf8At(*text, start).code)) break;
      end = start;
    }
    *text = text->substr(begin, end - begin);
  });
}

std::unique_ptr<Normalizer> MakeStripAccentsNormalizer() {
  return Make([](std::string* text) {
    MapCharacters(text, [](char32_t c, std::string* out) {
      if (!IsMark(c)) AppendUtf8(c, out);
    });
  });
}

std::unique_ptr<Normalizer> MakeNmtNormalizer() {
  return Make([](std::string* text) { MapCharacters(text, NmtCharacter); });
}

std::unique_ptr<Normalizer> MakeByteLevelNormalizer() {
  return Make([](std::string* text) {
    std::string out;
    AppendByteMapped(*text, &out);
    *text = std::move(out);
  });
}

std::unique_ptr<Normalizer> MakePrependNormalizer(std::string prefix) {
  return Make([prefix = std::move(prefix)](std::string* text) {
    if (!text->empty()) text->insert(0, prefix);
  });
}

std::unique_ptr<Normalizer> MakeReplaceNormalizer(std::string pattern, std::string content) {
  return Make([pattern = std::move(pattern), content = std::move(content)](std::string* text) {
    std::string out;
    size_t pos = 0;
    for (size_t at; (at = text->find(pattern, pos)) != std::string::npos; pos = at + pattern.size()) {
      out.append(*text, pos, at - pos);
      out.append(content);
    }
    if (pos == 0) return;
    out.append(*text, pos);
    *text = std::move(out);
  });
}

std::unique_ptr<Normalizer> MakeRegexReplaceNormalizer(Regex pattern, std::string content) {
  return Make([pattern = std::move(pattern), content = std::move(content)](std::string* text) {
    std::vector<TextRange> matches;
    pattern.FindAll(*text, &matches);
    if (matches.empty()) return;
    std::string out;
    size_t pos = 0;
    for (const TextRange& match : matches) {
      out.append(*text, pos, match.begin - pos);
      out.append(content);
      pos = match.end;
    }
    out.append(*text, pos);
    *text = std::move(out);
  });
}

std::unique_ptr<Normalizer> MakeBertNormalizer(BertNormalizerOptions options) {
  return Make([options](std::string* text) {
    if (options.clean_text) MapCharacters(text, BertClean);
    if (options.handle_chinese_chars) MapCharacters(text, SetIdeographsApart);
    if (options.strip_accents) {
      *text = Normalize(*text, NormalForm::kNfd);
      MapCharacters(text, [](char32_t c, std::string* out) {
        if (!IsNonSpacingMark(c)) AppendUtf8(c, out);
      });
    }
    if (options.lowercase) Lower(text);
  });
}

std::unique_ptr<Normalizer> MakePrecompiledNormalizer(CharsMap map) {
  return Make([map = std::move(map)](std::string* text) {
    // The reference looks up a whole grapheme cluster if it is short, and takes the shortest entry that is a prefix of
    // it for all of it; only then the characters one by one.
    std::string out;
    out.reserve(text->size());
    std::string_view rest = *text;
    while (!rest.empty()) {
      size_t bytes = 1;
      const bool plain = static_cast<unsigned char>(rest[0]) < 0x80 && rest[0] != '\r' &&
                         (rest.size() == 1 || static_cast<unsigned char>(rest[1]) < 0x80);
      if (!plain) bytes = GraphemeBytes(rest);
      std::string_view cluster = rest.substr(0, bytes);
      rest.remove_prefix(bytes);
      if (cluster.size() < 6) {
        if (const auto match = map.Shortest(cluster)) {
          out.append(match->replacement);
          continue;
        }
      }
      while (!cluster.empty()) {
        const std::string_view character = cluster.substr(0, Utf8At(cluster, 0).bytes);
        const auto match = map.Shortest(character);
        out.append(match ? match->replacement : character);
        cluster.remove_prefix(character.size());
      }
    }
    *text = std::move(out);
  });
}

std::unique_ptr<Normalizer> MakeSpmNormalizer(std::optional<CharsMap> map, SpmNormalizerOptions options) {
  return Make([map = std::move(map), options](std::string* text) {
    constexpr std::string_view kSpace = "\xE2\x96\x81";
    std::string out;
    out.reserve(text->size() + text->size() / 2);
    bool prefixed = false, in_word = false;
    const auto add = [&](std::string_view part) {
      for (const char c : part) {
        if (c == ' ') {
          in_word = false;
          if (!options.remove_extra_whitespaces) out.append(kSpace);
          continue;
        }
        if (!in_word) {
          in_word = true;
          if ((options.add_space_prefix && !prefixed) || options.remove_extra_whitespaces) {
            out.append(kSpace);
            prefixed = true;
          }
        }
        out.push_back(c);
      }
    };
    for (std::string_view rest = *text; !rest.empty();) {
      if (map) {
        if (const auto match = map->Longest(rest)) {
          add(match->replacement);
          rest.remove_prefix(match->bytes);
          continue;
        }
      }
      const Utf8Char c = Utf8At(rest, 0);
      add(c.valid ? rest.substr(0, c.bytes) : kReplacement);
      rest.remove_prefix(c.valid ? c.bytes : 1);
    }
    *text = std::move(out);
  });
}

Result<CharsMap> CharsMap::Parse(std::string blob) {
  const auto word = [&](size_t at) {
    uint32_t value = 0;
    for (size_t i = 4; i-- > 0;) value = value << 8 | static_cast<unsigned char>(blob[at + i]);
    return value;
  };
  if (blob.size() < 4) return InvalidInput("precompiled character map of " + std::to_string(blob.size()) + " bytes");
  const size_t trie_bytes = word(0);
  if (trie_bytes % 4 != 0 || trie_bytes == 0 || trie_bytes >= blob.size() - 4) {
    return InvalidInput("precompiled character map: its trie of " + std::to_string(trie_bytes) +
                        " bytes does not fit " + std::to_string(blob.size()) + " bytes");
  }
  CharsMap map;
  map.units_.reserve(trie_bytes / 4);
  for (size_t at = 4; at < 4 + trie_bytes; at += 4) map.units_.push_back(word(at));
  map.texts_ = blob.substr(4 + trie_bytes);
  map.texts_.push_back('\0');  // the last text ends, whatever the file says
  return map;
}

std::optional<CharsMap::Match> CharsMap::Find(std::string_view text, bool longest) const {
  const auto base = [](uint32_t unit) { return (unit >> 10) << ((unit & (1u << 9)) >> 6); };
  std::optional<Match> best;
  size_t node = base(units_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte == 0) break;
    node ^= byte;
    if (node >= units_.size()) break;
    const uint32_t unit = units_[node];
    if ((unit & (1u << 31 | 0xFF)) != byte) break;
    node ^= base(unit);
    if ((unit >> 8 & 1) == 0) continue;
    if (node >= units_.size()) break;
    const size_t place = units_[node] & ((1u << 31) - 1);
    if (place >= texts_.size()) break;
    best = Match{i + 1, std::string_view(texts_.c_str() + place)};
    if (!longest) break;
  }
  return best;
}

}  // namespace hone
