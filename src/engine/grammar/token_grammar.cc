// See token_grammar.h. Sets and stacks are interned, so equal ones have one number and comparing is free.
#include "engine/grammar/token_grammar.h"

#include <algorithm>
#include <utility>

namespace hone {
namespace {

constexpr size_t kMaxSets = 4096;            // remembered, a kilobyte each
constexpr size_t kMaxFrames = 1u << 16;      // of stacks
constexpr size_t kMaxWays = 1u << 18;        // of all sets
constexpr size_t kMaxSetsInMask = 1u << 14;  // while one mask is made
constexpr size_t kMaxWaysInMask = 1u << 20;
constexpr size_t kMaxMasks = 512;            // an eighth of the vocabulary in bytes each
constexpr size_t kMaxWaysOfSet = 4096;       // more are dropped: the answer is then one of fewer, and still fits
constexpr size_t kMaxReached = 16384;        // looked at to fill a set

uint64_t Key(int32_t a, int32_t b) { return uint64_t{static_cast<uint32_t>(a)} << 32 | static_cast<uint32_t>(b); }

}  // namespace

TokenBytesTable::TokenBytesTable(const Tokenizer& tokenizer) : vocab_(tokenizer.vocab_size()) {
  std::vector<std::pair<std::string, int32_t>> tokens;
  for (int32_t id = 0; id < vocab_; ++id) {
    if (!tokenizer.IsValid(id)) continue;
    std::string bytes = tokenizer.TokenBytes(id);
    if (bytes.empty()) continue;
    if (tokenizer.IsSpecial(id)) special_.emplace(std::move(bytes), id);
    else tokens.emplace_back(std::move(bytes), id);
  }
  std::sort(tokens.begin(), tokens.end());
  std::string_view before;
  for (const auto& [bytes, id] : tokens) {
    const auto shared = std::mismatch(bytes.begin(), bytes.end(), before.begin(), before.end()).first - bytes.begin();
    entries_.push_back({id, static_cast<uint32_t>(bytes_.size()), static_cast<uint32_t>(bytes.size()),
                        static_cast<uint32_t>(shared)});
    bytes_ += bytes;
    before = bytes;
  }
}

TokenGrammar::TokenGrammar(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const TokenBytesTable> tokens)
    : grammar_(std::move(grammar)), tokens_(std::move(tokens)) {
  Forget();
}

void TokenGrammar::Forget() {
  ++generation_;
  frames_.assign(1, Frame{});
  frame_of_.clear();
  sets_.clear();
  set_of_.clear();
  ways_ = masks_ = 0;
  Begin();
  Add(grammar_->start(), 0);
  start_ = End();
}

int32_t TokenGrammar::Push(int32_t stack, int32_t state) {
  const auto [it, added] = frame_of_.emplace(Key(stack, state), static_cast<int32_t>(frames_.size()));
  if (added) frames_.push_back({stack, state, frames_[stack].depth + 1});
  return it->second;
}

void TokenGrammar::Begin() {
  ways_now_.clear();
  seen_.clear();
  may_end_now_ = false;
}

void TokenGrammar::Add(int32_t state, int32_t stack) {
  reached_.clear();
  const auto reach = [&](int32_t to, int32_t to_stack) {
    if (frames_[to_stack].depth + grammar_->height(to) > kMaxGrammarDepth || seen_.size() > kMaxReached) return;
    if (seen_.emplace(Key(to, to_stack), true).second) reached_.push_back({to, to_stack});
  };
  reach(state, stack);
  for (size_t i = 0; i < reached_.size(); ++i) {
    const Way way = reached_[i];
    if (grammar_->is_end(way.state)) {
      if (way.stack == 0) may_end_now_ = true;
      else reach(frames_[way.stack].state, frames_[way.stack].parent);
      continue;
    }
    if (grammar_->reads(way.state) && ways_now_.size() < kMaxWaysOfSet) ways_now_.push_back(way);
    for (const Grammar::Edge& edge : grammar_->edges(way.state)) {
      if (edge.step == Grammar::Step::kEmpty) {
        reach(edge.to, way.stack);
      } else if (edge.step == Grammar::Step::kCall && edge.tail) {
        reach(edge.callee, way.stack);
      } else if (edge.step == Grammar::Step::kCall) {
        const int depth = frames_[way.stack].depth;
        if (depth + std::max(grammar_->height(edge.to), grammar_->height(edge.callee) + 1) > kMaxGrammarDepth) continue;
        reach(edge.callee, Push(way.stack, edge.to));
      }
    }
  }
}

int32_t TokenGrammar::End() {
  if (ways_now_.empty() && !may_end_now_) return kNone;
  std::sort(ways_now_.begin(), ways_now_.end(),
            [](const Way& a, const Way& b) { return a.state != b.state ? a.state < b.state : a.stack < b.stack; });
  uint64_t hash = may_end_now_ ? 1 : 2;
  for (const Way& way : ways_now_) hash = (hash ^ Key(way.state, way.stack)) * 0x9E3779B97F4A7C15u, hash ^= hash >> 29;
  const auto [begin, end] = set_of_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    const Set& set = sets_[it->second];
    if (set.may_end == may_end_now_ && set.ways == ways_now_) return it->second;
  }
  const auto number = static_cast<int32_t>(sets_.size());
  Set set;
  set.ways = ways_now_;
  set.may_end = may_end_now_;
  ways_ += ways_now_.size();
  sets_.push_back(std::move(set));
  set_of_.emplace(hash, number);
  return number;
}

void TokenGrammar::Follow(std::span<const Way> ways, uint8_t byte) {
  Begin();
  for (const Way& way : ways) {
    for (const Grammar::Edge& edge : grammar_->edges(way.state)) {
      if (edge.step == Grammar::Step::kByte && edge.first <= byte && byte <= edge.last) Add(edge.to, way.stack);
    }
  }
}

int32_t TokenGrammar::Next(int32_t set, uint8_t byte) {
  if (sets_[set].next == nullptr) {
    sets_[set].next = std::make_unique<std::array<int32_t, 256>>();
    sets_[set].next->fill(kUnknown);
  }
  if (const int32_t known = (*sets_[set].next)[byte]; known != kUnknown) return known;
  Follow(sets_[set].ways, byte);
  const int32_t next = End();
  (*sets_[set].next)[byte] = next;
  return next;
}

int32_t TokenGrammar::After(std::string_view text) {
  if (text.empty()) return start_;
  std::vector<Way> ways = sets_[start_].ways;
  for (const char c : text) {
    Follow(ways, static_cast<uint8_t>(c));
    ways = ways_now_;
  }
  return End();
}

int32_t TokenGrammar::Next(int32_t set, std::string_view bytes) {
  for (const char c : bytes) {
    if (set == kNone) break;
    set = Next(set, static_cast<uint8_t>(c));
  }
  return set;
}

// Walks over the tokens in the order of their bytes with the sets after each byte of the last one; what shares a beginning that
// does not fit is passed over.
std::shared_ptr<const TokenMask> TokenGrammar::MaskOf(int32_t set) {
  if (sets_[set].mask != nullptr) return sets_[set].mask;
  auto mask = std::make_shared<TokenMask>();
  mask->bits.resize((static_cast<size_t>(tokens_->vocab()) + 63) / 64);
  const auto allow = [&](int32_t id) { mask->bits[static_cast<size_t>(id) / 64] |= uint64_t{1} << (id % 64); };
  std::vector<int32_t> after = {set};  // after[k]: after k bytes of the entry before
  size_t fits = 0;                     // so many of them fit
  bool misfit = false;                 // the byte after those does not
  for (const TokenBytesTable::Entry& entry : tokens_->entries()) {
    if (misfit && entry.shared > fits) continue;
    // Of a grammar with too many sets to look at, longer tokens are left out: by single bytes everything can be said.
    if (entry.size > 1 && (sets_.size() > kMaxSetsInMask || ways_ > kMaxWaysInMask)) {
      fits = std::min<size_t>(fits, entry.shared);
      misfit = false;
      continue;
    }
    const std::string_view bytes = tokens_->bytes(entry);
    fits = std::min<size_t>(fits, entry.shared);
    after.resize(fits + 1);
    misfit = false;
    while (fits < bytes.size()) {
      const int32_t next = Next(after[fits], static_cast<uint8_t>(bytes[fits]));
      misfit = next == kNone;
      if (misfit) break;
      after.push_back(next);
      ++fits;
    }
    if (!misfit) allow(entry.id);
  }
  for (const std::string& mark : grammar_->marks()) {
    if (const auto it = tokens_->special().find(mark); it != tokens_->special().end() && Next(set, mark) != kNone) allow(it->second);
  }
  sets_[set].mask = mask;
  ++masks_;
  return mask;
}

void GrammarCursor::Find() {
  TokenGrammar& grammar = *grammar_;
  const bool full = grammar.sets_.size() > kMaxSets || grammar.frames_.size() > kMaxFrames || grammar.ways_ > kMaxWays ||
                    grammar.masks_ > kMaxMasks;
  if (full) grammar.Forget();
  if (generation_ == grammar.generation_) return;
  generation_ = grammar.generation_;
  set_ = grammar.After(text_);
}

bool GrammarCursor::Advance(std::string_view bytes) {
  const std::lock_guard lock(grammar_->mutex_);
  Find();
  const int32_t next = grammar_->Next(set_, bytes);
  if (next == TokenGrammar::kNone) return false;
  set_ = next;
  text_ += bytes;
  return true;
}

std::shared_ptr<const TokenMask> GrammarCursor::Mask() {
  const std::lock_guard lock(grammar_->mutex_);
  Find();
  return grammar_->MaskOf(set_);
}

bool GrammarCursor::MayEnd() {
  const std::lock_guard lock(grammar_->mutex_);
  Find();
  return grammar_->sets_[set_].may_end;
}

bool GrammarCursor::MustEnd() {
  const std::lock_guard lock(grammar_->mutex_);
  Find();
  return grammar_->sets_[set_].may_end && grammar_->sets_[set_].ways.empty();
}

}  // namespace hone
