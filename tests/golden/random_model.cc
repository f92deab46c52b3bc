// See random_model.h. Tensor names and shapes come from the families' own rules; what is written by hand here is
// config.json, GGUF metadata, and llama.cpp's conventions.
#include "golden/random_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include "formats/checkpoint.h"
#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "models/family.h"
#include "models/model.h"
#include "tensor/blocks.h"
#include "tensor/float16.h"

namespace hone::golden {
namespace {

int Between(Rng& rng, int low, int high) { return low + static_cast<int>(rng.Below(high - low + 1)); }
bool Chance(Rng& rng, double p) { return rng.Uniform() < p; }

double Normal(Rng& rng) {
  double sum = -6;
  for (int i = 0; i < 12; ++i) sum += rng.Uniform();
  return sum;
}

struct Sizes {
  int layers, heads, kv_heads, head_width, width, ffn, vocab;
};

Sizes DrawSizes(const std::string& family, Rng& rng, bool blocks) {
  Sizes s;
  s.layers = Between(rng, 1, 3);
  s.kv_heads = Between(rng, 1, 3);
  s.heads = s.kv_heads * Between(rng, 1, 3);
  if (family == "olmo2" && Chance(rng, 0.5)) s.heads = s.kv_heads;
  s.head_width = blocks ? 32 : 2 * Between(rng, 4, 20);
  s.width = blocks ? 32 * Between(rng, 1, 3) : Between(rng, 16, 90);
  s.ffn = blocks ? 32 * Between(rng, 1, 4) : Between(rng, 8, 100);
  s.vocab = Between(rng, 20, 300);
  // These families' configurations have no head_dim of their own.
  if (family == "phi3" || family == "qwen2" || family == "qwen2moe" || family == "olmo2" || family == "granite") {
    s.width = s.heads * s.head_width;
  }
  return s;
}

// "rope_scaling": {...}, in one of the kinds that the family may have, or null.
std::string DrawRopeScaling(const std::string& family, int rotary_width, Rng& rng) {
  if (family == "phi3") {
    if (Chance(rng, 0.4)) return "null";
    std::string near, far;
    for (int i = 0; i < rotary_width / 2; ++i) {
      near += fmt::format("{}{:.3f}", i > 0 ? "," : "", 1 + 0.05 * i);
      far += fmt::format("{}{:.3f}", i > 0 ? "," : "", 1 + 1.5 * i);
    }
    return fmt::format(R"({{"type": "longrope", "short_factor": [{}], "long_factor": [{}]}})", near, far);
  }
  switch (Between(rng, 0, 4)) {
    case 0:
      return fmt::format(R"({{"type": "linear", "factor": {}}})", Between(rng, 2, 6));
    case 1:
      return fmt::format(R"({{"rope_type": "yarn", "factor": {}, "original_max_position_embeddings": {}}})",
                         Between(rng, 2, 8), Between(rng, 16, 64));
    case 2:
      if (family != "llama" && family != "mixtral")
        return "null";  // in GGUF this is a tensor, which llama.cpp reads there
      return fmt::format(R"({{"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4,
                           "original_max_position_embeddings": {}}})",
                         Between(rng, 16, 64));
    default:
      return "null";
  }
}

std::string DrawConfigJson(const std::string& family, Rng& rng, bool blocks) {
  const Sizes s = DrawSizes(family, rng, blocks);
  const bool partial = family == "phi3" && Chance(rng, 0.5);
  const int rotary = partial ? s.head_width / 4 * 2 : s.head_width;
  std::string json = fmt::format(
      R"({{"model_type": "{}", "num_hidden_layers": {}, "num_attention_heads": {}, "num_key_value_heads": {}, "head_dim": {},
"hidden_size": {}, "intermediate_size": {}, "vocab_size": {}, "max_position_embeddings": 128, "rms_norm_eps": 1e-6,
"rope_theta": {}, "rope_scaling": {}, "tie_word_embeddings": {})",
      family == "gemma3"     ? "gemma3_text"
      : family == "qwen3moe" ? "qwen3_moe"
      : family == "qwen2moe" ? "qwen2_moe"
                             : family,
      s.layers, s.heads, s.kv_heads, s.head_width, s.width, s.ffn, s.vocab, Between(rng, 100, 1000000),
      DrawRopeScaling(family, rotary, rng), Chance(rng, 0.5));
  const auto add = [&](std::string text) { json += ",\n" + text; };
  if (partial) add(fmt::format(R"("partial_rotary_factor": {})", static_cast<double>(rotary) / s.head_width));
  if (family == "phi3") add(R"("original_max_position_embeddings": 40)");
  if (family == "llama" || family == "granite") {
    add(fmt::format(R"("attention_bias": {}, "mlp_bias": {})", Chance(rng, 0.5), Chance(rng, 0.5)));
  }
  if (family == "granite") {
    add(R"("embedding_multiplier": 6.0, "residual_multiplier": 0.6, "attention_multiplier": 0.3, "logits_scaling": 2.5)");
  }
  if (family == "gemma2" || family == "gemma3") {
    // GGUF takes the head width for query_pre_attn_scalar.
    add(fmt::format(R"("query_pre_attn_scalar": {}, "sliding_window": {}, "sliding_window_pattern": 6)", s.head_width,
                    Between(rng, 3, 30)));
    if (family == "gemma2") add(R"("attn_logit_softcapping": 5.0, "final_logit_softcapping": 6.0)");
  }
  if (family == "phi3")
    add(fmt::format(R"("sliding_window": {})", Chance(rng, 0.5) ? std::to_string(Between(rng, 1, 40)) : "null"));
  const int experts = Between(rng, 2, 6), expert_ffn = blocks ? 32 : Between(rng, 4, 30);
  if (family == "mixtral")
    add(fmt::format(R"("num_local_experts": {}, "num_experts_per_tok": {})", experts, Between(rng, 1, 2)));
  if (family == "qwen3moe" || family == "qwen2moe") {
    add(fmt::format(
        R"("num_experts": {}, "num_experts_per_tok": {}, "moe_intermediate_size": {}, "norm_topk_prob": {})", experts,
        Between(rng, 1, experts), expert_ffn, family == "qwen3moe"));
    if (family == "qwen2moe")
      add(fmt::format(R"("shared_expert_intermediate_size": {})", blocks ? 64 : Between(rng, 4, 50)));
  }
  return json + "}\n";
}

// A tensor in the making: values as floats, converted when it is written.
struct Draft {
  std::string name;
  Shape shape;
  std::vector<float> values;
};

Draft DrawTensor(const std::string& name, const Shape& shape, bool plus_one, Rng& rng) {
  Draft draft{name, shape, std::vector<float>(shape.elements())};
  const bool vector = shape.rank() == 1, bias = name.size() > 5 && name.substr(name.size() - 5) == ".bias";
  const double mean = vector && !bias && !plus_one ? 1 : 0;
  // Matrices keep the size of what they multiply, a little more in the output so that logits spread.
  const double spread = vector ? 0.3 : (name.find("embed") != std::string::npos ? 1.0 : 1.6 / std::sqrt(shape.back()));
  for (float& value : draft.values) value = Bf16ToF32(F32ToBf16(static_cast<float>(mean + spread * Normal(rng))));
  return draft;
}

Tensor Encode(const Draft& draft, DType type) {
  Tensor tensor(type, draft.shape);
  for (size_t i = 0; i < draft.values.size(); ++i) {
    if (type == DType::kF32) tensor.as<float>()[i] = draft.values[i];
    if (type == DType::kBF16) tensor.as<uint16_t>()[i] = F32ToBf16(draft.values[i]);
  }
  return tensor;
}

// Blocks whose numbers have about the size that DrawTensor gives.
Tensor RandomBlocks(const Shape& shape, DType type, Rng& rng) {
  Tensor tensor(type, shape);
  const double spread = 1.6 / std::sqrt(shape.back());
  const int64_t count = shape.elements() / 32;
  for (int64_t i = 0; i < count; ++i) {
    if (type == DType::kQ8_0) {
      BlockQ8_0& block = tensor.as<BlockQ8_0>()[i];
      block.d = F32ToF16(static_cast<float>(spread / 73 * (0.5 + rng.Uniform())));
      for (int8_t& q : block.qs) q = static_cast<int8_t>(rng.Next());
    } else {
      BlockQ4_1& block = tensor.as<BlockQ4_1>()[i];
      const double d = spread / 4.6 * (0.5 + rng.Uniform());
      block.d = F32ToF16(static_cast<float>(d));
      block.m = F32ToF16(static_cast<float>(-7.5 * d));
      for (uint8_t& q : block.qs) q = static_cast<uint8_t>(rng.Next());
    }
  }
  return tensor;
}

// Row r of the file is row Permuted(r) of the Hugging Face tensor: pairs (j, j + E/2) become neighbours.
int64_t Permuted(int64_t row, int64_t head_width) {
  const int64_t head = row / head_width, within = row % head_width;
  return head * head_width + within / 2 + (within % 2) * (head_width / 2);
}

void PermuteRows(Draft& draft, int64_t head_width) {
  const int64_t columns = draft.shape.rank() == 1 ? 1 : draft.shape.back();
  const std::vector<float> from = draft.values;
  for (int64_t r = 0; r < draft.shape[0]; ++r) {
    std::copy_n(from.begin() + Permuted(r, head_width) * columns, columns, draft.values.begin() + r * columns);
  }
}

GgufValue Value(int value) { return {.type = GgufType::kU32, .value = uint64_t(value)}; }
GgufValue Value(double value) { return {.type = GgufType::kF64, .value = value}; }
GgufValue Value(const std::string& value) { return {.type = GgufType::kString, .value = value}; }

std::vector<std::pair<std::string, GgufValue>> Metadata(const ModelConfig& c, const std::string& architecture) {
  std::vector<std::pair<std::string, GgufValue>> all;
  const auto add = [&](const std::string& key, const auto& value) {
    all.emplace_back(architecture + "." + key, Value(value));
  };
  all.emplace_back("general.architecture", Value(architecture));
  add("block_count", c.layers);
  add("context_length", c.context);
  add("embedding_length", c.width);
  add("feed_forward_length", c.ffn_width);
  add("attention.head_count", c.heads);
  add("attention.head_count_kv", c.kv_heads);
  add("attention.key_length", c.head_width);
  add("attention.value_length", c.head_width);
  add("attention.layer_norm_rms_epsilon", double{c.norm_eps});
  add("vocab_size", c.vocab);
  add("rope.freq_base", c.ropes[0].theta);
  add("rope.dimension_count", c.ropes[0].rotary_width);
  const RopeConfig& rope = c.ropes[0];
  if (rope.scaling == RopeScaling::kLinear || rope.scaling == RopeScaling::kYarn) {
    add("rope.scaling.type", std::string(rope.scaling == RopeScaling::kLinear ? "linear" : "yarn"));
    add("rope.scaling.factor", rope.factor);
  }
  if (rope.original_context > 0) add("rope.scaling.original_context_length", static_cast<int>(rope.original_context));
  int window = 0;
  for (const LayerConfig& layer : c.layer) window = std::max(window, layer.window);
  if (window > 0) add("attention.sliding_window", window);
  if (c.experts > 0) {
    add("expert_count", c.experts);
    add("expert_used_count", c.experts_per_token);
    add("expert_feed_forward_length", c.expert_ffn_width);
  }
  if (c.shared_ffn_width > 0) add("expert_shared_feed_forward_length", c.shared_ffn_width);
  if (c.attention_soft_cap > 0) add("attn_logit_softcapping", double{c.attention_soft_cap});
  if (c.logits_soft_cap > 0) add("final_logit_softcapping", double{c.logits_soft_cap});
  if (architecture == "granite") {
    add("embedding_scale", double{c.embedding_scale});
    add("residual_scale", double{c.residual_scale});
    add("attention.scale", double{c.attention_scale});
    add("logit_scale", 1 / double{c.logits_scale});
  }
  return all;
}

// The bands of llama3 as the divisors that llama.cpp's converter writes.
Draft RopeFreqs(const RopeConfig& rope) {
  Draft draft{"rope_freqs.weight", Shape{rope.rotary_width / 2}, {}};
  for (int j = 0; j < rope.rotary_width / 2; ++j) {
    const double wavelength = 2 * M_PI * std::pow(rope.theta, 2.0 * j / rope.rotary_width);
    const double smooth =
        (rope.original_context / wavelength - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
    draft.values.push_back(
        static_cast<float>(1 / ((1 - std::clamp(smooth, 0.0, 1.0)) / rope.factor + std::clamp(smooth, 0.0, 1.0))));
  }
  return draft;
}

// Collects a model's tensors in both forms.
class Writer {
 public:
  Writer(const ModelConfig& config, const Family& family, Rng& rng) : config_(config), family_(family), rng_(rng) {}

  void Draw() {
    Add({.name = "token_embd.weight", .hf = "embed_tokens.weight", .rows = Dim::kVocab, .columns = Dim::kWidth}, "",
        "model.");
    for (int layer = 0; layer < config_.layers; ++layer) {
      for (const TensorRule& rule : family_.layer_tensors(config_, layer)) {
        Add(rule, fmt::format("blk.{}.", layer), fmt::format("model.layers.{}.", layer));
      }
    }
    Add({.name = "output_norm.weight",
         .hf = "norm.weight",
         .rows = Dim::kWidth,
         .plus_one = config_.norms_store_minus_one},
        "", "model.");
    if (!config_.tied_embeddings) {
      Add({.name = "output.weight", .hf = "lm_head.weight", .rows = Dim::kVocab, .columns = Dim::kWidth}, "", "");
    }
    const RopeConfig& rope = config_.ropes[0];
    if (rope.scaling == RopeScaling::kLlama3) gguf_.push_back(RopeFreqs(rope));
    for (const bool far : {false, true}) {
      const std::vector<double>& factors = far ? rope.long_factor : rope.short_factor;
      if (factors.empty()) continue;
      gguf_.push_back({far ? "rope_factors_long.weight" : "rope_factors_short.weight",
                       Shape{static_cast<int64_t>(factors.size())},
                       {factors.begin(), factors.end()}});
    }
  }

  void WriteFolder(const std::string& folder, DType matrices) const {
    WriteAll(hf_, matrices, [&](const std::vector<NamedTensor>& tensors) {
      return WriteSafetensors(folder + "/model.safetensors", tensors, {{"format", "pt"}});
    });
  }
  void WriteGgufFile(const std::string& path, DType matrices, bool blocks) const {
    GgufContents contents{.metadata = Metadata(config_, std::string(family_.gguf_names[0])), .tensors = {}};
    WriteAll(
        gguf_, matrices,
        [&](const std::vector<NamedTensor>& tensors) {
          contents.tensors = tensors;
          return WriteGguf(path, contents);
        },
        blocks);
  }

 private:
  void Add(const TensorRule& rule, const std::string& below, const std::string& hf_below) {
    const bool expert = rule.name.find('*') != std::string::npos;
    const std::string gguf_name = below + (rule.gguf.empty() ? rule.name : rule.gguf);
    if (!seen_.insert(gguf_name).second) return;  // a part of a fused tensor that is there
    Draft stacked{gguf_name, Shape{}, {}};
    for (int e = 0; e < (expert ? config_.experts : 1); ++e) {
      std::string hf_name = hf_below + rule.hf;
      if (expert) hf_name.replace(hf_name.find('*'), 1, std::to_string(e));
      Shape shape{DimSize(rule.rows, config_)};
      if (!rule.parts.empty()) {
        int64_t rows = 0;
        for (const Dim part : rule.parts) rows += DimSize(part, config_);
        shape = Shape{rows};
      }
      if (rule.columns != Dim::kNone) shape.Append(DimSize(rule.columns, config_));
      hf_.push_back(DrawTensor(hf_name, shape, rule.plus_one, rng_));
      stacked.values.insert(stacked.values.end(), hf_.back().values.begin(), hf_.back().values.end());
      stacked.shape = shape;
    }
    if (expert) stacked.shape = Shape{config_.experts, stacked.shape[0], stacked.shape[1]};
    if (rule.plus_one) {
      for (float& value : stacked.values) value += 1;
    }
    const bool permuted = family_.gguf_names[0] == "llama" || family_.gguf_names[0] == "granite";
    if (permuted && (rule.name.rfind("attn_q.", 0) == 0 || rule.name.rfind("attn_k.", 0) == 0)) {
      PermuteRows(stacked, config_.head_width);
    }
    gguf_.push_back(std::move(stacked));
  }

  template <typename Write>
  void WriteAll(const std::vector<Draft>& drafts, DType matrices, Write write, bool blocks = false) const {
    std::vector<Tensor> kept;
    std::vector<NamedTensor> tensors;
    for (const Draft& draft : drafts) {
      const bool matrix = draft.shape.rank() >= 2, embedding = draft.name.find("token_embd") == 0;
      if (blocks && matrix && !embedding && draft.shape.back() % 32 == 0) {
        kept.push_back(RandomBlocks(draft.shape, Chance(rng_, 0.5) ? DType::kQ8_0 : DType::kQ4_1, rng_));
      } else {
        kept.push_back(Encode(draft, matrix ? matrices : DType::kF32));
      }
      tensors.push_back({draft.name, kept.back().view()});
    }
    const Result<void> written = write(tensors);
    HONE_CHECK(written.has_value(), written.has_value() ? "" : written.error().message);
  }

  const ModelConfig& config_;
  const Family& family_;
  Rng& rng_;
  std::vector<Draft> hf_, gguf_;
  std::set<std::string> seen_;
};

}  // namespace

const std::vector<std::string>& RandomFamilies() {
  static const std::vector<std::string> families = {"llama",  "mixtral", "qwen2", "qwen2moe", "qwen3",  "qwen3moe",
                                                    "gemma2", "gemma3",  "phi3",  "olmo2",    "granite"};
  return families;
}

RandomModel WriteRandomModel(const std::string& family, Rng& rng, const std::string& where) {
  const bool blocks = Chance(rng, 0.5);
  RandomModel model{.what = "", .folder = where + "/hf", .gguf = where + "/model.gguf", .blocks_gguf = ""};
  std::filesystem::remove_all(model.folder);
  std::filesystem::create_directories(model.folder);
  const std::string json = DrawConfigJson(family, rng, blocks);
  std::ofstream(model.folder + "/config.json") << json;
  model.what = json;

  // The folder without weights tells the configuration, and with it the tensors.
  const auto checkpoint = Checkpoint::Open(model.folder);
  HONE_CHECK(checkpoint.has_value(), checkpoint.has_value() ? "" : checkpoint.error().message);
  const Result<ModelConfig> config = ReadModelConfig(**checkpoint);
  HONE_CHECK(config.has_value(), config.has_value() ? "" : config.error().message + json);
  const Result<const Family*> found = FindFamily(**checkpoint);
  HONE_CHECK(found.has_value());
  Writer writer(*config, **found, rng);
  writer.Draw();
  const DType type = Chance(rng, 0.5) ? DType::kF32 : DType::kBF16;
  writer.WriteFolder(model.folder, type);
  writer.WriteGgufFile(model.gguf, type, false);
  if (blocks) {
    model.blocks_gguf = where + "/blocks.gguf";
    writer.WriteGgufFile(model.blocks_gguf, type, true);
  }
  return model;
}

}  // namespace hone::golden
