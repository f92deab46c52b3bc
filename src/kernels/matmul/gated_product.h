// y = down(act(gate(x)) * up(x)) for many rows in BF16 tiles (many_rows.h), as feed-forward layers need it. What lies between the
// products never becomes rows of F32: the sums of a block of gate and up are activated where they lie and rounded to the tiles that
// `down` multiplies. Same arithmetic, so the same bits, as three jobs of Matmul with the activation between them.
#pragma once

#include <cstdint>
#include <memory>

#include "base/function_ref.h"
#include "base/threads.h"
#include "kernels/matmul/matmul.h"

namespace hone {

struct GatedJob {
  const PackedMatrix *gate = nullptr, *up = nullptr;  // [F, K]
  const PackedMatrix* down = nullptr;                 // [N, F]
  const float *gate_bias = nullptr, *up_bias = nullptr, *down_bias = nullptr;
  const float* x = nullptr;  // [m][K]
  int64_t x_stride = 0;
  float* y = nullptr;        // [m][N], overwritten; may be x
  int64_t y_stride = 0;
  int64_t m = 0;
  // gate[i] = act(gate[i]) * up[i] for i < n, a multiple of 16; by many threads at once.
  const FunctionRef<void(float* gate, const float* up, int64_t n)>* activate = nullptr;
};

// Working memory, made once and reused; one call at a time. Untouched, hence not resident, until it is used.
class GatedProduct {
 public:
  // For calls of at most max_rows rows, K of at most max_k, F of at most max_f. A larger call works too, but allocates.
  GatedProduct(int64_t max_rows, int64_t max_k, int64_t max_f);
  ~GatedProduct();
  GatedProduct(GatedProduct&&) noexcept;
  GatedProduct& operator=(GatedProduct&&) noexcept;

  // True if the job was done; false, and nothing was touched, if one of its weights does not take tiles for m rows.
  bool Run(const GatedJob& job, ThreadPool& threads);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hone
