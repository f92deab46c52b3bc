// Imatrix: how much each input column of each matrix is used: sums of squared inputs over calibration tokens. Read and
// written as llama.cpp's importance matrices: GGUF (general.type "imatrix") and the older .dat, told apart by content.
// Everything that comes from a file is checked. Layouts: docs/formats/imatrix.md.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"

namespace hone {

// One matrix, or the experts of a stacked one.
struct ImatrixEntry {
  int64_t columns = 0;
  std::vector<float> sums;    // [matrices][columns], sum over tokens of x^2
  std::vector<float> counts;  // [matrices], tokens seen
  int64_t matrices() const { return static_cast<int64_t>(counts.size()); }
};

struct Imatrix {
  std::map<std::string, ImatrixEntry> entries;  // by the tensor's GGUF name
  std::vector<std::string> datasets;
  uint32_t chunks = 0, chunk_tokens = 0;

  // Mean squares [matrices * columns]; 1 for a matrix that saw no token.
  static std::vector<float> Importance(const ImatrixEntry& entry);
};

// Errors name the file, the entry, what was found and wanted: numbers that are negative, NaN or infinite too.
Result<Imatrix> ReadImatrix(const std::string& path);
// GGUF, entries by name.
Result<void> WriteImatrix(const std::string& path, const Imatrix& imatrix);

}  // namespace hone
