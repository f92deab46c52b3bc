// Every code of every type lands where the reader looks for it, and the sweep lowers the error of outputs.
#include "compress/gguf/block_rounder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/random.h"
#include "compress/gguf/block_quantizers.h"
#include "kernels/dequantize/dequantize.h"

namespace hone {
namespace {

class BlockRounderTest : public testing::Test {
 protected:
  const Isa isa_ = ReadCpuFacts().best_isa();
  ThreadPool threads_{2};
  Rng rng_{7};
};

TEST_F(BlockRounderTest, CodesLieWhereTheReaderLooks) {
  int types = 0;
  for (const DType type : QuantizableTypes()) {
    if (!CanSweep(type)) continue;
    ++types;
    const int n = static_cast<int>(Info(type).block_elements);
    std::vector<float> x(n), back(n), again(n);
    for (float& v : x) v = static_cast<float>(rng_.Uniform() - 0.5);
    x[0] = 0.5f, x[1] = -0.5f;
    std::vector<std::byte> block(Info(type).block_bytes);
    QuantizeRow(type, isa_, x.data(), n, nullptr, block.data());
    DequantizeRow(type, block.data(), n, back.data());
    for (int i = 0; i < n; ++i) {
      // One element changes, and only that; higher codes are larger numbers where there is no table.
      std::vector<std::byte> changed = block;
      PutCode(type, changed.data(), i, 1);
      DequantizeRow(type, changed.data(), n, again.data());
      const float one = again[i];
      PutCode(type, changed.data(), i, 3);
      DequantizeRow(type, changed.data(), n, again.data());
      EXPECT_NE(one, again[i]) << Info(type).name << " " << i;
      for (int j = 0; j < n; ++j) {
        if (j != i) {
          ASSERT_EQ(again[j], back[j]) << Info(type).name << " " << i << " " << j;
        }
      }
    }
  }
  EXPECT_EQ(types, 13);
}

TEST_F(BlockRounderTest, ErrorsAreMadeUpFor) {
  const int64_t rows = 24, n = 512, tokens = 1024;
  std::vector<float> w(rows * n), x(tokens * n), h(n * n);
  for (float& v : w) v = static_cast<float>(rng_.Uniform() - 0.5);
  for (int64_t t = 0; t < tokens; ++t) {
    const double shared = rng_.Uniform() - 0.5;
    for (int64_t i = 0; i < n; ++i)
      x[t * n + i] = static_cast<float>((rng_.Uniform() - 0.5 + shared) * (1 + static_cast<double>(i % 7)));
  }
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j <= i; ++j) h[i * n + j] += x[t * n + i] * x[t * n + j];
    }
  }
  const auto output_error = [&](const std::vector<std::byte>& bytes, DType type) {
    double error = 0;
    std::vector<float> back(n);
    for (int64_t r = 0; r < rows; ++r) {
      DequantizeRow(type, bytes.data() + r * BytesFor(type, n), n, back.data());
      for (int64_t i = 0; i < n; ++i) back[i] -= w[r * n + i];
      for (int64_t i = 0; i < n; ++i) {
        for (int64_t j = 0; j < n; ++j)
          error += double{back[i]} * double{back[j]} * double{h[std::max(i, j) * n + std::min(i, j)]};
      }
    }
    return error;
  };
  for (const DType type : QuantizableTypes()) {
    if (!CanSweep(type)) continue;
    const GptqFactor factor = MakeGptqFactor(h, n, ColumnOrder::kGroupAware, Info(type).block_elements, 0.01, threads_, isa_);
    ASSERT_EQ(factor.fallback, GptqFallback::kNone);
    std::vector<std::byte> plain(rows * BytesFor(type, n)), swept(plain.size()), alone(plain.size());
    std::vector<float> importance(n);
    for (int64_t i = 0; i < n; ++i) importance[i] = h[i * n + i] / static_cast<float>(tokens);
    for (int64_t r = 0; r < rows; ++r)
      QuantizeRow(type, isa_, &w[r * n], n, UsesImportance(type) ? importance.data() : nullptr,
                  plain.data() + r * BytesFor(type, n));
    SweepColumns(w, rows, factor, BlockSweep(type, isa_), threads_,
                 [&] { return MakeBlockRounder(type, isa_, factor, swept); });
    EXPECT_LT(output_error(swept, type), 0.75 * output_error(plain, type)) << Info(type).name;
    ThreadPool one(1);
    SweepColumns(w, rows, factor, BlockSweep(type, isa_), one,
                 [&] { return MakeBlockRounder(type, isa_, factor, alone); });
    EXPECT_TRUE(alone == swept) << Info(type).name << ": the number of threads decides the bytes";
  }
}

}  // namespace
}  // namespace hone
