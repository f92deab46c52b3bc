// What binary-coded quantisation would give a model, measured: errors beside rounding at the same bits, and the time of
// its product beside the packed kernel of so many bits. There is no format that others read, so nothing is written.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/runtime.h"
#include "compress/folder/linear_format.h"
#include "compress/folder/quantize_folder.h"
#include "formats/checkpoint.h"

namespace hone {

struct BcqLine {
  std::string name;
  int64_t rows = 0, columns = 0;
  double bcq_error = 0;   // relative, of sampled rows
  double rtn_error = 0;   // of rounding to nearest with zero points and searched ranges; 0 for 1 bit
};

struct BcqReport {
  std::vector<BcqLine> lines;
  double bcq_bits = 0, rtn_bits = 0;      // a weight, scales included
  double bcq_ns = 0, packed_ns = 0;       // a weight and product of one row, on all threads
  std::string packed_kernel;
};

// Errors: what PlanFolder refuses; --bits not 1 to 4; groups that do not divide; a stop.
Result<BcqReport> CompareBcq(const Checkpoint& checkpoint, int bits, int64_t group,
                             const std::function<bool(double)>& progress, const Runtime& runtime);
// A table and what follows from it.
std::string BcqText(const BcqReport& report, int bits, int64_t group);

}  // namespace hone
