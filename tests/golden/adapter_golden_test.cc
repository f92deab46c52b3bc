// LoRA adapters against what they mean: the same model with W + scale * B A in place of W. Expected results that PEFT made, and
// random adapters on random models of every family, from both kinds of adapter files on both kinds of models.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "base/random.h"
#include "base/test_shared.h"
#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "golden/driver.h"
#include "golden/random_model.h"
#include "kernels/dequantize/dequantize.h"

namespace hone::golden {
namespace {

using Rows = std::vector<std::vector<float>>;

double Largest(const Rows& rows) {
  double largest = 0;
  for (const auto& row : rows) {
    for (const float x : row) largest = std::max(largest, std::abs(double{x}));
  }
  return largest;
}

double LargestDifference(const Rows& a, const Rows& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    for (size_t v = 0; v < a[i].size(); ++v) largest = std::max(largest, std::abs(double{a[i][v]} - b[i][v]));
  }
  return largest;
}

// Root mean square of the difference over the standard deviation of what is wanted.
double RelativeRms(const Rows& found, const Rows& wanted) {
  double difference = 0, sum = 0, squares = 0, n = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    for (size_t v = 0; v < wanted[i].size(); ++v, ++n) {
      difference += std::pow(double{found[i][v]} - wanted[i][v], 2);
      sum += wanted[i][v], squares += double{wanted[i][v]} * wanted[i][v];
    }
  }
  return std::sqrt(difference / (squares - sum * sum / n));
}

std::shared_ptr<const Adapter> Load(const Model& model, const std::string& path) {
  auto adapter = model.LoadAdapter(path);
  EXPECT_TRUE(adapter.has_value()) << adapter.error().message;
  return adapter.has_value() ? *adapter : nullptr;
}

// PEFT's own adapters of goldens/compress/quant: logits of the merged model, in double.
class PeftGolden : public testing::TestWithParam<const char*> {};

TEST_P(PeftGolden, LogitsAreThoseOfTheMergedModel) {
  HONE_NEED_SHARED(root, "goldens/compress/quant");
  const std::string folder = root + "/foreign/";
  std::ifstream manifest(root + "/foreign-peft.json");
  const std::vector<int32_t> prompt = nlohmann::json::parse(manifest)["prompt"];
  const auto golden = SafetensorsFile::Open(folder + GetParam() + ".golden.safetensors");
  ASSERT_TRUE(golden.has_value()) << golden.error().message;
  const TensorView logits = (*golden)->FindTensor("logits")->view;
  Rows wanted;
  for (int64_t i = 0; i < logits.shape.rows(); ++i) {
    const float* row = logits.as<float>() + i * logits.shape.back();
    wanted.emplace_back(row, row + logits.shape.back());
  }
  Machine machine;
  for (const Isa isa : machine.isas()) {
    for (const bool exact : {true, false}) {
      const auto model = LoadModel(folder + "base", machine.runtime(isa), {.exact = exact});
      ASSERT_NE(model, nullptr);
      const auto adapter = Load(*model, folder + GetParam());
      ASSERT_NE(adapter, nullptr);
      Sequences sequences(*model, 8);
      const Rows found = sequences.Feed({{0, prompt, adapter.get()}});
      const Rows base = sequences.Feed({{1, prompt}});
      EXPECT_GT(LargestDifference(base, wanted), 0.05 * Largest(wanted)) << "the adapter does nothing";
      if (exact) {
        EXPECT_LE(LargestDifference(found, wanted), 1e-4 * Largest(wanted)) << IsaName(isa);
      } else {  // BF16 inputs, weights and adapter
        EXPECT_LE(RelativeRms(found, wanted), 0.02) << IsaName(isa);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Foreign, PeftGolden, testing::Values("lora", "lora-rslora"), [](const auto& param) {
  std::string name = param.param;
  name.erase(std::remove(name.begin(), name.end(), '-'), name.end());
  return name;
});

TEST(PeftRefusals, WhatIsMoreThanPairsIsRefusedByName) {
  HONE_NEED_SHARED(folder, "goldens/compress/quant/foreign");
  Machine machine;
  const auto model = LoadModel(folder + "/base", machine.runtime(Isa::kScalar));
  ASSERT_NE(model, nullptr);
  for (const auto& [adapter, word] : {std::pair{"/lora-dora", "use_dora"}, std::pair{"/lora-saved-patterns", "modules_to_save"}}) {
    const auto loaded = model->LoadAdapter(folder + adapter);
    ASSERT_FALSE(loaded.has_value()) << adapter;
    EXPECT_NE(loaded.error().message.find(word), std::string::npos) << loaded.error().message;
    EXPECT_EQ(loaded.error().code, ErrorCode::kUnsupported);
  }
}

// One random low-rank pair.
struct Pair {
  std::string module;  // "model.layers.0.self_attn.q_proj"
  int64_t rows = 0, columns = 0, rank = 0;
  double alpha = 0;
  std::vector<float> a, b;  // [rank, columns], [rows, rank]
};

// What llama.cpp calls a module of the Hugging Face form; "" where it depends on the family.
std::string GgufName(const std::string& module) {
  static const std::map<std::string, std::string> kNames = {
      {"self_attn.q_proj", "attn_q"},     {"self_attn.k_proj", "attn_k"},      {"self_attn.v_proj", "attn_v"},
      {"self_attn.o_proj", "attn_output"}, {"self_attn.qkv_proj", "attn_qkv"}, {"mlp.gate_proj", "ffn_gate"},
      {"mlp.up_proj", "ffn_up"},          {"mlp.down_proj", "ffn_down"},       {"mlp.gate_up_proj", "ffn_up"}};
  if (module == "lm_head") return "output";
  const size_t number = module.find("layers.") + 7, dot = module.find('.', number);
  const auto it = kNames.find(module.substr(dot + 1));
  return it == kNames.end() ? "" : "blk." + module.substr(number, dot - number) + "." + it->second;
}

// Pairs for some of the linear modules of a folder, of ranks and alphas of their own where `patterns`.
std::vector<Pair> DrawPairs(const SafetensorsFile& file, Rng& rng, bool patterns) {
  std::vector<Pair> pairs;
  const int64_t rank = 1 + static_cast<int64_t>(rng.Below(9));
  const double alpha = 4 + rng.Uniform() * 12;
  for (const NamedTensor& tensor : file.tensors()) {
    std::string module = tensor.name;
    if (tensor.view.shape.rank() != 2 || !module.ends_with(".weight")) continue;
    module.resize(module.size() - std::string(".weight").size());
    if (GgufName(module).empty() || rng.Below(4) == 0) continue;
    Pair pair{module, tensor.view.shape[0], tensor.view.shape[1], patterns ? 1 + static_cast<int64_t>(rng.Below(9)) : rank,
              patterns ? 4 + rng.Uniform() * 12 : alpha, {}, {}};
    for (int64_t i = 0; i < pair.rank * pair.columns; ++i) pair.a.push_back(static_cast<float>(rng.Uniform() - 0.5) * 0.3f);
    for (int64_t i = 0; i < pair.rank * pair.rows; ++i) pair.b.push_back(static_cast<float>(rng.Uniform() - 0.5) * 0.1f);
    pairs.push_back(std::move(pair));
  }
  return pairs;
}

TensorView ViewOf(const std::vector<float>& values, int64_t rows, int64_t columns) {
  return {DType::kF32, Shape{rows, columns}, reinterpret_cast<const std::byte*>(values.data())};
}

double ScaleOf(const Pair& pair, bool rslora) {
  return pair.alpha / (rslora ? std::sqrt(static_cast<double>(pair.rank)) : static_cast<double>(pair.rank));
}

void WritePeft(const std::string& folder, const std::vector<Pair>& pairs, bool rslora) {
  std::filesystem::create_directories(folder);
  nlohmann::json config = {{"peft_type", "LORA"}, {"r", pairs[0].rank},      {"lora_alpha", pairs[0].alpha}, {"bias", "none"},
                           {"use_dora", false},   {"use_rslora", rslora},    {"modules_to_save", nullptr},   {"loftq_config", nlohmann::json::object()},
                           {"rank_pattern", {}},  {"target_modules", {"x"}}, {"task_type", "CAUSAL_LM"}};
  config["rank_pattern"] = config["alpha_pattern"] = nlohmann::json::object();
  std::vector<NamedTensor> tensors;
  for (const Pair& pair : pairs) {
    config["rank_pattern"][pair.module] = pair.rank;
    config["alpha_pattern"][pair.module] = pair.alpha;
    tensors.push_back({"base_model.model." + pair.module + ".lora_A.weight", ViewOf(pair.a, pair.rank, pair.columns)});
    tensors.push_back({"base_model.model." + pair.module + ".lora_B.weight", ViewOf(pair.b, pair.rows, pair.rank)});
  }
  std::ofstream(folder + "/adapter_config.json") << config.dump(1);
  const auto written = WriteSafetensors(folder + "/adapter_model.safetensors", tensors, {{"format", "pt"}});
  ASSERT_TRUE(written.has_value()) << written.error().message;
}

// As llama.cpp's converter does: rows of B for q and k go from halves to neighbours, where the weights' rows do.
void WriteGgufAdapter(const std::string& path, const std::vector<Pair>& pairs, const ModelConfig& config, const std::string& architecture) {
  std::vector<NamedTensor> tensors;
  std::vector<std::vector<float>> kept;
  kept.reserve(pairs.size());
  for (const Pair& pair : pairs) {
    std::vector<float> b = pair.b;
    const std::string name = GgufName(pair.module);
    const bool query = name.ends_with("attn_q"), key = name.ends_with("attn_k");
    if ((architecture == "llama" || architecture == "granite") && (query || key)) {
      const int64_t width = config.head_width;
      for (int64_t row = 0; row < pair.rows; ++row) {
        const int64_t head = row / width, j = row % width / 2, half = row % width % 2;
        std::copy_n(pair.b.begin() + (head * width + half * (width / 2) + j) * pair.rank, pair.rank, b.begin() + row * pair.rank);
      }
    }
    kept.push_back(std::move(b));
    tensors.push_back({name + ".weight.lora_a", ViewOf(pair.a, pair.rank, pair.columns)});
    tensors.push_back({name + ".weight.lora_b", ViewOf(kept.back(), pair.rows, pair.rank)});
  }
  const auto written = WriteGguf(path, {.metadata = {{"general.type", GgufValue::String("adapter")},
                                                     {"general.architecture", GgufValue::String(architecture)},
                                                     {"adapter.type", GgufValue::String("lora")},
                                                     {"adapter.lora.alpha", GgufValue::F32(static_cast<float>(pairs[0].alpha))}},
                                        .tensors = tensors});
  ASSERT_TRUE(written.has_value()) << written.error().message;
}

// The folder's model with the pairs merged into its weights, all in F32.
void WriteMerged(const std::string& base, const std::string& folder, const std::vector<Pair>& pairs, bool rslora) {
  std::filesystem::create_directories(folder);
  std::filesystem::copy_file(base + "/config.json", folder + "/config.json");
  const auto file = SafetensorsFile::OpenFolder(base);
  ASSERT_TRUE(file.has_value());
  std::vector<std::vector<float>> kept;
  std::vector<NamedTensor> tensors;
  kept.reserve((*file)->tensors().size());
  for (const NamedTensor& tensor : (*file)->tensors()) {
    std::vector<float>& values = kept.emplace_back(static_cast<size_t>(tensor.view.shape.elements()));
    DequantizeRow(tensor.view.type, tensor.view.data, tensor.view.shape.elements(), values.data());
    const auto pair = std::find_if(pairs.begin(), pairs.end(), [&](const Pair& p) { return p.module + ".weight" == tensor.name; });
    if (pair != pairs.end()) {
      for (int64_t n = 0; n < pair->rows; ++n) {
        for (int64_t k = 0; k < pair->columns; ++k) {
          double sum = 0;
          for (int64_t r = 0; r < pair->rank; ++r) sum += double{pair->b[n * pair->rank + r]} * pair->a[r * pair->columns + k];
          values[n * pair->columns + k] += static_cast<float>(ScaleOf(*pair, rslora) * sum);
        }
      }
    }
    tensors.push_back({tensor.name, {DType::kF32, tensor.view.shape, reinterpret_cast<const std::byte*>(values.data())}});
  }
  const auto written = WriteSafetensors(folder + "/model.safetensors", tensors, {{"format", "pt"}});
  ASSERT_TRUE(written.has_value()) << written.error().message;
}

std::vector<int32_t> DrawTokens(Rng& rng, size_t count, int vocab) {
  std::vector<int32_t> tokens(count);
  for (int32_t& id : tokens) id = static_cast<int32_t>(rng.Below(static_cast<uint64_t>(vocab)));
  return tokens;
}

class RandomAdapterTest : public testing::TestWithParam<std::string> {};

TEST_P(RandomAdapterTest, EqualsMergedWeightsFromBothFormsOnBothForms) {
  Machine machine;
  int compared = 0;
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    Rng rng(seed * 977);
    const std::string where = TestPath("adapter_" + GetParam() + std::to_string(seed));
    std::filesystem::remove_all(where);
    std::filesystem::create_directories(where);
    const RandomModel model = WriteRandomModel(GetParam(), rng, where);
    SCOPED_TRACE(model.what);
    const auto file = SafetensorsFile::OpenFolder(model.folder);
    ASSERT_TRUE(file.has_value());
    const bool own = seed == 3;  // ranks and alphas of their own, which GGUF cannot say
    std::vector<Pair> pairs = DrawPairs(**file, rng, own);
    if (pairs.empty()) continue;
    ASSERT_NO_FATAL_FAILURE(WritePeft(where + "/peft", pairs, own));
    ASSERT_NO_FATAL_FAILURE(WriteMerged(model.folder, where + "/merged", pairs, own));

    const Runtime runtime = machine.runtime(machine.isas().back());
    const LoadOptions exact{.exact = true};
    const auto merged = LoadModel(where + "/merged", runtime, exact);
    ASSERT_NE(merged, nullptr);
    const std::vector<int32_t> tokens = DrawTokens(rng, 30, merged->config().vocab);
    Sequences reference(*merged, 8);
    const Rows wanted = reference.Feed({{0, tokens}});
    for (const std::string& base : {model.folder, model.gguf}) {
      const auto plain = LoadModel(base, runtime, exact);
      ASSERT_NE(plain, nullptr);
      std::vector<std::string> forms{where + "/peft"};
      if (!own) {
        forms.push_back(where + "/adapter.gguf");
        auto checkpoint = Checkpoint::Open(model.gguf);
        const std::string architecture = *(*checkpoint)->gguf()->String("general.architecture");
        ASSERT_NO_FATAL_FAILURE(WriteGgufAdapter(forms.back(), pairs, plain->config(), architecture));
      }
      for (const std::string& form : forms) {
        SCOPED_TRACE(form + " on " + base);
        const auto adapter = Load(*plain, form);
        ASSERT_NE(adapter, nullptr);
        EXPECT_EQ(adapter->info().rank, std::max_element(pairs.begin(), pairs.end(), [](const Pair& a, const Pair& b) {
                                          return a.rank < b.rank;
                                        })->rank);
        Sequences sequences(*plain, 8);
        const Rows found = sequences.Feed({{0, tokens, adapter.get()}});
        EXPECT_LE(LargestDifference(found, wanted), 5e-5 * std::max(1.0, Largest(wanted)));
        EXPECT_GT(LargestDifference(sequences.Feed({{1, tokens}}), wanted), 2e-3 * Largest(wanted)) << "the adapter does nothing";
        ++compared;
      }
    }
  }
  EXPECT_GT(compared, 0);
}

INSTANTIATE_TEST_SUITE_P(Families, RandomAdapterTest, testing::ValuesIn(RandomFamilies()),
                         [](const auto& param) { return param.param; });

TEST(AdapterBatch, RowsOfOneBatchHaveTheirOwnAdapters) {
  Rng rng(5);
  const std::string where = TestPath("adapter_batch");
  std::filesystem::remove_all(where);
  std::filesystem::create_directories(where);
  const RandomModel model = WriteRandomModel("llama", rng, where);
  const auto file = SafetensorsFile::OpenFolder(model.folder);
  ASSERT_TRUE(file.has_value());
  for (const char* name : {"/one", "/two"}) ASSERT_NO_FATAL_FAILURE(WritePeft(where + name, DrawPairs(**file, rng, true), false));
  Machine machine;
  for (const Isa isa : machine.isas()) {
    const auto loaded = LoadModel(model.blocks_gguf.empty() ? model.gguf : model.blocks_gguf, machine.runtime(isa), {.deterministic = true});
    ASSERT_NE(loaded, nullptr);
    const auto one = Load(*loaded, where + "/one"), two = Load(*loaded, where + "/two");
    ASSERT_TRUE(one != nullptr && two != nullptr);
    EXPECT_NE(one->info().content_id, two->info().content_id);
    std::vector<Chunk> chunks;
    const Adapter* adapters[] = {one.get(), one.get(), nullptr, two.get(), one.get(), nullptr};
    for (int i = 0; i < 6; ++i) chunks.push_back({i, DrawTokens(rng, static_cast<size_t>(1 + i * 7 % 20), loaded->config().vocab), adapters[i]});
    chunks[5].tokens = chunks[3].tokens;
    Sequences together(*loaded, 16);
    const Rows batch = together.Feed(chunks);
    // The logits of some rows only: those of the first sequence and of the last are left out.
    std::vector<int32_t> some;
    for (size_t i = chunks[0].tokens.size(); i + chunks[5].tokens.size() < batch.size(); i += 2) some.push_back(static_cast<int32_t>(i));
    Sequences again(*loaded, 16);
    const Rows chosen = again.Feed(chunks, some);
    for (size_t i = 0; i < some.size(); ++i) EXPECT_EQ(chosen[i], batch[static_cast<size_t>(some[i])]);
    size_t row = 0;
    for (const Chunk& chunk : chunks) {
      Sequences alone(*loaded, 16);
      const Rows expected = alone.Feed({chunk});
      for (size_t i = 0; i < expected.size(); ++i, ++row) {
        EXPECT_EQ(batch[row], expected[i]) << "sequence " << chunk.sequence << " row " << i << " " << IsaName(isa);
      }
    }
    EXPECT_NE(batch[batch.size() - 1], batch[batch.size() - 1 - chunks[5].tokens.size() - chunks[4].tokens.size()]);
  }
}

}  // namespace
}  // namespace hone::golden
