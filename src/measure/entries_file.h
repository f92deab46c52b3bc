// A small JSON file that holds an array of entries, newest first: the roofs of hosts, fitted constants. For src/measure only.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/result.h"

namespace hone {

// An empty array if there is no such file, or none that makes sense.
nlohmann::ordered_json ReadEntries(const std::string& path);

// Puts `entry` in front of those that `keep` keeps, at most `most` in all. Whoever reads meanwhile sees the old file or the new one;
// of two that write at once, one wins. Errors name the file.
Result<void> PutEntry(const std::string& path, const nlohmann::ordered_json& entry, size_t most,
                      const std::function<bool(const nlohmann::ordered_json&)>& keep);

// entry[key] is the string `value`.
bool EntrySays(const nlohmann::ordered_json& entry, const char* key, const std::string& value);

}  // namespace hone
