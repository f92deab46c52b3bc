// PrefixIndex: which block holds the keys and values of which tokens after which tokens. A pure state machine over
// integers, like BlockPool, which it knows nothing of. Design and what it protects from: docs/prefix-cache.md.
//
// Every known block is a node of a tree. Its key is a hash chain, H(key of the parent, its token ids); the key of a
// root is H(text), where the text says everything else that the content depends on (PrefixRootText). Blocks of
// kKvBlockTokens are found by key; one with fewer tokens (the end of a sequence) by looking at the children of its
// parent. The hash only finds: a node is taken for a match if its own token ids are equal and its parent is the very
// node that was matched before it, so no collision of hashes can give a sequence the content of another one.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "kernels/attention/kv_view.h"

namespace hone {

// The text of a root: two are equal only if all of their parts are. `adapter`: content id, "" without one.
std::string PrefixRootText(std::string_view weights_digest, std::string_view adapter, std::string_view kv_format,
                           std::string_view salt);

struct PrefixMatch {
  std::vector<int32_t> blocks;  // full blocks, in order
  int32_t part = -1;            // a block whose first `part_tokens` tokens are the next ones; -1: none
  int part_tokens = 0;
  int block_tokens = kKvBlockTokens;
  int tokens() const { return static_cast<int>(blocks.size()) * block_tokens + part_tokens; }
};

class PrefixIndex {
 public:
  // `secret` seeds the hash: who does not know it cannot make prompts whose keys collide.
  PrefixIndex(int blocks, uint64_t secret, int block_tokens = kKvBlockTokens);

  // The root of this text, made if it is new; it lives until as many CloseRoot and all of its blocks are forgotten.
  uint64_t OpenRoot(const std::string& text);
  void CloseRoot(uint64_t root);

  // The longest known prefix of `tokens`. A part of a block is reported only if it has kMinPartTokens or all of what
  // is left.
  void Find(uint64_t root, std::span<const int32_t> tokens, PrefixMatch* match) const;

  // `block` now holds `tokens` (1 to kKvBlockTokens of them) after the node of `parent` (-1: after the root). Returns
  // the block that holds just that: `block` itself, or one known before it, and then `block` is not known. -1: the key
  // is taken by something else, or a part that is known already; nothing was done. What was known of `block` before is
  // forgotten. REQUIRES: the parent is a known full block.
  int32_t Insert(uint64_t root, int32_t parent, std::span<const int32_t> tokens, int32_t block);
  void Forget(int32_t block);  // nothing, if it is not known
  bool Knows(int32_t block) const { return nodes_[block].filled > 0; }
  int known() const { return known_; }
  int roots() const { return static_cast<int>(roots_.size()); }

  // "" if the tree is consistent, else what is not. Linear in blocks: for tests.
  std::string Audit() const;

  static constexpr int kMinPartTokens = 8;
  static constexpr int kMaxChildrenLooked = 16;  // for a part, the newest children of a node

 private:
  struct Key {
    uint64_t low = 0, high = 0;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const { return key.low; }
  };
  struct Node {
    uint64_t id = 0, parent_id = 0, root = 0;  // ids are never used again
    Key key;
    int32_t filled = 0;  // tokens; 0: the block is not known
    int32_t next = -1, previous = -1;  // among the children of the parent
  };
  struct Root {
    std::string text;
    Key key;
    int users = 0;  // OpenRoot and blocks
  };

  Key Extend(const Key& parent, std::span<const int32_t> tokens) const;
  // The full block with this key, these tokens and this parent; -1 if there is none.
  int32_t Lookup(const Key& key, uint64_t parent_id, std::span<const int32_t> tokens) const;
  void FindPart(uint64_t parent_id, std::span<const int32_t> tokens, PrefixMatch* match) const;
  int32_t* TokensOf(int32_t block) { return &tokens_[static_cast<size_t>(block) * block_tokens_]; }
  const int32_t* TokensOf(int32_t block) const { return &tokens_[static_cast<size_t>(block) * block_tokens_]; }
  void LeaveRoot(uint64_t root);

  const uint64_t secret_;
  const int block_tokens_;
  std::vector<Node> nodes_;      // [blocks]
  std::vector<int32_t> tokens_;  // [blocks][block_tokens_]
  std::unordered_map<Key, int32_t, KeyHash> full_;
  std::unordered_map<uint64_t, int32_t> first_child_;  // by id of the parent or root
  std::unordered_map<std::string, uint64_t> root_ids_;
  std::unordered_map<uint64_t, Root> roots_;
  uint64_t last_id_ = 0;
  int known_ = 0;
};

}  // namespace hone
