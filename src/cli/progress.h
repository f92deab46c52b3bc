// A progress line on a terminal, redrawn in place. Draws nothing when it is not shown.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"

namespace hone {

class ProgressLine {
 public:
  ProgressLine(std::string label, bool shown) : label_(std::move(label)), shown_(shown) {}
  ~ProgressLine() { Clear(); }
  ProgressLine(const ProgressLine&) = delete;

  // "label   45 %  1.20 GiB of 2.70 GiB  ETA 3 s"; redrawn at most ten times a second.
  void Update(uint64_t done_bytes, uint64_t total_bytes);
  // The same for work that is not bytes: `share` of it in [0, 1], `what` is under way.
  void Update(double share, const std::string& what = "");
  void Clear();

 private:
  void Draw(double share, const std::string& done);
  std::string label_;
  bool shown_;
  bool drawn_ = false;
  Clock clock_;
  double start_s_ = clock_.Now();
  double last_s_ = -1;
};

// "1.20 GiB", "345.0 MiB", "12.5 KiB", "17 B"
std::string FormatBytes(uint64_t bytes);

}  // namespace hone
