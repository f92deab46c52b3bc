// Against the authors' code (goldens/compress/quant/gptq) from its own H, and what must hold for any layer.
#include "compress/gptq/gptq.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <tuple>

#include "base/check.h"
#include "base/random.h"
#include "base/test_shared.h"
#include "compress/gptq/cholesky.h"
#include "formats/safetensors.h"
#include "tensor/float16.h"

namespace hone {
namespace {

std::vector<float> HalvesOf(const TensorView& view) {
  std::vector<float> out(view.shape.elements());
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = view.type == DType::kF32 ? view.as<float>()[i] : F16ToF32(view.as<uint16_t>()[i]);
  return out;
}

std::vector<float> SumsOfProducts(const std::vector<float>& x, int64_t columns) {
  std::vector<double> sum(static_cast<size_t>(columns * columns));
  for (size_t t = 0; t < x.size() / columns; ++t) {
    for (int64_t i = 0; i < columns; ++i) {
      for (int64_t j = 0; j < columns; ++j)
        sum[i * columns + j] += double{x[t * columns + i]} * double{x[t * columns + j]};
    }
  }
  return {sum.begin(), sum.end()};
}

double OutputError(const std::vector<float>& w, const std::vector<float>& back, int64_t rows,
                   const std::vector<float>& h) {
  const int64_t n = static_cast<int64_t>(w.size()) / rows;
  double error = 0;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        error += double{h[i * n + j]} * double{w[r * n + i] - back[r * n + i]} * double{w[r * n + j] - back[r * n + j]};
      }
    }
  }
  return error;
}

std::vector<float> Dequantize(const GptqResult& result, int64_t rows) {
  const int64_t n = static_cast<int64_t>(result.group_of.size()), groups = result.groups();
  std::vector<float> back(result.codes.size());
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < n; ++i)
      back[r * n + i] = result.grids[r * groups + result.group_of[i]].Dequantize(result.codes[r * n + i]);
  }
  return back;
}

TEST(Cholesky, FactorOfTheInverse) {
  Rng rng(11);
  for (const int64_t n : {1, 2, 127, 128, 129, 290, 641}) {
    const Isa isa = n % 2 == 0 ? ReadCpuFacts().best_isa() : Isa::kScalar;
    std::vector<double> a(n * n), h(n * n), u;
    for (double& v : a) v = rng.Uniform() - 0.5;
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        for (int64_t k = 0; k < n; ++k) h[i * n + j] += a[i * n + k] * a[j * n + k];
      }
      h[i * n + i] += 0.1;
    }
    ThreadPool threads(2);
    u = h;
    ASSERT_TRUE(InverseFactor(u, n, threads, isa)) << n;
    // U^T U H = I.
    std::vector<double> uh(n * n);
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        for (int64_t k = i; k < n; ++k) uh[i * n + j] += u[i * n + k] * h[k * n + j];
      }
    }
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (int64_t k = 0; k <= i; ++k) sum += u[k * n + i] * uh[k * n + j];
        EXPECT_NEAR(sum, i == j ? 1 : 0, 1e-6) << n << " " << i << " " << j;
      }
    }
    for (const double bad : {-1.0, std::nan("")}) {
      u = h;
      u[n * n - 1] = bad;
      EXPECT_FALSE(InverseFactor(u, n, threads, isa)) << n;
    }
  }
}

// "loss" of a case of the manifest.
double GoldenLoss(const std::string& manifest, const std::string& name) {
  std::ifstream in(manifest);
  const std::string text(std::istreambuf_iterator<char>(in), {});
  const size_t at = text.find("\"" + name + "\""), loss = text.find("\"loss\":", at);
  HONE_CHECK(at != std::string::npos && loss != std::string::npos);
  return std::strtod(text.c_str() + loss + 7, nullptr);
}

TEST(Gptq, SameAsTheAuthorsCode) {
  HONE_NEED_SHARED(folder, "goldens/compress/quant/gptq");
  ThreadPool threads(2);
  int cases = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().stem().string();
    if (name.find("-b") == std::string::npos || name.starts_with("obq")) continue;
    const auto layer = SafetensorsFile::Open(folder + "/" + name.substr(0, name.find('-')) + ".safetensors");
    const auto golden = SafetensorsFile::Open(entry.path());
    ASSERT_TRUE(layer && golden);
    const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
    const TensorView& weight = (*layer)->FindTensor("weight")->view;
    const int64_t rows = weight.shape[0], columns = weight.shape[1];
    const std::vector<float> w = HalvesOf(weight), x = HalvesOf((*layer)->FindTensor("x")->view);
    const NamedTensor* stored = (*layer)->FindTensor("h");
    const std::vector<float> h = stored != nullptr ? HalvesOf(stored->view) : SumsOfProducts(x, columns);
    GptqOptions options;
    options.grid.bits = name[name.find("-b") + 2] - '0';
    options.grid.symmetric = !has("asym");
    options.group = has("-g32-") ? 32 : has("-g128-") ? 128 : 0;
    options.order = has("act1") ? ColumnOrder::kActivation : ColumnOrder::kNatural;
    options.static_groups = has("st1");
    const GptqResult got = QuantizeGptq(w, rows, h, options, threads);
    const TensorView &codes = (*golden)->FindTensor("codes")->view, &scale = (*golden)->FindTensor("scale")->view;
    const TensorView &zero = (*golden)->FindTensor("zero")->view, &g_idx = (*golden)->FindTensor("g_idx")->view;
    const bool ties = has("act1") && got.dead_columns > 1;  // dead columns tie in the authors' sort
    int64_t differ = 0;
    for (size_t i = 0; i < got.codes.size(); ++i) differ += got.codes[i] != codes.as<uint8_t>()[i];
    EXPECT_LE(static_cast<double>(differ), 0.01 * static_cast<double>(got.codes.size())) << name;
    if (!ties) {
      for (int64_t i = 0; i < columns; ++i) EXPECT_EQ(got.group_of[i], g_idx.as<int32_t>()[i]) << name << " " << i;
    }
    ASSERT_EQ(static_cast<int64_t>(got.grids.size()), scale.shape.elements()) << name;
    if (options.static_groups || options.group == 0) {
      for (size_t i = 0; i < got.grids.size(); ++i) {
        EXPECT_EQ(got.grids[i].scale, scale.as<float>()[i]) << name << " " << i;
        EXPECT_EQ(got.grids[i].zero, zero.as<float>()[i]) << name << " " << i;
      }
    }
    // The error of the layer's output is that of the golden codes, within 2 %.
    GptqResult wanted = got;
    wanted.codes.assign(codes.as<uint8_t>(), codes.as<uint8_t>() + got.codes.size());
    wanted.group_of.assign(g_idx.as<int32_t>(), g_idx.as<int32_t>() + columns);
    for (size_t i = 0; i < got.grids.size(); ++i) wanted.grids[i] = {scale.as<float>()[i], zero.as<float>()[i]};
    const double error = OutputError(w, Dequantize(got, rows), rows, h),
                 golden_error = OutputError(w, Dequantize(wanted, rows), rows, h);
    EXPECT_NEAR(error, golden_error, 0.02 * golden_error) << name;
    // The authors' loss is of their H, 2 / sequences times the sum of products.
    const double sequences = static_cast<double>((*layer)->FindTensor("x")->view.shape[0]);
    const double loss = got.loss * (stored != nullptr ? 1 : 2 / sequences), golden_loss = GoldenLoss(folder + ".json", name);
    EXPECT_NEAR(loss, golden_loss, 0.02 * golden_loss) << name;
    EXPECT_EQ(got.fallback, GptqFallback::kNone);
    ++cases;
  }
  EXPECT_EQ(cases, 88);
}

TEST(Obq, SameOrderAndCodesAsTheAuthorsCode) {
  HONE_NEED_SHARED(folder, "goldens/compress/quant/gptq");
  // The stored codes are the authors' in float32; order and loss are of double. In one row of obq-b a tie falls the
  // other way in float32, which moves 16 codes (official_equal in the manifest is 1 - 16 / 384).
  for (const auto& [name, bits, symmetric, differ] :
       {std::tuple("obq-a", 4, false, 0), {"obq-b", 3, true, 16}, {"obq-even", 3, false, 0}}) {
    const auto file = SafetensorsFile::Open(folder + "/" + name + ".safetensors");
    ASSERT_TRUE(file);
    const auto view = [&](const char* tensor) -> const TensorView& { return (*file)->FindTensor(tensor)->view; };
    const std::vector<float> w = HalvesOf(view("weight"));
    const int64_t rows = view("weight").shape[0], n = view("weight").shape[1];
    const GridSpec spec{.rule = GridRule::kGptq, .bits = bits, .symmetric = symmetric};
    int different = 0;
    for (int64_t r = 0; r < rows; ++r) {
      const Grid grid{view("scale").as<float>()[r], view("zero").as<float>()[r]};
      std::vector<int> order;
      double loss = 0;
      const std::vector<int> codes =
          QuantizeObqRow(spec, grid, {w.data() + r * n, static_cast<size_t>(n)},
                         {view("h").as<double>(), static_cast<size_t>(n * n)}, &order, &loss);
      for (int64_t i = 0; i < n; ++i) {
        different += codes[i] != view("codes").as<uint8_t>()[r * n + i];
        if (view("gap").as<float>()[r * n + i] < 1e-6) break;
        EXPECT_EQ(order[i], view("order").as<int32_t>()[r * n + i]) << name << " row " << r << " step " << i;
      }
      EXPECT_NEAR(loss, view("loss_per_row_float64").as<double>()[r], 1e-6 * loss) << name << " row " << r;
    }
    EXPECT_EQ(different, differ) << name;
  }
}

TEST(Gptq, HessiansThatCannotBeFactoredFallBackAndSaySo) {
  Rng rng(2);
  ThreadPool threads(1);
  std::vector<float> w(4 * 64), h(64 * 64, 0.0f);
  for (float& v : w) v = static_cast<float>(rng.Uniform() - 0.5);
  for (int i = 0; i < 64; ++i) h[i * 64 + i] = 1;
  h[1] = h[64] = 1.1f;  // not positive: more damping helps
  GptqOptions options;
  const GptqResult damped = QuantizeGptq(w, 4, h, options, threads);
  EXPECT_EQ(damped.fallback, GptqFallback::kMoreDamping);
  EXPECT_GT(damped.damping, 0.05);
  h[1] = h[64] = std::nanf("");
  const GptqResult rounded = QuantizeGptq(w, 4, h, options, threads);
  EXPECT_EQ(rounded.fallback, GptqFallback::kRounding);
  const UniformMatrix nearest = QuantizeUniform(options.grid, w.data(), 4, 64, 0, false);
  for (size_t i = 0; i < w.size(); ++i) EXPECT_EQ(rounded.codes[i], nearest.codes[i]);
}

TEST(Gptq, GroupAwareOrderKeepsGroupsWholeAndHelps) {
  Rng rng(9);
  ThreadPool threads(2);
  const int64_t rows = 24, n = 128;
  std::vector<float> w(rows * n), x(256 * n);
  for (float& v : w) v = static_cast<float>(rng.Uniform() - 0.5);
  for (size_t t = 0; t < 256; ++t) {
    double shared = rng.Uniform() - 0.5;
    for (int64_t i = 0; i < n; ++i) x[t * n + i] = static_cast<float>((rng.Uniform() - 0.5 + shared) * (1 + i % 7));
  }
  const std::vector<float> h = SumsOfProducts(x, n);
  GptqOptions options{.grid = {.rule = GridRule::kGptq, .bits = 3}, .group = 32, .order = ColumnOrder::kGroupAware};
  const GptqResult got = QuantizeGptq(w, rows, h, options, threads);
  for (int64_t i = 0; i < n; ++i) EXPECT_EQ(got.group_of[i], i / 32);
  const UniformMatrix nearest = QuantizeUniform(options.grid, w.data(), rows, n, 32, false);
  GptqResult plain = got;
  plain.grids = nearest.grids;
  plain.codes.assign(nearest.codes.begin(), nearest.codes.end());
  EXPECT_LT(OutputError(w, Dequantize(got, rows), rows, h), 0.5 * OutputError(w, Dequantize(plain, rows), rows, h));
}

}  // namespace
}  // namespace hone
