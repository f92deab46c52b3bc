// The roof of this host, kept from run to run: measured once, read afterwards.
//
// One JSON file, $XDG_CACHE_HOME/hone/roof.json (or ~/.cache/hone/roof.json), with a few entries, newest first. An
// entry counts only for the same CPU, cores, threads, ISA, system, microcode and version of hone. A file that cannot be
// read or written is no error: the roof is then measured again.
#pragma once

#include <string>

#include "base/runtime.h"
#include "measure/roof.h"

namespace hone {

// "" if neither XDG_CACHE_HOME nor HOME is set.
std::string RoofCachePath();

// What must agree for an entry to count.
std::string RoofKey(const Runtime& runtime, const MachineFacts& machine);

// Fills the measured figures; false if there is no entry for `key`.
bool LoadRoof(const std::string& path, const std::string& key, Roof* roof);
Result<void> SaveRoof(const std::string& path, const std::string& key, const Roof& roof);

// From the cache unless `fresh`; measures and saves otherwise.
Roof CachedRoof(const Runtime& runtime, bool fresh, const std::function<void(double share)>& progress);

}  // namespace hone
