// The list of policies.inc as a table.
#include "engine/policies/policy.h"

namespace hone {
namespace {

constexpr const Policy* kPolicies[] = {
#define HONE_POLICY(Name) &k##Name##Policy,
#include "engine/policies/policies.inc"
#undef HONE_POLICY
};

}  // namespace

std::span<const Policy* const> Policies() { return kPolicies; }

const Policy* FindPolicy(std::string_view name) {
  for (const Policy* policy : kPolicies) {
    if (policy->name == name) return policy;
  }
  return nullptr;
}

}  // namespace hone
