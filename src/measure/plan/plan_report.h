// What hone plan prints: the account, predictions, formats side by side, what bounds it, the next step, and, where
// constraints were given, the whole plan step by step. A table for people and JSON for scripts; the same text that
// docs/plan.md shows, which a test compares.
#pragma once

#include <string>
#include <vector>

#include "measure/ledger/ledger.h"
#include "measure/plan/guide.h"
#include "measure/plan/read_shape.h"

namespace hone {

struct PlanReport {
  PlannedModel model;
  std::string model_name;   // how commands name it
  Deployment deployment;
  Constraints asked;
  bool steps = false;       // print the step-by-step plan
  std::vector<int> batches = {1, 8, 32};
};

// The plan as the ledger keeps it; `json`: PlanJson(). Figures are exact arithmetic, on assumed or fitted constants.
LedgerEntry PlanEntry(const PlanReport& report, const std::string& json);

std::string PlanTable(const PlanReport& report);
std::string PlanJson(const PlanReport& report);
std::string StepPlanText(const PlanReport& report);  // only the steps

// hone plan --list: shapes, cards, formats.
std::string PlanLists(bool json);

}  // namespace hone
