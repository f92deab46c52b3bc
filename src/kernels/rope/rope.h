// Rotary position embedding (Su et al. 2021) applied in place, from tables of cosines and sines.
//
//   half:        pairs (j, j + R/2) of a head's first R numbers   (Hugging Face order)
//   interleaved: pairs (2j, 2j + 1)                               (GPT-J order; DeepSeek's rope part, llama GGUF rows)
//   x0' = x0 cos - x1 sin,  x1' = x1 cos + x0 sin;  numbers from R on stay.
//
// Which frequencies (plain, linear, llama3, yarn, longrope) is decided where the tables are made: models/rope_table.h.
#pragma once

#include <cstdint>

#include "base/cpu.h"

namespace hone {

enum class RopeOrder { kHalf, kInterleaved };

struct RopeArgs {
  float* x = nullptr;            // row i at x + i * x_stride: heads of head_width numbers
  int64_t x_stride = 0;
  int64_t rows = 0;
  int heads = 0;
  int head_width = 0;            // E
  int rotary_width = 0;          // R <= E, even
  RopeOrder order = RopeOrder::kHalf;
  const int32_t* positions = nullptr;  // [rows], each below the table's length
  const float* cos = nullptr;    // [length][R/2], any attention factor multiplied in
  const float* sin = nullptr;    // [length][R/2]
};

// One thread, pure. A row's values depend on that row alone.
void Rope(const RopeArgs& args, Isa isa);

}  // namespace hone
