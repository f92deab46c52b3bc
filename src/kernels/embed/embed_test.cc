// Embedding rows of plain and block types, against values known by hand and DequantizeRow.
#include "kernels/embed/embed.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "base/random.h"
#include "kernels/dequantize/dequantize.h"
#include "kernels/kernel_lines_test.h"
#include "tensor/float16.h"

namespace hone {
namespace {

// The scaling is an element-wise kernel: the same levels.
const KernelLine kEmbedLines[] = {
#define HONE_ELEMENTWISE_KERNEL(name, level) {#name, Isa::level},
#include "kernels/elementwise/kernels.inc"
#undef HONE_ELEMENTWISE_KERNEL
};

class EmbedTest : public KernelLineTest {};

TEST_P(EmbedTest, PlainTypes) {
  const int64_t rows = 5, width = 19;
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
    Tensor table(type, {rows, width});
    const auto value = [](int64_t i, int64_t j) { return static_cast<float>(i * 8 - j) / 4; };  // exact in BF16
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < width; ++j) {
        const float x = value(i, j);
        if (type == DType::kF32) table.as<float>()[i * width + j] = x;
        if (type == DType::kF16) table.as<uint16_t>()[i * width + j] = F32ToF16(x);
        if (type == DType::kBF16) table.as<uint16_t>()[i * width + j] = F32ToBf16(x);
      }
    }
    const int32_t ids[] = {4, 0, 4, 2};
    std::vector<float> out(4 * 24, -9);
    EmbedRows(table.view(), ids, 4, 3.0f, out.data(), 24, isa());
    for (int i = 0; i < 4; ++i) {
      for (int j = 0; j < 24; ++j) ASSERT_EQ(out[i * 24 + j], j < width ? value(ids[i], j) * 3 : -9);
    }
  }
}

TEST_P(EmbedTest, EveryTypeThatCanBeDequantised) {
  Rng rng(6);
  int types = 0;
#define HONE_DTYPE(name, block_elements, block_bytes, ggml_id)                                                     \
  if (CanDequantize(DType::k##name)) {                                                                             \
    ++types;                                                                                                       \
    const int64_t width = 2 * block_elements;                                                                      \
    Tensor table(DType::k##name, {3, width});                                                                      \
    for (size_t i = 0; i < table.view().bytes(); ++i) table.data()[i] = static_cast<std::byte>(rng.Below(256));    \
    const int32_t ids[] = {2, 1};                                                                                  \
    std::vector<float> out(2 * width), expected(width);                                                            \
    EmbedRows(table.view(), ids, 2, 1.0f, out.data(), width, isa());                                               \
    for (int i = 0; i < 2; ++i) {                                                                                  \
      DequantizeRow(DType::k##name, table.data() + ids[i] * table.view().row_bytes(), width, expected.data());     \
      EXPECT_EQ(std::memcmp(expected.data(), out.data() + i * width, width * sizeof(float)), 0) << #name;          \
    }                                                                                                              \
  }
#include "tensor/dtype.inc"
#undef HONE_DTYPE
  EXPECT_GE(types, 10);
}

INSTANTIATE_TEST_SUITE_P(Kernels, EmbedTest, testing::ValuesIn(kEmbedLines), KernelLineName);

}  // namespace
}  // namespace hone
