// Folders that hone quantize --method writes, run by hone: every format loads, its exact logits are those of the dequantised
// model as a GGUF file, and what makes no sense on quantised weights is refused with a way out.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "base/test_shared.h"
#include "e2e/program.h"
#include "formats/safetensors.h"

namespace hone {
namespace {

namespace fs = std::filesystem;

struct Format {
  const char* name;
  const char* flags;
  const char* runs_as;  // its matrices, in hone inspect
  bool gguf = false;    // GGUF holds them as they are
};

class QuantizedFolder : public e2e::InFolder {
 protected:
  QuantizedFolder() : InFolder("quantized_folder") {}

  std::shared_ptr<const SafetensorsFile> Logits(const std::string& model, const char* flags) {
    const std::string ids = folder_ + "ids.json", out = folder_ + "logits.safetensors";
    std::ofstream(ids) << "[5, 17, 300, 42, 9, 1001, 77, 64, 12, 3, 256, 900]";
    fs::remove(out);
    EXPECT_EQ(Hone("logits" + Quoted(model) + "--ids" + Quoted(ids) + "-o" + Quoted(out) + flags), 0) << Err();
    auto file = SafetensorsFile::Open(out);
    EXPECT_TRUE(file.has_value());
    return file.has_value() ? *file : nullptr;
  }
  // Root of the mean square of the differences over that of `b`.
  static double Distance(const SafetensorsFile& a, const SafetensorsFile& b) {
    const TensorView &x = a.FindTensor("logits")->view, &y = b.FindTensor("logits")->view;
    EXPECT_TRUE(x.shape == y.shape);
    double squares = 0, all = 0;
    for (int64_t i = 0; i < y.shape.elements(); ++i) {
      squares += std::pow(double{x.as<float>()[i]} - double{y.as<float>()[i]}, 2), all += std::pow(double{y.as<float>()[i]}, 2);
    }
    return std::sqrt(squares / all);
  }

  static nlohmann::json Config(const std::string& model) {
    std::ifstream in(model + "/config.json");
    return nlohmann::json::parse(in);
  }

  const std::string builtin_ = HONE_SOURCE_DIR "/assets/builtin/main";
};

class QuantizedFolderRuns : public QuantizedFolder, public testing::WithParamInterface<Format> {};

TEST_P(QuantizedFolderRuns, AsTheDequantisedModelDoes) {
  const Format& format = GetParam();
  const std::string model = folder_ + "model", gguf = folder_ + "model.gguf";
  ASSERT_EQ(Hone("quantize" + Quoted(builtin_) + Quoted(model) + format.flags + " --no-measure"), 0) << Err();
  ASSERT_EQ(Hone("inspect --json" + Quoted(model)), 0) << Err();
  const nlohmann::json seen = nlohmann::json::parse(Out());
  int matrices = 0;
  for (const nlohmann::json& weight : seen["weights"]) {
    if (weight["name"] != "model.layers.0.mlp.down_proj.weight") continue;
    EXPECT_EQ(weight["runs_as"], format.runs_as);
    EXPECT_EQ(weight["shape"], nlohmann::json::array({256, 768}));
    ++matrices;
  }
  EXPECT_EQ(matrices, 1);

  ASSERT_EQ(Hone("convert" + Quoted(model) + Quoted(gguf) + "--type f32"), 0) << Err();
  const auto wanted = Logits(gguf, "--exact"), exact = Logits(model, "--exact"), packed = Logits(model, "");
  ASSERT_TRUE(wanted && exact && packed);
  EXPECT_LT(Distance(*exact, *wanted), 1e-5);
  EXPECT_LT(Distance(*packed, *wanted), 0.05);
  const std::string same = folder_ + "same.gguf";
  EXPECT_EQ(Hone("convert" + Quoted(model) + Quoted(same)) == 0, format.gguf) << Err();
  if (format.gguf) {
    const auto converted = Logits(same, "--exact");
    ASSERT_TRUE(converted);
    EXPECT_LT(Distance(*converted, *wanted), 1e-5);
  } else {
    EXPECT_NE(Err().find("--type bf16"), std::string::npos) << Err();
  }
  ASSERT_EQ(Hone("run" + Quoted(model) + "-p 'What is a' --max-tokens 4 --temperature 0"), 0) << Err();
  EXPECT_FALSE(Out().empty());

  EXPECT_NE(Hone("quantize" + Quoted(model) + Quoted(folder_ + "again.gguf") + "--type Q4_0 --no-measure"), 0);
  EXPECT_NE(Err().find("--allow-requantize"), std::string::npos) << Err();

  // Into a folder again: as what its matrices mean, and with nothing of how they were stored.
  const std::string again = folder_ + "again", fresh = folder_ + "fresh", w8a8 = " --method w8a8 --no-measure";
  EXPECT_EQ(Hone("quantize" + Quoted(model) + Quoted(again) + w8a8), 3);
  EXPECT_NE(Err().find("--allow-requantize"), std::string::npos) << Err();
  EXPECT_FALSE(fs::exists(again));
  ASSERT_EQ(Hone("quantize" + Quoted(model) + Quoted(again) + w8a8 + " --allow-requantize"), 0) << Err();
  ASSERT_EQ(Hone("quantize" + Quoted(builtin_) + Quoted(fresh) + w8a8), 0) << Err();
  const auto twice = SafetensorsFile::OpenFolder(again), once = SafetensorsFile::OpenFolder(fresh);
  ASSERT_TRUE(twice && once);
  ASSERT_EQ((*twice)->tensors().size(), (*once)->tensors().size());
  for (const NamedTensor& tensor : (*once)->tensors()) {
    const NamedTensor* other = (*twice)->FindTensor(tensor.name);
    ASSERT_NE(other, nullptr) << tensor.name;
    EXPECT_EQ(other->view.type, tensor.view.type) << tensor.name;
    EXPECT_EQ(other->view.shape, tensor.view.shape) << tensor.name;
  }
  EXPECT_EQ(Config(again), Config(fresh));
  EXPECT_FALSE(fs::exists(again + "/quantize_config.json"));
  const auto requantised = Logits(again, "--exact");
  ASSERT_TRUE(requantised);
  EXPECT_LT(Distance(*requantised, *wanted), 0.02);
}

TEST_F(QuantizedFolder, MayBeQuantisedAgainOnlyWhenAsked) {
  const std::string model = folder_ + "model", again = folder_ + "again.gguf";
  ASSERT_EQ(Hone("quantize" + Quoted(builtin_) + Quoted(model) + "--method rtn --bits 8 --group 32 --no-measure"), 0) << Err();
  EXPECT_EQ(Hone("quantize" + Quoted(model) + Quoted(folder_ + "twice") + "--method rtn --no-measure"), 3);
  EXPECT_NE(Hone("convert" + Quoted(model) + Quoted(folder_ + "copy")), 0);
  EXPECT_NE(Hone("quantize" + Quoted(model) + Quoted(again) + "--type Q4_0 --method gptq --allow-requantize --no-measure"), 0);
  // Under a budget too.
  const std::string budget = folder_ + "budget.gguf", flags = "--bits 10 --chunk 64 --chunks 2 --no-measure";
  EXPECT_EQ(Hone("quantize" + Quoted(model) + Quoted(budget) + flags), 3) << Err();
  EXPECT_EQ(Hone("quantize" + Quoted(model) + Quoted(budget) + flags + " --allow-requantize"), 0) << Err();
  ASSERT_EQ(Hone("quantize" + Quoted(model) + Quoted(again) + "--type Q8_0 --allow-requantize --no-measure"), 0) << Err();
  const auto once = Logits(model, "--exact"), twice = Logits(again, "--exact");
  ASSERT_TRUE(once && twice);
  EXPECT_LT(Distance(*twice, *once), 0.05);
}

// Numbers that BF16 holds are quantised again as they would be from a BF16 model that holds them.
TEST_F(QuantizedFolder, IsQuantisedAgainAsItsDequantisedModel) {
  const std::string model = folder_ + "model", plain = folder_ + "plain", recipe = folder_ + "recipe";
  std::ofstream(recipe) << "model.layers.1.self_attn.* keep\n";
  for (const char* first : {"--method mxfp8", "--method mxfp4"}) {
    ASSERT_EQ(Hone("quantize" + Quoted(builtin_) + Quoted(model) + first + " --force --no-measure"), 0) << Err();
    fs::remove_all(plain);
    ASSERT_EQ(Hone("convert" + Quoted(model) + Quoted(plain) + "--format safetensors --type bf16"), 0) << Err();
    ASSERT_NE(Err().find("exact"), std::string::npos) << Err();
    const std::string thens[] = {"--method rtn --group 32", "--method rtn --format awq --asym --group 64", "--method nvfp4", "--method nf4",
                                 "--method fp8 --format fp8", "--method rtn --group 64 --recipe" + Quoted(recipe)};
    for (const std::string& then : thens) {
      SCOPED_TRACE(first + (" " + then));
      const std::string a = folder_ + "a", b = folder_ + "b", flags = then + " --force --no-measure";
      ASSERT_EQ(Hone("quantize" + Quoted(plain) + Quoted(a) + flags), 0) << Err();
      ASSERT_EQ(Hone("quantize" + Quoted(model) + Quoted(b) + flags + " --allow-requantize"), 0) << Err();
      EXPECT_TRUE(Bytes(a + "/model.safetensors") == Bytes(b + "/model.safetensors"));
      EXPECT_EQ(Config(a), Config(b));
    }
  }
}

// Methods that run the model run it as it is stored.
TEST_F(QuantizedFolder, IsQuantisedAgainByCalibratedMethods) {
  const std::string model = folder_ + "model", again = folder_ + "again";
  ASSERT_EQ(Hone("quantize" + Quoted(builtin_) + Quoted(model) + "--method rtn --format gptq --bits 8 --group 32 --no-measure"), 0) << Err();
  const auto wanted = Logits(model, "--exact");
  for (const char* method : {"gptq --group 32", "gptq --format gptq --order activation --group 32", "awq --group 32", "smoothquant"}) {
    SCOPED_TRACE(method);
    ASSERT_EQ(Hone("quantize" + Quoted(model) + Quoted(again) + "--method " + method + " --chunk 128 --chunks 8 --force --no-measure --allow-requantize"), 0) << Err();
    const auto got = Logits(again, "--exact");
    ASSERT_TRUE(wanted && got);
    EXPECT_LT(Distance(*got, *wanted), 0.2);
  }
}

std::string NameOf(const testing::TestParamInfo<Format>& one) { return one.param.name; }
INSTANTIATE_TEST_SUITE_P(
    Formats, QuantizedFolderRuns,
    testing::Values(Format{"gptq4", "--method rtn --format gptq --bits 4 --group 128", "Q4_0", true},
                    Format{"gptq3_asym", "--method rtn --format gptq --bits 3 --group 64 --asym", "Q4_0", true},
                    Format{"gptq4_asym", "--method rtn --format gptq --bits 4 --group 64 --asym", "Q4_1", true},
                    Format{"gptq8_asym", "--method rtn --format gptq --bits 8 --group 64 --asym", "Q8_0"},
                    Format{"awq", "--method rtn --format awq --group 64 --asym", "Q4_1", true},
                    Format{"packed5", "--method rtn --bits 5 --group 32", "Q5_0"},
                    Format{"packed6_asym", "--method rtn --bits 6 --group 32 --asym", "Q8_0"},
                    Format{"fp8", "--method fp8", "Q8_0"}, Format{"fp8_tensor", "--method fp8 --per-tensor", "Q8_0"},
                    Format{"fp8_blocks", "--method fp8 --format fp8", "Q8_0"}, Format{"fp8_e5m2", "--method fp8 --fp8-type e5m2", "Q8_0"},
                    Format{"mxfp8", "--method mxfp8", "Q8_0"}, Format{"w8a8_tensor", "--method w8a8 --per-tensor", "Q8_0"}, Format{"mxfp4", "--method mxfp4", "MXFP4", true},
                    Format{"nvfp4", "--method nvfp4", "Q6_K"}, Format{"nf4", "--method nf4", "NF4"},
                    Format{"fp4", "--method fp4", "Q5_0"}, Format{"int8", "--method llm-int8", "Q8_0"}),
    NameOf);

}  // namespace
}  // namespace hone
