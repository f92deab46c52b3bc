// Trie: a set of byte strings with numbers; finds every member that starts at a place of a text. Immutable once built.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace hone {

class Trie {
 public:
  Trie() = default;
  // Of equal strings the last one's number holds. Empty strings are left out. Strings may be borrowed for the call
  // only.
  explicit Trie(std::vector<std::pair<std::string_view, int32_t>> entries);

  // Calls visit(length, value) for each member that is a prefix of `text`, shortest first. Stops where no member goes
  // on.
  template <typename Visit>
  void Prefixes(std::string_view text, Visit&& visit) const {
    if (text.empty() || nodes_.empty()) return;
    uint32_t node = first_[static_cast<unsigned char>(text[0])];
    for (size_t length = 1; node != 0; ++length) {
      const Node& at = nodes_[node];
      if (at.value >= 0) visit(length, at.value);
      if (length >= text.size()) return;
      node = Child(at, static_cast<unsigned char>(text[length]));
    }
  }
  bool StartsAny(unsigned char byte) const { return first_[byte] != 0; }
  bool empty() const { return nodes_.empty(); }

 private:
  struct Node {
    uint32_t first_child = 0;
    int32_t value = -1;
    uint16_t children = 0;
    unsigned char label = 0;
  };
  uint32_t Child(const Node& node, unsigned char label) const {
    uint32_t low = node.first_child, count = node.children;
    while (count > 0) {  // children lie together, sorted by label
      const uint32_t half = count / 2;
      const unsigned char at = nodes_[low + half].label;
      if (at == label) return low + half;
      if (at < label) {
        low += half + 1;
        count -= half + 1;
      } else {
        count = half;
      }
    }
    return 0;
  }

  std::vector<Node> nodes_;  // [0] is the root
  std::array<uint32_t, 256> first_{};
};

}  // namespace hone
