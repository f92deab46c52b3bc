// A range of characters becomes ranges of bytes: it is cut where the number of UTF-8 bytes changes, then from the first byte on
// into parts whose later bytes are free.
#include "serve/structured/char_set.h"

#include <algorithm>
#include <array>

namespace hone {
namespace {

constexpr uint32_t kLastChar = 0x10FFFF, kFirstSurrogate = 0xD800, kLastSurrogate = 0xDFFF;

struct Encoded {
  std::array<uint8_t, 4> bytes{};
  int size = 0;
};

Encoded Encode(uint32_t c) {
  const auto tail = [c](int shift) { return static_cast<uint8_t>(0x80 | (c >> shift & 0x3F)); };
  if (c < 0x80) return {{static_cast<uint8_t>(c)}, 1};
  if (c < 0x800) return {{static_cast<uint8_t>(0xC0 | c >> 6), tail(0)}, 2};
  if (c < 0x10000) return {{static_cast<uint8_t>(0xE0 | c >> 12), tail(6), tail(0)}, 3};
  return {{static_cast<uint8_t>(0xF0 | c >> 18), tail(12), tail(6), tail(0)}, 4};
}

bool IsEscaped(uint32_t c) { return c < 0x20 || c == '"' || c == '\\'; }

// From byte `at` on; both ends have the same number of bytes.
void AddBytes(GrammarBuilder& builder, int from, Encoded first, Encoded last, int at, int to) {
  if (at == first.size - 1) return builder.Bytes(from, first.bytes[at], last.bytes[at], to);
  const auto rest_is = [&](const Encoded& e, uint8_t byte) {
    return std::all_of(e.bytes.begin() + at + 1, e.bytes.begin() + e.size, [&](uint8_t b) { return b == byte; });
  };
  const auto with_rest = [&](Encoded e, uint8_t byte) {
    std::fill(e.bytes.begin() + at + 1, e.bytes.begin() + e.size, byte);
    return e;
  };
  const auto part = [&](const Encoded& low, const Encoded& high) {
    const int next = builder.AddState();
    builder.Bytes(from, low.bytes[at], high.bytes[at], next);
    AddBytes(builder, next, low, high, at + 1, to);
  };
  if (first.bytes[at] == last.bytes[at]) return part(first, last);
  if (!rest_is(first, 0x80)) {
    part(first, with_rest(first, 0xBF));
    ++first.bytes[at];
  }
  const bool cut_last = !rest_is(last, 0xBF);
  Encoded end = last;
  if (cut_last) --end.bytes[at];
  if (first.bytes[at] <= end.bytes[at]) part(with_rest(first, 0x80), with_rest(end, 0xBF));
  if (cut_last) part(with_rest(last, 0x80), last);
}

}  // namespace

CharSet::CharSet(std::initializer_list<Range> ranges) {
  for (const auto& [first, last] : ranges) Add(first, last);
}

void CharSet::Add(uint32_t first, uint32_t last) {
  last = std::min(last, kLastChar);
  if (first > last) return;
  if (first <= kLastSurrogate && last >= kFirstSurrogate) {
    if (first < kFirstSurrogate) Add(first, kFirstSurrogate - 1);
    if (last > kLastSurrogate) Add(kLastSurrogate + 1, last);
    return;
  }
  ranges_.emplace_back(first, last);
  std::sort(ranges_.begin(), ranges_.end());
  std::vector<Range> merged;
  for (const Range& range : ranges_) {
    if (!merged.empty() && range.first <= merged.back().second + 1) merged.back().second = std::max(merged.back().second, range.second);
    else merged.push_back(range);
  }
  ranges_ = std::move(merged);
}

void CharSet::Add(const CharSet& other) {
  for (const auto& [first, last] : other.ranges()) Add(first, last);
}

CharSet CharSet::Complement() const {
  CharSet result;
  uint32_t next = 0;
  for (const auto& [first, last] : ranges_) {
    if (first > next) result.Add(next, first - 1);
    next = last + 1;
  }
  if (next <= kLastChar) result.Add(next, kLastChar);
  return result;
}

std::vector<uint32_t> CharsOf(std::string_view utf8) {
  std::vector<uint32_t> chars;
  for (size_t i = 0; i < utf8.size();) {
    const auto lead = static_cast<uint8_t>(utf8[i]);
    const size_t size = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    uint32_t c = size == 1 ? lead : lead & (0x7Fu >> size);
    for (size_t k = 1; k < size && i + k < utf8.size(); ++k) c = c << 6 | (static_cast<uint8_t>(utf8[i + k]) & 0x3Fu);
    chars.push_back(c);
    i += size;
  }
  return chars;
}

std::string SpelledChar(uint32_t c, Spelling spelling) {
  if (spelling == Spelling::kJson && IsEscaped(c)) {
    constexpr std::pair<char, const char*> kShort[] = {{'"', "\\\""}, {'\\', "\\\\"}, {'\b', "\\b"}, {'\f', "\\f"},
                                                       {'\n', "\\n"}, {'\r', "\\r"},  {'\t', "\\t"}};
    for (const auto& [plain, escaped] : kShort) {
      if (static_cast<uint32_t>(plain) == c) return escaped;
    }
    return std::string("\\u00") + "01"[c >> 4] + "0123456789abcdef"[c & 15];
  }
  const Encoded encoded = Encode(c);
  return std::string(encoded.bytes.begin(), encoded.bytes.begin() + encoded.size);
}

void AddChars(GrammarBuilder& builder, int from, const CharSet& set, Spelling spelling, int to) {
  constexpr uint32_t kLastOfSize[] = {0x7F, 0x7FF, 0xFFFF, kLastChar};
  for (auto [first, last] : set.ranges()) {
    for (uint32_t c = first; spelling == Spelling::kJson && c <= std::min<uint32_t>(last, '\\'); ++c) {
      if (!IsEscaped(c)) continue;
      const std::string text = SpelledChar(c, spelling);
      const int before = builder.Text(from, std::string_view(text).substr(0, text.size() - 1));
      builder.Bytes(before, static_cast<uint8_t>(text.back()), static_cast<uint8_t>(text.back()), to);
    }
    while (first <= last) {
      uint32_t end = last;
      if (spelling == Spelling::kJson && first <= '\\') {
        if (IsEscaped(first)) {
          ++first;
          continue;
        }
        end = std::min<uint32_t>(end, first < '"' ? '"' - 1 : first < '\\' ? '\\' - 1 : last);
      }
      for (const uint32_t size_end : kLastOfSize) {
        if (first <= size_end) {
          end = std::min(end, size_end);
          break;
        }
      }
      AddBytes(builder, from, Encode(first), Encode(end), 0, to);
      first = end + 1;
    }
  }
}

}  // namespace hone
