// priority: the smaller number first, of equal ones first come, first served. Promises nothing to the less important:
// while there is enough important work they wait (their time limits end that).
#include "engine/policies/policy.h"

namespace hone {
namespace {

bool Before(const Rank& a, const Rank& b) {
  return a.priority != b.priority ? a.priority < b.priority : a.arrival < b.arrival;
}
bool Outranks(const Rank& a, const Rank& b) { return a.priority < b.priority; }

}  // namespace

const Policy kPriorityPolicy = {"priority", Before, Outranks};

}  // namespace hone
