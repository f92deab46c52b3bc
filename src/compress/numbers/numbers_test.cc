// Against the authors' code (goldens/compress/quant: uniform, floats, codebooks).
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <set>

#include "compress/numbers/bcq.h"
#include "compress/numbers/codebooks.h"
#include "compress/numbers/hqq.h"
#include "compress/numbers/small_floats.h"
#include "compress/numbers/uniform.h"
#include "compress/test_golden.h"

namespace hone {
namespace {

namespace fs = std::filesystem;

GridSpec SpecOf(const std::string& name, int64_t* group, bool* per_tensor) {
  GridSpec spec;
  const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
  spec.rule = has("gptq")     ? GridRule::kGptq
              : has("awq")    ? GridRule::kAwq
              : has("absmax") ? GridRule::kAbsmax
                              : GridRule::kCompressedTensors;
  spec.symmetric = !has("asym") && !has("awq");
  if (has("mse")) spec.clip = Clip::kSearch, spec.norm = has("2.0") ? 2.0 : 2.4;
  if (has("p99.9")) spec.clip = Clip::kPercentile;
  *group = has("group") || has("edge") ? 32 : 0;
  *per_tensor = has("tensor-");
  return spec;
}

TEST(Uniform, SameCodesScalesAndZerosAsTheTools) {
  HONE_NEED_SHARED(folder, "goldens/compress/quant/uniform");
  int cases = 0, near_ties = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().stem().string();
    const Golden golden(entry.path());
    int64_t group = 0;
    bool per_tensor = false;
    GridSpec spec = SpecOf(name, &group, &per_tensor);
    const std::vector<float> x = golden.Floats("weight");
    const Shape& shape = golden.View("weight").shape;
    for (spec.bits = 2; spec.bits <= 8; ++spec.bits) {
      const std::string b = "b" + std::to_string(spec.bits) + ".";
      if (!golden.Has(b + "codes")) continue;
      const UniformMatrix got = QuantizeUniform(spec, x.data(), shape[0], shape[1], group, per_tensor);
      const std::vector<float> scale = golden.Floats(b + "scale");
      const std::vector<double> codes = golden.Numbers(b + "codes");
      const std::vector<double> gap = spec.clip == Clip::kSearch ? golden.Numbers(b + "gap") : std::vector<double>();
      ASSERT_EQ(got.grids.size(), scale.size()) << name;
      const size_t slice = x.size() / scale.size();
      for (size_t g = 0; g < scale.size(); ++g) {
        if (!gap.empty() && gap[g] <= 1e-5) {  // another step may be taken, but only one with the same error
          const Grid theirs{scale[g], golden.Has(b + "zero") ? golden.Floats(b + "zero")[g] : 0};
          double mine = 0, wanted = 0;
          for (size_t i = g * slice; i < (g + 1) * slice; ++i) {
            mine += std::pow(std::fabs(double{got.grids[g].Dequantize(got.codes[i])} - x[i]), spec.norm);
            wanted += std::pow(std::fabs(double{theirs.Dequantize(static_cast<int>(codes[i]))} - x[i]), spec.norm);
          }
          EXPECT_NEAR(mine, wanted, 2e-5 * wanted) << name << " bits " << spec.bits << " group " << g;
          ++near_ties;
          continue;
        }
        EXPECT_EQ(got.grids[g].scale, scale[g]) << name << " bits " << spec.bits << " group " << g;
        if (golden.Has(b + "zero")) {
          EXPECT_EQ(got.grids[g].zero, golden.Floats(b + "zero")[g]) << name << " bits " << spec.bits << " group " << g;
        }
        for (size_t i = g * slice; i < (g + 1) * slice; ++i)
          EXPECT_EQ(got.codes[i], codes[i]) << name << " bits " << spec.bits << " at " << i;
        if (golden.Has(b + "dq")) {
          const std::vector<float> dq = golden.Floats(b + "dq");
          for (size_t i = g * slice; i < (g + 1) * slice; ++i)
            EXPECT_EQ(got.grids[g].Dequantize(got.codes[i]), dq[i]) << name << " at " << i;
        }
      }
      ++cases;
    }
  }
  EXPECT_EQ(cases, 138);  // of 27 files
  EXPECT_LT(near_ties, 60);
}

void ExpectCodes(const SmallFloat& format, const Golden& golden, const std::string& x, const std::string& codes,
                 bool saturate) {
  const std::vector<float> values = golden.Floats(x);
  const std::vector<double> wanted = golden.Numbers(codes);
  for (size_t i = 0; i < values.size(); ++i) {
    const uint8_t got = EncodeSmallFloat(format, values[i], saturate);
    const bool both_nan = std::isnan(DecodeSmallFloat(format, got)) &&
                          std::isnan(DecodeSmallFloat(format, static_cast<uint8_t>(wanted[i])));
    EXPECT_TRUE(got == wanted[i] || both_nan)
        << codes << " of " << values[i] << ": " << int{got} << ", wanted " << wanted[i];
  }
}

void ExpectValues(const SmallFloat& format, const Golden& golden) {
  const std::vector<float> values = golden.Floats("values");
  for (size_t code = 0; code < values.size(); ++code) {
    const float got = DecodeSmallFloat(format, static_cast<uint8_t>(code));
    EXPECT_TRUE(got == values[code] || (std::isnan(got) && std::isnan(values[code]))) << code;
    EXPECT_EQ(std::signbit(got), std::signbit(values[code]) || (std::isnan(got) && std::signbit(got))) << code;
  }
}

TEST(SmallFloats, CodesAndValues) {
  HONE_NEED_SHARED(folder, "goldens/compress/quant/floats");
  for (const auto& [name, format] : {std::pair("fp8-e4m3", kE4M3), {"fp8-e5m2", kE5M2}}) {
    const Golden golden(folder + "/" + name + ".safetensors");
    ExpectValues(format, golden);
    ExpectCodes(format, golden, "x", "code", false);
    ExpectCodes(format, golden, "x_f16", "code_f16", false);
    ExpectCodes(format, golden, "x_bf16", "code_bf16", false);
    ExpectCodes(format, golden, "x", "code_saturating", true);
  }
  for (const auto& [name, format] : {std::pair("elem-e2m1", kE2M1), {"elem-e2m3", kE2M3}, {"elem-e3m2", kE3M2}}) {
    const Golden golden(folder + "/" + name + ".safetensors");
    ExpectValues(format, golden);
    ExpectCodes(format, golden, "x", "code", true);
  }
}

TEST(SmallFloats, MxBlocks) {
  HONE_NEED_SHARED(folder, "goldens/compress/quant/floats");
  for (const auto& [name, format] : {std::pair("mx-e2m1", kE2M1),
                                     {"mx-e2m3", kE2M3},
                                     {"mx-e3m2", kE3M2},
                                     {"mx-e4m3", kE4M3},
                                     {"mx-e5m2", kE5M2},
                                     {"mxfp4-compressed-tensors", kE2M1}}) {
    const Golden golden(folder + "/" + name + ".safetensors");
    const bool ct = golden.Has("weight_scale");
    const std::vector<float> x = golden.Floats("weight");
    const std::vector<double> scales = golden.Numbers(ct ? "weight_scale" : "scale_e8m0"),
                              codes = golden.Numbers("codes");
    const std::vector<float> dq = ct ? std::vector<float>() : golden.Floats("dq");
    for (size_t b = 0; b < scales.size(); ++b) {
      uint8_t got[32];
      const MxRule rule = ct ? MxRule::kCompressedTensors : MxRule::kOcp;
      const uint8_t scale = MxScale(format, rule, &x[32 * b], 32);
      ASSERT_EQ(scale, scales[b]) << name << " block " << b;
      EncodeMx(format, rule, scale, &x[32 * b], 32, got);
      for (int i = 0; i < 32; ++i) {
        EXPECT_EQ(got[i], codes[32 * b + i]) << name << " block " << b << " at " << i << " of " << x[32 * b + i];
        EXPECT_TRUE(ct || DecodeSmallFloat(format, got[i]) * MxScaleValue(scale) == dq[32 * b + i])
            << name << " block " << b << " at " << i;
      }
    }
  }
}

TEST(SmallFloats, Nvfp4) {
  HONE_NEED_SHARED(folder, "goldens/compress/quant/floats");
  for (const char* name : {"nvfp4", "nvfp4-plain"}) {
    const Golden golden(folder + "/" + name + ".safetensors");
    const std::vector<float> x = golden.Floats("weight");
    const std::vector<double> scales = golden.Numbers("weight_scale"), codes = golden.Numbers("codes");
    const std::vector<float> dq = golden.Floats("dq");
    float amax = 0;
    for (const float v : x) amax = std::max(amax, std::fabs(v));
    const float tensor_scale = Nvfp4TensorScale(amax);
    EXPECT_EQ(tensor_scale, golden.Floats("weight_global_scale")[0]);
    for (size_t b = 0; b < scales.size(); ++b) {
      float block_amax = 0;
      for (size_t i = 16 * b; i < 16 * (b + 1); ++i) block_amax = std::max(block_amax, std::fabs(x[i]));
      const uint8_t scale = Nvfp4BlockScale(tensor_scale, block_amax / 6.0f);
      ASSERT_EQ(scale, scales[b]) << name << " block " << b;
      uint8_t got[16];
      EncodeNvfp4(tensor_scale, scale, &x[16 * b], got);
      for (int i = 0; i < 16; ++i) {
        EXPECT_EQ(got[i], codes[16 * b + i]) << name << " block " << b << " at " << i;
        EXPECT_EQ(DecodeSmallFloat(kE2M1, got[i]) * (DecodeSmallFloat(kE4M3, scale) / tensor_scale), dq[16 * b + i])
            << name << " block " << b << " at " << i;
      }
    }
  }
}

TEST(Codebooks, Nf4AndFp4) {
  HONE_NEED_SHARED(folder, "goldens/compress/quant/codebooks");
  int cases = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().stem().string();
    if (name.find("f4-bs") == std::string::npos && name.find("fp4-bs") == std::string::npos) continue;
    const Codebook4 codebook = name.starts_with("nf4") ? Codebook4::kNf4 : Codebook4::kFp4;
    const int block = name.find("bs64") != std::string::npos ? 64 : 128;
    const Golden golden(entry.path());
    const std::vector<float> x = golden.Floats("weight"), map = golden.Floats("quant_map");
    for (int i = 0; i < 16; ++i) EXPECT_EQ(CodebookValues(codebook)[i], map[i]) << name << " " << i;
    Codebook4Tensor got = QuantizeCodebook4(codebook, x, block);
    const std::vector<double> packed = golden.Numbers("packed");
    for (size_t i = 0; i < packed.size(); ++i) EXPECT_EQ(got.packed[i], packed[i]) << name << " byte " << i;
    if (golden.Has("nested_absmax")) {
      const std::vector<float> nested_map = golden.Floats("nested_quant_map");
      for (int i = 0; i < 256; ++i) EXPECT_EQ(DynamicMap()[i], nested_map[i]) << name << " " << i;
      const DoubleQuantized absmax = QuantizeAbsmax(got.absmax);
      EXPECT_NEAR(absmax.offset, golden.Floats("nested_offset")[0], 1e-6f * absmax.offset);
      EXPECT_NEAR(absmax.nested_absmax[0], golden.Floats("nested_absmax")[0], 1e-5f * absmax.nested_absmax[0]);
      const std::vector<double> codes = golden.Numbers("absmax");
      int differ = 0;
      for (size_t i = 0; i < codes.size(); ++i) {
        differ += absmax.codes[i] != codes[i];
        EXPECT_LE(std::fabs(absmax.codes[i] - codes[i]), 1) << name << " " << i;
      }
      EXPECT_LE(differ, 2) << name;  // the library searches its map only approximately
      DoubleQuantized stored{{}, golden.Floats("nested_absmax"), golden.Floats("nested_offset")[0]};
      for (const double code : codes) stored.codes.push_back(static_cast<uint8_t>(code));
      got.absmax = DequantizeAbsmax(stored);
    } else {
      EXPECT_EQ(got.absmax, golden.Floats("absmax")) << name;
    }
    std::vector<float> back(x.size());
    DequantizeCodebook4(codebook, got, block, back);
    const std::vector<float> dq = golden.Floats("dq");
    const double tolerance = golden.View("dq").type == DType::kBF16 ? 1.0 / 256 : 1e-6;
    for (size_t i = 0; i < dq.size(); ++i)
      EXPECT_NEAR(back[i], dq[i], tolerance * std::fabs(dq[i])) << name << " " << i;
    ++cases;
  }
  EXPECT_EQ(cases, 12);
}

TEST(Hqq, SameZerosAndCodesAsTheAuthorsCode) {
  HONE_NEED_SHARED(folder, "goldens/compress/quant/codebooks");
  for (const int bits : {2, 3, 4}) {
    for (const int axis : {0, 1}) {
      const Golden golden(folder + "/hqq-b" + std::to_string(bits) + "-axis" + std::to_string(axis) + ".safetensors");
      const std::vector<float> w = golden.Floats("weight"), scale = golden.Floats("scale"),
                               zero = golden.Floats("zero");
      const std::vector<double> codes = golden.Numbers("W_q");
      const int64_t groups = static_cast<int64_t>(w.size()) / 64;
      // Axis 0: a group is a column of [64, groups].
      const auto at = [&](int64_t g, int64_t i) { return axis == 1 ? g * 64 + i : i * groups + g; };
      std::vector<float> x(w.size());
      for (int64_t g = 0; g < groups; ++g) {
        for (int64_t i = 0; i < 64; ++i) x[g * 64 + i] = w[at(g, i)];
      }
      const HqqResult got = QuantizeHqq({.bits = bits, .round_zero = bits == 4}, x.data(), groups, 64);
      int differ = 0;
      for (int64_t g = 0; g < groups; ++g) {
        EXPECT_NEAR(got.scale[g], scale[g], 1e-6f * scale[g]) << bits << " axis " << axis << " group " << g;
        EXPECT_NEAR(got.zero[g], zero[g], 1e-3) << bits << " axis " << axis << " group " << g;
        for (int64_t i = 0; i < 64; ++i) differ += got.codes[g * 64 + i] != codes[at(g, i)];
      }
      EXPECT_LE(differ, static_cast<int>(0.002 * static_cast<double>(w.size()))) << bits << " axis " << axis;
    }
  }
}

TEST(Bcq, SameAsTheAuthorsCode) {
  HONE_NEED_SHARED(folder, "goldens/compress/quant/codebooks");
  for (const int q : {1, 2, 3, 4}) {
    for (const bool greedy : {true, false}) {
      if (q == 1 && !greedy) continue;
      const std::string name = "bcq-q" + std::to_string(q) + (greedy ? "-greedy" : "-alternating");
      const Golden golden(folder + "/" + name + ".safetensors");
      const std::vector<float> w = golden.Floats("weight"), alpha = golden.Floats("alpha"), dq = golden.Floats("dq");
      const std::vector<double> bits = golden.Numbers("sign_bits");
      double error = 0, golden_error = 0;
      for (int64_t g = 0; g < 24; ++g) {  // [12, 128] in groups of 64
        const BcqGroup got = QuantizeBcq(q, greedy ? 0 : 15, w.data() + 64 * g, 64);
        for (int64_t i = 0; i < 64; ++i) {
          error += std::pow(DequantizeBcq(got, i) - w[64 * g + i], 2);
          golden_error += std::pow(dq[64 * g + i] - w[64 * g + i], 2);
          for (int k = 0; greedy && k < q; ++k) {
            const int64_t column = g % 2 * 64 + i, row = g / 2;
            const int byte = static_cast<int>(bits[(k * 12 + row) * 16 + column / 8]);
            EXPECT_EQ((got.signs[i] >> k) & 1, (byte >> (column % 8)) & 1)
                << name << " group " << g << " at " << i << " bit " << k;
          }
        }
        for (int k = 0; greedy && k < q; ++k)
          EXPECT_NEAR(got.alpha[k], alpha[g * q + k], 1e-5f * alpha[g * q + k]) << name << " group " << g;
      }
      EXPECT_LE(error, 1.01 * golden_error) << name;
      EXPECT_GE(error, 0.9 * golden_error) << name;
    }
  }
}

TEST(Bcq, ProductByTablesIsTheDequantisedOne) {
  HONE_NEED_SHARED(folder, "goldens/compress/quant/codebooks");
  ThreadPool threads(2);
  int cases = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().stem().string();
    if (!name.starts_with("bcq-")) continue;
    const Golden golden(entry.path());
    const std::vector<float> x = golden.Floats("x"), dq = golden.Floats("dq"), w = golden.Floats("weight");
    const std::vector<double> y = golden.Numbers("y"), with_bias = golden.Numbers("y_with_bias"),
                              bias = golden.Numbers("bias");
    const int q = static_cast<int>(golden.View("alpha").shape[2]);
    BcqMatrix matrix{q, 12, 128, 64, golden.Floats("alpha"), {}};
    const TensorView& signs = golden.View("sign_bits");
    matrix.signs.assign(signs.as<uint8_t>(), signs.as<uint8_t>() + signs.bytes());
    std::vector<float> got(12);
    MultiplyBcq(matrix, x.data(), got.data(), threads);
    double largest = 0, sums[2] = {};
    for (const double v : y) largest = std::max(largest, std::fabs(v));
    for (int64_t i = 0; i < 128; ++i) sums[i / 64] += x[i];
    for (int64_t r = 0; r < 12; ++r) {
      EXPECT_NEAR(got[r], y[r], 1e-5 * largest) << name << " " << r;
      EXPECT_NEAR(got[r] + bias[2 * r] * sums[0] + bias[2 * r + 1] * sums[1], with_bias[r], 2e-5 * largest) << name;
      for (int64_t i = 0; i < 128; ++i)
        EXPECT_NEAR(matrix.Dequantize(r, i), dq[r * 128 + i], 1e-6 * std::fabs(dq[r * 128 + i]) + 1e-7) << name;
    }
    // Our own codes of the weights, multiplied, are what they say.
    const BcqMatrix mine = QuantizeBcqMatrix(q, 15, w.data(), 12, 128, 64, threads);
    MultiplyBcq(mine, x.data(), got.data(), threads);
    for (int64_t r = 0; r < 12; ++r) {
      double sum = 0;
      for (int64_t i = 0; i < 128; ++i) sum += double{mine.Dequantize(r, i)} * x[i];
      EXPECT_NEAR(got[r], sum, 1e-5 * largest) << name << " " << r;
    }
    ++cases;
  }
  EXPECT_EQ(cases, 7);
}

TEST(Codebooks, LlmInt8) {
  HONE_NEED_SHARED(path, "goldens/compress/quant/codebooks/llm-int8.safetensors");
  const Golden golden(path);
  const std::vector<float> w = golden.Floats("weight"), x = golden.Floats("x");
  const auto check = [&](const std::vector<float>& m, int64_t columns, float threshold, const char* scales,
                         const char* codes, const std::set<int>& zeroed) {
    const std::vector<float> wanted_scales = golden.Floats(scales);
    const std::vector<double> wanted = golden.Numbers(codes);
    std::vector<int8_t> row(columns);
    for (size_t r = 0; r < wanted_scales.size(); ++r) {
      EXPECT_EQ(QuantizeInt8Row({m.data() + r * columns, static_cast<size_t>(columns)}, threshold, row.data()).absmax,
                wanted_scales[r])
          << scales << r;
      for (int64_t c = 0; c < columns; ++c) {
        EXPECT_EQ(zeroed.count(static_cast<int>(c)) > 0 ? 0 : row[c], wanted[r * columns + c])
            << codes << " row " << r << " column " << c;
      }
    }
  };
  const std::vector<int32_t> outliers = OutlierColumns(x.data(), 48, 128, 6.0f);
  const std::vector<double> wanted = golden.Numbers("outlier_columns");
  ASSERT_EQ(std::vector<double>(outliers.begin(), outliers.end()), wanted);
  check(w, 128, 0, "SCB", "CB", {});
  check(x, 128, 6.0f, "SCA", "CA", {outliers.begin(), outliers.end()});
  check(x, 128, 0, "SCA_no_threshold", "CA_no_threshold", {});
  // The product: outlier columns apart, with dequantised weights.
  const std::vector<double> ca = golden.Numbers("CA"), cb = golden.Numbers("CB"), sca = golden.Numbers("SCA"),
                            scb = golden.Numbers("SCB"), bias = golden.Numbers("bias"), y = golden.Numbers("y"),
                            accumulator = golden.Numbers("accumulator");
  double largest = 0;
  for (const double v : y) largest = std::max(largest, std::fabs(v));
  for (size_t t = 0; t < 48; ++t) {
    for (size_t r = 0; r < 64; ++r) {
      double sum = 0;
      for (size_t c = 0; c < 128; ++c) sum += ca[t * 128 + c] * cb[r * 128 + c];
      EXPECT_EQ(sum, accumulator[t * 64 + r]);
      double out = sum * sca[t] * scb[r] / (127.0 * 127.0) + bias[r];
      for (const int32_t c : outliers) out += x[t * 128 + c] * cb[r * 128 + c] * scb[r] / 127;
      EXPECT_NEAR(out, y[t * 64 + r], 1e-5 * largest) << t << " " << r;
    }
  }
}

}  // namespace
}  // namespace hone
