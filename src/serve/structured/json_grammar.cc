// See json_grammar.h.
#include "serve/structured/json_grammar.h"

#include <algorithm>
#include <map>

#include "serve/structured/char_set.h"
#include "serve/structured/number_grammar.h"

namespace hone {
namespace {

constexpr int kMaxIndent = 32;

std::string QuotedText(std::string_view text) {
  std::string out = "\"";
  for (const uint32_t c : CharsOf(text)) out += SpelledChar(c, Spelling::kJson);
  return out + "\"";
}

}  // namespace

const JsonGrammar::Rule& JsonGrammar::Once(std::optional<Rule>* rule, void (JsonGrammar::*make)(const Rule&)) {
  if (!*rule) {
    *rule = builder_.AddRule();
    (this->*make)(**rule);
  }
  return **rule;
}

const JsonGrammar::Rule& JsonGrammar::Space() { return Once(&space_, &JsonGrammar::MakeSpace); }
const JsonGrammar::Rule& JsonGrammar::Value() { return Once(&value_, &JsonGrammar::MakeValue); }

const JsonGrammar::Rule& JsonGrammar::AnyObject() {
  if (!object_) object_ = Object({}, Value());
  return *object_;
}
const JsonGrammar::Rule& JsonGrammar::AnyArray() {
  if (!array_) array_ = Array({}, Value(), 0, std::nullopt);
  return *array_;
}
const JsonGrammar::Rule& JsonGrammar::AnyString() {
  if (!string_) string_ = String(0, std::nullopt);
  return *string_;
}
const JsonGrammar::Rule& JsonGrammar::AnyNumber() {
  if (!number_) number_ = AddNumber(builder_, {});
  return *number_;
}
const JsonGrammar::Rule& JsonGrammar::AnyInteger() {
  if (!integer_) integer_ = AddNumber(builder_, {.integer = true});
  return *integer_;
}

void JsonGrammar::MakeSpace(const Rule& rule) {
  builder_.Empty(rule.start, rule.end);
  builder_.Bytes(rule.start, ' ', ' ', rule.end);
  int indent = builder_.AddState();
  builder_.Bytes(rule.start, '\n', '\n', indent);
  for (int i = 0; i < kMaxIndent; ++i) {
    builder_.Empty(indent, rule.end);
    const int next = builder_.AddState();
    builder_.Bytes(indent, ' ', ' ', next);
    builder_.Bytes(indent, '\t', '\t', next);
    indent = next;
  }
  builder_.Empty(indent, rule.end);
}

void JsonGrammar::MakeValue(const Rule& rule) {
  for (const char* literal : {"null", "true", "false"}) builder_.Empty(builder_.Text(rule.start, literal), rule.end);
  builder_.Call(rule.start, AnyNumber(), rule.end);
  builder_.Call(rule.start, AnyString(), rule.end);
  builder_.Call(rule.start, AnyArray(), rule.end);
  builder_.Call(rule.start, AnyObject(), rule.end);
}

void JsonGrammar::MakeChar(const Rule& rule) { AddChar(rule.start, rule.end); }

void JsonGrammar::AddChar(int from, int to) {
  const CharSet plain = CharSet({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}}).Complement();
  AddChars(builder_, from, plain, Spelling::kPlain, to);
  const int escape = builder_.Text(from, "\\");
  for (const char c : std::string_view("\"\\/bfnrt")) builder_.Bytes(escape, static_cast<uint8_t>(c), static_cast<uint8_t>(c), to);
  const auto hex = [&](int at, int next) {
    builder_.Bytes(at, '0', '9', next);
    builder_.Bytes(at, 'a', 'f', next);
    builder_.Bytes(at, 'A', 'F', next);
  };
  const auto hexes = [&](int at, int count, int end) {
    for (int i = 0; i < count; ++i) {
      const int next = i + 1 < count ? builder_.AddState() : end;
      hex(at, next);
      at = next;
    }
  };
  // \u and four digits; D800 to DBFF only with its other half, DC00 to DFFF behind it.
  const int first = builder_.Text(escape, "u");
  const int free = builder_.AddState(), after_d = builder_.AddState(), low = builder_.AddState(), high = builder_.AddState();
  builder_.Bytes(first, '0', '9', free);
  for (const auto& [begin, end] : {std::pair('a', 'c'), std::pair('e', 'f'), std::pair('A', 'C'), std::pair('E', 'F')}) {
    builder_.Bytes(first, static_cast<uint8_t>(begin), static_cast<uint8_t>(end), free);
  }
  hexes(free, 3, to);
  for (const uint8_t d : {'d', 'D'}) builder_.Bytes(first, d, d, after_d);
  builder_.Bytes(after_d, '0', '7', low);
  hexes(low, 2, to);
  for (const auto& [begin, end] : {std::pair('8', '9'), std::pair('a', 'b'), std::pair('A', 'B')}) {
    builder_.Bytes(after_d, static_cast<uint8_t>(begin), static_cast<uint8_t>(end), high);
  }
  const int second = builder_.AddState(), third = builder_.AddState(), last = builder_.AddState();
  hexes(high, 2, second);
  const int second_u = builder_.Text(second, "\\u");
  for (const uint8_t d : {'d', 'D'}) builder_.Bytes(second_u, d, d, third);
  builder_.Bytes(third, 'c', 'f', last);
  builder_.Bytes(third, 'C', 'F', last);
  hexes(last, 2, to);
}

JsonGrammar::Rule JsonGrammar::String(size_t least, std::optional<size_t> most) {
  const Rule rule = builder_.AddRule();
  int at = builder_.Text(rule.start, "\"");
  const auto close = [&](int from) { builder_.Bytes(from, '"', '"', rule.end); };
  if (least == 0 && !most) {
    AddChar(at, at);
    close(at);
    return rule;
  }
  const Rule& one = Once(&char_, &JsonGrammar::MakeChar);
  for (size_t i = 0; i < least && !builder_.full(); ++i) at = builder_.Call(at, one);
  if (!most) {
    const int loop = builder_.AddState();
    builder_.Empty(at, loop);
    AddChar(loop, loop);
    close(loop);
    return rule;
  }
  if (*most < least) return rule;  // nothing fits
  close(at);
  for (size_t i = least; i < *most && !builder_.full(); ++i) close(at = builder_.Call(at, one));
  return rule;
}

JsonGrammar::Rule JsonGrammar::Quoted(const Rule& content) {
  const Rule rule = builder_.AddRule();
  const int end = builder_.Call(builder_.Text(rule.start, "\""), content);
  builder_.Bytes(end, '"', '"', rule.end);
  return rule;
}

// A tree by bytes, so that many texts are still one way.
JsonGrammar::Rule JsonGrammar::OneOf(const std::vector<std::string>& texts) {
  const Rule rule = builder_.AddRule();
  std::map<std::pair<int, char>, int> children;
  for (const std::string& text : texts) {
    int at = rule.start;
    for (const char c : text) {
      const auto [it, added] = children.emplace(std::pair(at, c), 0);
      if (added) {
        it->second = builder_.AddState();
        builder_.Bytes(at, static_cast<uint8_t>(c), static_cast<uint8_t>(c), it->second);
      }
      at = it->second;
    }
    builder_.Empty(at, rule.end);
  }
  return rule;
}

// Any key but those of the members, in the one spelling that each has: a tree of their characters, and what leaves it is free.
JsonGrammar::Rule JsonGrammar::OtherKey(const std::vector<Member>& members) {
  const Rule rule = builder_.AddRule();
  struct Place {
    int state = 0;
    bool taken = false;
    std::map<uint32_t, size_t> next;
  };
  std::vector<Place> places(1);
  places[0].state = builder_.Text(rule.start, "\"");
  for (const Member& member : members) {
    size_t at = 0;
    for (const uint32_t c : CharsOf(member.key)) {
      const auto [it, added] = places[at].next.emplace(c, places.size());
      const size_t next = it->second;
      if (added) {
        const int state = builder_.AddState();
        AddChars(builder_, places[at].state, {{c, c}}, Spelling::kJson, state);
        places.push_back({state, false, {}});
      }
      at = next;
    }
    places[at].taken = true;
  }
  const Rule any = builder_.AddRule();
  AddChars(builder_, any.start, CharSet::All(), Spelling::kJson, any.end);
  const int free = builder_.AddState();
  builder_.Call(free, any, free);
  builder_.Bytes(free, '"', '"', rule.end);
  for (const Place& place : places) {
    if (!place.taken) builder_.Bytes(place.state, '"', '"', rule.end);
    CharSet others;
    for (const auto& [c, next] : place.next) others.Add(c, c);
    if (others.ranges().empty()) builder_.Call(place.state, any, free);
    else AddChars(builder_, place.state, others.Complement(), Spelling::kJson, free);
  }
  return rule;
}

JsonGrammar::Rule JsonGrammar::Object(const std::vector<Member>& members, const std::optional<Rule>& others) {
  const Rule rule = builder_.AddRule();
  const Rule space = Space();  // a copy: others may be made meanwhile
  const auto spaced = [&](int from) { return builder_.Call(from, space); };
  const auto value_after_key = [&](int key_end, const Rule& value, int to) {
    builder_.Call(spaced(builder_.Text(spaced(key_end), ":")), value, to);
  };
  const size_t count = members.size();
  size_t last_required = 0;  // members before it may not be left out with all behind them
  for (size_t i = 0; i < count; ++i) {
    if (members[i].required) last_required = i + 1;
  }
  const auto close = [&](int from) { builder_.Bytes(spaced(from), '}', '}', rule.end); };
  // keys[i]: a member with number i or more comes next; written[i]: one was written, the next is i or a later one.
  std::vector<int> keys, written;
  for (size_t i = 0; i <= count; ++i) keys.push_back(builder_.AddState()), written.push_back(builder_.AddState());
  const int open = builder_.Text(rule.start, "{");
  builder_.Call(open, space, keys[0]);
  if (last_required == 0) close(open);
  for (size_t i = 0; i < count; ++i) {
    value_after_key(builder_.Text(keys[i], QuotedText(members[i].key)), members[i].value, written[i + 1]);
    if (!members[i].required) builder_.Empty(keys[i], keys[i + 1]);
  }
  if (others) value_after_key(builder_.Call(keys[count], OtherKey(members)), *others, written[count]);
  for (size_t i = 1; i <= count; ++i) {
    builder_.Call(builder_.Text(spaced(written[i]), ","), space, keys[i]);
    if (i >= last_required) close(written[i]);
  }
  if (count == 0) {
    builder_.Call(builder_.Text(spaced(written[0]), ","), space, keys[0]);
    close(written[0]);
  }
  return rule;
}

JsonGrammar::Rule JsonGrammar::Array(const std::vector<Rule>& prefix, const std::optional<Rule>& rest, size_t least,
                                     std::optional<size_t> most) {
  const Rule rule = builder_.AddRule();
  const Rule space = Space();
  const auto close = [&](int from) { builder_.Bytes(builder_.Call(from, space), ']', ']', rule.end); };
  const int open = builder_.Text(rule.start, "[");
  if (least == 0) close(open);
  int at = builder_.Call(open, space);  // an item comes next
  const size_t counted = std::max({prefix.size(), least, most.value_or(0), size_t{1}});
  for (size_t i = 0; i < counted && !builder_.full(); ++i) {
    if (most && i >= *most) return rule;
    if (i >= prefix.size() && !rest) return rule;
    const int after = builder_.Call(at, i < prefix.size() ? prefix[i] : *rest);
    if (i + 1 >= least) close(after);
    at = builder_.Call(builder_.Text(builder_.Call(after, space), ","), space);
    // After the last that is counted: again and again by `rest`, if there is no most.
    if (i + 1 == counted && !most && rest) builder_.Call(at, *rest, after);
  }
  return rule;
}

}  // namespace hone
