// Inside report/: what a report says and draws of one kind of run beyond its figures: of a profile where the time goes and
// how good predictions were, of a simulation and a plan what was computed and on which assumptions.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace hone {

struct Conclusions {
  std::vector<std::string> shown, inferred, open;
};

// Adds to `conclusions`, `charts` and `tables` what `result`, the run's own JSON, tells; nothing of a kind without a view.
void AddView(const std::string& kind, const nlohmann::ordered_json& result, Conclusions* conclusions, nlohmann::ordered_json* charts,
             nlohmann::ordered_json* tables);

}  // namespace hone
