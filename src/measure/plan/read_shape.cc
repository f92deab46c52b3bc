// See read_shape.h. Keys of config.json and the classes that use them: docs/plan.md.
#include "measure/plan/read_shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "base/nearest_name.h"
#include "measure/model_cost.h"
#include "models/config_reader.h"
#include "models/model.h"

namespace hone {
namespace {

bool IsMamba(std::string_view type) { return type == "mamba" || type == "mamba2" || type == "falcon_mamba"; }

// The first of `keys` that is there.
Result<int> ReadAny(const JsonConfig& json, std::initializer_list<std::string_view> keys, int low, int high,
                    int64_t fallback = INT64_MIN) {
  for (const std::string_view key : keys) {
    if (json.Has(key)) return ReadInt(json, key, low, high);
  }
  return ReadInt(json, *keys.begin(), low, high, fallback);
}

Result<void> ReadLatent(const JsonConfig& json, ModelShape* shape) {
  HONE_TRY(shape->kv_rank, ReadInt(json, "kv_lora_rank", 0, kMaxWidth, 0));
  if (shape->kv_rank == 0) return {};
  HONE_TRY(shape->q_rank, ReadInt(json, "q_lora_rank", 0, kMaxWidth, 0));
  HONE_TRY(shape->rope_width, ReadInt(json, "qk_rope_head_dim", 1, kMaxWidth));
  HONE_TRY(shape->nope_width, ReadInt(json, "qk_nope_head_dim", 1, kMaxWidth));
  HONE_TRY(shape->value_width, ReadInt(json, "v_head_dim", 1, kMaxWidth));
  return {};
}

// Experts: Mixtral, Qwen-MoE, DeepSeek, OLMoE, Jamba, gpt-oss.
Result<void> ReadExperts(const JsonConfig& json, ModelShape* shape) {
  HONE_TRY(shape->experts, ReadAny(json, {"num_local_experts", "num_experts", "n_routed_experts"}, 0, kMaxExperts, 0));
  if (shape->experts <= 1) {
    shape->experts = 0;
    return {};
  }
  HONE_TRY(shape->experts_per_token, ReadAny(json, {"num_experts_per_tok", "experts_per_token"}, 1, kMaxChosenExperts, 2));
  HONE_TRY(shape->expert_ffn_width, ReadAny(json, {"moe_intermediate_size", "intermediate_size"}, 1, kMaxFfnWidth));
  HONE_TRY(const int shared, ReadInt(json, "n_shared_experts", 0, kMaxExperts, 0));
  HONE_TRY(shape->shared_ffn_width,
           ReadInt(json, "shared_expert_intermediate_size", 0, kMaxFfnWidth, int64_t{shared} * shape->expert_ffn_width));
  shape->shared_gate = json.Has("shared_expert_intermediate_size");
  HONE_TRY(const int dense, ReadInt(json, "first_k_dense_replace", 0, shape->layers, 0));
  HONE_TRY(const int period, ReadAny(json, {"expert_layer_period", "decoder_sparse_step"}, 1, kMaxLayers, 1));
  HONE_TRY(const int offset, ReadInt(json, "expert_layer_offset", 0, kMaxLayers, period - 1));
  std::vector<int64_t> mlp_only;
  if (json.IsArray("mlp_only_layers")) {
    HONE_TRY(mlp_only, json.Ints("mlp_only_layers"));
  }
  for (int i = dense; i < shape->layers; ++i) {
    if (i % period == offset % period && std::find(mlp_only.begin(), mlp_only.end(), i) == mlp_only.end())
      ++shape->expert_layers;
  }
  if (shape->expert_layers == shape->layers) shape->ffn_width = 0;
  return {};
}

Result<void> ReadRecurrence(const JsonConfig& json, const std::string& type, ModelShape* shape) {
  const bool jamba = json.Has("attn_layer_period");
  if (!IsMamba(type) && !jamba) return {};
  shape->recurrence = type == "mamba2" ? Recurrence::kMamba2 : Recurrence::kMamba;
  HONE_TRY(const int expand, ReadAny(json, {"mamba_expand", "expand"}, 1, 64, 2));
  HONE_TRY(shape->inner_width, ReadInt(json, "intermediate_size", 1, kMaxFfnWidth, int64_t{expand} * shape->width));
  if (jamba) shape->inner_width = expand * shape->width;  // intermediate_size is of its feed-forward
  HONE_TRY(shape->state_width, ReadAny(json, {"mamba_d_state", "state_size"}, 1, 4096, 16));
  HONE_TRY(shape->conv_width, ReadAny(json, {"mamba_d_conv", "conv_kernel"}, 1, 64, 4));
  if (shape->recurrence == Recurrence::kMamba2) {
    HONE_TRY(const int head_width, ReadInt(json, "head_dim", 1, 4096, 64));
    HONE_TRY(shape->state_groups, ReadInt(json, "n_groups", 1, 4096, 1));
    shape->state_heads = shape->inner_width / head_width;
  } else {
    const int usual = (shape->width + 15) / 16;
    if (json.IsString("time_step_rank") || json.IsString("mamba_dt_rank")) {
      shape->dt_rank = usual;  // "auto"
    } else {
      HONE_TRY(shape->dt_rank, ReadAny(json, {"time_step_rank", "mamba_dt_rank"}, 1, kMaxWidth, usual));
    }
  }
  shape->recurrent_layers = shape->layers;
  if (!jamba) {
    shape->norms = 1, shape->ffn_width = 0;
    return {};
  }
  HONE_TRY(const int period, ReadInt(json, "attn_layer_period", 1, kMaxLayers));
  HONE_TRY(const int offset, ReadInt(json, "attn_layer_offset", 0, kMaxLayers, 0));
  for (int i = 0; i < shape->layers; ++i) shape->recurrent_layers -= i % period == offset % period ? 1 : 0;
  shape->state_norms = true;
  return {};
}

Result<void> ReadWindows(const JsonConfig& json, const std::string& type, ModelShape* shape) {
  HONE_TRY(const bool use, json.Bool("use_sliding_window", !type.starts_with("qwen")));
  HONE_TRY(shape->window, ReadInt(json, "sliding_window", 0, kMaxContext, 0));
  if (shape->window == 0 || !use) {
    shape->window = 0;
    return {};
  }
  if (json.IsArray("layer_types")) {
    HONE_TRY(const auto types, json.Strings("layer_types"));
    shape->windowed_layers =
        static_cast<int>(std::count(types.begin(), types.end(), std::string("sliding_attention")));
    shape->windowed_layers = std::min(shape->windowed_layers, shape->attention_layers());
    return {};
  }
  HONE_TRY(const int pattern, ReadAny(json, {"sliding_window_pattern", "_sliding_window_pattern"}, 0, kMaxLayers, 0));
  if (pattern > 0) {
    shape->windowed_layers = shape->layers - shape->layers / pattern;
  } else if (type == "gemma2") {
    shape->windowed_layers = (shape->layers + 1) / 2;
  } else if (type.starts_with("gemma3")) {
    shape->windowed_layers = shape->layers - shape->layers / 6;
  } else {
    HONE_TRY(const int full, ReadInt(json, "max_window_layers", 0, kMaxLayers, 28));
    shape->windowed_layers = std::max(0, shape->attention_layers() - (type.starts_with("qwen") ? full : 0));
  }
  return {};
}

}  // namespace

ModelShape ShapeOfConfig(const ModelConfig& c) {
  ModelShape shape;
  shape.name = c.name.empty() ? c.architecture : c.name;
  shape.layers = c.layers, shape.width = c.width, shape.heads = c.heads, shape.kv_heads = c.kv_heads;
  shape.head_width = c.head_width, shape.ffn_width = c.ffn_width, shape.vocab = c.vocab, shape.context = c.context;
  shape.tied = c.tied_embeddings, shape.qkv_bias = c.qkv_bias;
  shape.experts = c.experts, shape.experts_per_token = c.experts_per_token;
  shape.expert_ffn_width = c.expert_ffn_width, shape.shared_ffn_width = c.shared_ffn_width;
  shape.shared_gate = c.shared_ffn_width > 0;
  for (const LayerConfig& layer : c.layer) {
    shape.expert_layers += layer.experts ? 1 : 0;
    if (layer.window > 0) shape.window = std::max(shape.window, layer.window), ++shape.windowed_layers;
  }
  if (shape.expert_layers == shape.layers) shape.ffn_width = 0;
  return shape;
}

Result<ModelShape> ShapeOfJson(const JsonConfig& whole) {
  JsonConfig json = whole;
  if (whole.IsObject("text_config") && !whole.Has("num_hidden_layers")) {
    HONE_TRY(json, whole.Object("text_config"));
  }
  ModelShape shape;
  HONE_TRY(const std::string type, json.String("model_type", ""));
  HONE_TRY(const std::string name, whole.String("_name_or_path", ""));
  shape.name = name.empty() ? (type.empty() ? "config.json" : type) : name;
  HONE_TRY(shape.layers, ReadAny(json, {"num_hidden_layers", "n_layer", "n_layers"}, 1, kMaxLayers));
  HONE_TRY(shape.width, ReadAny(json, {"hidden_size", "n_embd", "d_model"}, 1, kMaxWidth));
  HONE_TRY(shape.vocab, ReadInt(json, "vocab_size", 1, kMaxVocab));
  const bool all_recurrent = IsMamba(type);
  if (!all_recurrent) {
    HONE_TRY(shape.heads, ReadAny(json, {"num_attention_heads", "n_head", "n_heads"}, 1, kMaxHeads));
    HONE_TRY(shape.kv_heads, ReadAny(json, {"num_key_value_heads", "num_kv_heads"}, 1, kMaxHeads, shape.heads));
    HONE_TRY(shape.head_width, ReadInt(json, "head_dim", 1, kMaxWidth, std::max(1, shape.width / shape.heads)));
    if (shape.kv_heads > shape.heads) {
      return InvalidInput(fmt::format("{}: num_key_value_heads is {}; wanted at most the {} query heads", json.origin(),
                                      shape.kv_heads, shape.heads));
    }
    if (shape.heads % shape.kv_heads != 0) {
      return InvalidInput(fmt::format("{}: {} query heads cannot share {} key-value heads (num_key_value_heads) evenly", json.origin(), shape.heads, shape.kv_heads));
    }
    HONE_TRY(shape.ffn_width, ReadAny(json, {"intermediate_size", "n_inner"}, 1, kMaxFfnWidth, int64_t{4} * shape.width));
  }
  HONE_TRY(shape.context, ReadAny(json, {"max_position_embeddings", "n_positions", "seq_length"}, 1, kMaxContext,
                                  all_recurrent ? 1 << 20 : 2048));
  const bool gpt2 = json.Has("n_embd") || type == "gpt_neox" || type == "opt" || type == "falcon" || type == "phi";
  shape.gated_ffn = !gpt2;
  HONE_TRY(shape.tied, json.Bool("tie_word_embeddings", type.starts_with("gemma") || type == "gpt2" || all_recurrent));
  HONE_TRY(shape.qkv_bias, json.Bool("attention_bias", type == "qwen2" || type == "qwen2_moe"));
  shape.head_norms = type.starts_with("qwen3") || type.starts_with("gemma3");
  if (type == "gemma2" || type.starts_with("gemma3")) shape.norms = 4;
  HONE_RETURN_IF_ERROR(ReadLatent(json, &shape));
  HONE_RETURN_IF_ERROR(ReadExperts(json, &shape));
  HONE_RETURN_IF_ERROR(ReadRecurrence(json, type, &shape));
  HONE_RETURN_IF_ERROR(ReadWindows(json, type, &shape));
  return shape;
}

WeightFormat StoredFormat(const Checkpoint& checkpoint, const ModelShape& shape) {
  double bytes[4] = {}, elements[4] = {};
  std::map<DType, double> by_type;
  for (const WeightInfo& weight : MatricesOf(checkpoint)) {
    const int role = static_cast<int>(RoleOfTensor(weight.name));
    bytes[role] += static_cast<double>(weight.bytes());
    elements[role] += static_cast<double>(weight.shape.elements());
    if (role >= static_cast<int>(TensorRole::kRoutedExpert))
      by_type[weight.type] += static_cast<double>(weight.shape.elements());
  }
  const auto bits = [&](TensorRole role, double fallback) {
    const int i = static_cast<int>(role);
    return elements[i] > 0 ? 8 * bytes[i] / elements[i] : fallback;
  };
  WeightFormat format;
  format.name = "as stored";
  format.bits = bits(TensorRole::kLayer, 16);
  format.value_down_bits = format.attention_output_bits = format.bits;
  format.expert_bits = bits(TensorRole::kRoutedExpert, 0);
  format.embedding_bits = bits(TensorRole::kEmbedding, format.bits);
  format.output_bits = shape.tied ? format.embedding_bits : bits(TensorRole::kOutput, format.bits);
  double most = 0;
  for (const auto& [type, count] : by_type) {
    if (count > most) format.kernel = type, most = count;
  }
  for (const WeightFormat& known : WeightFormats()) {  // a pure format's published loss
    if (known.kernel == format.kernel && std::abs(known.bits - format.bits) < 0.35 && known.kld >= 0) format.kld = known.kld;
  }
  return format;
}

Result<PlannedModel> PlannedFromCheckpoint(const Checkpoint& checkpoint) {
  PlannedModel planned;
  Result<ModelConfig> config = ReadModelConfig(checkpoint);
  if (config) {
    planned.shape = ShapeOfConfig(*config);
    planned.source = "file";
  } else if (checkpoint.config() != nullptr) {
    HONE_TRY(planned.shape, ShapeOfJson(*checkpoint.config()));
    planned.source = "config.json (hone does not run this architecture)";
  } else {
    return config.error();
  }
  if (planned.shape.name.empty()) planned.shape.name = checkpoint.name();
  if (!checkpoint.tensors().empty() && config) {
    planned.format = StoredFormat(checkpoint, planned.shape);
    planned.stored = true;
  } else {
    planned.format = *FindWeightFormat("bf16");
  }
  return planned;
}

Result<PlannedModel> PlannedFromName(const std::string& name) {
  PlannedModel planned;
  planned.format = *FindWeightFormat("bf16");
  if (const ModelShape* shape = FindPublicShape(name)) {
    planned.shape = *shape;
    planned.source = "public shape";
    return planned;
  }
  std::error_code error;
  if (std::filesystem::is_regular_file(name, error) && name.ends_with(".json")) {
    HONE_TRY(const JsonConfig json, JsonConfig::Read(name));
    HONE_TRY(planned.shape, ShapeOfJson(json));
    planned.source = "config.json";
    return planned;
  }
  std::vector<std::string> known;
  for (const ModelShape& shape : PublicShapes()) known.push_back(shape.name);
  const std::string nearest = NearestName(name, known);
  return NotFound(fmt::format("{}: is no file, folder or public shape{}; hone plan --list prints the shapes", name,
                              nearest.empty() ? "" : " (did you mean " + nearest + "?)"));
}

}  // namespace hone
