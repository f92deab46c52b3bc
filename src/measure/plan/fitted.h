// Constants of predictions, fitted to what hone profile measured on this machine and kept for hone plan: which share of
// the roof decode and prefill reach, and what a step costs whatever it does.
//
// One JSON file, $XDG_STATE_HOME/hone/fitted.json (or ~/.local/state/hone/fitted.json), with an entry for each machine
// (as roof_cache.h tells them apart) and type of weights, newest first. A file that cannot be read is no error: the
// assumed constants stand.
#pragma once

#include <span>
#include <string>

#include "base/result.h"
#include "measure/plan/deployment.h"

namespace hone {

std::string FittedPath();  // "" if neither XDG_STATE_HOME nor HOME is set

// False, and `efficiency` stays, if there is no entry.
bool LoadFitted(const std::string& path, const std::string& machine, const std::string& weights, Efficiency* efficiency);
Result<void> SaveFitted(const std::string& path, const std::string& machine, const std::string& weights,
                        const Efficiency& efficiency);

// One measured step: what it did and how long it took.
struct MeasuredStep {
  double bytes = 0, flops = 0;  // as PredictStep counts them
  bool prefill = false;
  double seconds = 0;
  int sequences = 1;            // that get their next token
  double kv_bytes = 0;          // of the bytes, the cache's
};
// Least absolute logarithms of predicted over measured, none of the terms negative; a term stays only if it makes the
// errors smaller. Steps
// without prompts give the share of bandwidth, the share of the peak (of what more than one row takes) and what a step
// costs whatever it does; steps with prompts what the kernels of many rows take to read and unpack the weights, and their
// share of the peak. Figures that the steps cannot tell keep their value in `assumed`. The result adds reading and
// arithmetic up (Efficiency::overlapped is false).
Efficiency FitEfficiency(std::span<const MeasuredStep> steps, const Hardware& hardware, const WeightFormat& format,
                         const Efficiency& assumed);

}  // namespace hone
