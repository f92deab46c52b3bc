// Attention in plain code with double accumulation: the definition that the other kernels are tested against. One row at a
// time, online softmax over all its positions; it has no chunks, so its values cannot depend on a plan.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/attention/task.h"
#include "tensor/float16.h"

namespace hone {
namespace {

float LoadElement(const std::byte* data, KvType type, size_t i) {
  if (type == KvType::kF32) {
    float value;
    std::memcpy(&value, data + i * 4, 4);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, data + i * 2, 2);
  return type == KvType::kF16 ? F16ToF32(bits) : Bf16ToF32(bits);
}

void StoreElement(std::byte* data, KvType type, size_t i, float value) {
  if (type == KvType::kF32) {
    std::memcpy(data + i * 4, &value, 4);
    return;
  }
  const uint16_t bits = type == KvType::kF16 ? F32ToF16(value) : F32ToBf16(value);
  std::memcpy(data + i * 2, &bits, 2);
}

double Score(const AttentionTask& task, const float* q, const std::byte* keys, int place) {
  double dot = 0;
  for (int e = 0; e < task.head_width; ++e) {
    dot += static_cast<double>(q[e]) * LoadElement(keys, task.type, static_cast<size_t>(e) * kKvBlockTokens + place);
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
      const size_t row = static_cast<size_t>(p % kKvBlockTokens) * width;
      for (int e = 0; e < width; ++e) values[e] += weight * LoadElement(task.values + block, task.type, row + e);
    }
    float* out = task.out + query * task.out_stride + int64_t{head} * width;
    for (int e = 0; e < width; ++e) out[e] = static_cast<float>(values[e] / sum);
  }
}

void AttentionMergeScalar(const AttentionTask&) noexcept {}

void KvStoreScalar(const KvStoreTask& task) noexcept {
  for (int i = 0; i < task.rows; ++i) {
    const float* k = task.k + i * task.k_stride;
    const float* v = task.v + i * task.v_stride;
    const size_t place = static_cast<size_t>(task.place + i);
    for (int e = 0; e < task.head_width; ++e) {
      StoreElement(task.keys, task.type, static_cast<size_t>(e) * kKvBlockTokens + place, k[e]);
      StoreElement(task.values, task.type, place * task.head_width + e, v[e]);
    }
  }
}

}  // namespace hone
