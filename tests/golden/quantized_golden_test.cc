// Quantised folders that other tools wrote (README of goldens/compress/quant): every dequantised matrix equals theirs bit for
// bit, and the model's logits are those of a float64 run of the dequantised weights: within the manifest's 1e-3 of the
// largest logit with exact activations, and within a bound of the packed type with rounded ones.
#include <gtest/gtest.h>
#include <openssl/sha.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "base/test_shared.h"
#include "formats/safetensors.h"
#include "golden/driver.h"
#include "models/family.h"
#include "models/weight_map.h"
#include "models/weights.h"

namespace hone::golden {
namespace {

struct QuantizedCase {
  std::string name, folder, golden;
  std::vector<int32_t> prompt;
  std::map<std::string, std::string> sha256;  // of dequantised tensors
};
void PrintTo(const QuantizedCase& one, std::ostream* out) { *out << one.name; }

std::vector<QuantizedCase> ReadQuantizedCases() {
  std::vector<QuantizedCase> cases;
  const std::string root = SharedPath("goldens/compress/quant");
  if (root.empty()) return cases;
  for (const char* area : {"gptq", "awq", "ct", "ct-gidx", "bnb"}) {
    std::ifstream file(root + "/foreign-" + area + ".json");
    const nlohmann::json manifest = nlohmann::json::parse(file);
    for (const nlohmann::json& entry : manifest["cases"]) {
      QuantizedCase one{.name = entry["name"], .folder = root + "/" + std::string(entry["folder"]), .golden = root + "/" + std::string(entry["golden"]),
               .prompt = manifest["prompt"], .sha256 = entry["dequantized_sha256"]};
      cases.push_back(one);
    }
  }
  return cases;
}

// What each folder runs as, and as what with --exact (docs/models.md).
struct Wanted {
  DType type, exact;
};
// How far the packed path may take logits from the golden ones: root of the mean square of the differences over that of the
// logits. Activations rounded to 8 bits make it 0.015 to 0.026 in this model, whatever the weights are; a type that rounds adds to it.
constexpr double kKeptBound = 0.03, kRoundedBound = 0.045;
const std::map<std::string, Wanted>& WantedOf() {
  static const std::map<std::string, Wanted> wanted = {
      {"gptq-v1-b4-g32-sym", {DType::kQ4_0, DType::kQ4_0}},
      {"gptq-v1-b4-g32-sym-act", {DType::kQ4_0, DType::kQ4_0}},
      {"gptq-v1-b4-gall-asym", {DType::kQ4_1, DType::kQ5_0}},
      {"gptq-v2-b4-g32-asym-act", {DType::kQ4_1, DType::kQ5_0}},
      {"gptq-v2-b2-g32-asym", {DType::kQ4_0, DType::kQ4_0}},
      {"gptq-v1-b3-g32-sym", {DType::kQ4_0, DType::kQ4_0}},
      {"gptq-v2-b3-g32-asym-act", {DType::kQ4_0, DType::kQ4_0}},
      {"gptq-v1-b8-gall-sym", {DType::kQ8_0, DType::kQ8_0}},
      {"awq-gemm-g32-asym", {DType::kQ4_1, DType::kQ5_0}},
      {"ct-pack-w4a16-asym", {DType::kQ4_1, DType::kQ5_0}},
      {"ct-pack-w4a16-gptq-weight-order", {DType::kQ4_0, DType::kQ4_0}},
      {"ct-pack-w4a16-gidx", {DType::kQ4_0, DType::kQ4_0}},
      {"ct-pack-w3a16-sym", {DType::kQ4_0, DType::kQ4_0}},
      {"ct-int8-channel-token", {DType::kQ8_0, DType::kQ8_0}},
      {"ct-fp8-channel-token", {DType::kQ8_0, DType::kF32}},
      {"ct-fp8-block", {DType::kQ8_0, DType::kF32}},
      {"ct-nvfp4a16", {DType::kQ8_0, DType::kF32}},
      {"ct-mxfp4a16", {DType::kMXFP4, DType::kMXFP4}},
      {"bnb-nf4-dq", {DType::kNF4, DType::kF32}},
      {"bnb-int8", {DType::kQ8_0, DType::kF32}},
  };
  return wanted;
}

std::string Sha256(const std::vector<float>& values) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(values.data()), values.size() * sizeof(float), digest);
  std::string text;
  for (const unsigned char byte : digest) text += "0123456789abcdef"[byte >> 4], text += "0123456789abcdef"[byte & 15];
  return text;
}

class Quantized : public testing::TestWithParam<QuantizedCase> {
 protected:
  struct Errors {
    double largest = 0;   // over the largest golden logit
    double rms = 0;       // over that of the golden logits
  };
  static Errors Compare(const std::vector<std::vector<float>>& logits, const TensorView& golden) {
    const float* wanted = golden.as<float>();
    double error = 0, largest = 0, squares = 0, all = 0;
    for (const std::vector<float>& row : logits) {
      for (const float x : row) {
        EXPECT_TRUE(std::isfinite(x));
        const double difference = std::abs(double{x} - double{*wanted});
        error = std::max(error, difference), squares += difference * difference;
        largest = std::max(largest, std::abs(double{*wanted})), all += double{*wanted} * double{*wanted};
        ++wanted;
      }
    }
    return {error / largest, std::sqrt(squares / all)};
  }
};

TEST_P(Quantized, ValuesAreThoseOfTheTool) {
  const QuantizedCase& one = GetParam();
  const auto checkpoint = Checkpoint::Open(one.folder);
  ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().message;
  const auto family = FindFamily(**checkpoint);
  const auto config = ReadModelConfig(**checkpoint);
  ASSERT_TRUE(family.has_value() && config.has_value());
  const auto map = WeightMap::Make(**checkpoint, **family, *config);
  ASSERT_TRUE(map.has_value()) << map.error().message;
  EXPECT_TRUE(map->unused().empty()) << map->unused().front();
  std::map<std::string, const Weight*> weights;
  for (const Weight& weight : map->weights()) weights[weight.file_name] = &weight;
  ASSERT_FALSE(one.sha256.empty());
  Machine machine;
  for (const auto& [name, digest] : one.sha256) {
    ASSERT_EQ(weights.count(name), 1u) << name;
    const Weight& weight = *weights[name];
    if (weight.quantized == nullptr) {
      EXPECT_EQ(Sha256(ReadVector(weight)), digest) << name;
      continue;
    }
    std::vector<float> values(weight.view.shape.elements());
    weight.quantized->Decode(0, weight.view.shape[0], values.data());
    EXPECT_EQ(Sha256(values), digest) << name;
    EXPECT_EQ(weight.quantized->type(false), WantedOf().at(one.name).type) << name;
    EXPECT_EQ(weight.quantized->type(true), WantedOf().at(one.name).exact) << name;
    // What runs under --exact holds the same numbers.
    const auto tensor = weight.quantized->Transcode(0, weight.view.shape[0], true, *machine.runtime(Isa::kScalar).threads);
    ASSERT_TRUE(tensor.has_value()) << tensor.error().message;
    const std::vector<float> packed = ReadVector({.view = tensor->view()});
    const std::vector<int32_t>& order = weight.quantized->order(true);
    const int64_t columns = weight.view.shape[1];
    int64_t differ = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      const int64_t column = static_cast<int64_t>(i) % columns;
      const size_t from = i - column + (order.empty() ? column : order[column]);
      differ += packed[i] != values[from];
    }
    EXPECT_EQ(differ, 0) << name;
  }
}

TEST_P(Quantized, LogitsAreThoseOfTheGolden) {
  const QuantizedCase& one = GetParam();
  const auto golden = SafetensorsFile::Open(one.golden);
  ASSERT_TRUE(golden.has_value());
  const TensorView& wanted = (*golden)->FindTensor("logits")->view;
  Machine machine;
  for (const Isa isa : machine.isas()) {
    SCOPED_TRACE(IsaName(isa));
    for (const bool exact : {true, false}) {
      const auto model = LoadModel(one.folder, machine.runtime(isa), {.max_rows = 32, .exact = exact});
      ASSERT_NE(model, nullptr);
      Sequences sequences(*model, 16);
      const Errors errors = Compare(sequences.Feed({{.sequence = 0, .tokens = one.prompt}}), wanted);
      if (exact) {
        EXPECT_LE(errors.largest, 1e-3);
      } else {
        const Wanted& types = WantedOf().at(one.name);
        const bool rounded = types.exact == DType::kF32 && one.name != "bnb-int8";  // whose scales alone are rounded
        EXPECT_LE(errors.rms, rounded ? kRoundedBound : kKeptBound);
      }
    }
  }
}

// One token at a time gives the bits of the whole prompt, also where inputs are put in another order.
TEST_P(Quantized, AnyCutGivesTheSameBits) {
  const QuantizedCase& one = GetParam();
  Machine machine;
  const auto model = LoadModel(one.folder, machine.runtime(machine.isas().back()), {.max_rows = 32, .deterministic = true});
  ASSERT_NE(model, nullptr);
  Sequences whole(*model, 16), cut(*model, 16);
  const auto wanted = whole.Feed({{.sequence = 0, .tokens = one.prompt}});
  for (size_t i = 0; i < one.prompt.size(); ++i) {
    ASSERT_EQ(cut.Feed({{.sequence = 0, .tokens = {one.prompt[i]}}})[0], wanted[i]) << i;
  }
}

std::string NameOf(const testing::TestParamInfo<QuantizedCase>& one) {
  std::string name = one.param.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Foreign, Quantized, testing::ValuesIn(ReadQuantizedCases()), NameOf);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Quantized);

}  // namespace
}  // namespace hone::golden
