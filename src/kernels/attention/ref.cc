// Attention in plain code with double accumulation: the definition that the other kernels are tested against. One row at a
// time, online softmax over all its positions; it has no chunks, so its values cannot depend on a plan.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/attention/task.h"
#include "tensor/float16.h"

namespace hone {
namespace {

// The number at `offset` bytes of a head's block; `scale` is its token's, for I8.
float LoadElement(const std::byte* block, KvType type, size_t offset, float scale) {
  if (type == KvType::kF32) {
    float value;
    std::memcpy(&value, block + offset, 4);
    return value;
  }
  if (type == KvType::kI8) return scale * static_cast<float>(static_cast<int8_t>(block[offset]));
  uint16_t bits;
  std::memcpy(&bits, block + offset, 2);
  return type == KvType::kF16 ? F16ToF32(bits) : Bf16ToF32(bits);
}

float ScaleOf(const std::byte* block, KvType type, int place) {
  float scale = 1;
  if (type == KvType::kI8) std::memcpy(&scale, block + place * sizeof scale, sizeof scale);
  return scale;
}

// What a token's E numbers are multiplied with before rounding to codes; their scale goes to the block. Not finite numbers make
// the token NaN as a whole: a NaN scale and codes of 1.
struct StoredScale {
  float factor = 0;
  bool finite = true;
};

StoredScale StoreScale(std::byte* block, int place, const float* from, int width) {
  StoredScale codes;
  float most = 0;
  for (int e = 0; e < width; ++e) {
    most = std::max(most, std::fabs(from[e]));
    codes.finite = codes.finite && std::isfinite(from[e]);
  }
  if (most < kLeastI8Magnitude) most = 0;
  const float scale = codes.finite ? most / 127 : std::nanf("");
  if (most > 0) codes.factor = 127 / most;
  std::memcpy(block + place * sizeof scale, &scale, sizeof scale);
  return codes;
}

void StoreElement(std::byte* block, KvType type, size_t offset, float value, const StoredScale& codes) {
  if (type == KvType::kF32) {
    std::memcpy(block + offset, &value, 4);
  } else if (type == KvType::kI8) {
    block[offset] = static_cast<std::byte>(codes.finite ? static_cast<int8_t>(std::nearbyint(value * codes.factor)) : int8_t{1});
  } else {
    const uint16_t bits = type == KvType::kF16 ? F32ToF16(value) : F32ToBf16(value);
    std::memcpy(block + offset, &bits, 2);
  }
}

double Score(const AttentionTask& task, const float* q, const std::byte* keys, int place) {
  const float key_scale = ScaleOf(keys, task.type, place);
  double dot = 0;
  for (int e = 0; e < task.head_width; ++e) {
    dot += static_cast<double>(q[e]) * LoadElement(keys, task.type, KvKeyOffset(task.type, place, e), key_scale);
  }
  dot *= task.scale;
  return task.soft_cap > 0 ? task.soft_cap * std::tanh(dot / task.soft_cap) : dot;
}

}  // namespace

void AttentionScalar(const AttentionTask& task) noexcept {
  const int width = task.head_width;
  for (int r = task.row_begin; r < task.row_end; ++r) {
    const int query = r / task.group, head = r % task.group;
    const int position = task.first_position + query;
    const float* q = task.q + query * task.q_stride + int64_t{head} * width;
    double values[kMaxHeadWidth];
    std::fill(values, values + width, 0.0);
    double max = -HUGE_VAL, sum = 0;
    if (task.sinks != nullptr) max = task.sinks[head], sum = 1;
    for (int p = std::max(0, position - (task.window - 1)); p <= position; ++p) {
      const size_t block = static_cast<size_t>(task.blocks[p / kKvBlockTokens]) * task.block_stride;
      const double score = Score(task, q, task.keys + block, p % kKvBlockTokens);
      double weight = 1;
      if (score > max || !(sum > 0)) {  // the first position always enters here: its weight is 1
        const double correction = sum > 0 ? std::exp(max - score) : 0.0;
        for (int e = 0; e < width; ++e) values[e] *= correction;
        sum *= correction;
        max = score;
      } else {
        weight = std::exp(score - max);
      }
      sum += weight;
      const std::byte* stored = task.values + block;
      const int place = p % kKvBlockTokens;
      const float value_scale = ScaleOf(stored, task.type, place);
      for (int e = 0; e < width; ++e) {
        values[e] += weight * LoadElement(stored, task.type, KvValueOffset(task.type, width, place, e), value_scale);
      }
    }
    float* out = task.out + query * task.out_stride + int64_t{head} * width;
    for (int e = 0; e < width; ++e) out[e] = static_cast<float>(values[e] / sum);
  }
}

void AttentionMergeScalar(const AttentionTask&) noexcept {}

void KvStoreScalar(const KvStoreTask& task) noexcept {
  const int width = task.head_width;
  for (int i = 0; i < task.rows; ++i) {
    const float* k = task.k + i * task.k_stride;
    const float* v = task.v + i * task.v_stride;
    const int place = task.place + i;
    StoredScale key_codes, value_codes;
    if (task.type == KvType::kI8) {
      key_codes = StoreScale(task.keys, place, k, width);
      value_codes = StoreScale(task.values, place, v, width);
    }
    for (int e = 0; e < width; ++e) {
      StoreElement(task.keys, task.type, KvKeyOffset(task.type, place, e), k[e], key_codes);
      StoreElement(task.values, task.type, KvValueOffset(task.type, width, place, e), v[e], value_codes);
    }
    if (task.type == KvType::kBF16 && width % 2 != 0) {
      StoreElement(task.keys, task.type, KvKeyOffset(task.type, place, width), 0, key_codes);
    }
  }
}

}  // namespace hone
