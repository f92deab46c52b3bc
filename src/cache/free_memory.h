// How much memory this process may still take: what the machine has left and what its control group allows.
#pragma once

#include <cstdint>
#include <string>

namespace hone {

// Bytes; 0 if unknown. The smaller of MemAvailable and (cgroup v2 memory.max - memory.current, page cache counted as
// free). `root` is prefixed to /proc and /sys paths, for tests.
uint64_t FreeMemoryBytes(const std::string& root = "");

}  // namespace hone
