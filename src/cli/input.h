// Texts and token ids that commands read from files, and text they write.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace hone {

// The bytes of a file; "-" is standard input. Errors name the path. At most 1 GiB.
Result<std::string> ReadText(const std::string& path);

// A JSON array of whole numbers, each in [0, vocab). Errors name the path, the entry and its value.
Result<std::vector<int32_t>> ReadIds(const std::string& path, int vocab);

// "[1, 2, 3]"
std::string FormatIds(const std::vector<int32_t>& ids);

// Writes all of `text` to stdout and flushes; false if nobody reads any more.
bool WriteOut(const std::string& text);

}  // namespace hone
