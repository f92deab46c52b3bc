// Against the types that llama.cpp's quantizer gives a 1B llama (data/quant/mixture-llama-1b.json).
#include "compress/gguf/mixture.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "base/test_shared.h"
#include "formats/json_config.h"

namespace hone {
namespace {

// Llama 3.2 1B: 16 layers, 32 query and 8 key heads, tied embeddings.
std::vector<TensorInfo> Llama1b() {
  std::vector<TensorInfo> tensors = {{"token_embd.weight", DType::kBF16, Shape{128256, 2048}},
                                     {"output_norm.weight", DType::kF32, Shape{2048}}};
  for (int i = 0; i < 16; ++i) {
    const std::string layer = "blk." + std::to_string(i) + ".";
    const auto add = [&](const char* name, int64_t rows, int64_t columns) {
      tensors.push_back({layer + name + ".weight", DType::kBF16, Shape{rows, columns}});
    };
    add("attn_q", 2048, 2048), add("attn_k", 512, 2048), add("attn_v", 512, 2048), add("attn_output", 2048, 2048);
    add("ffn_gate", 8192, 2048), add("ffn_up", 8192, 2048), add("ffn_down", 2048, 8192);
    tensors.push_back({layer + "attn_norm.weight", DType::kF32, Shape{2048}});
  }
  std::sort(tensors.begin(), tensors.end(),
            [](const TensorInfo& a, const TensorInfo& b) { return GgufOrder(a.name, b.name); });
  return tensors;
}

TEST(Mixture, SameTypesAsLlamaQuantize) {
  HONE_NEED_SHARED(path, "data/quant/mixture-llama-1b.json");
  const auto golden = JsonConfig::Read(path);
  ASSERT_TRUE(golden);
  const std::vector<TensorInfo> tensors = Llama1b();
  int compared = 0;
  for (const std::string& name : golden->Keys()) {
    const auto type = FindGgufFileType(name);
    ASSERT_TRUE(type) << type.error().message;
    const auto wanted = golden->Object(name);
    ASSERT_TRUE(wanted);
    const auto types =
        ChooseTypes(tensors, {.file_type = *type, .architecture = "llama", .layers = 16, .heads = 32, .kv_heads = 8});
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (!IsQuantizable(tensors[i])) continue;
      std::string found(Info(types[i].type).name), golden_name = *wanted->String(tensors[i].name);
      const auto lower = [](std::string& s) { std::transform(s.begin(), s.end(), s.begin(), ::tolower); };
      lower(found), lower(golden_name);
      EXPECT_EQ(found, golden_name) << name << " " << tensors[i].name;
      ++compared;
    }
  }
  EXPECT_EQ(compared, 17 * 113);
}

TEST(Mixture, RowsThatBlocksDoNotDivideFallBack) {
  const std::vector<TensorInfo> tensors = {{"blk.0.attn_q.weight", DType::kF16, Shape{576, 576}},
                                           {"blk.0.ffn_up.weight", DType::kF16, Shape{64, 40}},
                                           {"blk.0.ffn_gate_inp.weight", DType::kF32, Shape{8, 256}}};
  const auto choose = [&](const char* name) {
    return ChooseTypes(
        tensors,
        {.file_type = *FindGgufFileType(name), .architecture = "llama", .layers = 1, .heads = 9, .kv_heads = 3});
  };
  EXPECT_EQ(choose("Q4_K_M")[0].type, DType::kQ5_0);
  EXPECT_NE(choose("Q4_K_M")[0].note, "");
  EXPECT_EQ(choose("q6_k")[0].type, DType::kQ8_0);
  EXPECT_EQ(choose("Q2_K")[0].type, DType::kQ4_0);
  EXPECT_EQ(choose("IQ4_XS")[0].type, DType::kIQ4_NL);
  EXPECT_EQ(choose("Q4_0")[0].note, "");
  EXPECT_EQ(choose("Q4_K_M")[1].type, DType::kF16);
  EXPECT_EQ(choose("Q4_K_M")[2].type, DType::kF32);  // the router stays
}

TEST(Mixture, ImportanceMovesTheFirstDownProjectionsOfOldTypes) {
  std::vector<TensorInfo> tensors;
  for (int i = 0; i < 16; ++i)
    tensors.push_back({"blk." + std::to_string(i) + ".ffn_down.weight", DType::kF32, Shape{256, 256}});
  const auto types = ChooseTypes(tensors, {.file_type = *FindGgufFileType("Q5_0"),
                                           .importance = true,
                                           .architecture = "llama",
                                           .layers = 16,
                                           .heads = 4,
                                           .kv_heads = 4});
  for (int i = 0; i < 16; ++i) EXPECT_EQ(types[i].type, i < 2 ? DType::kQ5_1 : DType::kQ5_0) << i;
}

TEST(Mixture, UnknownNamesAreRefusedWithTheKnownOnes) {
  for (const char* name : {"", "Q4_K_X", "IQ2_XS", "F16"}) {
    const auto type = FindGgufFileType(name);
    ASSERT_FALSE(type) << name;
    EXPECT_EQ(type.error().code, ErrorCode::kUsage);
  }
  EXPECT_NE(FindGgufFileType("IQ2_XS").error().message.find("does not write"), std::string::npos);
  EXPECT_EQ((*FindGgufFileType("Q4_K"))->name, "Q4_K_M");
}

}  // namespace
}  // namespace hone
