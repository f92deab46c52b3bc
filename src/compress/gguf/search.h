// The searches for scales that GGUF's quantisers share. Which grid is tried, what is minimised and in which order
// sums are formed decides the bytes of the file, so all of it is fixed here (docs/quantize.md gives the formulas):
//
//   SearchScale         w ~ s (q - N), q in [0, 2N): N + 0.1 k steps around the largest weight; max (sum wxq)^2 / sum
//   wqq SearchScaleAndMin   w ~ s q - m, m >= 0: a grid of ranges, least squares for (s, m); min sum w |e| or w e^2
//   RefineScale         as the first, but codes move one at a time while that helps (Q3_K without importance)
//   SearchUnsigned      scales of scales: x ~ s q, q in [0, N], for one block
//
// All but the last work on groups of n contiguous weights, several groups at once (lanes.h). Codes are written too:
// a group whose scale later rounds to zero keeps them.
#pragma once

#include "compress/gguf/lanes.h"

namespace hone {
namespace {

constexpr float kGroupEpsilon = 1e-15f;  // groups whose largest weight is smaller are zero

template <int n>
inline void LargestSigned(const Groups<n>& x, Floats* amax, Floats* max) {
  *amax = *max = Floats{};
  for (int i = 0; i < n; ++i) {
    const Floats a = Abs(x.at[i]);
    const Ints more = a > *amax;
    *amax = Select(more, a, *amax);
    *max = Select(more, x.at[i], *max);
  }
}

// importance: [groups * n]. scales: [groups]. codes: [groups * n], offset by nmax.
template <int n>
inline void SearchScale(int nmax, const float* x, const float* importance, int groups, float* scales, uint8_t* codes) {
  for (int g = 0; g < groups; g += kLanes) {
    const int count = groups - g < kLanes ? groups - g : kLanes;
    const Groups<n> xs(x + g * n, count), ws(importance + g * n, count);
    Floats wx[n], amax, max;
    LargestSigned(xs, &amax, &max);
    for (int i = 0; i < n; ++i) wx[i] = ws.at[i] * xs.at[i];
    const Ints zero = amax < kGroupEpsilon;
    Floats best_inverse{}, best{}, scale{};
    for (int step = 0; step < 19; ++step) {
      // The plain grid first, then k = -9 .. 9 without 0.
      const int k = step == 0 ? 0 : step <= 9 ? step - 10 : step - 9;
      const float range =
          step == 0 ? static_cast<float>(nmax) : static_cast<float>(nmax) + 0.1f * static_cast<float>(k);
      const Floats inverse = -range / max;
      Floats sumlx{}, suml2{};
      for (int i = 0; i < n; ++i) {
        const Floats l = ToFloats(Clamp(Nearest(inverse * xs.at[i]), -nmax, nmax - 1));
        sumlx += wx[i] * l;
        suml2 += ws.at[i] * l * l;
      }
      if (step == 0) {
        best_inverse = inverse;
        scale = Select(suml2 != 0.0f, sumlx / suml2, Floats{});
        best = scale * sumlx;
      } else {
        const Ints better = (suml2 > 0.0f) & (sumlx * sumlx > best * suml2);
        const Floats ratio = sumlx / suml2;
        scale = Select(better, ratio, scale);
        best = Select(better, ratio * sumlx, best);
        best_inverse = Select(better, inverse, best_inverse);
      }
    }
    Ints out[n];
    for (int i = 0; i < n; ++i) {
      out[i] = Select(zero, Ints{}, nmax + Clamp(Nearest(best_inverse * xs.at[i]), -nmax, nmax - 1));
    }
    StoreFloats(Select(zero, Floats{}, scale), count, scales + g);
    StoreCodes(out, count, codes + g * n);
  }
}

struct RangeGrid {
  float first, step;
  int steps;      // tries first + step * 0 .. first + step * steps
  bool absolute;  // minimise |e|, else e^2
};

template <int n>
inline Floats WeightedError(const Groups<n>& x, const Groups<n>& w, const Floats (&l)[n], Floats scale, Floats min,
                            bool absolute) {
  Floats error{};
  for (int i = 0; i < n; ++i) {
    const Floats e = scale * l[i] + min - x.at[i];
    error += w.at[i] * (absolute ? Abs(e) : e * e);
  }
  return error;
}

// mins: [groups], what is subtracted (>= 0).
template <int n>
inline void SearchScaleAndMin(int nmax, const RangeGrid& grid, const float* x, const float* importance, int groups,
                              float* scales, float* mins, uint8_t* codes) {
  for (int g = 0; g < groups; g += kLanes) {
    const int count = groups - g < kLanes ? groups - g : kLanes;
    const Groups<n> xs(x + g * n, count), ws(importance + g * n, count);
    Floats min = xs.at[0], max = xs.at[0], sum_w = ws.at[0], sum_x = sum_w * xs.at[0];
    for (int i = 1; i < n; ++i) {
      min = Select(xs.at[i] < min, xs.at[i], min);
      max = Select(xs.at[i] > max, xs.at[i], max);
      sum_w += ws.at[i];
      sum_x += ws.at[i] * xs.at[i];
    }
    min = Select(min > 0.0f, Floats{}, min);
    const Ints flat = max <= min;
    const Floats flat_min = min;

    Floats best_inverse = static_cast<float>(nmax) / (max - min), best_base = min, scale = 1.0f / best_inverse;
    Floats l[n];
    const auto round = [&](Floats inverse, Floats base) {
      for (int i = 0; i < n; ++i) l[i] = ToFloats(Clamp(Nearest(inverse * (xs.at[i] - base)), 0, nmax));
    };
    round(best_inverse, min);
    Floats best = WeightedError(xs, ws, l, scale, min, grid.absolute);
    for (int step = 0; step <= grid.steps; ++step) {
      const float range = grid.first + grid.step * static_cast<float>(step) + static_cast<float>(nmax);
      const Floats inverse = range / (max - min), base = min;  // min moves with the best so far
      Floats sum_l{}, sum_l2{}, sum_xl{};
      for (int i = 0; i < n; ++i) {
        l[i] = ToFloats(Clamp(Nearest(inverse * (xs.at[i] - base)), 0, nmax));
        const Floats wl = ws.at[i] * l[i];
        sum_l += wl;
        sum_l2 += wl * l[i];
        sum_xl += wl * xs.at[i];
      }
      const Floats determinant = sum_w * sum_l2 - sum_l * sum_l;
      Floats this_scale = (sum_w * sum_xl - sum_x * sum_l) / determinant;
      Floats this_min = (sum_l2 * sum_x - sum_l * sum_xl) / determinant;
      const Ints positive = this_min > 0.0f;
      this_scale = Select(positive, sum_xl / sum_l2, this_scale);
      this_min = Select(positive, Floats{}, this_min);
      const Floats error = WeightedError(xs, ws, l, this_scale, this_min, grid.absolute);
      const Ints better = (determinant > 0.0f) & (error < best);
      best = Select(better, error, best);
      scale = Select(better, this_scale, scale);
      min = Select(better, this_min, min);
      best_inverse = Select(better, inverse, best_inverse);
      best_base = Select(better, base, best_base);
    }
    Ints out[n];
    for (int i = 0; i < n; ++i) {
      out[i] = Select(flat, Ints{}, Clamp(Nearest(best_inverse * (xs.at[i] - best_base)), 0, nmax));
    }
    StoreFloats(Select(flat, Floats{}, scale), count, scales + g);
    StoreFloats(-Select(flat, flat_min, min), count, mins + g);
    StoreCodes(out, count, codes + g * n);
  }
}

template <int n>
inline void RefineScale(int nmax, const float* x, int groups, float* scales, uint8_t* codes) {
  for (int g = 0; g < groups; g += kLanes) {
    const int count = groups - g < kLanes ? groups - g : kLanes;
    const Groups<n> xs(x + g * n, count);
    Floats amax, max;
    LargestSigned(xs, &amax, &max);
    const Ints zero = amax < kGroupEpsilon;
    const Floats inverse = -static_cast<float>(nmax) / max;
    Floats w[n], wx[n], sumlx{}, suml2{};
    Ints code[n];
    for (int i = 0; i < n; ++i) {
      code[i] = Clamp(Nearest(inverse * xs.at[i]), -nmax, nmax - 1);
      w[i] = xs.at[i] * xs.at[i];
      wx[i] = w[i] * xs.at[i];
      const Floats l = ToFloats(code[i]);
      sumlx += wx[i] * l;
      suml2 += w[i] * l * l;
    }
    for (int round = 0; round < 5; ++round) {
      Ints changed{};
      for (int i = 0; i < n; ++i) {
        const Floats l = ToFloats(code[i]);
        Floats slx = sumlx - wx[i] * l, sl2 = suml2 - w[i] * l * l;
        const Ints wanted = Clamp(Nearest(xs.at[i] * sl2 / slx), -nmax, nmax - 1);
        Ints move = (slx > 0.0f) & (wanted != code[i]);
        const Floats t = ToFloats(wanted);
        slx += wx[i] * t;
        sl2 += w[i] * t * t;
        move &= (sl2 > 0.0f) & (slx * slx * suml2 > sumlx * sumlx * sl2);
        code[i] = Select(move, wanted, code[i]);
        sumlx = Select(move, slx, sumlx);
        suml2 = Select(move, sl2, suml2);
        changed |= move;
      }
      if (!Any(changed)) break;
    }
    for (int i = 0; i < n; ++i) code[i] = Select(zero, Ints{}, code[i] + nmax);
    const Ints none = zero | ~(suml2 > 0.0f);
    StoreFloats(Select(none, Floats{}, sumlx / suml2), count, scales + g);
    StoreCodes(code, count, codes + g * n);
  }
}

// x: [n], not negative. Returns the scale.
inline float SearchUnsigned(int n, int nmax, const float* x, const float* importance, uint8_t* codes) {
  float max = 0;
  for (int i = 0; i < n; ++i) max = x[i] > max ? x[i] : max;
  for (int i = 0; i < n; ++i) codes[i] = 0;
  if (max < kGroupEpsilon) return 0;
  float inverse = static_cast<float>(nmax) / max, best = 0;
  {
    const float scale = 1 / inverse;
    for (int i = 0; i < n; ++i) {
      const float e = x[i] - scale * static_cast<float>(static_cast<uint8_t>(Nearest(inverse * x[i])));
      best += importance[i] * e * e;
    }
  }
  const auto capped = [nmax](int l) { return l > nmax ? nmax : l; };
  for (int k = -4; k <= 4; ++k) {
    if (k == 0) continue;
    const float trial = (0.1f * static_cast<float>(k) + static_cast<float>(nmax)) / max, scale = 1 / trial;
    float error = 0;
    for (int i = 0; i < n; ++i) {
      const float e = x[i] - scale * static_cast<float>(capped(Nearest(trial * x[i])));
      error += importance[i] * e * e;
    }
    if (error < best) best = error, inverse = trial;
  }
  float sumlx = 0, suml2 = 0;
  for (int i = 0; i < n; ++i) {
    const int l = capped(Nearest(inverse * x[i]));
    codes[i] = static_cast<uint8_t>(l);
    sumlx += importance[i] * x[i] * static_cast<float>(l);
    suml2 += importance[i] * static_cast<float>(l) * static_cast<float>(l);
  }
  for (int round = 0; round < 5; ++round) {
    bool changed = false;
    for (int i = 0; i < n; ++i) {
      const float w = importance[i], l = codes[i];
      float slx = sumlx - w * x[i] * l, sl2 = suml2 - w * l * l;
      if (!(slx > 0 && sl2 > 0)) continue;
      const int wanted = capped(Nearest(x[i] * sl2 / slx));
      if (wanted == codes[i]) continue;
      slx += w * x[i] * static_cast<float>(wanted);
      sl2 += w * static_cast<float>(wanted) * static_cast<float>(wanted);
      if (slx * slx * suml2 > sumlx * sumlx * sl2) {
        codes[i] = static_cast<uint8_t>(wanted);
        sumlx = slx;
        suml2 = sl2;
        changed = true;
      }
    }
    if (!changed) break;
  }
  return suml2 > 0 ? sumlx / suml2 : 0;
}

}  // namespace
}  // namespace hone
