// Grammar: which byte strings an answer may be. Rules that call each other, each a small automaton over bytes: a pushdown automaton
// without left-over parts. Immutable, made by a GrammarBuilder; what it means for tokens: token_grammar.h.
//
// A rule is a set of states with one start and one end. An edge goes to a state of the same rule: for one byte of a range, for
// nothing, or for a whole string of another rule. Nothing leads out of an end. The built grammar has no dead ends: from whatever
// its states accept, some string goes on to the end within kMaxGrammarDepth calls.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace hone {

inline constexpr int kMaxGrammarStates = 200000;  // of a grammar; more: refused
inline constexpr int kMaxGrammarDepth = 256;      // calls within calls of what it accepts

class Grammar {
 public:
  enum class Step : uint8_t { kByte, kEmpty, kCall };
  struct Edge {
    int32_t to = 0;
    int32_t callee = 0;  // kCall: the start of the rule called
    Step step = Step::kByte;
    uint8_t first = 0, last = 0;  // kByte: the range
    bool tail = false;            // kCall: `to` is an end, so there is nothing to come back to
  };

  int start() const { return start_; }
  std::span<const Edge> edges(int state) const {
    return {edges_.data() + first_edge_[state], static_cast<size_t>(first_edge_[state + 1] - first_edge_[state])};
  }
  bool is_end(int state) const { return ends_[state] != 0; }
  bool reads(int state) const { return reads_[state] != 0; }  // it has an edge for a byte
  int height(int state) const { return height_[state]; }      // calls within calls that reaching the rule's end takes at least
  int states() const { return static_cast<int>(height_.size()); }
  // Texts of special tokens that may stand for their bytes (marks of tool calls); no other special token is ever allowed.
  const std::vector<std::string>& marks() const { return marks_; }

 private:
  friend class GrammarBuilder;
  std::vector<Edge> edges_;
  std::vector<int32_t> first_edge_;  // [states + 1]
  std::vector<int32_t> height_;
  std::vector<uint8_t> reads_, ends_;
  std::vector<std::string> marks_;
  int start_ = 0;
};

class GrammarBuilder {
 public:
  struct Rule {
    int start = 0, end = 0;
  };

  // Within a limit far above kMaxGrammarStates these always succeed; Build refuses what is too large.
  int AddState();
  Rule AddRule();
  void Bytes(int from, uint8_t first, uint8_t last, int to);
  void Empty(int from, int to);
  void Call(int from, const Rule& rule, int to);
  bool full() const { return static_cast<int>(edges_.size()) > kMaxGrammarStates; }

  // Each begins at `from` and gives the state it ends in.
  int Text(int from, std::string_view bytes);
  int Call(int from, const Rule& rule);
  // Any bytes up to and with the first occurrence of `mark`. `before`, if given, gets the states in which no whole mark was read.
  int UpTo(int from, std::string_view mark, std::vector<int>* before = nullptr);

  // Errors: more states than kMaxGrammarStates (kLimit); no string at all fits (kInvalidInput).
  Result<std::shared_ptr<const Grammar>> Build(const Rule& rule, std::vector<std::string> marks = {});

 private:
  struct Edge {
    Grammar::Step step;
    uint8_t first, last;
    int32_t to, callee;
  };
  std::vector<std::vector<Edge>> edges_;  // by state
  std::vector<int> ends_;                 // of all rules
};

}  // namespace hone
