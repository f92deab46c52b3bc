// The sum of x x^T against the H that GPTQ's authors accumulate (goldens/compress/quant/gptq), which is 2 / sequences
// times it.
#include "compress/layerwise/moments.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "compress/test_golden.h"

namespace hone {
namespace {

TEST(SecondMoments, AreTheAuthorsHessian) {
  HONE_NEED_SHARED(folder, "goldens/compress/quant/gptq");
  const CpuFacts cpu = ReadCpuFacts();
  ThreadPool threads(2);
  Clock clock;
  // AMX and AVX-512 BF16 would round inputs to BF16; the authors' arithmetic is F32.
  const Runtime runtime{&cpu, std::min(cpu.best_isa(), Isa::kVnni), &threads, nullptr, &clock};
  int compared = 0;
  for (const char* name : {"small", "wide", "deficient"}) {
    const Golden golden(folder + "/" + name + ".safetensors");
    if (!golden.Has("h")) continue;  // too large to be kept
    const std::vector<float> x = golden.Floats("x"), h = golden.Floats("h");
    const Shape& shape = golden.View("x").shape;
    const int64_t sequences = shape[0], tokens = shape[1], columns = shape[2];
    SecondMoments moments(columns, runtime);
    for (int64_t s = 0; s < sequences; ++s) moments.Add(&x[s * tokens * columns], columns, tokens);
    moments.Finish();
    float largest = 0;
    for (const float v : h) largest = std::max(largest, std::fabs(v));
    for (int64_t i = 0; i < columns; ++i) {
      for (int64_t j = 0; j <= i; ++j)
        ASSERT_NEAR(2.0f / static_cast<float>(sequences) * moments.h()[i * columns + j], h[i * columns + j],
                    1e-5f * largest)
            << name << " " << i << " " << j;
    }
    ++compared;
  }
  EXPECT_GE(compared, 1);
}

}  // namespace
}  // namespace hone
