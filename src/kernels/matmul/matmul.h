// Matrix multiplication with stored (float or low-bit) weights: y[m][n] = bias[n] + sum_k x[m][k] * W[n][k].
//
// W is [N out, K in], row-major in the file. Pack reorders it once into panels of 16 rows that every kernel reads, one row
// of x or many (panel_format.h has the pictures). x and y are F32 rows.
//
// Arithmetic. F32, F16 and BF16 weights, and every type under PackOptions::exact: F32 products and sums. Other types: each row
// of x is rounded once to int8 with one F32 scale per 32 elements; integer dot products are exact, so only that rounding
// (about 0.4 % of the largest of 32 neighbours, at most half a step each) is lost. With AMX or a fast AVX-512 BF16, jobs of many rows (many_rows.h)
// round x and W to BF16 instead, unless the weight is F32. docs/kernels-matmul.md has the bounds.
//
// Batch invariance: for one packed matrix and ISA, the bits of y[m][n] depend only on row m of x: not on the row's place, on the
// number of threads or on the other jobs of the call; nor on M, except for the choice between few rows and many, which
// PackOptions::deterministic takes away.
//
// Kernels are listed in kernels.inc, best first; the same lines make dispatch, tests and benchmarks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/cpu.h"
#include "base/function_ref.h"
#include "base/memory.h"
#include "base/result.h"
#include "base/threads.h"
#include "tensor/tensor.h"

namespace hone {

struct MatmulKernel;    // kernel.h
struct Bf16Arithmetic;  // many_rows.h

// Number of the way in which weights lie in panels (panel_format.h). Raised when the bytes of any panel change: files of panels
// carry it (models/packed_cache.h).
inline constexpr uint32_t kPanelLayout = 2;

struct PackOptions {
  Isa isa = Isa::kScalar;  // kernels of at most this level; the CPU must have it
  bool exact = false;      // F32 activations with low-bit weights too: slower, no activation rounding
  // Int8 terms that a row of x is rounded to, for low-bit weights: 1 keeps 8 bits, 2 (two digits of one number) about 15, for twice
  // the multiplications; without VNNI only groups with large numbers have the second (RoundedRow::wide). Free where reading the weights is the limit. See docs/kernels-matmul.md.
  int input_terms = 1;
  // Few rows and many take the same path, so that M is no part of a result. Costs speed where BF16 tiles would serve many rows.
  bool deterministic = false;
  // Memory for the panels, 64-byte aligned, untouched, that outlives the matrix. If they do not fit (BytesOf), they get their own.
  // Matrices that lie side by side fill their huge pages.
  std::span<std::byte> place = {};
  // `place` holds the panels of this very weight: nothing is written, and only the weight's type and shape are looked at.
  bool packed = false;
};

// True if Pack takes this weight type.
bool CanMatmul(DType type);

// A weight in panels. Move-only, immutable after Pack, safe to read from many threads. Holds 16 * ceil(N / 16) rows of the
// same number of bytes as in the file.
class PackedMatrix {
 public:
  PackedMatrix() = default;  // empty: only assignment and operator bool

  // Reads `weight` (rank 2, [N, K]) straight from where it lies, in parallel; the thread that will multiply a panel writes it
  // first. The caller may give the source pages back afterwards. N or K of 0 is allowed (y is then bias or 0).
  // Errors: rank is not 2, a type that CanMatmul refuses, K no multiple of the block.
  static Result<PackedMatrix> Pack(const TensorView& weight, const PackOptions& options, ThreadPool& threads);

  // Bytes that panels of such a weight take; 0 if CanMatmul refuses the type or K is no multiple of the block.
  static size_t BytesOf(DType type, int64_t n, int64_t k);

  explicit operator bool() const { return kernel_ != nullptr; }
  int64_t n() const { return n_; }
  int64_t k() const { return k_; }
  DType type() const { return type_; }
  int input_terms() const { return input_terms_; }
  // The arithmetic of jobs of many rows (many_rows.h says from how many); nullptr: that of few rows.
  const Bf16Arithmetic* many_rows() const { return many_rows_; }
  size_t bytes() const { return bytes_; }  // resident bytes
  std::string_view kernel_name() const;            // "Q4_0 int8 avx512-vnni"

  // For kernels and their tests. A tile is 32 rows of W: panels 0 and 1 of 16 rows, the last tile perhaps only panel 0.
  const MatmulKernel& kernel() const { return *kernel_; }
  int64_t panel_bytes() const { return panel_bytes_; }  // of one panel, all of K
  int64_t tile_count() const { return (n_ + 31) / 32; }
  int panels_of(int64_t tile) const { return n_ - tile * 32 > 16 ? 2 : 1; }
  // Where a panel's bytes of the stretch of K that begins at k0 lie. REQUIRES: k0 < k, a multiple of the format's stretch.
  const std::byte* Find(int64_t tile, int panel, int64_t k0) const;

 private:
  DType type_ = DType::kF32;
  int64_t n_ = 0, k_ = 0;
  int input_terms_ = 1;
  const MatmulKernel* kernel_ = nullptr;
  const Bf16Arithmetic* many_rows_ = nullptr;
  Buffer owned_;  // empty where the caller gave the place
  std::byte* panels_ = nullptr;
  size_t bytes_ = 0;
  int64_t panel_bytes_ = 0;
};

// One product. Row i of x starts at x + i * x_stride, row i of y at y + i * y_stride. x and y must not overlap.
struct MatmulJob {
  const PackedMatrix* weight = nullptr;
  const float* x = nullptr;   // [m][weight->k()]
  int64_t x_stride = 0;       // floats; >= k
  float* y = nullptr;         // [m][weight->n()], overwritten
  int64_t y_stride = 0;       // floats; >= n
  int64_t m = 0;              // 0: nothing is done
  const float* bias = nullptr;  // [n] or nullptr
};

// Working memory of Matmul: rounded inputs, one unpacked panel a thread. Made once and reused; one call at a time.
class MatmulScratch {
 public:
  // Reserves for calls whose distinct inputs together have at most max_rows rows of at most max_k elements.
  // A larger call works too, but allocates.
  MatmulScratch(int64_t max_rows, int64_t max_k);
  ~MatmulScratch();
  MatmulScratch(MatmulScratch&&) noexcept;
  MatmulScratch& operator=(MatmulScratch&&) noexcept;

  struct State;
  State& state() { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

// What belongs to a call beside its products.
struct MatmulExtra {
  // Work on finished columns, saving a fork-join: called for ranges that together are [0, N), each range once, when all rows of
  // its columns are there in every job; by the thread that made them where that is possible. Ranges begin at multiples of 32 and
  // calls run side by side. REQUIRES: all jobs have the same N.
  const FunctionRef<void(int64_t begin, int64_t end)>* finish = nullptr;
  // The matrix that will be read next: threads that wait for the others ask for the beginning of their part of it.
  const PackedMatrix* next = nullptr;
};

// Runs all jobs in one fork-join, the panels of all jobs spread over the threads. Jobs with the same x, x_stride, m, k and
// input_terms share the rounded input. Many small jobs (experts of a mixture) in one call are balanced too. NaN or
// infinite inputs give NaN or infinities in their own row only. REQUIRES: weights packed for an ISA this CPU has.
void Matmul(std::span<const MatmulJob> jobs, MatmulScratch& scratch, ThreadPool& threads, const MatmulExtra& extra = {});

}  // namespace hone
