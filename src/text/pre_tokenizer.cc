// The pre-tokenizers of tokenizer.json, by the behaviour of the `tokenizers` library.
#include "text/pre_tokenizer.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "text/byte_level.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace hone {
namespace {

// A part of a piece, in order: a match or what lies between matches.
struct Segment {
  TextRange range;
  bool match;
};

void AddRange(TextRange range, std::vector<TextRange>* out) {
  if (range.begin < range.end) out->push_back(range);
}

// Applies `behavior` to the segments of one piece.
void Arrange(const std::vector<Segment>& segments, SplitBehavior behavior, std::vector<TextRange>* out) {
  switch (behavior) {
    case SplitBehavior::kIsolated:
      for (const Segment& segment : segments) AddRange(segment.range, out);
      return;
    case SplitBehavior::kRemoved:
      for (const Segment& segment : segments) {
        if (!segment.match) AddRange(segment.range, out);
      }
      return;
    case SplitBehavior::kContiguous:
      for (size_t i = 0; i < segments.size();) {
        size_t end = i;
        while (end < segments.size() && segments[end].match == segments[i].match) ++end;
        AddRange({segments[i].range.begin, segments[end - 1].range.end}, out);
        i = end;
      }
      return;
    case SplitBehavior::kMergedWithPrevious: {
      const size_t first = out->size();
      bool previous = false;
      for (const Segment& segment : segments) {
        if (segment.match && !previous && out->size() > first) {
          out->back().end = segment.range.end;
        } else {
          AddRange(segment.range, out);
        }
        previous = segment.match;
      }
      return;
    }
    case SplitBehavior::kMergedWithNext: {
      const size_t first = out->size();
      bool next = false;
      for (size_t i = segments.size(); i-- > 0;) {
        const Segment& segment = segments[i];
        if (segment.match && !next && out->size() > first) {
          out->back().begin = segment.range.begin;
        } else {
          AddRange(segment.range, out);
        }
        next = segment.match;
      }
      std::reverse(out->begin() + static_cast<std::ptrdiff_t>(first), out->end());
      return;
    }
  }
}

// A split by something that finds segments: find(piece, offset, &segments).
template <typename Find>
class Splitter final : public PreTokenizer {
 public:
  Splitter(Find find, SplitBehavior behavior, bool invert)
      : find_(std::move(find)), behavior_(behavior), invert_(invert) {}
  void Apply(Pieces* pieces) const override {
    std::vector<TextRange> out;
    out.reserve(pieces->text().size() / 4 + 1);
    std::vector<Segment> segments;
    for (const TextRange& range : pieces->ranges()) {
      segments.clear();
      find_(pieces->At(range), range.begin, &segments);
      if (invert_) {
        for (Segment& segment : segments) segment.match = !segment.match;
      }
      Arrange(segments, behavior_, &out);
    }
    pieces->SetRanges(std::move(out));
  }

 private:
  Find find_;
  SplitBehavior behavior_;
  bool invert_;
};

template <typename Find>
std::unique_ptr<PreTokenizer> Split(Find find, SplitBehavior behavior, bool invert = false) {
  return std::make_unique<Splitter<Find>>(std::move(find), behavior, invert);
}

// Segments where each character that is `wanted` is a match of its own.
template <typename Wanted>
auto EachCharacter(Wanted wanted) {
  return [wanted](std::string_view piece, size_t offset, std::vector<Segment>* segments) {
    size_t gap = 0;
    for (size_t pos = 0; pos < piece.size();) {
      const Utf8Char c = Utf8At(piece, pos);
      const size_t end = pos + c.bytes;
      if (wanted(c.code)) {
        if (gap < pos) segments->push_back({{offset + gap, offset + pos}, false});
        segments->push_back({{offset + pos, offset + end}, true});
        gap = end;
      }
      pos = end;
    }
    if (gap < piece.size()) segments->push_back({{offset + gap, offset + piece.size()}, false});
  };
}

void FromMatches(const std::vector<TextRange>& matches, std::string_view piece, size_t offset,
                 std::vector<Segment>* segments) {
  size_t gap = 0;
  for (const TextRange& match : matches) {
    if (gap < match.begin) segments->push_back({{offset + gap, offset + match.begin}, false});
    segments->push_back({{offset + match.begin, offset + match.end}, true});
    gap = match.end;
  }
  if (gap < piece.size()) segments->push_back({{offset + gap, offset + piece.size()}, false});
}

auto ByRegex(std::shared_ptr<const Regex> pattern) {
  return [pattern = std::move(pattern)](std::string_view piece, size_t offset, std::vector<Segment>* segments) {
    thread_local std::vector<TextRange> matches;
    matches.clear();
    pattern->FindAll(piece, &matches);
    FromMatches(matches, piece, offset, segments);
  };
}

class Metaspace final : public PreTokenizer {
 public:
  Metaspace(std::string replacement, PrependScheme scheme, bool split)
      : replacement_(std::move(replacement)), scheme_(scheme), split_(split) {}

  void Apply(Pieces* pieces) const override {
    std::string text;
    text.reserve(pieces->text().size() + pieces->text().size() / 4);
    std::vector<TextRange> ranges;
    for (const TextRange& range : pieces->ranges()) {
      const size_t begin = text.size();
      const std::string_view piece = pieces->At(range);
      const bool marked = piece.starts_with(' ') || piece.starts_with(replacement_);
      const bool wanted =
          scheme_ == PrependScheme::kAlways || (scheme_ == PrependScheme::kFirst && pieces->StartsText(range));
      if (wanted && !marked) text += replacement_;
      for (const char c : piece) {
        if (c == ' ') {
          text += replacement_;
        } else {
          text += c;
        }
      }
      if (!split_) {
        AddRange({begin, text.size()}, &ranges);
        continue;
      }
      // A mark belongs to what follows; of several in a row each but the last stands alone.
      size_t start = begin;
      for (size_t at = begin; (at = text.find(replacement_, at)) != std::string::npos; at += replacement_.size()) {
        AddRange({start, at}, &ranges);
        start = at;
      }
      AddRange({start, text.size()}, &ranges);
    }
    pieces->Replace(std::move(text), std::move(ranges));
  }

 private:
  std::string replacement_;
  PrependScheme scheme_;
  bool split_;
};

class ByteLevel final : public PreTokenizer {
 public:
  ByteLevel(ByteLevelOptions options, std::unique_ptr<PreTokenizer> split)
      : options_(options), split_(std::move(split)) {}

  void Apply(Pieces* pieces) const override {
    if (options_.add_prefix_space) {
      Rewrite(pieces, [](std::string_view piece, std::string* out) {
        if (!piece.starts_with(' ')) out->push_back(' ');
        out->append(piece);
      });
    }
    if (split_ != nullptr) split_->Apply(pieces);
    if (options_.map_bytes) Rewrite(pieces, AppendByteMapped);
  }

 private:
  template <typename Write>
  static void Rewrite(Pieces* pieces, Write&& write) {
    std::string text;
    text.reserve(pieces->text().size() + pieces->ranges().size());
    std::vector<TextRange> ranges;
    ranges.reserve(pieces->ranges().size());
    for (const TextRange& range : pieces->ranges()) {
      const size_t begin = text.size();
      write(pieces->At(range), &text);
      AddRange({begin, text.size()}, &ranges);
    }
    pieces->Replace(std::move(text), std::move(ranges));
  }

  ByteLevelOptions options_;
  std::unique_ptr<PreTokenizer> split_;  // nullptr: none
};

class Sequence final : public PreTokenizer {
 public:
  explicit Sequence(std::vector<std::unique_ptr<PreTokenizer>> parts) : parts_(std::move(parts)) {}
  void Apply(Pieces* pieces) const override {
    for (const auto& part : parts_) part->Apply(pieces);
  }

 private:
  std::vector<std::unique_ptr<PreTokenizer>> parts_;
};

// 0: space, dropped; 1: \w; 2: neither.
int WordClass(char32_t c) { return IsWhiteSpace(c) ? 0 : IsWordCharacter(c) ? 1 : 2; }

}  // namespace

std::unique_ptr<PreTokenizer> MakeRegexSplit(Regex pattern, SplitBehavior behavior, bool invert) {
  return Split(ByRegex(std::make_shared<const Regex>(std::move(pattern))), behavior, invert);
}

std::unique_ptr<PreTokenizer> MakeTextSplit(std::string pattern, SplitBehavior behavior, bool invert) {
  return Split(
      [pattern = std::move(pattern)](std::string_view piece, size_t offset, std::vector<Segment>* segments) {
        std::vector<TextRange> matches;
        for (size_t at = 0; (at = piece.find(pattern, at)) != std::string_view::npos; at += pattern.size()) {
          matches.push_back({at, at + pattern.size()});
        }
        FromMatches(matches, piece, offset, segments);
      },
      behavior, invert);
}

std::unique_ptr<PreTokenizer> MakeDigits(bool individual) {
  return Split(EachCharacter(IsNumeric), individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous);
}

std::unique_ptr<PreTokenizer> MakePunctuation(SplitBehavior behavior) {
  return Split(EachCharacter(IsPunctuation), behavior);
}

std::unique_ptr<PreTokenizer> MakeWhitespace() {
  return Split(
      [](std::string_view piece, size_t offset, std::vector<Segment>* segments) {
        for (size_t pos = 0; pos < piece.size();) {
          const size_t begin = pos;
          const int kind = WordClass(Utf8At(piece, pos).code);
          while (pos < piece.size()) {
            const Utf8Char c = Utf8At(piece, pos);
            if (WordClass(c.code) != kind) break;
            pos += c.bytes;
          }
          segments->push_back({{offset + begin, offset + pos}, kind == 0});
        }
      },
      SplitBehavior::kRemoved);
}

std::unique_ptr<PreTokenizer> MakeWhitespaceSplit() {
  return Split(EachCharacter(IsWhiteSpace), SplitBehavior::kRemoved);
}

std::unique_ptr<PreTokenizer> MakeBertPreTokenizer() {
  std::vector<std::unique_ptr<PreTokenizer>> parts;
  parts.push_back(MakeWhitespaceSplit());
  parts.push_back(MakePunctuation(SplitBehavior::kIsolated));
  return MakeSequencePreTokenizer(std::move(parts));
}

std::unique_ptr<PreTokenizer> MakeFixedLength(size_t characters) {
  return Split(
      [characters](std::string_view piece, size_t offset, std::vector<Segment>* segments) {
        for (size_t pos = 0; pos < piece.size();) {
          const size_t begin = pos;
          for (size_t i = 0; i < characters && pos < piece.size(); ++i) pos += Utf8At(piece, pos).bytes;
          segments->push_back({{offset + begin, offset + pos}, true});
        }
      },
      SplitBehavior::kIsolated);
}

std::unique_ptr<PreTokenizer> MakeMetaspace(std::string replacement, PrependScheme scheme, bool split) {
  return std::make_unique<Metaspace>(std::move(replacement), scheme, split);
}

std::unique_ptr<PreTokenizer> MakeByteLevel(ByteLevelOptions options) {
  std::unique_ptr<PreTokenizer> split;
  if (options.use_regex) {
    auto pattern = Regex::Compile(R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)");
    HONE_CHECK(pattern.has_value(), pattern.error().message);
    split = MakeRegexSplit(std::move(pattern).value(), SplitBehavior::kIsolated, false);
  }
  return std::make_unique<ByteLevel>(options, std::move(split));
}

std::unique_ptr<PreTokenizer> MakeSequencePreTokenizer(std::vector<std::unique_ptr<PreTokenizer>> parts) {
  return std::make_unique<Sequence>(std::move(parts));
}

}  // namespace hone
