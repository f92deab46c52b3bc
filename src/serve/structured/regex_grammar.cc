// Recursive descent into a tree, then the tree into states. Counted repetition writes its part out as often as it says, up to the
// limit of the builder.
#include "serve/structured/regex_grammar.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace hone {
namespace {

constexpr int kMaxRegexDepth = 100;
constexpr int kMaxCount = 100000;  // of a counted repetition
constexpr int kNoMost = -1;

struct Node {
  enum class Kind { kSet, kSequence, kChoice, kRepeat, kBegin, kEnd };
  Kind kind = Kind::kSequence;
  CharSet set;
  std::vector<Node> parts;
  int least = 0, most = kNoMost;  // kRepeat
};

CharSet Digits() { return {{'0', '9'}}; }
CharSet WordChars() { return {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}; }
CharSet Spaces() {
  return {{'\t', '\r'}, {' ', ' '}, {0xA0, 0xA0}, {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F},
          {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
}
CharSet LineEnds() { return {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}; }

class Parser {
 public:
  explicit Parser(std::string_view pattern) : chars_(CharsOf(pattern)) {}

  Result<Node> Parse() {
    HONE_TRY(Node node, Choice(0));
    if (at_ < chars_.size()) return Wrong("there is a \")\" without its \"(\"");
    return node;
  }

 private:
  bool more() const { return at_ < chars_.size(); }
  bool Is(uint32_t c, size_t ahead = 0) const { return at_ + ahead < chars_.size() && chars_[at_ + ahead] == c; }
  bool Take(uint32_t c) {
    if (!Is(c)) return false;
    ++at_;
    return true;
  }
  bool Take(std::string_view text) {
    for (size_t i = 0; i < text.size(); ++i) {
      if (!Is(static_cast<uint8_t>(text[i]), i)) return false;
    }
    at_ += text.size();
    return true;
  }
  Error Wrong(const std::string& what) const { return InvalidInput("at character " + std::to_string(at_) + ": " + what); }
  Error Cannot(const std::string& what) const {
    return Unsupported("at character " + std::to_string(at_) + ": " + what + " not supported");
  }

  Result<Node> Choice(int depth) {
    if (depth > kMaxRegexDepth) return Cannot("groups nested so deeply are");
    Node choice{Node::Kind::kChoice, {}, {}};
    do {
      Node sequence;
      while (more() && !Is('|') && !Is(')')) {
        HONE_TRY(Node term, Term(depth));
        sequence.parts.push_back(std::move(term));
      }
      choice.parts.push_back(std::move(sequence));
    } while (Take('|'));
    return choice;
  }

  Result<Node> Term(int depth) {
    if (Take('^')) return Node{Node::Kind::kBegin, {}, {}};
    if (Take('$')) return Node{Node::Kind::kEnd, {}, {}};
    Node atom;
    if (Take('(')) {
      if (Is('?') && !Take("?:")) {
        const bool named = (Take("?P<") || Take("?<")) && !Is('=') && !Is('!');
        if (!named) return Cannot("look-around and flags \"(?\" are");
        while (more() && !Is('>')) ++at_;
        if (!Take('>')) return Wrong("the name of a group has no end");
      }
      HONE_TRY(atom, Choice(depth + 1));
      if (!Take(')')) return Wrong("a \"(\" without its \")\"");
    } else if (Is('*') || Is('+') || Is('?')) {
      return Wrong("nothing stands before the repetition");
    } else {
      atom.kind = Node::Kind::kSet;
      HONE_TRY(atom.set, Set());
    }
    return Repeated(std::move(atom));
  }

  Result<CharSet> Set() {
    if (Take('.')) return LineEnds().Complement();
    if (Take('[')) return Class();
    const uint32_t c = chars_[at_++];
    if (c != '\\') return CharSet{{c, c}};
    return Escape(/*in_class=*/false);
  }

  Result<CharSet> Class() {
    const bool negated = Take('^');
    CharSet set;
    while (!Take(']')) {
      if (!more()) return Wrong("a \"[\" without its \"]\"");
      HONE_TRY(const CharSet first, ClassItem());
      const bool range = Is('-') && at_ + 1 < chars_.size() && !Is(']', 1);
      if (!range) {
        set.Add(first);
        continue;
      }
      ++at_;
      HONE_TRY(const CharSet last, ClassItem());
      const auto single = [](const CharSet& s) { return s.ranges().size() == 1 && s.ranges()[0].first == s.ranges()[0].second; };
      if (!single(first) || !single(last)) return Wrong("a class of characters cannot be the end of a range");
      if (first.ranges()[0].first > last.ranges()[0].first) return Wrong("a range ends before it begins");
      set.Add(first.ranges()[0].first, last.ranges()[0].first);
    }
    return negated ? set.Complement() : set;
  }

  Result<CharSet> ClassItem() {
    if (!more()) return Wrong("a \"[\" without its \"]\"");
    const uint32_t c = chars_[at_++];
    if (c == '\\') return Escape(/*in_class=*/true);
    return CharSet{{c, c}};
  }

  Result<CharSet> Escape(bool in_class) {
    if (!more()) return Wrong("a \"\\\" at the end");
    const uint32_t c = chars_[at_++];
    switch (c) {
      case 'd': return Digits();
      case 'D': return Digits().Complement();
      case 'w': return WordChars();
      case 'W': return WordChars().Complement();
      case 's': return Spaces();
      case 'S': return Spaces().Complement();
      case 't': return CharSet{{'\t', '\t'}};
      case 'n': return CharSet{{'\n', '\n'}};
      case 'r': return CharSet{{'\r', '\r'}};
      case 'f': return CharSet{{'\f', '\f'}};
      case 'v': return CharSet{{'\v', '\v'}};
      case 'x': return Hex(2);
      case 'u': return Take('{') ? Braced() : Utf16();
      default: break;
    }
    if (c == '0' && !(more() && chars_[at_] >= '0' && chars_[at_] <= '9')) return CharSet{{0, 0}};
    if (c == 'b' && in_class) return CharSet{{'\b', '\b'}};
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (letter) {
      std::string escape = "the escape \"\\?\" is";
      escape[escape.find('?')] = static_cast<char>(c);
      return Cannot(escape);
    }
    return CharSet{{c, c}};
  }

  std::optional<uint32_t> HexDigits(int count) {
    uint32_t value = 0;
    for (int i = 0; i < count; ++i) {
      const uint32_t c = more() ? chars_[at_] : 0;
      const uint32_t lower = c | 0x20;
      if (c >= '0' && c <= '9') value = value * 16 + (c - '0');
      else if (lower >= 'a' && lower <= 'f') value = value * 16 + (lower - 'a' + 10);
      else return std::nullopt;
      ++at_;
    }
    return value;
  }
  Result<CharSet> Hex(int count) {
    const std::optional<uint32_t> c = HexDigits(count);
    if (!c) return Wrong("wanted " + std::to_string(count) + " hexadecimal digits");
    return CharSet{{*c, *c}};
  }
  // \u1234, or two that are the halves of one character.
  Result<CharSet> Utf16() {
    const std::optional<uint32_t> high = HexDigits(4);
    if (!high) return Wrong("wanted 4 hexadecimal digits");
    if (*high >= 0xD800 && *high < 0xDC00 && Take("\\u")) {
      const std::optional<uint32_t> low = HexDigits(4);
      if (!low || *low < 0xDC00 || *low > 0xDFFF) return Wrong("wanted the other half of a character");
      const uint32_t c = 0x10000 + ((*high - 0xD800) << 10) + (*low - 0xDC00);
      return CharSet{{c, c}};
    }
    return CharSet{{*high, *high}};
  }
  Result<CharSet> Braced() {
    uint32_t value = 0;
    int count = 0;
    while (!Take('}')) {
      const std::optional<uint32_t> digit = HexDigits(1);
      if (!digit || ++count > 6) return Wrong("wanted up to 6 hexadecimal digits and \"}\"");
      value = value * 16 + *digit;
    }
    if (count == 0 || value > 0x10FFFF) return Wrong("it is no character");
    return CharSet{{value, value}};
  }

  // {n}, {n,}, {n,m} at this place; a brace that is none of them stands for itself.
  bool TakeCounts(int* least, int* most) {
    const size_t start = at_;
    const auto number = [&](int* out) {
      int64_t value = 0;
      const size_t first = at_;
      for (; more() && chars_[at_] >= '0' && chars_[at_] <= '9'; ++at_) value = std::min<int64_t>(value * 10 + (chars_[at_] - '0'), kMaxCount);
      *out = static_cast<int>(value);
      return at_ > first;
    };
    if (Take('{') && number(least)) {
      *most = *least;
      if (Take(',') && !number(most)) *most = kNoMost;
      if (Take('}')) return true;
    }
    at_ = start;
    return false;
  }

  Result<Node> Repeated(Node atom) {
    int least = 0, most = kNoMost;
    if (Take('*')) least = 0;
    else if (Take('+')) least = 1;
    else if (Take('?')) most = 1;
    else if (!TakeCounts(&least, &most)) return atom;
    if (most != kNoMost && most < least) return Wrong("the most of a repetition is below its least");
    Take('?');
    if (Is('+') || Is('*') || Is('?')) return Cannot("possessive or doubled repetitions are");
    Node repeat{Node::Kind::kRepeat, {}, {}, least, most};
    repeat.parts.push_back(std::move(atom));
    return repeat;
  }

  const std::vector<uint32_t> chars_;
  size_t at_ = 0;
};

class Emitter {
 public:
  Emitter(GrammarBuilder& builder, Spelling spelling) : builder_(builder), spelling_(spelling) {}

  Result<GrammarBuilder::Rule> Whole(const Node& choice, RegexUse use) {
    const GrammarBuilder::Rule rule = builder_.AddRule();
    for (const Node& alternative : choice.parts) {
      size_t first = 0, last = alternative.parts.size();
      bool from_begin = use == RegexUse::kWhole, to_end = from_begin;
      while (first < last && alternative.parts[first].kind == Node::Kind::kBegin) from_begin = true, ++first;
      while (last > first && alternative.parts[last - 1].kind == Node::Kind::kEnd) to_end = true, --last;
      int at = rule.start;
      if (!from_begin) at = Anything(at);
      for (; first < last; ++first) {
        HONE_TRY(at, Emit(alternative.parts[first], at));
      }
      if (!to_end) at = Anything(at);
      builder_.Empty(at, rule.end);
    }
    return rule;
  }

 private:
  int Anything(int from) {
    const int loop = builder_.AddState();
    builder_.Empty(from, loop);
    Chars(loop, CharSet::All(), loop);
    return loop;
  }

  // A set of many bytes is one rule, however often it is used.
  void Chars(int from, const CharSet& set, int to) {
    if (set.ascii() && spelling_ == Spelling::kPlain) return AddChars(builder_, from, set, spelling_, to);
    const auto [it, added] = sets_.emplace(set.ranges(), GrammarBuilder::Rule{});
    if (added) {
      it->second = builder_.AddRule();
      AddChars(builder_, it->second.start, set, spelling_, it->second.end);
    }
    builder_.Call(from, it->second, to);
  }

  Result<int> Emit(const Node& node, int from) {
    switch (node.kind) {
      case Node::Kind::kBegin:
      case Node::Kind::kEnd:
        return Unsupported("^ and $ are supported at the ends of the pattern only");
      case Node::Kind::kSet: {
        const int to = builder_.AddState();
        Chars(from, node.set, to);
        return to;
      }
      case Node::Kind::kSequence:
        for (const Node& part : node.parts) {
          HONE_TRY(from, Emit(part, from));
        }
        return from;
      case Node::Kind::kChoice: {
        const int to = builder_.AddState();
        for (const Node& part : node.parts) {
          const int begin = builder_.AddState();
          builder_.Empty(from, begin);
          HONE_TRY(const int end, Emit(part, begin));
          builder_.Empty(end, to);
        }
        return to;
      }
      case Node::Kind::kRepeat:
        return EmitRepeat(node, from);
    }
    return from;
  }

  Result<int> EmitRepeat(const Node& node, int from) {
    const Node& part = node.parts[0];
    int at = builder_.AddState();
    builder_.Empty(from, at);
    for (int i = 0; i < node.least && !builder_.full(); ++i) {
      HONE_TRY(at, Emit(part, at));
    }
    const int to = builder_.AddState();
    if (node.most == kNoMost) {
      const int loop = builder_.AddState();
      builder_.Empty(at, loop);
      HONE_TRY(const int end, Emit(part, loop));
      builder_.Empty(end, loop);
      builder_.Empty(loop, to);
      return to;
    }
    for (int i = node.least; i < node.most && !builder_.full(); ++i) {
      builder_.Empty(at, to);
      HONE_TRY(at, Emit(part, at));
    }
    builder_.Empty(at, to);
    return to;
  }

  GrammarBuilder& builder_;
  const Spelling spelling_;
  std::map<std::vector<CharSet::Range>, GrammarBuilder::Rule> sets_;
};

}  // namespace

Result<GrammarBuilder::Rule> AddRegex(GrammarBuilder& builder, std::string_view pattern, RegexUse use, Spelling spelling) {
  if (pattern.size() > kMaxPatternBytes) {
    return Error{ErrorCode::kLimit, "found " + std::to_string(pattern.size()) + " bytes, at most " + std::to_string(kMaxPatternBytes)};
  }
  HONE_TRY(const Node node, Parser(pattern).Parse());
  return Emitter(builder, spelling).Whole(node, use);
}

}  // namespace hone
