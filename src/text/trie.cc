// Built level by level from the sorted strings, so that the children of a node lie together.
#include "text/trie.h"

#include <algorithm>
#include <string>

namespace hone {

Trie::Trie(std::vector<std::pair<std::string_view, int32_t>> entries) {
  std::erase_if(entries, [](const auto& entry) { return entry.first.empty(); });
  if (entries.empty()) return;
  std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.first < b.first; });

  struct Span {  // the entries that share the path to a node
    uint32_t node;
    size_t begin, end, depth;
  };
  nodes_.emplace_back();
  std::vector<Span> queue{{0, 0, entries.size(), 0}};
  for (size_t next = 0; next < queue.size(); ++next) {
    Span span = queue[next];
    while (span.begin < span.end && entries[span.begin].first.size() == span.depth) {
      nodes_[span.node].value = entries[span.begin++].second;
    }
    nodes_[span.node].first_child = static_cast<uint32_t>(nodes_.size());
    while (span.begin < span.end) {
      const char label = entries[span.begin].first[span.depth];
      size_t end = span.begin;
      while (end < span.end && entries[end].first[span.depth] == label) ++end;
      queue.push_back({static_cast<uint32_t>(nodes_.size()), span.begin, end, span.depth + 1});
      nodes_.emplace_back();
      nodes_.back().label = static_cast<unsigned char>(label);
      ++nodes_[span.node].children;
      span.begin = end;
    }
  }
  for (uint32_t i = 0; i < nodes_[0].children; ++i) {
    first_[nodes_[nodes_[0].first_child + i].label] = nodes_[0].first_child + i;
  }
}

}  // namespace hone
