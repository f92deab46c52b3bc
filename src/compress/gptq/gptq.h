// GPTQ (Frantar et al. 2022, arXiv 2210.17323): columns are rounded one after the other, and the rest of a row makes up
// for each error as the inputs' second moments H = X^T X tell (sweep.h). OBQ (arXiv 2208.11580), the slow oracle for
// small layers.
//
// By default as the authors' code where that differs from the paper: the grid of a group inside a block of 128 columns
// is found from weights that hold the updates of earlier blocks only; without groups it is found before dead columns
// are zeroed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/threads.h"
#include "compress/gptq/sweep.h"
#include "compress/numbers/uniform.h"
#include "tensor/dtype.h"

namespace hone {

struct GptqOptions {
  GridSpec grid;      // rule kGptq
  int64_t group = 0;  // columns a group; 0: the whole row
  ColumnOrder order = ColumnOrder::kNatural;
  bool static_groups = false;  // grids of all groups from the original weights, in natural order
  double damping = 0.01;       // added to the diagonal, of its mean
  Isa isa = Isa::kScalar;
  // Beyond the authors' code:
  bool fresh_grids = false;            // grids see all updates (needs a group that divides 128)
  bool search_scale = false;           // of shrunk ranges the one with the least error, weighted as the sweep weighs it
  DType scale_type = DType::kF32;      // scales are rounded to F16 or BF16 before codes are made; never to zero
};

struct GptqResult {
  std::vector<uint8_t> codes;     // [rows, columns], natural order
  std::vector<Grid> grids;        // [rows, groups]
  std::vector<int32_t> group_of;  // [columns]: the group whose grid a column uses
  double loss = 0;                // sum of squared errors over the factor's diagonal, / 2
  double damping = 0;             // that was used
  GptqFallback fallback = GptqFallback::kNone;
  int64_t dead_columns = 0;  // inputs that are always zero: their weights become zero
  int64_t groups() const { return group_of.empty() ? 0 : 1 + *std::max_element(group_of.begin(), group_of.end()); }
};

// w: [rows, columns]. h: [columns, columns], symmetric. Never fails: where H cannot be factored the columns are rounded
// to nearest at last, and `fallback` says so. REQUIRES: finite w, bits in 2 .. 8; kGroupAware needs a group that divides
// the columns.
GptqResult QuantizeGptq(std::span<const float> w, int64_t rows, std::span<const float> h, const GptqOptions& options,
                        ThreadPool& threads);
// The same with a factor that was made before, for the order and group of `options`.
GptqResult QuantizeGptq(std::span<const float> w, int64_t rows, const GptqFactor& factor, const GptqOptions& options,
                        ThreadPool& threads);

// OBQ of one row under a fixed grid, all in double: the weight whose rounding costs least goes first. Returns the
// codes; `order` gets the columns as they were taken, `loss` half the summed cost. Zero weights are fixed first.
std::vector<int> QuantizeObqRow(const GridSpec& spec, const Grid& grid, std::span<const float> row,
                                std::span<const double> h, std::vector<int>* order, double* loss);

}  // namespace hone
