// Types, sizes, shapes and half floats.
#include "tensor/tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "tensor/blocks.h"
#include "tensor/float16.h"

namespace hone {
namespace {

TEST(DType, GgmlIdsAreUniqueAndRoundTrip) {
  std::set<int> ids;
  for (uint32_t id = 0; id < 64; ++id) {
    const auto type = DTypeFromGgml(id);
    if (!type) continue;
    EXPECT_EQ(Info(*type).ggml_id, static_cast<int>(id));
    EXPECT_TRUE(ids.insert(Info(*type).ggml_id).second);
  }
  EXPECT_EQ(ids.size(), 35u);
  for (const uint32_t removed : {4u, 5u, 31u, 32u, 33u, 36u, 37u, 38u, 43u, 0xffffffffu}) {
    EXPECT_FALSE(DTypeFromGgml(removed)) << removed;
  }
}

TEST(DType, NamesRoundTrip) {
  EXPECT_EQ(DTypeFromName("Q4_K"), DType::kQ4_K);
  EXPECT_EQ(DTypeFromName("F8_E4M3"), DType::kF8_E4M3);
  EXPECT_FALSE(DTypeFromName("q4_k"));
  EXPECT_EQ(Info(DType::kNF4).ggml_id, -2) << "in no file";
}

TEST(TensorView, RowsAndSlices) {
  Tensor t(DType::kQ4_0, Shape{3, 4, 64});
  EXPECT_EQ(t.view().bytes(), 3u * 4 * 2 * 18);
  EXPECT_EQ(t.view().Slice(2).shape, (Shape{4, 64}));
  EXPECT_EQ(t.view().Slice(2).data - t.view().data, 2 * 4 * 36);
  EXPECT_EQ(t.view().Slice(1).Rows(3, 1).data - t.view().data, 7 * 36);
  EXPECT_EQ(t.view().shape.ToString(), "[3, 4, 64]");
}

TEST(Float16, EveryHalfRoundTrips) {
  for (uint32_t h = 0; h < 65536; ++h) {
    const float f = F16ToF32(static_cast<uint16_t>(h));
    if (std::isnan(f)) {
      EXPECT_TRUE(std::isnan(F16ToF32(F32ToF16(f))));
    } else {
      ASSERT_EQ(F32ToF16(f), h) << h;
      // Between two neighbours the nearer wins, on a tie the even one.
      const float next = F16ToF32(static_cast<uint16_t>(h + 1));
      if (std::isfinite(f) && std::isfinite(next) && (h & 0x7fff) != 0x7fff && f != 0) {
        ASSERT_EQ(F32ToF16((f + next) / 2), (h & 1) ? h + 1 : h) << h;
      }
    }
    const float b = Bf16ToF32(static_cast<uint16_t>(h));
    if (!std::isnan(b)) {
      ASSERT_EQ(F32ToBf16(b), h);
    }
  }
  EXPECT_EQ(F32ToF16(65520.f), 0x7c00);
  EXPECT_EQ(F32ToF16(65519.f), 0x7bff);
}

}  // namespace
}  // namespace hone
