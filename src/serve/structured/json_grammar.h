// JsonGrammar: the parts of JSON as rules of a grammar: white space, strings, any value, objects and arrays of given parts.
//
// What it accepts is JSON as models write it: between tokens nothing, a space, or a line end with an indent; numbers of at most 18
// digits before and behind the point; no lone surrogates. All of it parses with any reader.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/grammar/grammar.h"

namespace hone {

class JsonGrammar {
 public:
  using Rule = GrammarBuilder::Rule;
  explicit JsonGrammar(GrammarBuilder& builder) : builder_(builder) {}
  JsonGrammar(const JsonGrammar&) = delete;
  GrammarBuilder& builder() { return builder_; }

  // Made when first asked for.
  const Rule& Space();
  const Rule& Value();
  const Rule& AnyObject();
  const Rule& AnyArray();
  const Rule& AnyString();
  const Rule& AnyNumber();
  const Rule& AnyInteger();

  // A string of `least` to `most` characters; none: no limit.
  Rule String(size_t least, std::optional<size_t> most);
  // A string whose characters are spelled by `content`.
  Rule Quoted(const Rule& content);
  // One of these texts, byte for byte.
  Rule OneOf(const std::vector<std::string>& texts);

  struct Member {
    std::string key;
    Rule value;
    bool required = false;
  };
  // The members in this order, then any others whose values are `others` (none: no others).
  Rule Object(const std::vector<Member>& members, const std::optional<Rule>& others);
  // First values by `prefix`, then by `rest` (none: no more).
  Rule Array(const std::vector<Rule>& prefix, const std::optional<Rule>& rest, size_t least, std::optional<size_t> most);

 private:
  const Rule& Once(std::optional<Rule>* rule, void (JsonGrammar::*make)(const Rule&));
  void MakeSpace(const Rule& rule);
  void MakeValue(const Rule& rule);
  void MakeChar(const Rule& rule);
  void AddChar(int from, int to);  // of a string, in any of its spellings
  Rule OtherKey(const std::vector<Member>& members);

  GrammarBuilder& builder_;
  std::optional<Rule> space_, value_, char_, object_, array_, string_, number_, integer_;
};

}  // namespace hone
