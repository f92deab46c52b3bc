// mlfq: skip-join multi-level feedback queue (FastServe, arXiv 2305.05920). Short work before long work, without
// knowing how long an output will be: a sequence joins the first level whose quantum holds its prompt (so a long prompt
// does not pass through levels it would only be thrown out of), and falls a level when it has used its quantum there,
// measured in tokens. Within a level: first come, first served.
//
// Nobody starves: who got no token for kMlfqPatience steps is back at the first level, behind those who are there
// already, each of whom leaves it after at most kMlfqQuantum tokens.
#include <algorithm>

#include "engine/policies/policy.h"

namespace hone {
namespace {

int64_t Quantum(int level) { return int64_t{kMlfqQuantum} << level; }

void Enter(int level, Rank* rank, PolicyClock* clock) {
  rank->level = level;
  rank->order = clock->orders++;
  rank->served = 0;
}

bool Before(const Rank& a, const Rank& b) { return a.level != b.level ? a.level < b.level : a.order < b.order; }
bool Outranks(const Rank& a, const Rank& b) { return a.level < b.level; }

void Joined(Rank* rank, PolicyClock* clock, int tokens) {
  int level = 0;
  while (level < kMlfqLevels - 1 && Quantum(level) < tokens) ++level;
  Enter(level, rank, clock);
}

void Served(Rank* rank, PolicyClock* clock, int tokens) {
  rank->served += tokens;
  if (rank->served >= Quantum(rank->level)) Enter(std::min(rank->level + 1, kMlfqLevels - 1), rank, clock);
}

void Aged(Rank* rank, PolicyClock* clock) {
  if (rank->level > 0 && clock->step - rank->last_served > kMlfqPatience) Enter(0, rank, clock);
}

}  // namespace

const Policy kMlfqPolicy = {"mlfq", Before, Outranks, Joined, Served, Aged};

}  // namespace hone
