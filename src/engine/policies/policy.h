// Policy: which sequence is more important than which. Each is one file here and one line in policies.inc. A policy is
// pure: integers in, an order out; time is the number of steps. What the scheduler makes of the order, and the promise
// of each policy: docs/scheduler.md.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace hone {

// What a policy knows of one sequence.
struct Rank {
  uint64_t arrival = 0;      // smaller came first; unique
  int priority = 0;          // smaller is more important
  uint64_t last_served = 0;  // step in which it last got tokens; before the first time, the one in which it came
  int level = 0;             // the rest belongs to the policy
  uint64_t order = 0;
  int64_t served = 0;
};

struct PolicyClock {
  uint64_t step = 0;
  uint64_t orders = 0;  // next Rank::order
};

struct Policy {
  std::string_view name;
  // A strict total order: a gets places and tokens before b, and keeps its blocks longer.
  bool (*before)(const Rank& a, const Rank& b);
  // A waiting a may take the blocks of a running b. Implies before(a, b).
  bool (*outranks)(const Rank& a, const Rank& b);
  // A sequence with so many tokens to compute has come; it got so many tokens; a step begins. nullptr: nothing to do.
  void (*joined)(Rank* rank, PolicyClock* clock, int tokens) = nullptr;
  void (*served)(Rank* rank, PolicyClock* clock, int tokens) = nullptr;
  void (*aged)(Rank* rank, PolicyClock* clock) = nullptr;
};

#define HONE_POLICY(Name) extern const Policy k##Name##Policy;
#include "engine/policies/policies.inc"
#undef HONE_POLICY

// All policies, the default first.
std::span<const Policy* const> Policies();
const Policy* FindPolicy(std::string_view name);  // nullptr: there is none of this name

// mlfq: tokens that a sequence gets at the first level before it falls to the next, where it is twice as much; levels;
// steps without a token after which a sequence is back at the first level.
inline constexpr int kMlfqQuantum = 64, kMlfqLevels = 8, kMlfqPatience = 256;

}  // namespace hone
