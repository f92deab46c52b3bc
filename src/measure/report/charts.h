// Inside report/: which charts the figures of an experiment make. A figure's cell, "[tokens=512,batch=4]", is its place
// on the axes: one number is a curve, two are curves and a heat map; points of a sweep are latency against throughput.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "measure/ledger/ledger.h"

namespace hone {

// An array of {kind: "lines", title, x, y, categories?, series: [{name, points: [[x, value, low, high]]}]} and
// {kind: "heat", title, x, y, unit, xs, ys, cells: [[column, row, value]], around?}. low and high are null where there
// is no interval; `around`: the value that is neutral (1 for ratios).
nlohmann::ordered_json ReportCharts(const LedgerEntry& entry, const std::optional<LedgerEntry>& base);

// "experiment 7", or "this run" of one that is in no ledger.
std::string ExperimentName(const LedgerEntry& entry);

// "ms", "tok/s", "requests/s", "bytes", "s", "%", "" of a figure's name.
std::string UnitOf(const std::string& figure);

}  // namespace hone
