// See folder_time.h.
#include "compress/folder/folder_time.h"

#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "compress/folder/rounded_codes.h"
#include "compress/scale/awq.h"

namespace hone {

double EstimateFolderSeconds(const FolderPlan& plan, const LinearFormat& format, const LinearScheme& scheme, const Runtime& runtime) {
  constexpr int64_t kRows = 128;  // whole words of all formats
  constexpr double kBytesASecond = 1e9;
  const FolderTensor& like = plan.tensors.front();
  Rng rng(1);
  std::vector<float> w(static_cast<size_t>(kRows * like.columns));
  for (float& x : w) x = static_cast<float>(rng.Uniform() - rng.Uniform());
  std::vector<std::vector<std::byte>> outputs;
  for (const TensorInfo& info : format.Outputs("sample", kRows, like.columns, like.dtype)) outputs.emplace_back(info.bytes());
  const LinearWeight weight{.w = w.data(), .rows = kRows, .columns = like.columns, .dtype = like.dtype, .shared_amax = 1, .input_amax = 1};
  const bool by_codes = scheme.method == "awq" || scheme.clip != Clip::kMinMax;  // as QuantizeFolder makes them
  const GridSpec spec = scheme.method == "awq" ? AwqGrid(scheme.bits, scheme.symmetric)
                                               : GridSpec{GridRule::kGptq, scheme.bits, scheme.symmetric, scheme.clip};
  ThreadPool one(1);
  double best = HUGE_VAL;
  for (int round = 0; round < 2; ++round) {
    const double start = runtime.clock->Now();
    if (by_codes) {
      const RoundedCodes codes = RoundToCodes(spec, format.scale_type(like.dtype), w, kRows, like.columns, scheme.group, one);
      format.EncodeCodes(codes.View(kRows, like.columns, like.dtype), outputs, one);
    } else {
      format.Encode(weight, outputs, one);
    }
    const std::vector<std::span<const std::byte>> made(outputs.begin(), outputs.end());
    double sum = 0;
    format.DecodeRows(made, kRows, like.columns, like.dtype, 0, kRows, [&](int64_t row, const float* back) {
      for (int64_t i = 0; i < like.columns; ++i) sum += std::fabs(back[i] - w[row * like.columns + i]);
    });
    best = std::min(best, runtime.clock->Now() - start + (std::isfinite(sum) ? 0 : 1));
  }
  double weights = 0;
  for (const FolderTensor& tensor : plan.tensors) weights += static_cast<double>(tensor.rows) * static_cast<double>(tensor.columns);
  return weights * best / static_cast<double>(w.size()) / runtime.threads->count() +
         static_cast<double>(plan.bytes_before + plan.bytes) / kBytesASecond;
}

}  // namespace hone
