// A matrix compared with what its file will give while its codes are made, although scales become what the file holds only when all
// are known. A weight x of a block with the exact scale s and the stored one s' was coded as the value v: then
//   x - s' v = (x - s v) + (s - s') v,
// so the squares of a block add up to sum (x - s v)^2 + 2 (s - s') sum (x - s v) v + (s - s')^2 sum v^2. No term is much larger than
// the sum: the weight that s is the size of has the code of 1 or -1 and an error of |s - s'| alone. What is largest of all is found by
// decoding stretches, those where it can be largest first, until no other can hold more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/function_ref.h"
#include "compress/folder/linear_format.h"
#include "compress/numbers/codebooks.h"
#include "compress/numbers/slices.h"

namespace hone {

class BlockComparison {
 public:
  // A matrix of `weights` in blocks of `block`, an even number (the last may be shorter), and stretches of whole blocks, the last as
  // long as is left. What the one before took is used again: pages that the system has to clear take as long as the comparison.
  void Begin(int64_t weights, int64_t block, int64_t stretch);

  // Stretch `index`: its weights, their codes two a byte, the first in the high half, as entries of 16 values within -1 .. 1, and the
  // exact scales of its blocks. Thread-safe for different stretches. REQUIRES: an even number of finite weights.
  void Add(int64_t index, std::span<const float> x, const std::byte* packed, const float* values, std::span<const float> scales,
           const Slices& slices);
  // When all are there, with the scales of all blocks and what became of them. largest(index): the largest |w' - w| of a stretch by
  // decoding it.
  Deviation Finish(std::span<const float> scales, const DoubleQuantized& stored, FunctionRef<double(int64_t index)> largest) const;

 private:
  void AddOne(std::span<const float> x, const std::byte* packed, const float* values, double scale, CodeSums* sums, int64_t index);
  int64_t block_ = 0, stretch_blocks_ = 0;
  size_t blocks_ = 0;
  std::vector<CodeSums> sums_;            // a block, and room
  std::vector<double> errors_, largest_;  // a stretch, under the exact scales
};

}  // namespace hone
