// Grouped-query attention over paged keys and values, causal, with online softmax (Milakov and Gimelshein 2018; the tiling
// of FlashAttention, Dao 2022), in F32 arithmetic.
//
//   out[i][h] = sum_p softmax_p( cap(scale * q[i][h] . k[p][h / (H/G)]) ) * v[p][h / (H/G)]
//   over p in (pos(i) - window, pos(i)], pos(i) = first_position + i; cap(s) = c * tanh(s / c) where a soft cap c is set.
//   With a sink s[h], exp(s[h] - max) is added to the softmax's denominator only.
//
// Arithmetic is F32, but on BF16 tiles (AMX, AVX-512 BF16): there q and the weights are rounded to BF16, and F16 and I8 keys
// and values too (sums stay F32), unless the call is exact, the cache is F32 or E > 256. docs/kernels-attention.md states the error
// bounds.
//
// In every mode the value of an output row depends on its query, its keys and its values alone, bit for bit: not on how a prompt
// was cut into chunks, on other sequences of the step, on the number of threads. It may differ between ISA levels, and between
// exact and not. (Whole KV blocks are visited in order, in chunks of tokens at fixed places.)
#pragma once

#include <cstdint>
#include <span>

#include "base/cpu.h"
#include "base/threads.h"
#include "kernels/attention/kv_view.h"

namespace hone {

// The queries of one sequence in this step.
struct AttentionJob {
  const float* q = nullptr;  // row i at q + i * q_stride: [H][E]
  int64_t q_stride = 0;
  float* out = nullptr;      // row i at out + i * out_stride: [H][E]; may not alias q
  int64_t out_stride = 0;
  int rows = 0;              // queries; their positions are first_position, first_position + 1, ...
  int first_position = 0;
  KvView kv;                 // holds positions [0, first_position + rows)
};

// What is the same for all sequences of a layer.
struct AttentionParams {
  int heads = 0;             // H, a multiple of kv.kv_heads
  float scale = 1;
  float soft_cap = 0;        // 0: none
  int window = 0;            // a token sees itself and the window - 1 before it; 0: all
  const float* sinks = nullptr;  // [H], or nullptr
  bool exact = false;        // F32 arithmetic at every ISA level
  // Calls of few rows alone may take the arithmetic that is fastest for them (where tiles are: F32 for an I8 cache). Then the bits of
  // a row depend on how many rows the call has.
  bool fastest_for_few = false;
};

// Writes k and v rows (F32, row i at k + i * k_stride: [G][E]) of positions first_position + i into the cache.
struct KvStoreJob {
  const float* k = nullptr;
  int64_t k_stride = 0;
  const float* v = nullptr;
  int64_t v_stride = 0;
  int rows = 0;
  int first_position = 0;
  KvView kv;
};

// One fork-join a call at most. NaN and infinities give what arithmetic gives; they reach only rows that see them. Attention
// allocates only where it splits one long sequence over many threads (docs/kernels-attention.md).
// REQUIRES: 1 <= E <= kMaxHeadWidth; the keys and values of [0, first_position + rows) are stored before Attention.
void StoreKv(std::span<const KvStoreJob> jobs, Isa isa, ThreadPool& threads);
void Attention(std::span<const AttentionJob> jobs, const AttentionParams& params, Isa isa, ThreadPool& threads);

}  // namespace hone
