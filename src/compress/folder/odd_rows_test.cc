// Quantised matrices whose rows, or groups, are no whole blocks of 32: packed all the same, and multiplied as the file means them.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "base/random.h"
#include "base/test_runtime.h"
#include "cache/block_pool.h"
#include "cache/kv_cache.h"
#include "compress/folder/quantize_folder.h"
#include "compress/test_golden.h"
#include "engine/cache_layers.h"
#include "kernels/dequantize/dequantize.h"
#include "kernels/matmul/many_rows.h"
#include "kernels/matmul/matmul.h"
#include "models/model.h"
#include "models/quantized/quantized_folder.h"

namespace hone {
namespace {

constexpr Isa kIsas[] = {Isa::kScalar, Isa::kAvx2, Isa::kAvx512, Isa::kVnni, Isa::kBf16, Isa::kAmx};

std::vector<float> Numbers(int64_t count, uint64_t seed) {
  Rng rng(seed);
  std::vector<float> numbers(static_cast<size_t>(count));
  for (float& x : numbers) x = static_cast<float>(rng.Uniform() + rng.Uniform() - rng.Uniform() - rng.Uniform());
  return numbers;
}

class OddRows : public RuntimeTest {
 protected:
  // The matrix that a folder of one module holds.
  std::shared_ptr<const QuantizedMatrix> Open(const std::string& config, const std::vector<NamedTensor>& tensors, int64_t rows,
                                              int64_t columns) {
    auto checkpoint = Checkpoint::Open(WriteModelFolder("odd_rows", R"({"quantization_config": )" + config + "}", tensors));
    HONE_CHECK(checkpoint.has_value(), checkpoint.has_value() ? "" : checkpoint.error().message);
    checkpoints_.push_back(*checkpoint);
    auto folder = QuantizedFolder::Make(*checkpoints_.back());
    HONE_CHECK(folder.has_value(), folder.has_value() ? "" : folder.error().message);
    folders_.push_back(std::make_unique<QuantizedFolder>(std::move(*folder)));
    const auto matrix = folders_.back()->Find("m.weight", rows, columns);
    EXPECT_TRUE(matrix.has_value() && *matrix != nullptr) << (matrix ? "no matrix" : matrix.error().message);
    return matrix ? *matrix : nullptr;
  }

  // Weights as it runs against what the file means, and products on every ISA against their definition.
  void Check(const QuantizedMatrix& matrix, bool exact) {
    const int64_t n = matrix.rows(), k = matrix.columns(), width = matrix.width(exact);
    const DType type = matrix.type(exact);
    std::vector<int32_t> order = matrix.order(exact);
    if (order.empty()) order.resize(static_cast<size_t>(k)), std::iota(order.begin(), order.end(), 0);
    const auto tensor = matrix.Transcode(0, n, exact, threads_);
    ASSERT_TRUE(tensor) << tensor.error().message;
    std::vector<float> means(n * k), stored(n * width), runs(n * k, NAN);
    matrix.Decode(0, n, means.data());
    DequantizeRow(type, tensor->view().data, n * width, stored.data());
    for (int64_t r = 0; r < n; ++r) {
      float largest = 0;
      for (int64_t i = 0; i < k; ++i) largest = std::max(largest, std::fabs(means[r * k + i]));
      for (int64_t i = 0; i < width; ++i) {
        if (order[i] >= 0) runs[r * k + order[i]] = stored[r * width + i];
      }
      // Half a step of 127, and d as F16; or only scales and minimums as F16.
      const double off = exact ? 0 : type == DType::kQ8_0 ? 0.5 / 127 + 0x1p-10 : 0x1p-9;
      for (int64_t i = 0; i < k; ++i) {
        if (std::fabs(runs[r * k + i] - means[r * k + i]) <= off * largest) continue;  // not NaN either
        FAIL() << "[" << r << ", " << i << "] runs as " << runs[r * k + i] << ", means " << means[r * k + i];
      }
    }
    struct Wanted {
      double sum = 0, products = 0, weights = 0;  // of x w, |x w|, |w|
      float most = 0;                             // |x|
    };
    constexpr int64_t kMost = 40;
    const std::vector<float> x = Numbers(kMost * k, 7);
    std::vector<float> ordered(kMost * width), y(kMost * n);
    for (int64_t i = 0; i < kMost * width; ++i) ordered[i] = order[i % width] < 0 ? 0 : x[i / width * k + order[i % width]];
    std::vector<Wanted> wanted(kMost * n);
    for (int64_t i = 0; i < kMost * n; ++i) {
      const float *xs = &x[i / n * k], *ws = &runs[i % n * k];
      Wanted& w = wanted[i];
      for (int64_t j = 0; j < k; ++j) {
        const double product = double{xs[j]} * ws[j];
        w.sum += product, w.products += std::fabs(product), w.weights += std::fabs(ws[j]), w.most = std::max(w.most, std::fabs(xs[j]));
      }
    }
    for (const Isa isa : kIsas) {
      if (!cpu_.Supports(isa)) continue;
      const auto packed = PackedMatrix::Pack(tensor->view(), {.isa = isa, .exact = exact, .input_terms = 2}, threads_);
      ASSERT_TRUE(packed) << packed.error().message;
      if (!exact) {
        EXPECT_LE(packed->bytes(), static_cast<size_t>((n + 15) / 16 * 16 * ((k + 31) / 32) * 34));  // never more than a byte a weight
      }
      for (const int64_t m : {int64_t{1}, int64_t{9}, kMost}) {
        MatmulScratch scratch(m, width);
        const MatmulJob job{&*packed, ordered.data(), width, y.data(), n, m};
        Matmul({&job, 1}, scratch, threads_);
        for (int64_t i = 0; i < m * n; ++i) {
          // Inputs of 8 bits at least, or both rounded to BF16; sums in F32 either way.
          const Wanted& w = wanted[i];
          const double off = TakesTiles(*packed, m) ? 0.0092 * w.products : exact ? 0 : w.weights * w.most / 254;
          if (std::fabs(y[i] - w.sum) <= off + 1e-5 * w.products + 1e-30) continue;
          FAIL() << IsaName(isa) << ", " << m << " rows: [" << i / n << ", " << i % n << "] is " << y[i] << ", wanted " << w.sum;
        }
      }
    }
  }

  std::vector<std::shared_ptr<const Checkpoint>> checkpoints_;
  std::vector<std::unique_ptr<QuantizedFolder>> folders_;
};

TEST_F(OddRows, EveryFormatIsPackedAndMultipliedAsItMeans) {
  constexpr int64_t kRows = 24;
  std::vector<LinearScheme> schemes = {{"w8a8", "compressed-tensors"}, {"fp8", "compressed-tensors"}, {"mxfp4", "compressed-tensors"},
                                       {"nvfp4", "compressed-tensors"}, {"nf4", "bitsandbytes"},       {"fp4", "bitsandbytes"},
                                       {"llm-int8", "bitsandbytes"},    {"rtn", "awq", 4, 0, false},   {"rtn", "awq", 4, 40, false},
                                       {"fp8", "fp8"}};
  for (const int bits : {2, 3, 4, 5, 6, 7, 8}) {
    for (const int64_t group : {0, 24, 50}) {
      for (const bool symmetric : {true, false}) schemes.push_back({"rtn", "compressed-tensors", bits, group, symmetric});
    }
  }
  for (const int bits : {2, 3, 4, 8}) {
    for (const int64_t group : {8, 40, 50}) schemes.push_back({"hqq", "hqq", bits, group, false});
  }
  int checked = 0, kept_in_groups = 0;
  for (const LinearScheme& scheme : schemes) {
    const auto format = MakeLinearFormat(scheme);
    if (!format) continue;  // a group that the format has no place for
    for (const int64_t columns : {1, 31, 33, 40, 48, 100, 152, 575, 600}) {
      if (!(*format)->Check(kRows, columns)) continue;
      SCOPED_TRACE(scheme.method + " " + scheme.format + ", bits " + std::to_string(scheme.bits) + ", group " + std::to_string(scheme.group) +
                   (scheme.symmetric ? "" : ", zeros") + ", columns " + std::to_string(columns));
      const std::vector<float> w = Numbers(kRows * columns, static_cast<uint64_t>(columns));
      std::vector<std::vector<std::byte>> bytes;
      std::vector<NamedTensor> tensors;
      const auto infos = (*format)->Outputs("m", kRows, columns, DType::kF32);
      for (const TensorInfo& info : infos) bytes.emplace_back(info.bytes());
      float amax = 0;
      for (const float x : w) amax = std::max(amax, std::fabs(x));
      (*format)->Encode({.w = w.data(), .rows = kRows, .columns = columns, .dtype = DType::kF32, .shared_amax = amax}, bytes, threads_);
      for (size_t i = 0; i < infos.size(); ++i) tensors.push_back({infos[i].name, {infos[i].type, infos[i].shape, bytes[i].data()}});
      const auto matrix = Open((*format)->ConfigJson(DType::kF32), tensors, kRows, columns);
      ASSERT_NE(matrix, nullptr);
      EXPECT_TRUE(IsBlock(matrix->type(false)));
      EXPECT_EQ(matrix->width(false) % 32, 0);
      if (scheme.bits == 4 && scheme.group == 0 && scheme.method == "rtn") {
        EXPECT_EQ(matrix->type(false), scheme.symmetric ? DType::kQ4_0 : DType::kQ4_1);
        EXPECT_EQ(matrix->width(false), (columns + 31) / 32 * 32);
      }
      const bool groups = scheme.method == "rtn" && scheme.group == 24 && columns != 24;
      if (groups && matrix->type(false) != DType::kQ8_0) ++kept_in_groups;
      Check(*matrix, false);
      Check(*matrix, true);
      if (HasFatalFailure()) return;
      ++checked;
    }
  }
  EXPECT_GT(checked, 180);
  EXPECT_GT(kept_in_groups, 4);
}

// GPTQ's words go down the columns, so tools write rows of 40; act-order spreads groups of any size over them.
TEST_F(OddRows, GptqOfOtherToolsAndActOrder) {
  constexpr int64_t kRows = 48, kColumns = 40, kGroups = 2;
  Rng rng(3);
  std::vector<uint32_t> words(kColumns / 8 * kRows), zeros(kGroups * kRows / 8);
  for (uint32_t& word : words) word = static_cast<uint32_t>(rng.Next());
  for (uint32_t& word : zeros) word = static_cast<uint32_t>(rng.Next());
  std::vector<float> scales(kGroups * kRows);
  for (float& x : scales) x = F16ToF32(F32ToF16(static_cast<float>(0.01 + rng.Uniform())));
  std::vector<int32_t> group(kColumns);
  const auto view = [](DType type, Shape shape, const auto& data) { return TensorView{type, shape, reinterpret_cast<const std::byte*>(data.data())}; };
  for (const bool ordered : {false, true}) {
    for (int64_t i = 0; i < kColumns; ++i) group[i] = static_cast<int32_t>(ordered ? i * 7 % 40 / 25 : i / 20);
    const auto matrix = Open(R"({"quant_method": "gptq", "bits": 4, "group_size": 20, "checkpoint_format": "gptq_v2"})",
                             {{"m.qweight", view(DType::kI32, Shape{kColumns / 8, kRows}, words)},
                              {"m.qzeros", view(DType::kI32, Shape{kGroups, kRows / 8}, zeros)},
                              {"m.scales", view(DType::kF32, Shape{kGroups, kRows}, scales)},
                              {"m.g_idx", view(DType::kI32, Shape{kColumns}, group)}},
                             kRows, kColumns);
    ASSERT_NE(matrix, nullptr);
    EXPECT_EQ(matrix->type(false), DType::kQ4_1);
    EXPECT_EQ(matrix->width(false), 64);
    Check(*matrix, false);
    Check(*matrix, true);
  }
}

// Whole models with odd widths, made and loaded by hone: the layers hand their inputs on filled up.
class OddModel : public OddRows {
 protected:
  static constexpr int kVocab = 30, kTokens = 45;

  static std::string Write(const std::string& name, int64_t width, int64_t ffn) {
    const std::string config = R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 2, "hidden_size": )" +
                               std::to_string(width) + R"(, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 8,
      "intermediate_size": )" + std::to_string(ffn) + R"(, "vocab_size": 30, "max_position_embeddings": 64})";
    std::vector<std::vector<float>> data;
    std::vector<NamedTensor> tensors;
    data.reserve(64);
    const auto add = [&](const std::string& tensor, Shape shape) {
      data.push_back(Numbers(shape.elements(), data.size() + 1));
      const float scale = shape.rank() == 1 ? 0 : 1 / std::sqrt(static_cast<float>(shape[1]));
      for (float& x : data.back()) x = shape.rank() == 1 ? 1 : x * scale;
      tensors.push_back({tensor, {DType::kF32, shape, reinterpret_cast<const std::byte*>(data.back().data())}});
    };
    add("model.embed_tokens.weight", Shape{kVocab, width}), add("model.norm.weight", Shape{width});
    add("lm_head.weight", Shape{kVocab, width});
    for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
      add(layer + "input_layernorm.weight", Shape{width}), add(layer + "post_attention_layernorm.weight", Shape{width});
      add(layer + "self_attn.q_proj.weight", Shape{24, width}), add(layer + "self_attn.k_proj.weight", Shape{8, width});
      add(layer + "self_attn.v_proj.weight", Shape{8, width}), add(layer + "self_attn.o_proj.weight", Shape{width, 24});
      add(layer + "mlp.gate_proj.weight", Shape{ffn, width}), add(layer + "mlp.up_proj.weight", Shape{ffn, width});
      add(layer + "mlp.down_proj.weight", Shape{width, ffn});
    }
    return WriteModelFolder(name, config, tensors);
  }

  // The same model with what the quantised matrices mean, as F32.
  static std::string Dequantise(const std::string& original, const std::string& quantised, const FolderPlan& plan) {
    const auto from = Checkpoint::Open(original), back = Checkpoint::Open(quantised);
    HONE_CHECK(from.has_value() && back.has_value());
    const auto folder = QuantizedFolder::Make(**back);
    HONE_CHECK(folder.has_value());
    std::vector<std::vector<float>> data;
    std::vector<NamedTensor> tensors((*from)->tensors().begin(), (*from)->tensors().end());
    data.reserve(plan.tensors.size());
    for (const FolderTensor& planned : plan.tensors) {
      const auto matrix = folder->Find(planned.name, planned.rows, planned.columns);
      HONE_CHECK(matrix.has_value() && *matrix != nullptr);
      data.emplace_back(planned.rows * planned.columns);
      (*matrix)->Decode(0, planned.rows, data.back().data());
      for (NamedTensor& tensor : tensors) {
        if (tensor.name == planned.name) tensor.view.data = reinterpret_cast<const std::byte*>(data.back().data());
      }
    }
    return WriteModelFolder("odd_means", (*from)->config()->Dump(), tensors);
  }

  std::vector<float> Logits(const std::string& path, Isa isa, LoadOptions options, int rows_at_once) {
    const auto checkpoint = Checkpoint::Open(path);
    HONE_CHECK(checkpoint.has_value());
    Runtime runtime = runtime_;
    runtime.isa = isa;
    options.max_rows = kTokens;
    const auto model = Model::Load(*checkpoint, runtime, options);
    HONE_CHECK(model.has_value(), model.has_value() ? "" : model.error().message);
    weight_bytes_ = (*model)->weight_bytes();
    const ModelConfig& config = (*model)->config();
    const int blocks = BlockPool::BlocksFor(kTokens);
    const KvCache cache({KvType::kF32, config.layers, config.kv_heads, config.head_width, blocks});
    const CacheLayers layers(cache);
    std::vector<int32_t> table(blocks);
    std::iota(table.begin(), table.end(), 0);
    std::vector<float> logits(kTokens * kVocab);
    for (int at = 0; at < kTokens; at += rows_at_once) {
      const int rows = std::min(rows_at_once, kTokens - at);
      std::vector<int32_t> tokens(rows), wanted(rows);
      for (int i = 0; i < rows; ++i) tokens[i] = (at + i) * 7 % kVocab, wanted[i] = i;
      const SequenceRows sequence{.rows = rows, .first_position = at, .final_length = kTokens, .blocks = table.data()};
      (*model)->Forward({.tokens = tokens, .sequences = {&sequence, 1}, .logit_rows = wanted}, layers, &logits[at * kVocab]);
    }
    return logits;
  }

  uint64_t weight_bytes_ = 0;  // of the latest
};

TEST_F(OddModel, RunsAsWhatItMeansHoweverItIsCut) {
  const struct {
    int64_t width, ffn;
    LinearScheme scheme;
  } cases[] = {{33, 31, {"rtn", "compressed-tensors", 4, 0, true}},   {33, 31, {"rtn", "compressed-tensors", 4, 0, false}},
               {33, 31, {"rtn", "compressed-tensors", 8, 0, true}},   {33, 31, {"w8a8", "compressed-tensors"}},
               {33, 31, {"fp8", "compressed-tensors"}},               {33, 31, {"llm-int8", "bitsandbytes"}},
               {33, 31, {"fp8", "fp8"}},
               {40, 104, {"rtn", "compressed-tensors", 4, 8, true}},  {40, 104, {"rtn", "awq", 4, 8, false}},
               {40, 104, {"nf4", "bitsandbytes"}},                    {40, 104, {"fp4", "bitsandbytes"}},
               {40, 104, {"hqq", "hqq", 4, 8, false}},                {48, 80, {"nvfp4", "compressed-tensors"}}};
  for (const auto& one : cases) {
    SCOPED_TRACE(one.scheme.method + " " + one.scheme.format + " " + std::to_string(one.scheme.bits) + " of " + std::to_string(one.width));
    const std::string original = Write("odd_original", one.width, one.ffn), out = TestPath("odd_quantised");
    std::filesystem::remove_all(out);
    const auto checkpoint = Checkpoint::Open(original);
    const auto format = MakeLinearFormat(one.scheme);
    ASSERT_TRUE(checkpoint && format);
    std::set<std::string> keep;  // what the format cannot hold: nvfp4 has blocks of 16
    for (const NamedTensor& tensor : (*checkpoint)->tensors()) {
      if (tensor.view.shape.rank() == 2 && !(*format)->Check(tensor.view.shape[0], tensor.view.shape[1])) keep.insert(tensor.name);
    }
    const auto plan = PlanFolder(**checkpoint, **format, keep);
    ASSERT_TRUE(plan) << plan.error().message;
    const auto report = QuantizeFolder(**checkpoint, **format, one.scheme, *plan, out, {}, runtime_);
    ASSERT_TRUE(report) << report.error().message;
    const std::vector<float> means = Logits(Dequantise(original, out, *plan), Isa::kScalar, {}, kTokens);
    double power = 0;
    for (const float x : means) power += double{x} * x;
    for (const Isa isa : kIsas) {
      if (!cpu_.Supports(isa)) continue;
      const std::vector<float> logits = Logits(out, isa, {.deterministic = true}, kTokens);
      for (const int rows : {1, 4, 13}) EXPECT_EQ(logits, Logits(out, isa, {.deterministic = true}, rows)) << IsaName(isa) << ", " << rows;
      for (const LoadOptions& options : {LoadOptions{}, LoadOptions{.deterministic = true}, LoadOptions{.exact = true}}) {
        const std::vector<float> got = Logits(out, isa, options, kTokens);
        double error = 0;
        for (size_t i = 0; i < got.size(); ++i) error += std::pow(double{got[i]} - means[i], 2);
        // 14 matrices, each off by at most 0.0066 (Q8_0's rounding of FP8, the largest); --exact by nothing but sums.
        EXPECT_LT(std::sqrt(error / power), options.exact ? 1e-4 : 14 * 0.0066) << IsaName(isa);
      }
    }
  }
}

}  // namespace
}  // namespace hone
