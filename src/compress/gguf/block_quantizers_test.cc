// Against files of llama.cpp's quantizer (data/quant), and the instruction sets against each other.
#include "compress/gguf/block_quantizers.h"

#include <cmath>
#include <cstring>
#include <map>

#include "base/cpu.h"
#include "base/random.h"
#include "base/test_shared.h"
#include "formats/gguf.h"
#include "kernels/dequantize/dequantize.h"

namespace hone {
namespace {

std::vector<Isa> IsasHere() {
  const Isa best = ReadCpuFacts().best_isa();
  std::vector<Isa> isas = {Isa::kScalar};
  for (const Isa isa : {Isa::kAvx2, Isa::kAvx512}) {
    if (isa <= best) isas.push_back(isa);
  }
  return isas;
}

// Importance of a tensor's columns as the imatrix file gives it: sum of squares / count.
std::map<std::string, std::vector<float>> ReadSums(const GgufFile& file) {
  std::map<std::string, std::vector<float>> sums;
  const std::string suffix = ".in_sum2";
  for (const NamedTensor& tensor : file.tensors()) {
    if (!tensor.name.ends_with(suffix)) continue;
    const std::string name = tensor.name.substr(0, tensor.name.size() - suffix.size());
    const float count = file.FindTensor(name + ".counts")->view.as<float>()[0];
    std::vector<float>& values = sums[name];
    for (int64_t i = 0; i < tensor.view.shape.back(); ++i) values.push_back(tensor.view.as<float>()[i] / count);
  }
  return sums;
}

void ExpectSameBytes(const std::string& wanted_path, const std::string& folder, bool with_importance) {
  const auto base = GgufFile::Open(folder + "/base.gguf"), imatrix = GgufFile::Open(folder + "/imatrix.gguf");
  const auto wanted = GgufFile::Open(wanted_path);
  ASSERT_TRUE(base && imatrix && wanted);
  const auto sums = with_importance ? ReadSums(**imatrix) : std::map<std::string, std::vector<float>>();
  int quantized = 0;
  for (const NamedTensor& tensor : (*wanted)->tensors()) {
    if (!IsBlock(tensor.view.type)) continue;
    const TensorView& source = (*base)->FindTensor(tensor.name)->view;
    const auto importance = sums.find(tensor.name);
    const int64_t n = source.shape.back();
    for (const Isa isa : IsasHere()) {
      std::vector<std::byte> row(tensor.view.row_bytes());
      int64_t different = 0;
      for (int64_t r = 0; r < source.shape.rows(); ++r) {
        QuantizeRow(tensor.view.type, isa, source.as<float>() + r * n, n,
                    importance == sums.end() ? nullptr : importance->second.data(), row.data());
        different += std::memcmp(row.data(), tensor.view.data + r * row.size(), row.size()) != 0;
      }
      EXPECT_EQ(different, 0) << wanted_path << " " << tensor.name << " " << IsaName(isa) << " of "
                              << source.shape.rows() << " rows";
    }
    ++quantized;
  }
  EXPECT_GE(quantized, 9) << wanted_path;
}

TEST(BlockQuantizers, SameBytesAsLlamaQuantize) {
  HONE_NEED_SHARED(folder, "data/quant");
  for (const char* type : {"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K_S", "Q4_K_S", "Q5_K_S", "Q6_K",
                           "IQ4_NL", "IQ4_XS", "MXFP4_MOE", "TQ2_0"}) {
    ExpectSameBytes(folder + "/pure-" + type + ".gguf", folder, false);
  }
}

TEST(BlockQuantizers, SameBytesAsLlamaQuantizeWithImportance) {
  HONE_NEED_SHARED(folder, "data/quant");
  for (const char* type :
       {"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K_S", "Q4_K_S", "Q5_K_S", "Q6_K", "IQ4_NL", "IQ4_XS"}) {
    ExpectSameBytes(folder + "/imat-" + type + ".gguf", folder, true);
  }
}

// Rows that the fixture has not: few blocks, zeros, one large weight, tiny and huge ones, constants.
TEST(BlockQuantizers, SameBitsOnAllInstructionSetsAndCloseToTheRow) {
  Rng rng(7);
  for (const DType type : QuantizableTypes()) {
    for (int round = 0; round < 60; ++round) {
      const int64_t n = static_cast<int64_t>(Info(type).block_elements) * (1 + rng.Below(9));
      std::vector<float> x(n), importance(n);
      const double scale = std::exp2(static_cast<double>(rng.Below(24)) - 12);
      for (int64_t i = 0; i < n; ++i) {
        const int kind = round % 6;
        const double u = rng.Uniform() * 2 - 1;
        x[i] = static_cast<float>(kind == 0   ? 0
                                  : kind == 1 ? u * scale
                                  : kind == 2 ? (i == 3 ? 5 : u * 1e-3)
                                  : kind == 3 ? 0.75
                                  : kind == 4 ? std::abs(u) * scale
                                              : (i / 32 % 2 == 0 ? 0 : u));
        importance[i] = round % 7 == 0 ? 0.0f : static_cast<float>(rng.Uniform());
      }
      const float* weights = round % 2 == 0 ? importance.data() : nullptr;
      std::vector<std::byte> wanted(BytesFor(type, n)), got(BytesFor(type, n));
      QuantizeRow(type, Isa::kScalar, x.data(), n, weights, wanted.data());
      for (const Isa isa : IsasHere()) {
        QuantizeRow(type, isa, x.data(), n, weights, got.data());
        ASSERT_EQ(std::memcmp(wanted.data(), got.data(), got.size()), 0)
            << Info(type).name << " round " << round << " " << IsaName(isa);
      }
      std::vector<float> back(n);
      DequantizeRow(type, wanted.data(), n, back.data());
      for (int64_t i = 0; i < n; ++i) {
        ASSERT_TRUE(std::isfinite(back[i])) << Info(type).name << " round " << round;
        ASSERT_TRUE(round % 6 != 0 || back[i] == 0.0f) << Info(type).name;
      }
    }
  }
}

// Weights spread evenly: the error of a type must be near that of a uniform step of its bits.
TEST(BlockQuantizers, ErrorIsAsItsBitsAllow) {
  Rng rng(3);
  std::vector<float> x(4096), back(4096);
  for (float& v : x) v = static_cast<float>(rng.Uniform() * 2 - 1);
  const std::map<DType, double> relative = {{DType::kQ4_0, 0.08},  {DType::kQ4_1, 0.07},    {DType::kQ5_0, 0.04},
                                            {DType::kQ5_1, 0.035}, {DType::kQ8_0, 0.005},   {DType::kQ2_K, 0.32},
                                            {DType::kQ3_K, 0.16},  {DType::kQ4_K, 0.07},    {DType::kQ5_K, 0.035},
                                            {DType::kQ6_K, 0.02},  {DType::kIQ4_NL, 0.085}, {DType::kIQ4_XS, 0.085},
                                            {DType::kMXFP4, 0.15}, {DType::kTQ2_0, 0.55}};
  for (const DType type : QuantizableTypes()) {
    std::vector<std::byte> row(BytesFor(type, 4096));
    QuantizeRow(type, ReadCpuFacts().best_isa(), x.data(), 4096, nullptr, row.data());
    DequantizeRow(type, row.data(), 4096, back.data());
    double error = 0, power = 0;
    for (int i = 0; i < 4096; ++i) error += (x[i] - back[i]) * (x[i] - back[i]), power += x[i] * x[i];
    EXPECT_LT(std::sqrt(error / power), relative.at(type)) << Info(type).name;
  }
}

}  // namespace
}  // namespace hone
