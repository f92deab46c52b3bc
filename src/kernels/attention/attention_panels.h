// The two inner products of attention as register tiles over Vecs; see attention_body.h, which includes this.
//
// Scores: kPanelRows rows x 2 Vecs of tokens (12 x 32 with 32 registers, 6 x 16 with 16): accumulators, 2 keys and a broadcast
// fill the register file, and each element of q loaded serves 2 FMAs, each of k kPanelRows. Values: 6 rows x 4 (or 2) Vecs of
// the width. Fewer rows run the same code with fewer accumulators: the order of operations of a row is the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/attention/kv_view.h"

namespace hone {
namespace {

constexpr int kPanelRows = Vec::kRegisters == 32 ? 12 : 6;
constexpr int kValueRows = 6;
constexpr int kValueVecs = Vec::kRegisters == 32 ? 4 : 2;

struct LoadF32 {
  static constexpr int kBytes = 4;
  static inline Vec Load(const std::byte* p) { return Vec::Load(reinterpret_cast<const float*>(p)); }
  static inline Vec LoadFirst(const std::byte* p, int n) { return Vec::LoadFirst(reinterpret_cast<const float*>(p), n); }
};
struct LoadF16 {
  static constexpr int kBytes = 2;
  static inline Vec Load(const std::byte* p) { return Vec::LoadF16(p); }
  static inline Vec LoadFirst(const std::byte* p, int n) { return Vec::LoadFirstF16(p, n); }
};
struct LoadI8 {  // codes; whoever asks applies the scales
  static constexpr int kBytes = 1;
  static inline Vec Load(const std::byte* p) { return Vec::LoadI8(p); }
  static inline Vec LoadFirst(const std::byte* p, int n) { return Vec::LoadFirstI8(p, n); }
};
struct LoadBf16Pairs {
  static constexpr int kBytes = 2;
};

// scores[r][t] for `kRows` rows of a panel and all 32 tokens. q: [width][kPanelRows], keys: [width][32]. kAhead: also asks for
// the next block's keys and values, which for decoding is the only work that matters.
template <int kRows, typename Load, bool kAhead>
inline void ScoreRows(const float* q, const std::byte* keys, int width, float* scores, const std::byte* next_keys,
                      const std::byte* next_values) {
  constexpr int kStep = 2 * Vec::kLanes, kRowBytes = kKvBlockTokens * Load::kBytes;
  for (int t = 0; t < kKvBlockTokens; t += kStep) {
    Vec sum[kRows][2];
    for (int r = 0; r < kRows; ++r) sum[r][0] = sum[r][1] = Vec::Zero();
    const std::byte* k = keys + t * Load::kBytes;
    for (int e = 0; e < width; ++e, k += kRowBytes) {
      const Vec k0 = Load::Load(k), k1 = Load::Load(k + Vec::kLanes * Load::kBytes);
      if (kAhead && t == 0) {
        for (int line = 0; line < kRowBytes; line += 64) {
          __builtin_prefetch(next_keys + e * kRowBytes + line, 0, 2);
          __builtin_prefetch(next_values + e * kRowBytes + line, 0, 2);
        }
      }
      for (int r = 0; r < kRows; ++r) {
        const Vec x = Vec::Set(q[e * kPanelRows + r]);
        sum[r][0] = Vec::Fma(x, k0, sum[r][0]);
        sum[r][1] = Vec::Fma(x, k1, sum[r][1]);
      }
    }
    for (int r = 0; r < kRows; ++r) {
      sum[r][0].Store(scores + r * kKvBlockTokens + t);
      sum[r][1].Store(scores + r * kKvBlockTokens + t + Vec::kLanes);
    }
  }
}

// ScoreRows for BF16, whose elements come in pairs: [width / 2][32][2].
template <int kRows, bool kAhead>
inline void ScorePairRows(const float* q, const std::byte* keys, int width, float* scores, const std::byte* next_keys,
                          const std::byte* next_values) {
  constexpr int kStep = 2 * Vec::kLanes, kRowBytes = kKvBlockTokens * 4;
  for (int t = 0; t < kKvBlockTokens; t += kStep) {
    Vec sum[kRows][2];
    for (int r = 0; r < kRows; ++r) sum[r][0] = sum[r][1] = Vec::Zero();
    const std::byte* k = keys + t * 4;
    for (int e = 0; e < width; e += 2, k += kRowBytes) {
      Vec first[2], second[2];
      Vec::LoadBf16Pairs(k, &first[0], &second[0]);
      Vec::LoadBf16Pairs(k + Vec::kLanes * 4, &first[1], &second[1]);
      if (kAhead && t == 0) {
        for (int line = 0; line < kRowBytes; line += 64) {
          __builtin_prefetch(next_keys + e / 2 * kRowBytes + line, 0, 2);
          __builtin_prefetch(next_values + e / 2 * kRowBytes + line, 0, 2);
        }
      }
      for (int r = 0; r < kRows; ++r) {
        const Vec x = Vec::Set(q[e * kPanelRows + r]);
        sum[r][0] = Vec::Fma(x, first[0], sum[r][0]);
        sum[r][1] = Vec::Fma(x, first[1], sum[r][1]);
      }
      if (e + 1 == width) break;
      for (int r = 0; r < kRows; ++r) {
        const Vec x = Vec::Set(q[(e + 1) * kPanelRows + r]);
        sum[r][0] = Vec::Fma(x, second[0], sum[r][0]);
        sum[r][1] = Vec::Fma(x, second[1], sum[r][1]);
      }
    }
    for (int r = 0; r < kRows; ++r) {
      sum[r][0].Store(scores + r * kKvBlockTokens + t);
      sum[r][1].Store(scores + r * kKvBlockTokens + t + Vec::kLanes);
    }
  }
}

// The same for a number of rows known at run time, 1 to kPanelRows.
template <typename Load, bool kAhead, int kRows = kPanelRows>
inline void ScorePanel(int rows, const float* q, const std::byte* keys, int width, float* scores, const std::byte* next_keys,
                       const std::byte* next_values) {
  if (rows == kRows) {
    if constexpr (std::is_same_v<Load, LoadBf16Pairs>) {
      return ScorePairRows<kRows, kAhead>(q, keys, width, scores, next_keys, next_values);
    } else {
      return ScoreRows<kRows, Load, kAhead>(q, keys, width, scores, next_keys, next_values);
    }
  }
  if constexpr (kRows > 1) {
    ScorePanel<Load, kAhead, kRows - 1>(rows, q, keys, width, scores, next_keys, next_values);
  }
}

inline void ScorePanelOfType(KvType type, int rows, const float* q, const std::byte* keys, int width, float* scores,
                             const std::byte* next_keys, const std::byte* next_values) {
  switch (type) {
    case KvType::kF32: return ScorePanel<LoadF32, true>(rows, q, keys, width, scores, next_keys, next_values);
    case KvType::kF16: return ScorePanel<LoadF16, true>(rows, q, keys, width, scores, next_keys, next_values);
    case KvType::kBF16: return ScorePanel<LoadBf16Pairs, true>(rows, q, keys, width, scores, next_keys, next_values);
    case KvType::kI8: return ScorePanel<LoadI8, true>(rows, q, keys, width, scores, next_keys, next_values);
  }
}

struct ValueTask {
  float* acc;               // [row][padded]
  int padded;
  const float* weights;     // [row][32]
  const float* correction;  // [row]
  const std::byte* values;  // [32][value_width], BF16: [16][value_width][2]
  int value_width;          // a multiple of kLanes
  int begin, end;           // places
};

// acc[row + r][v ..] = acc * correction + sum over places, for kRows rows and kVecs Vecs of the width from `v` on.
template <int kRows, int kVecs, typename Load>
inline void AddValueTile(const ValueTask& task, int row, int v) {
  Vec acc[kRows][kVecs];
  float* to = task.acc + static_cast<int64_t>(row) * task.padded + v;
  for (int r = 0; r < kRows; ++r) {
    const Vec correction = Vec::Set(task.correction[row + r]);
    for (int i = 0; i < kVecs; ++i) {
      acc[r][i] = Vec::Load(to + static_cast<int64_t>(r) * task.padded + i * Vec::kLanes) * correction;
    }
  }
  const float* weights = task.weights + row * kKvBlockTokens;
  const auto add = [&](const Vec* value, int t) {
    for (int r = 0; r < kRows; ++r) {
      const Vec weight = Vec::Set(weights[r * kKvBlockTokens + t]);
      for (int i = 0; i < kVecs; ++i) acc[r][i] = Vec::Fma(weight, value[i], acc[r][i]);
    }
  };
  if constexpr (std::is_same_v<Load, LoadBf16Pairs>) {
    const std::byte* values = task.values + (static_cast<int64_t>(task.begin / 2) * task.value_width + v) * 4;
    for (int t = task.begin / 2 * 2; t < task.end; t += 2, values += static_cast<int64_t>(task.value_width) * 4) {
      Vec first[kVecs], second[kVecs];
      for (int i = 0; i < kVecs; ++i) Vec::LoadBf16Pairs(values + i * Vec::kLanes * 4, &first[i], &second[i]);
      if (t >= task.begin) add(first, t);
      if (t + 1 < task.end) add(second, t + 1);
    }
  } else {
    const std::byte* values = task.values + (static_cast<int64_t>(task.begin) * task.value_width + v) * Load::kBytes;
    for (int t = task.begin; t < task.end; ++t, values += static_cast<int64_t>(task.value_width) * Load::kBytes) {
      Vec value[kVecs];
      for (int i = 0; i < kVecs; ++i) value[i] = Load::Load(values + i * Vec::kLanes * Load::kBytes);
      add(value, t);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int i = 0; i < kVecs; ++i) acc[r][i].Store(to + static_cast<int64_t>(r) * task.padded + i * Vec::kLanes);
  }
}

template <int kRows, typename Load>
inline void AddValueRows(const ValueTask& task, int row) {
  int v = 0;
  for (; v + kValueVecs * Vec::kLanes <= task.padded; v += kValueVecs * Vec::kLanes) {
    AddValueTile<kRows, kValueVecs, Load>(task, row, v);
  }
  if constexpr (kValueVecs > 2) {
    for (; v + 2 * Vec::kLanes <= task.padded; v += 2 * Vec::kLanes) AddValueTile<kRows, 2, Load>(task, row, v);
  }
  for (; v < task.padded; v += Vec::kLanes) AddValueTile<kRows, 1, Load>(task, row, v);
}

template <typename Load, int kRows = kValueRows - 1>
inline void AddLastRows(const ValueTask& task, int row, int rows) {
  if (rows == kRows) return AddValueRows<kRows, Load>(task, row);
  if constexpr (kRows > 1) AddLastRows<Load, kRows - 1>(task, row, rows);
}

template <typename Load>
inline void AddValues(const ValueTask& task, int row, int end) {
  for (; row + kValueRows <= end; row += kValueRows) AddValueRows<kValueRows, Load>(task, row);
  if (row < end) AddLastRows<Load>(task, row, end - row);
}

inline void AddValuesOfType(KvType type, const ValueTask& task, int row, int end) {
  switch (type) {
    case KvType::kF32: return AddValues<LoadF32>(task, row, end);
    case KvType::kF16: return AddValues<LoadF16>(task, row, end);
    case KvType::kBF16: return AddValues<LoadBf16Pairs>(task, row, end);
    case KvType::kI8: return AddValues<LoadI8>(task, row, end);
  }
}

// Keys of 32 tokens to F32 [width][32]; BF16 of an odd width: [width + 1][32]. I8: their codes.
inline void WidenKeys(KvType type, const std::byte* from, int width, float* to) {
  const int count = width * kKvBlockTokens;
  if (type == KvType::kF16) {
    for (int i = 0; i < count; i += Vec::kLanes) Vec::LoadF16(from + i * 2).Store(to + i);
  } else if (type == KvType::kI8) {
    for (int i = 0; i < count; i += Vec::kLanes) Vec::LoadI8(from + i).Store(to + i);
  } else {
    for (int e = 0; e < width; e += 2, to += 2 * kKvBlockTokens) {
      for (int t = 0; t < kKvBlockTokens; t += Vec::kLanes) {
        Vec first, second;
        Vec::LoadBf16Pairs(from + (e / 2 * kKvBlockTokens + t) * 4, &first, &second);
        first.Store(to + t);
        second.Store(to + kKvBlockTokens + t);
      }
    }
  }
}

// WidenRows for BF16: [16][width][2].
inline bool WidenPairRows(const std::byte* from, int begin, int end, int width, int padded, float* to) {
  Vec check = Vec::Zero();
  for (int t = begin / 2 * 2; t < end; t += 2) {
    const std::byte* row = from + static_cast<int64_t>(t / 2) * width * 4;
    float* out = to + static_cast<int64_t>(t) * padded;
    for (int e = 0; e < padded; e += Vec::kLanes) {
      const int count = width - e < Vec::kLanes ? width - e : Vec::kLanes;
      Vec first, second;
      Vec::LoadFirstBf16Pairs(row + e * 4, count, &first, &second);
      if (t >= begin) {
        check = Vec::Fma(first, Vec::Zero(), check);
        first.Store(out + e);
      }
      if (t + 1 < end) {
        check = Vec::Fma(second, Vec::Zero(), check);
        second.Store(out + padded + e);
      }
    }
  }
  return check.Sum() == 0;
}

template <typename Load>
inline bool WidenRowsAs(const std::byte* from, int begin, int end, int width, int padded, float* to) {
  Vec check = Vec::Zero();  // 0 times anything finite
  for (int t = begin; t < end; ++t) {
    const std::byte* row = from + static_cast<int64_t>(t) * width * Load::kBytes;
    float* out = to + static_cast<int64_t>(t) * padded;
    for (int e = 0; e < padded; e += Vec::kLanes) {
      const int count = width - e < Vec::kLanes ? width - e : Vec::kLanes;
      const Vec v = count == Vec::kLanes ? Load::Load(row + e * Load::kBytes) : Load::LoadFirst(row + e * Load::kBytes, count);
      check = Vec::Fma(v, Vec::Zero(), check);
      v.Store(out + e);
    }
  }
  return check.Sum() == 0;
}

// Rows [begin, end) of values (I8: their codes) to F32 [32][padded], zeros behind each. Returns whether all numbers are finite.
inline bool WidenRows(KvType type, const std::byte* from, int begin, int end, int width, int padded, float* to) {
  switch (type) {
    case KvType::kF32: return WidenRowsAs<LoadF32>(from, begin, end, width, padded, to);
    case KvType::kF16: return WidenRowsAs<LoadF16>(from, begin, end, width, padded, to);
    case KvType::kBF16: return WidenPairRows(from, begin, end, width, padded, to);
    case KvType::kI8: return WidenRowsAs<LoadI8>(from, begin, end, width, padded, to);
  }
  return true;
}

}  // namespace
}  // namespace hone
