// The hash: two lanes of 64 bits, each word multiplied into 128 bits and folded (as in wyhash), so 32 token ids cost
// some tens of nanoseconds.
#include "cache/prefix_index.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace hone {
namespace {

uint64_t Fold(uint64_t a, uint64_t b) {
  const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

void AppendField(std::string_view field, std::string* text) {
  *text += std::to_string(field.size());
  *text += ':';
  *text += field;
}

}  // namespace

std::string PrefixRootText(std::string_view weights_digest, std::string_view adapter, std::string_view kv_format,
                           std::string_view salt) {
  std::string text;
  for (const std::string_view field : {weights_digest, adapter, kv_format, salt}) AppendField(field, &text);
  return text;
}

PrefixIndex::PrefixIndex(int blocks, uint64_t secret, int block_tokens) : secret_(secret), block_tokens_(block_tokens), nodes_(blocks) {
  tokens_.resize(static_cast<size_t>(blocks) * block_tokens_);
  full_.reserve(blocks);
  first_child_.reserve(blocks);
}

PrefixIndex::Key PrefixIndex::Extend(const Key& parent, std::span<const int32_t> tokens) const {
  constexpr uint64_t kFirst = 0x9e3779b97f4a7c15, kSecond = 0xd6e8feb86659fd93;
  uint64_t low = Fold(parent.low ^ secret_, kFirst), high = Fold(parent.high ^ ~secret_, kSecond);
  for (size_t i = 0; i < tokens.size(); i += 2) {
    const uint64_t second = i + 1 < tokens.size() ? static_cast<uint32_t>(tokens[i + 1]) : 0xffffffffu;
    const uint64_t word = static_cast<uint32_t>(tokens[i]) | second << 32;
    low = Fold(low ^ word ^ kSecond, kFirst ^ secret_);
    high = Fold(high + word, kSecond ^ secret_) ^ word;
  }
  return {Fold(low ^ tokens.size(), kFirst), Fold(high ^ low, kSecond)};
}

uint64_t PrefixIndex::OpenRoot(const std::string& text) {
  const auto [it, is_new] = root_ids_.try_emplace(text, 0);
  if (is_new) {
    it->second = ++last_id_;
    std::vector<int32_t> bytes(text.begin(), text.end());
    roots_[it->second] = {text, Extend({}, bytes), 0};
  }
  ++roots_.at(it->second).users;
  return it->second;
}

void PrefixIndex::CloseRoot(uint64_t root) { LeaveRoot(root); }

void PrefixIndex::LeaveRoot(uint64_t root) {
  const auto it = roots_.find(root);
  HONE_CHECK(it != roots_.end(), "a root was closed too often");
  if (--it->second.users > 0) return;
  root_ids_.erase(it->second.text);
  roots_.erase(it);
}

int32_t PrefixIndex::Lookup(const Key& key, uint64_t parent_id, std::span<const int32_t> tokens) const {
  const auto it = full_.find(key);
  if (it == full_.end() || nodes_[it->second].parent_id != parent_id) return -1;
  return std::memcmp(TokensOf(it->second), tokens.data(), tokens.size_bytes()) == 0 ? it->second : -1;
}

void PrefixIndex::Find(uint64_t root, std::span<const int32_t> tokens, PrefixMatch* match) const {
  match->blocks.clear();
  match->part = -1;
  match->part_tokens = 0;
  match->block_tokens = block_tokens_;
  Key key = roots_.at(root).key;
  uint64_t id = root;
  for (; static_cast<int>(tokens.size()) >= block_tokens_; tokens = tokens.subspan(block_tokens_)) {
    const auto head = tokens.first(block_tokens_);
    key = Extend(key, head);
    const int32_t block = Lookup(key, id, head);
    if (block < 0) break;
    match->blocks.push_back(block);
    id = nodes_[block].id;
  }
  FindPart(id, tokens, match);
}

void PrefixIndex::FindPart(uint64_t parent_id, std::span<const int32_t> tokens, PrefixMatch* match) const {
  const auto it = first_child_.find(parent_id);
  if (it == first_child_.end()) return;
  const int wanted = std::min<int>(kMinPartTokens, static_cast<int>(tokens.size()));
  int looked = 0;
  for (int32_t child = it->second; child >= 0 && looked < kMaxChildrenLooked; child = nodes_[child].next, ++looked) {
    const int most = std::min<int>(nodes_[child].filled, static_cast<int>(tokens.size()));
    const int32_t* begin = TokensOf(child);
    const int same = static_cast<int>(std::mismatch(begin, begin + most, tokens.begin()).first - begin);
    if (same < std::max(wanted, 1) || same <= match->part_tokens) continue;
    match->part = child;
    match->part_tokens = same;
  }
}

int32_t PrefixIndex::Insert(uint64_t root, int32_t parent, std::span<const int32_t> tokens, int32_t block) {
  HONE_CHECK(!tokens.empty() && static_cast<int>(tokens.size()) <= block_tokens_);
  HONE_CHECK(parent < 0 || nodes_[parent].filled == block_tokens_, "the parent is no full block");
  Forget(block);
  const uint64_t parent_id = parent < 0 ? root : nodes_[parent].id;
  const bool is_full = static_cast<int>(tokens.size()) == block_tokens_;
  Key key;
  if (is_full) {
    key = Extend(parent < 0 ? roots_.at(root).key : nodes_[parent].key, tokens);
    if (const int32_t known = Lookup(key, parent_id, tokens); known >= 0) return known;
    if (!full_.try_emplace(key, block).second) return -1;
  } else {
    PrefixMatch match;
    FindPart(parent_id, tokens, &match);
    if (match.part_tokens == static_cast<int>(tokens.size())) return -1;
  }
  Node& node = nodes_[block];
  node = {.id = ++last_id_, .parent_id = parent_id, .root = root, .key = key,
          .filled = static_cast<int32_t>(tokens.size())};
  std::copy(tokens.begin(), tokens.end(), TokensOf(block));
  const auto [it, is_first] = first_child_.try_emplace(parent_id, block);
  if (!is_first) {
    node.next = it->second;
    nodes_[it->second].previous = block;
    it->second = block;
  }
  ++roots_.at(root).users;
  ++known_;
  return block;
}

void PrefixIndex::Forget(int32_t block) {
  Node& node = nodes_[block];
  if (node.filled == 0) return;
  if (node.filled == block_tokens_) full_.erase(node.key);
  if (node.next >= 0) nodes_[node.next].previous = node.previous;
  if (node.previous >= 0) {
    nodes_[node.previous].next = node.next;
  } else if (node.next >= 0) {
    first_child_.at(node.parent_id) = node.next;
  } else {
    first_child_.erase(node.parent_id);
  }
  const uint64_t root = node.root;
  node = {};
  --known_;
  LeaveRoot(root);
}

std::string PrefixIndex::Audit() const {
  int known = 0, linked = 0;
  size_t full = 0;
  for (size_t block = 0; block < nodes_.size(); ++block) {
    const Node& node = nodes_[block];
    if (node.filled == 0) continue;
    ++known;
    if (roots_.count(node.root) == 0) return fmt::format("block {} has a root that is gone", block);
    if (node.filled < block_tokens_) continue;
    ++full;
    const auto it = full_.find(node.key);
    if (it == full_.end() || it->second != static_cast<int32_t>(block)) {
      return fmt::format("block {} is not found by its key", block);
    }
  }
  if (known != known_) return fmt::format("{} blocks are known, {} are counted", known, known_);
  if (full != full_.size()) return fmt::format("{} blocks are full, {} keys are there", full, full_.size());
  for (const auto& [parent, first] : first_child_) {
    int32_t previous = -1;
    for (int32_t child = first; child >= 0; previous = child, child = nodes_[child].next, ++linked) {
      if (nodes_[child].parent_id != parent) return fmt::format("block {} is in the list of another parent", child);
      if (nodes_[child].previous != previous) return fmt::format("block {} is linked wrongly", child);
    }
  }
  return linked == known ? "" : fmt::format("{} blocks are known, {} are linked", known, linked);
}

}  // namespace hone
