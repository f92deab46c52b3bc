// fcfs: first come, first served. The oldest sequence moves in every step and never loses its blocks; everybody becomes
// the oldest, so everybody ends.
#include "engine/policies/policy.h"

namespace hone {
namespace {

bool Before(const Rank& a, const Rank& b) { return a.arrival < b.arrival; }
bool Outranks(const Rank&, const Rank&) { return false; }

}  // namespace

const Policy kFcfsPolicy = {"fcfs", Before, Outranks};

}  // namespace hone
