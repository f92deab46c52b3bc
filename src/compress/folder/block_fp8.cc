// FP8 as DeepSeek's releases, transformers and engines have it (quant_method fp8): E4M3, or E5M2 (fmt), under an F32 scale for each
// block of 128 rows and columns; engines round activations in groups of 128.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "compress/folder/linear_format.h"

namespace hone {
namespace {

class BlockFp8 : public LinearFormat {
 public:
  explicit BlockFp8(bool e5m2) : e5m2_(e5m2) {}
  Result<void> Check(int64_t, int64_t) const override { return {}; }
  std::vector<TensorInfo> Outputs(const std::string& module, int64_t rows, int64_t columns, DType) const override {
    return {{module + ".weight", e5m2_ ? DType::kF8_E5M2 : DType::kF8_E4M3, Shape{rows, columns}},
            {module + ".weight_scale_inv", DType::kF32, Shape{Blocks(rows), Blocks(columns)}}};
  }
  // A band of blocks after the other: a scale is known when 128 rows are.
  void Encode(const LinearWeight& m, std::span<std::vector<std::byte>> out, ThreadPool& threads) const override {
    const int64_t across = Blocks(m.columns);
    threads.ParallelFor(static_cast<size_t>(Blocks(m.rows)), 1, [&](size_t begin, size_t end) {
      std::vector<float> place(static_cast<size_t>(std::min(kBlock, m.rows) * m.columns)), scales(static_cast<size_t>(across));
      for (size_t band = begin; band < end; ++band) {
        const int64_t first = static_cast<int64_t>(band) * kBlock, count = std::min(kBlock, m.rows - first);
        const float* x = m.Rows(first, count, place.data());
        std::fill(scales.begin(), scales.end(), 0.0f);
        ForParts(count, m.columns, [&](int64_t at, int64_t n, int64_t block) {
          float least, most;
          slices_->range(x + at, n, &least, &most);
          scales[block] = std::max({scales[block], std::fabs(least), std::fabs(most)});
        });
        for (float& scale : scales) scale = std::max(scale / (e5m2_ ? 57344.0f : 448.0f), 0x1.0p-126f);
        std::memcpy(out[1].data() + band * across * sizeof(float), scales.data(), across * sizeof(float));
        uint8_t* codes = reinterpret_cast<uint8_t*>(out[0].data()) + first * m.columns;
        ForParts(count, m.columns, [&](int64_t at, int64_t n, int64_t block) {
          if (e5m2_) {
            slices_->to_e5m2(x + at, n, scales[block], codes + at);
          } else {
            slices_->to_e4m3(DType::kF32, x + at, n, scales[block], codes + at);
          }
        });
        if (m.made) m.made(first, count, x);
      }
    });
  }
  bool tells_rows() const override { return true; }
  int64_t rows_together() const override { return kBlock; }
  void Decode(std::span<const std::span<const std::byte>> out, int64_t, int64_t columns, DType, int64_t first, int64_t count,
              float* w) const override {
    const auto from = e5m2_ ? slices_->from_e5m2 : slices_->from_e4m3;
    ForParts(count, columns, [&](int64_t at, int64_t n, int64_t block) {
      float scale;
      std::memcpy(&scale, out[1].data() + ((first + at / columns) / kBlock * Blocks(columns) + block) * sizeof(float), sizeof(scale));
      from(out[0].data() + first * columns + at, n, scale, w + at);
    });
  }
  std::string ConfigJson(DType) const override {
    return std::string("{\"activation_scheme\": \"dynamic\", \"fmt\": \"") + (e5m2_ ? "e5m2" : "e4m3") +
           "\", \"modules_to_not_convert\": [\"lm_head\"], \"quant_method\": \"fp8\", \"weight_block_size\": [128, 128]}";
  }

 private:
  static constexpr int64_t kBlock = 128;
  static int64_t Blocks(int64_t n) { return (n + kBlock - 1) / kBlock; }
  // visit(where it begins, columns, block of the row) for all parts of `rows` rows.
  static void ForParts(int64_t rows, int64_t columns, auto&& visit) {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < columns; i += kBlock) visit(r * columns + i, std::min(kBlock, columns - i), i / kBlock);
    }
  }

  const bool e5m2_;
};

}  // namespace

Result<std::unique_ptr<LinearFormat>> MakeBlockFp8(const LinearScheme& scheme) {
  if (scheme.per_tensor) return UsageError("--format fp8 has a scale for each 128 x 128 weights; --per-tensor goes with compressed-tensors");
  return std::unique_ptr<LinearFormat>(new BlockFp8(scheme.e5m2));
}

}  // namespace hone
