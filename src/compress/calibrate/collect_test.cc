// Against the hidden states of the golden models: what goes into q, k and v is the norm of the state before the layer.
#include "compress/calibrate/collect.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/test_runtime.h"
#include "base/test_shared.h"
#include "compress/layerwise/layer_stream.h"
#include "formats/safetensors.h"

namespace hone {
namespace {

constexpr double kEps = 1e-5;  // rms_norm_eps of the golden model

class Collect : public RuntimeTest {
 protected:

  Result<Imatrix> Run(const std::string& path, const std::vector<int32_t>& ids, int chunk, CalibrationReport* report) {
    HONE_TRY(const auto checkpoint, Checkpoint::Open(path));
    HONE_TRY(const auto model, Model::Load(checkpoint, runtime_, {.max_rows = chunk, .exact = true}));
    return CollectImatrix(*model, *checkpoint, {.tokens = ids, .chunk_tokens = chunk}, nullptr, report);
  }
  static std::vector<int32_t> Ids(const std::string& folder) {
    const auto golden = SafetensorsFile::Open(folder + "/golden.safetensors");
    HONE_CHECK(golden.has_value());
    const TensorView& view = (*golden)->FindTensor("input_ids")->view;
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < view.shape.elements(); ++i) {
      ids.push_back(view.type == DType::kI64 ? static_cast<int32_t>(view.as<int64_t>()[i]) : view.as<int32_t>()[i]);
    }
    return ids;
  }

};

TEST_F(Collect, SumsAreThoseOfTheGoldenHiddenStates) {
  HONE_NEED_SHARED(folder, "goldens/models/llama");
  const std::vector<int32_t> ids = Ids(folder);
  CalibrationReport report;
  const auto imatrix = Run(folder, ids, static_cast<int>(ids.size()), &report);
  ASSERT_TRUE(imatrix) << imatrix.error().message;
  const auto golden = SafetensorsFile::Open(folder + "/golden.safetensors");
  const auto weights = SafetensorsFile::Open(folder + "/model.safetensors");
  ASSERT_TRUE(golden && weights);
  int layers = 0;
  for (; (*weights)->FindTensor("model.layers." + std::to_string(layers) + ".input_layernorm.weight") != nullptr;
       ++layers) {
    const TensorView& state =
        (*golden)->FindTensor(layers == 0 ? "hidden.embed" : "hidden.layer." + std::to_string(layers - 1))->view;
    const TensorView& norm =
        (*weights)->FindTensor("model.layers." + std::to_string(layers) + ".input_layernorm.weight")->view;
    ASSERT_TRUE(state.type == DType::kF32 && norm.type == DType::kF32);
    const int64_t width = norm.shape.back(), tokens = state.shape.elements() / width;
    std::vector<double> sums(width);
    for (int64_t t = 0; t < tokens; ++t) {
      double square = 0;
      for (int64_t i = 0; i < width; ++i) square += std::pow(state.as<float>()[t * width + i], 2);
      for (int64_t i = 0; i < width; ++i) {
        sums[i] += std::pow(state.as<float>()[t * width + i] * norm.as<float>()[i], 2) /
                   (square / static_cast<double>(width) + kEps);
      }
    }
    for (const char* name : {"attn_q", "attn_k", "attn_v"}) {
      const ImatrixEntry& entry = imatrix->entries.at("blk." + std::to_string(layers) + "." + name + ".weight");
      ASSERT_EQ(entry.columns, width);
      EXPECT_EQ(entry.counts, std::vector<float>{static_cast<float>(tokens)});
      for (int64_t i = 0; i < width; ++i)
        EXPECT_NEAR(entry.sums[i], sums[i], 1e-4 * sums[i] + 1e-6) << name << " layer " << layers << " " << i;
    }
  }
  EXPECT_GT(layers, 0);
  EXPECT_EQ(imatrix->entries.size(), static_cast<size_t>(7 * layers));
  EXPECT_EQ(report.chunks, 1u);
}

TEST_F(Collect, FoldersAndGgufFilesGiveTheSameNamesAndSums) {
  HONE_NEED_SHARED(folder, "goldens/models/llama");
  const std::vector<int32_t> ids = Ids(folder);
  CalibrationReport report;
  const int chunk = static_cast<int>(ids.size() / 2);
  const auto a = Run(folder, ids, chunk, &report), b = Run(folder + "/model-f32.gguf", ids, chunk, &report);
  ASSERT_TRUE(a && b);
  EXPECT_EQ(a->chunks, 2u);
  ASSERT_EQ(a->entries.size(), b->entries.size());
  for (const auto& [name, entry] : a->entries) {
    ASSERT_TRUE(b->entries.count(name)) << name;
    for (size_t i = 0; i < entry.sums.size(); ++i)
      EXPECT_NEAR(entry.sums[i], b->entries.at(name).sums[i], 1e-4 * entry.sums[i] + 1e-6) << name;
  }
}

TEST_F(Collect, ExpertsCountTheirOwnTokens) {
  HONE_NEED_SHARED(folder, "goldens/models/mixtral");
  const std::vector<int32_t> ids = Ids(folder);
  CalibrationReport report;
  const auto imatrix = Run(folder, ids, static_cast<int>(ids.size()), &report);
  ASSERT_TRUE(imatrix) << imatrix.error().message;
  const ImatrixEntry& gate = imatrix->entries.at("blk.0.ffn_gate_exps.weight");
  EXPECT_GT(gate.matrices(), 1);
  float tokens = 0;
  for (const float count : gate.counts) tokens += count;
  EXPECT_EQ(tokens, 2.0f * static_cast<float>(ids.size()));  // two experts a token
  EXPECT_EQ(gate.counts, imatrix->entries.at("blk.0.ffn_down_exps.weight").counts);
  EXPECT_FALSE(report.warnings.empty());  // fewer tokens than columns
}

TEST_F(Collect, LayerByLayerGivesTheSameSums) {
  HONE_NEED_SHARED(goldens, "goldens/models");
  for (const std::string name : {"llama", "mixtral", "gemma3"}) {
    const std::vector<int32_t> ids = Ids(goldens + "/" + name);
    const int chunk = static_cast<int>(ids.size() / 2);
    CalibrationReport whole_report, report;
    const auto whole = Run(goldens + "/" + name, ids, chunk, &whole_report);
    const auto checkpoint = Checkpoint::Open(goldens + "/" + name);
    ASSERT_TRUE(whole && checkpoint);
    const auto walk = LayerWalk::Open(*checkpoint, runtime_, chunk);
    ASSERT_TRUE(walk) << walk.error().message;
    const auto layered = CollectImatrix(**walk, {.tokens = ids, .chunk_tokens = chunk}, {.kv = KvType::kF32}, nullptr, &report);
    ASSERT_TRUE(layered) << layered.error().message;
    EXPECT_EQ(report.tokens, whole_report.tokens);
    EXPECT_EQ(report.dropped_tokens, whole_report.dropped_tokens);
    ASSERT_EQ(layered->entries.size(), whole->entries.size());
    for (const auto& [entry_name, entry] : whole->entries) {
      const ImatrixEntry& other = layered->entries.at(entry_name);
      EXPECT_EQ(other.counts, entry.counts) << name << " " << entry_name;
      for (size_t i = 0; i < entry.sums.size(); ++i)
        ASSERT_NEAR(other.sums[i], entry.sums[i], 1e-3 * entry.sums[i] + 1e-6) << name << " " << entry_name << " " << i;
    }
  }
}

TEST_F(Collect, EmptyTextIsRefused) {
  HONE_NEED_SHARED(folder, "goldens/models/llama");
  CalibrationReport report;
  EXPECT_FALSE(Run(folder, {}, 16, &report));
}

}  // namespace
}  // namespace hone
