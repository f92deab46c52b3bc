// TokenGrammar: a grammar over the tokens of one vocabulary: which tokens may come next, and whether the answer may end.
//
// It runs the grammar's pushdown automaton on all ways at once and remembers what it saw: a set of ways is a number, the set after
// a byte is looked up, and so is the mask of a set. Free text within a string has one set, so its mask is made once, not once a
// token. Memory is bounded (kMax...); when it is full all is forgotten and made again. A GrammarCursor is where one sequence
// stands. Both may be used from many threads: a cursor from one at a time, the TokenGrammar is locked within.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/grammar/grammar.h"
#include "text/tokenizer.h"

namespace hone {

// The bytes of every token that leaves some, in their order, so that tokens with one beginning stand together. Immutable.
class TokenBytesTable {
 public:
  explicit TokenBytesTable(const Tokenizer& tokenizer);
  struct Entry {
    int32_t id = 0;
    uint32_t begin = 0, size = 0;  // in bytes()
    uint32_t shared = 0;           // bytes in common with the entry before
  };
  std::span<const Entry> entries() const { return entries_; }  // no special tokens
  std::string_view bytes(const Entry& entry) const { return std::string_view(bytes_).substr(entry.begin, entry.size); }
  // Special tokens by their text.
  const std::unordered_map<std::string, int32_t>& special() const { return special_; }
  int vocab() const { return vocab_; }

 private:
  std::string bytes_;
  std::vector<Entry> entries_;
  std::unordered_map<std::string, int32_t> special_;
  int vocab_ = 0;
};

// A set of token ids.
struct TokenMask {
  std::vector<uint64_t> bits;
  bool has(int32_t id) const { return (bits[static_cast<size_t>(id) / 64] >> (id % 64) & 1) != 0; }
};

class TokenGrammar {
 public:
  TokenGrammar(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const TokenBytesTable> tokens);
  const std::shared_ptr<const Grammar>& grammar() const { return grammar_; }

 private:
  friend class GrammarCursor;
  struct Frame {  // of a stack of places to come back to, as a chain; 0 is the empty stack
    int32_t parent = 0, state = 0, depth = 0;
  };
  struct Way {
    int32_t state = 0, stack = 0;
    bool operator==(const Way&) const = default;
  };
  struct Set {
    std::vector<Way> ways;  // only those that read a byte, sorted
    bool may_end = false;
    std::unique_ptr<std::array<int32_t, 256>> next;  // kUnknown, kNone or a set; null: all unknown
    std::shared_ptr<const TokenMask> mask;
  };
  static constexpr int32_t kUnknown = -2, kNone = -1;

  // All with the mutex held.
  void Forget();
  int32_t Push(int32_t stack, int32_t state);
  void Begin();                     // an empty set of ways to be filled
  void Add(int32_t state, int32_t stack);  // and all that can be reached from it without a byte
  int32_t End();                    // its number; kNone for nothing
  void Follow(std::span<const Way> ways, uint8_t byte);  // fills the set that is after them
  int32_t Next(int32_t set, uint8_t byte);
  int32_t After(std::string_view text);  // from the start on, without remembering what is between
  int32_t Next(int32_t set, std::string_view bytes);
  std::shared_ptr<const TokenMask> MaskOf(int32_t set);

  const std::shared_ptr<const Grammar> grammar_;
  const std::shared_ptr<const TokenBytesTable> tokens_;
  std::mutex mutex_;
  uint64_t generation_ = 0;  // counts Forget
  std::vector<Frame> frames_;
  std::unordered_map<uint64_t, int32_t> frame_of_;  // by parent and state
  std::vector<Set> sets_;
  std::unordered_multimap<uint64_t, int32_t> set_of_;  // by hash
  size_t ways_ = 0, masks_ = 0;                        // of all sets
  int32_t start_ = 0;
  // The set being filled.
  std::vector<Way> reached_, ways_now_;
  std::unordered_map<uint64_t, bool> seen_;
  bool may_end_now_ = false;
};

class GrammarCursor {
 public:
  GrammarCursor() = default;  // no grammar
  explicit GrammarCursor(std::shared_ptr<TokenGrammar> grammar) : grammar_(std::move(grammar)) {}

  bool active() const { return grammar_ != nullptr; }
  // False: no string of the grammar begins so; the cursor stays where it is.
  bool Advance(std::string_view bytes);
  // The tokens that may come next. Never null.
  std::shared_ptr<const TokenMask> Mask();
  bool MayEnd();
  bool MustEnd();  // it may end and nothing can follow

 private:
  void Find();  // after the grammar has forgotten

  std::shared_ptr<TokenGrammar> grammar_;
  std::string text_;  // so far
  uint64_t generation_ = ~uint64_t{0};
  int32_t set_ = 0;
};

}  // namespace hone
