// Low-rank updates of matrix products: y += scale * B (A x) for the rows of a step that belong to an adapter (Hu et al. 2021,
// LoRA, arXiv 2106.09685). Rows without an adapter cost nothing; rows of one adapter are multiplied together, those of all
// adapters and matrices of a call in one fork-join each for A and B.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/memory.h"
#include "base/runtime.h"
#include "kernels/matmul/matmul.h"
#include "models/model.h"

namespace hone {

struct LowRankUpdate {
  PackedMatrix a;   // [r, K]
  PackedMatrix b;   // [N, r]
  float scale = 1;
};

// The adapter as a decoder uses it: an update for some of its matrices. Immutable once it is made.
class LowRankAdapter final : public Adapter {
 public:
  LowRankAdapter(AdapterInfo info, std::unordered_map<const PackedMatrix*, LowRankUpdate> updates)
      : Adapter(std::move(info)), updates_(std::move(updates)) {}
  const LowRankUpdate* Find(const PackedMatrix* weight) const {  // nullptr: this matrix stays as it is
    const auto it = updates_.find(weight);
    return it == updates_.end() ? nullptr : &it->second;
  }

 private:
  const std::unordered_map<const PackedMatrix*, LowRankUpdate> updates_;
};

// Rows [first, first + rows) of a step have this adapter.
struct AdapterRows {
  const LowRankAdapter* adapter = nullptr;
  int64_t first = 0, rows = 0;
};

// The rows of a batch that have one, neighbours with the same adapter together. `logits`: of the rows of batch.logit_rows instead.
// `out` is overwritten.
void FindAdapterRows(const ForwardBatch& batch, bool logits, std::vector<AdapterRows>* out);

// Working memory; grows with the first steps that need it.
struct LowRankScratch {
  struct Sum {
    const MatmulJob* job;
    const LowRankUpdate* update;
    int64_t first, rows;
    int64_t low, delta;  // where A x and B (A x) begin, in floats
  };
  std::vector<Sum> sums;
  std::vector<MatmulJob> jobs;
  Buffer low, delta;
};

// Adds the updates to what `jobs` have computed. REQUIRES: the rows of each job whose matrix is adapted are those that `rows` counts.
void AddLowRank(std::span<const MatmulJob> jobs, std::span<const AdapterRows> rows, LowRankScratch& scratch, MatmulScratch& matmul,
                const Runtime& runtime);

}  // namespace hone
