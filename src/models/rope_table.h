// RopeTable: cosines and sines of one RopeConfig, for kernels/rope. All rules about frequencies stand here:
//
//   plain     f_j = theta^(-2j/R)                                            j in [0, R/2)
//   linear    f_j / factor
//   llama3    three bands by wavelength 2 pi / f: long ones divided by factor, short ones kept, a ramp between
//             (Llama 3.1)
//   yarn      a ramp over j between f_j and f_j / factor; cos and sin times 0.1 ln(factor) + 1 (Peng et al. 2023)
//   longrope  f_j / short_factor_j or f_j / long_factor_j; cos and sin times sqrt(1 + ln(factor) / ln(original))
//             (Ding et al. 2024)
//
// and any of them / frequency_divisors_j where the file gives them (rope_freqs.weight).
//
// Angles are computed in double and rounded once. A table grows with the positions that are used, so a file that claims
// a context of millions costs nothing until somebody goes there.
#pragma once

#include <vector>

#include "models/config.h"

namespace hone {

// Frequencies [R/2] in radians a token. `long_range`: longrope's long factors; else ignored.
std::vector<double> RopeFrequencies(const RopeConfig& rope, bool long_range);
// The number that multiplies cos and sin.
double RopeAttentionFactor(const RopeConfig& rope);

class RopeTable {
 public:
  RopeTable(const RopeConfig& rope, bool long_range);

  // Makes positions [0, positions) readable. Grows by doubling; pointers from before are invalid after growth. Not
  // thread-safe.
  void Extend(int positions);
  const float* cos() const { return cos_.data(); }  // [positions][R/2], the attention factor multiplied in
  const float* sin() const { return sin_.data(); }

 private:
  std::vector<double> frequencies_;
  double attention_factor_;
  int positions_ = 0;
  std::vector<float> cos_, sin_;
};

}  // namespace hone
