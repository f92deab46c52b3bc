// Texts and token ids that commands read from files, and text they write.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "base/result.h"

namespace hone {

// The bytes of a file; "-" is standard input. Errors name the path. At most 1 GiB.
Result<std::string> ReadText(const std::string& path);

// Before work that takes long: a file can be made at `output` (its folder is there and may be written), and it is none
// of `inputs`, by whatever name, nor a file of an input folder. An empty input is none.
Result<void> CheckOutput(const std::string& output, std::initializer_list<std::string> inputs);

// A JSON array of whole numbers, each in [0, vocab). Errors name the path, the entry and its value.
Result<std::vector<int32_t>> ReadIds(const std::string& path, int vocab);

// "[1, 2, 3]"
std::string FormatIds(const std::vector<int32_t>& ids);

// Makes or replaces a file. Errors name it.
Result<void> WriteFile(const std::string& path, const std::string& text);

// Writes all of `text` to stdout and flushes; false if nobody reads any more.
bool WriteOut(const std::string& text);

}  // namespace hone
