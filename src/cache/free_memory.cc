// Reads /proc/meminfo and the control group's files; a file that is missing or odd is as if it set no limit.
#include "cache/free_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>

namespace hone {
namespace {

// The number after `key` in a file of "key value" lines.
std::optional<uint64_t> Field(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  std::string word;
  uint64_t value = 0;
  while (file >> word) {
    if (word == key && file >> value) return value;
    file.clear();
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return std::nullopt;
}

std::optional<uint64_t> Number(const std::string& path) {  // "max" is no number
  std::ifstream file(path);
  uint64_t value = 0;
  if (file >> value) return value;
  return std::nullopt;
}

}  // namespace

uint64_t FreeMemoryBytes(const std::string& root) {
  uint64_t free_bytes = 0;
  if (const auto kib = Field(root + "/proc/meminfo", "MemAvailable:")) free_bytes = *kib * 1024;
  std::string group;
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("0::", 0) == 0) group = line.substr(3);
  }
  // Inside a container the path often is not visible and the own group is the root of the mount.
  for (const std::string& folder : {root + "/sys/fs/cgroup" + group, root + "/sys/fs/cgroup"}) {
    const auto limit = Number(folder + "/memory.max"), used = Number(folder + "/memory.current");
    if (!limit || !used) continue;
    const uint64_t cached = Field(folder + "/memory.stat", "inactive_file").value_or(0);
    const uint64_t busy = *used - std::min(*used, cached);
    const uint64_t left = *limit - std::min(*limit, busy);
    free_bytes = free_bytes == 0 ? left : std::min(free_bytes, left);
    break;
  }
  return free_bytes;
}

}  // namespace hone
