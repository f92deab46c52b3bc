// OpTimes: where the time of steps goes, op by op, for whoever asks (hone profile). The blocks of a step open an
// OpScope; with nobody asking that is one test of a pointer.
//
// Scopes of one step are opened on the thread that steps. The outermost scope takes all of its time: a projection
// inside a feed-forward belongs to the feed-forward. Not thread-safe: read between steps.
#pragma once

#include <array>
#include <string_view>

#include "base/clock.h"

namespace hone {

enum class Op { kEmbed, kNorm, kProjection, kRope, kAttention, kFfn, kExperts, kResidual, kOutput, kSample, kOther };
inline constexpr int kOps = static_cast<int>(Op::kOther) + 1;

constexpr std::string_view OpName(Op op) {
  constexpr std::string_view kNames[kOps] = {"embedding", "norm",    "attention projections", "rope",  "attention", "feed-forward",
                                             "experts",   "residual", "output matrix",         "sample", "other"};
  return kNames[static_cast<int>(op)];
}

struct OpTimes {
  const Clock* clock = nullptr;
  std::array<double, kOps> seconds{};  // kOther stays 0: it is what a step took beyond the others
  bool open = false;
};

class OpScope {
 public:
  OpScope(OpTimes* times, Op op) : times_(times) {
    if (times_ == nullptr) return;
    if (times_->open) {
      times_ = nullptr;
      return;
    }
    times_->open = true;
    op_ = op;
    start_s_ = times_->clock->Now();
  }
  ~OpScope() {
    if (times_ == nullptr) return;
    times_->open = false;
    times_->seconds[static_cast<int>(op_)] += times_->clock->Now() - start_s_;
  }
  OpScope(const OpScope&) = delete;
  OpScope& operator=(const OpScope&) = delete;

 private:
  OpTimes* times_;
  Op op_ = Op::kOther;
  double start_s_ = 0;
};

}  // namespace hone
