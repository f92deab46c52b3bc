// Against plain loops in double, every ISA that this CPU has, odd sizes and turned operands.
#include "kernels/dense/subtract.h"

#include <gtest/gtest.h>

#include <cmath>
#include <tuple>
#include <vector>

#include "base/random.h"

namespace hone {
namespace {

template <typename T>
void Compare(Isa isa, double tolerance) {
  Rng rng(5);
  for (const auto& [m, n, k] : {std::tuple(1, 1, 1), {3, 5, 7}, {9, 33, 256}, {16, 64, 300}, {5, 100, 513}}) {
    for (const bool turned : {false, true}) {
      std::vector<T> a(m * k), b(k * n), c(m * (n + 3));
      for (auto* v : {&a, &b, &c}) {
        for (T& x : *v) x = static_cast<T>(rng.Uniform() - 0.5);
      }
      std::vector<T> got = c;
      SubtractArgs<T> args{.m = m, .n = n, .k = k, .a = a.data(), .a_row = k, .b = b.data(), .b_row = n};
      if (turned) args.a_row = 1, args.a_column = m, args.b_row = 1, args.b_column = k;
      args.c = got.data();
      args.c_row = n + 3;
      SubtractProduct(args, isa);
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < n + 3; ++j) {
          double wanted = c[i * (n + 3) + j];
          for (int64_t l = 0; l < k && j < n; ++l)
            wanted -= double{a[i * args.a_row + l * args.a_column]} * double{b[l * args.b_row + j * args.b_column]};
          ASSERT_NEAR(got[i * (n + 3) + j], wanted, tolerance * std::sqrt(k)) << IsaName(isa) << " " << m << " " << n;
        }
      }
      // Rows and columns by themselves give the same bits.
      std::vector<T> parts = c;
      args.c = parts.data() + n / 2;
      args.b += n / 2 * args.b_column;
      args.n = n - n / 2;
      SubtractProduct(args, isa);
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = n / 2; j < n; ++j) ASSERT_EQ(parts[i * (n + 3) + j], got[i * (n + 3) + j]);
      }
    }
  }
}

TEST(SubtractProduct, SameAsPlainLoops) {
  const CpuFacts cpu = ReadCpuFacts();
  for (const Isa isa : AllIsas()) {
    if (!cpu.Supports(isa)) continue;
    Compare<float>(isa, 1e-6);
    Compare<double>(isa, 1e-15);
  }
}

TEST(SubtractScaled, SameAsPlainLoops) {
  const CpuFacts cpu = ReadCpuFacts();
  Rng rng(6);
  for (const Isa isa : AllIsas()) {
    if (!cpu.Supports(isa)) continue;
    for (const int n : {0, 1, 3, 15, 16, 17, 64, 127, 128}) {
      std::vector<float> b(n), c(n + 1);
      for (auto* v : {&b, &c}) {
        for (float& x : *v) x = static_cast<float>(rng.Uniform() - 0.5);
      }
      std::vector<float> got = c;
      SubtractScaled(1.75f, b.data(), n, got.data(), isa);
      // Exact but for one rounding, or two where product and difference are rounded apart.
      for (int j = 0; j < n; ++j) ASSERT_NEAR(got[j], c[j] - 1.75 * b[j], 0x1p-23) << IsaName(isa) << " " << n;
      ASSERT_EQ(got[n], c[n]);
    }
  }
}

}  // namespace
}  // namespace hone
