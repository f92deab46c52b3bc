// Build keeps only what can end: a state's height is the least number of calls within calls on any way to the end of its rule,
// by relaxation; states without one are dead, and edges to them are left out.
#include "engine/grammar/grammar.h"

#include <algorithm>
#include <array>

namespace hone {
namespace {

constexpr int kNoHeight = 1 << 28;
constexpr int kMaxSweeps = 1000;  // of the relaxation: beyond it lie only grammars made to be slow

}  // namespace

int GrammarBuilder::AddState() {
  // What is beyond the limit is one state, so that memory stays bounded; Build refuses the whole.
  if (full()) return static_cast<int>(edges_.size()) - 1;
  edges_.emplace_back();
  return static_cast<int>(edges_.size()) - 1;
}

GrammarBuilder::Rule GrammarBuilder::AddRule() {
  const Rule rule = {AddState(), AddState()};
  ends_.push_back(rule.end);
  return rule;
}

void GrammarBuilder::Bytes(int from, uint8_t first, uint8_t last, int to) {
  if (!full()) edges_[from].push_back({Grammar::Step::kByte, first, last, to, 0});
}

void GrammarBuilder::Empty(int from, int to) {
  if (!full()) edges_[from].push_back({Grammar::Step::kEmpty, 0, 0, to, 0});
}

void GrammarBuilder::Call(int from, const Rule& rule, int to) {
  if (!full()) edges_[from].push_back({Grammar::Step::kCall, 0, 0, to, rule.start});
}

int GrammarBuilder::Text(int from, std::string_view bytes) {
  for (const char c : bytes) {
    const int to = AddState();
    Bytes(from, static_cast<uint8_t>(c), static_cast<uint8_t>(c), to);
    from = to;
  }
  return from;
}

int GrammarBuilder::Call(int from, const Rule& rule) {
  const int to = AddState();
  Call(from, rule, to);
  return to;
}

// Knuth, Morris, Pratt: state k has seen the first k bytes of the mark.
int GrammarBuilder::UpTo(int from, std::string_view mark, std::vector<int>* before) {
  const size_t size = mark.size();
  std::vector<std::array<int, 256>> next(size);
  for (size_t k = 0, restart = 0; k < size; ++k) {
    const auto c = static_cast<uint8_t>(mark[k]);
    if (k == 0) next[0].fill(0);
    else next[k] = next[restart];
    const size_t fallback = k == 0 ? 0 : static_cast<size_t>(next[restart][c]);
    next[k][c] = static_cast<int>(k) + 1;
    restart = fallback;
  }
  std::vector<int> states = {from};
  while (states.size() <= size) states.push_back(AddState());
  for (size_t k = 0; k < size; ++k) {
    for (int first = 0, last = 0; first < 256; first = last + 1) {
      last = first;
      while (last < 255 && next[k][last + 1] == next[k][first]) ++last;
      Bytes(states[k], static_cast<uint8_t>(first), static_cast<uint8_t>(last), states[next[k][first]]);
    }
  }
  if (before != nullptr) before->assign(states.begin(), states.end() - 1);
  return states[size];
}

Result<std::shared_ptr<const Grammar>> GrammarBuilder::Build(const Rule& rule, std::vector<std::string> marks) {
  if (full()) return Error{ErrorCode::kLimit, "it needs more than " + std::to_string(kMaxGrammarStates) + " states"};
  const int count = static_cast<int>(edges_.size());
  std::vector<int32_t> height(count, kNoHeight);
  std::vector<uint8_t> is_end(count, 0);
  for (const int end : ends_) is_end[end] = 1, height[end] = 0;
  const auto of_edge = [&](const Edge& edge) {
    if (edge.step != Grammar::Step::kCall) return height[edge.to];
    if (height[edge.to] >= kNoHeight || height[edge.callee] >= kNoHeight) return kNoHeight;
    return is_end[edge.to] ? height[edge.callee] : std::max(height[edge.to], height[edge.callee] + 1);
  };
  bool changed = true;
  for (int sweep = 0; changed; ++sweep) {
    if (sweep == kMaxSweeps) return Error{ErrorCode::kLimit, "its rules are nested too deeply"};
    changed = false;
    for (int state = count - 1; state >= 0; --state) {
      for (const Edge& edge : edges_[state]) {
        if (const int found = of_edge(edge); found < height[state]) height[state] = found, changed = true;
      }
    }
  }
  if (height[rule.start] > kMaxGrammarDepth) {
    if (height[rule.start] >= kNoHeight) return InvalidInput("nothing fits it");
    return Error{ErrorCode::kLimit, "its rules are nested too deeply"};
  }
  auto grammar = std::make_shared<Grammar>();
  grammar->start_ = rule.start;
  grammar->marks_ = std::move(marks);
  grammar->reads_.resize(count, 0);
  for (int state = 0; state < count; ++state) {
    grammar->first_edge_.push_back(static_cast<int32_t>(grammar->edges_.size()));
    for (const Edge& edge : edges_[state]) {
      if (of_edge(edge) >= kNoHeight) continue;
      grammar->edges_.push_back({edge.to, edge.callee, edge.step, edge.first, edge.last,
                                 edge.step == Grammar::Step::kCall && is_end[edge.to] != 0});
      if (edge.step == Grammar::Step::kByte) grammar->reads_[state] = 1;
    }
  }
  grammar->first_edge_.push_back(static_cast<int32_t>(grammar->edges_.size()));
  grammar->height_ = std::move(height);
  grammar->ends_ = std::move(is_end);
  return std::shared_ptr<const Grammar>(std::move(grammar));
}

}  // namespace hone
