// Whole matrices rounded to nearest into codes 0 .. 2^b - 1 and grids whose scales are what a format stores: for methods
// that choose ranges, not codes (clipped round-to-nearest, AWQ). LinearFormat::EncodeCodes writes them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/threads.h"
#include "compress/folder/linear_format.h"
#include "compress/numbers/uniform.h"

namespace hone {

struct RoundedCodes {
  std::vector<uint8_t> codes;      // [rows, columns]
  std::vector<Grid> grids;         // [rows, groups]
  std::vector<int32_t> group_of;   // [columns]
  LinearCodes View(int64_t rows, int64_t columns, DType dtype) const {
    return {rows, columns, dtype, codes, grids, group_of};
  }
};

// group: columns, 0 for a whole row. Scales are rounded to `scale_type` before codes are made, and never become zero;
// zeros are whole and in the codes' range. With kAwq and scales of F16 all arithmetic is that of F16, as AutoAWQ's.
// REQUIRES: spec.rule is kGptq or kAwq; finite w; whole groups.
RoundedCodes RoundToCodes(const GridSpec& spec, DType scale_type, std::span<const float> w, int64_t rows,
                          int64_t columns, int64_t group, ThreadPool& threads);

}  // namespace hone
