// h += sum over tokens of x x^T, lower triangle, with x in BF16 and sums in F32: VDPBF16PS does twice the work of an FMA. For
// Isa::kBf16; AMX does it better with the tiles of kernels/matmul. Two tokens of a column are one word, low half first, columns in
// panels of 16, so that a panel serves as either factor:
//
//   x   [columns / 16, rounded up][pairs][16]     columns beyond the last are zero
#pragma once

#include <cstdint>

namespace hone {

inline constexpr int64_t kMomentsPanel = 16;

// Two rows of `columns` numbers, rounded to nearest even, to words: words[p * panel_stride + i] is column 16 p + i.
// REQUIRES of both: a CPU of Isa::kBf16.
void PairRowsBf16(const float* first, const float* second, int64_t columns, uint32_t* words, int64_t panel_stride) noexcept;

struct SecondMomentsArgs {
  const uint32_t* x = nullptr;
  int64_t pairs = 0;          // of tokens, that are summed
  int64_t panel_stride = 0;   // words from panel to panel
  int64_t columns = 0;
  float* h = nullptr;         // [columns][columns]
};
// Rows [first, last) of h, from column 0 to the diagonal; what lies beside the diagonal within 16 rows may be written too.
// The bits of an element depend on no other. REQUIRES: first is a multiple of 16.
void AddSecondMomentsBf16(const SecondMomentsArgs& args, int64_t first, int64_t last) noexcept;

}  // namespace hone
