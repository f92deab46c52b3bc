// See progress.h.
#include "cli/progress.h"

#include <fmt/core.h>

#include <cstdio>

namespace hone {

void ProgressLine::Update(uint64_t done_bytes, uint64_t total_bytes) {
  if (total_bytes == 0) return;
  Draw(static_cast<double>(done_bytes) / static_cast<double>(total_bytes),
       FormatBytes(done_bytes) + " of " + FormatBytes(total_bytes));
}

void ProgressLine::Update(double share, const std::string& what) { Draw(share, what); }

void ProgressLine::Draw(double share, const std::string& done) {
  const double now_s = clock_.Now();
  if (!shown_ || (last_s_ >= 0 && now_s - last_s_ < 0.1 && share < 1)) return;
  last_s_ = now_s;
  std::string eta;
  if (share > 0.02 && share < 1) eta = fmt::format("  ETA {:.0f} s", (now_s - start_s_) * (1 - share) / share);
  const std::string line = fmt::format("\r{}  {:3.0f} %  {}{}\x1b[K", label_, 100 * share, done, eta);
  std::fwrite(line.data(), 1, line.size(), stderr);
  std::fflush(stderr);
  drawn_ = true;
}

void ProgressLine::Clear() {
  if (!drawn_) return;
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
  drawn_ = false;
}

std::string FormatBytes(uint64_t bytes) {
  const double b = static_cast<double>(bytes);
  if (bytes >= uint64_t{1} << 30) return fmt::format("{:.2f} GiB", b / (1 << 30));
  if (bytes >= uint64_t{1} << 20) return fmt::format("{:.1f} MiB", b / (1 << 20));
  if (bytes >= uint64_t{1} << 10) return fmt::format("{:.1f} KiB", b / (1 << 10));
  return fmt::format("{} B", bytes);
}

}  // namespace hone
