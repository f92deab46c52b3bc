// The sweep that GPTQ is made of (Frantar et al. 2022, arXiv 2210.17323), apart from what columns are rounded to: the
// factor of the inputs' second moments, and the pass over the columns in which the rest of a row makes up for each
// rounding error. gptq.h rounds to uniform grids, block_rounder.h to GGUF's blocks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/cpu.h"
#include "base/memory.h"
#include "base/threads.h"

namespace hone {

enum class ColumnOrder : uint8_t {
  kNatural,
  kActivation,  // by diag(H), falling ("act-order"): with groups of its own order, columns of a group lie apart
  kGroupAware,  // within each group by diag(H), groups by their largest: groups stay whole
};

enum class GptqFallback : uint8_t { kNone, kMoreDamping, kRounding };

// What all matrices with the same inputs share.
struct GptqFactor {
  int64_t columns = 0;
  Buffer u;                        // F32 [columns, columns] in processing order, U^T U = (H + damping)^-1, zeros below
  std::vector<int32_t> order;      // [columns]: which column is taken at each place
  std::vector<bool> dead;          // inputs that are always zero: their weights become zero
  std::vector<float> importance;   // [columns], natural order: what a squared error of the column costs, 1 / U_ii^2
  double damping = 0;              // that was used, of the mean of the diagonal
  GptqFallback fallback = GptqFallback::kNone;
  int64_t dead_columns = 0;
};

// h: [columns, columns], symmetric, only the lower triangle is read; any positive scale gives the same result. Never
// fails: where H cannot be factored, damping grows step by step to the mean of the diagonal; then `u` is the identity,
// no error is passed on, and `fallback` says so. `group`: of kGroupAware, divides the columns (0: all of them).
GptqFactor MakeGptqFactor(std::span<const float> h, int64_t columns, ColumnOrder order, int64_t group, double damping,
                          ThreadPool& threads, Isa isa);
// The same without inputs: every column is rounded to nearest. fallback is kNone.
GptqFactor NoGptqFactor(int64_t columns);

// Rounds the columns of some rows. One object a chunk of rows; rows one after the other in every block of columns.
class ColumnRounder {
 public:
  virtual ~ColumnRounder() = default;
  // Before a row: its weights in natural order, and the same with dead columns at zero.
  virtual void Begin(int64_t row, const float* natural, const float* alive) = 0;
  // Before the column at place `at`, a multiple of the span: w[i] is the weight at place at + i as it now stands.
  virtual void Enter(int64_t row, int64_t at, const float* w) = 0;
  // Rounds the weight at place `at`, keeps its code, returns its value.
  virtual float Round(int64_t row, int64_t at, float weight) = 0;
};

struct SweepOptions {
  int64_t span = 0;      // columns between calls of Enter; 0: never called
  int64_t block = 128;   // columns whose errors are passed on together
  bool fresh = true;     // Enter sees all updates so far; else only those of earlier blocks, as the authors' code
                         // does. REQUIRES (true): span divides block
  Isa isa = Isa::kScalar;
};

// w: [rows, columns] in natural order. Returns the sum of squared errors over U_ii^2, halved. The result does not
// depend on the number of threads.
double SweepColumns(std::span<const float> w, int64_t rows, const GptqFactor& factor, const SweepOptions& options,
                    ThreadPool& threads, const std::function<std::unique_ptr<ColumnRounder>()>& make_rounder);

}  // namespace hone
