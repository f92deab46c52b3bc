// See config_reader.h. The two file kinds share their typed accessors' names, so ranges are checked by one template.
#include "models/config_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kernels/dequantize/dequantize.h"
#include "models/quantized/quantized_folder.h"

namespace hone {
namespace {

const std::string& Origin(const JsonConfig& json) { return json.origin(); }
const std::string& Origin(const GgufFile& file) { return file.path(); }

template <typename File>
Result<int> ReadIntFrom(const File& file, std::string_view key, int low, int high, int64_t fallback) {
  if (fallback < low && !file.Has(key)) {
    return InvalidInput(
        fmt::format("{}: {} is missing; wanted a whole number from {} to {}", Origin(file), key, low, high));
  }
  HONE_TRY(const int64_t value, file.Int(key, fallback));
  if (value < low || value > high) {
    return InvalidInput(fmt::format("{}: {} is {}; wanted {} to {}", Origin(file), key, value, low, high));
  }
  return static_cast<int>(value);
}

template <typename File>
Result<double> ReadNumberFrom(const File& file, std::string_view key, double low, double high, double fallback) {
  HONE_TRY(const double value, file.Number(key, fallback));
  if (!(value >= low && value <= high)) {
    return InvalidInput(fmt::format("{}: {} is {}; wanted {} to {}", Origin(file), key, value, low, high));
  }
  return value;
}

Result<Activation> ReadActivation(const JsonConfig& json, std::string_view key, std::string_view fallback) {
  HONE_TRY(const std::string name, json.String(key, fallback));
  if (name == "silu" || name == "swish") return Activation::kSilu;
  if (name == "gelu_pytorch_tanh" || name == "gelu_tanh" || name == "gelu_new") return Activation::kGeluTanh;
  if (name == "gelu") return Activation::kGeluErf;
  return Unsupported(fmt::format("{}: {} is \"{}\"; known: silu, gelu_pytorch_tanh, gelu", json.origin(), key, name));
}

Result<std::vector<double>> ReadFactors(const JsonConfig& parameters, std::string_view key, int count) {
  HONE_TRY(std::vector<double> factors, parameters.Numbers(key));
  if (factors.size() != static_cast<size_t>(count)) {
    return InvalidInput(fmt::format("{}: {} has {} numbers; wanted {} (half the rotary width)", parameters.origin(),
                                    key, factors.size(), count));
  }
  return factors;
}

// mscale of yarn: 0.1 m ln(factor) + 1.
double YarnScale(double factor, double m) { return factor <= 1 ? 1 : 0.1 * m * std::log(factor) + 1; }

Result<void> ReadHfYarn(const JsonConfig& parameters, RopeConfig& rope) {
  HONE_TRY(rope.beta_fast, ReadNumber(parameters, "beta_fast", 1e-6, 1e9, 32));
  HONE_TRY(rope.beta_slow, ReadNumber(parameters, "beta_slow", 1e-6, 1e9, 1));
  HONE_TRY(rope.truncate, parameters.Bool("truncate", true));
  HONE_TRY(const double mscale, ReadNumber(parameters, "mscale", 0, 1e6, 0));
  HONE_TRY(const double mscale_all, ReadNumber(parameters, "mscale_all_dim", 0, 1e6, 0));
  if (rope.attention_factor == 0 && mscale != 0 && mscale_all != 0) {
    rope.attention_factor = YarnScale(rope.factor, mscale) / YarnScale(rope.factor, mscale_all);
  }
  return {};
}

Result<RopeScaling> ReadHfRopeKind(const JsonConfig& parameters) {
  const std::string_view key = parameters.Has("rope_type") ? "rope_type" : "type";
  HONE_TRY(const std::string kind, parameters.String(key, "default"));
  if (kind == "default") return RopeScaling::kNone;
  if (kind == "linear") return RopeScaling::kLinear;
  if (kind == "llama3") return RopeScaling::kLlama3;
  if (kind == "yarn") return RopeScaling::kYarn;
  if (kind == "longrope" || kind == "su") return RopeScaling::kLongRope;
  return Unsupported(fmt::format("{}: rope scaling {} is \"{}\"; known: default, linear, llama3, yarn, longrope",
                                 parameters.origin(), key, kind));
}

}  // namespace

Result<int> ReadInt(const JsonConfig& json, std::string_view key, int low, int high, int64_t fallback) {
  return ReadIntFrom(json, key, low, high, fallback);
}
Result<int> ReadInt(const GgufFile& file, std::string_view key, int low, int high, int64_t fallback) {
  return ReadIntFrom(file, key, low, high, fallback);
}
Result<double> ReadNumber(const JsonConfig& json, std::string_view key, double low, double high, double fallback) {
  return ReadNumberFrom(json, key, low, high, fallback);
}
Result<double> ReadNumber(const GgufFile& file, std::string_view key, double low, double high, double fallback) {
  return ReadNumberFrom(file, key, low, high, fallback);
}

std::string GgufKey(const ModelConfig& config, std::string_view key) {
  return fmt::format("{}.{}", config.architecture, key);
}

bool GgufHas(const GgufFile& file, std::string_view tensor) { return file.FindTensor(tensor) != nullptr; }

bool Mentions(const JsonConfig& json, std::string_view key) {
  const std::vector<std::string> keys = json.Keys();
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

Result<void> RefuseIfSet(const JsonConfig& json, std::string_view key, std::string_view family) {
  if (!json.Has(key)) return {};
  HONE_TRY(const double value, json.Number(key, 0));
  if (value == 0) return {};
  return Unsupported(fmt::format("{}: {} is {}; the {} family has no such feature", json.origin(), key, value, family));
}

Result<RopeConfig> ReadHfRope(const JsonConfig& json, const JsonConfig* parameters, double theta,
                              const ModelConfig& config) {
  RopeConfig rope;
  rope.theta = theta;
  HONE_TRY(double partial, ReadNumber(json, "partial_rotary_factor", 0, 1, 1));
  if (parameters != nullptr) {
    HONE_TRY(rope.theta, ReadNumber(*parameters, "rope_theta", 1e-6, 1e15, theta));
    HONE_TRY(partial, ReadNumber(*parameters, "partial_rotary_factor", 0, 1, partial));
    HONE_TRY(rope.scaling, ReadHfRopeKind(*parameters));
  }
  rope.rotary_width = static_cast<int>(config.head_width * partial);
  if (rope.scaling == RopeScaling::kNone) return rope;

  // original_max_position_embeddings stands inside the object or beside it; the context itself where neither has it.
  HONE_TRY(const double beside, ReadNumber(json, "original_max_position_embeddings", 1, kMaxContext, config.context));
  HONE_TRY(rope.original_context, ReadNumber(*parameters, "original_max_position_embeddings", 1, kMaxContext, beside));
  HONE_TRY(rope.attention_factor, ReadNumber(*parameters, "attention_factor", 0, 1e6, 0));
  const bool longrope = rope.scaling == RopeScaling::kLongRope;
  if (!longrope && !parameters->Has("factor")) {
    return InvalidInput(fmt::format("{}: rope scaling has no factor", parameters->origin()));
  }
  HONE_TRY(rope.factor, ReadNumber(*parameters, "factor", 1e-6, 1e9, config.context / rope.original_context));
  if (rope.scaling == RopeScaling::kLlama3) {
    HONE_TRY(rope.low_freq_factor, ReadNumber(*parameters, "low_freq_factor", 1e-6, 1e9, 1));
    HONE_TRY(rope.high_freq_factor, ReadNumber(*parameters, "high_freq_factor", 1e-6, 1e9, 4));
  } else if (rope.scaling == RopeScaling::kYarn) {
    HONE_RETURN_IF_ERROR(ReadHfYarn(*parameters, rope));
  } else if (longrope) {
    HONE_TRY(rope.short_factor, ReadFactors(*parameters, "short_factor", rope.rotary_width / 2));
    HONE_TRY(rope.long_factor, ReadFactors(*parameters, "long_factor", rope.rotary_width / 2));
  }
  return rope;
}

Result<void> ReadHfWindows(const JsonConfig& json, int64_t window, bool (*slides)(int layer), ModelConfig& config) {
  if (window < 0 || window > INT32_MAX) {
    return InvalidInput(fmt::format("{}: sliding_window is {}; wanted 1 to {}", json.origin(), window, INT32_MAX));
  }
  const int size = static_cast<int>(window);
  if (!json.Has("layer_types")) {
    for (int i = 0; i < config.layers; ++i) config.layer[i].window = slides(i) ? size : 0;
    return {};
  }
  HONE_TRY(const std::vector<std::string> types, json.Strings("layer_types"));
  if (types.size() != config.layer.size()) {
    return InvalidInput(fmt::format("{}: layer_types has {} entries; wanted {}, one a layer", json.origin(),
                                    types.size(), config.layers));
  }
  for (int i = 0; i < config.layers; ++i) {
    if (types[i] == "sliding_attention") {
      if (size == 0)
        return InvalidInput(
            fmt::format("{}: layer {} is sliding_attention but sliding_window is not set", json.origin(), i));
      config.layer[i].window = size;
    } else if (types[i] == "full_attention") {
      config.layer[i].window = 0;
    } else {
      return Unsupported(fmt::format("{}: layer_types[{}] is \"{}\"; known: full_attention, sliding_attention",
                                     json.origin(), i, types[i]));
    }
  }
  return {};
}

Result<void> ReadHfCommon(const JsonConfig& json, const HfDefaults& defaults, ModelConfig& config) {
  HONE_RETURN_IF_ERROR(CheckQuantization(json));
  HONE_TRY(config.layers, ReadInt(json, "num_hidden_layers", 1, kMaxLayers));
  HONE_TRY(config.width, ReadInt(json, "hidden_size", 1, kMaxWidth));
  HONE_TRY(config.heads, ReadInt(json, "num_attention_heads", 1, kMaxHeads, defaults.heads));
  HONE_TRY(config.kv_heads, ReadInt(json, "num_key_value_heads", 1, kMaxHeads,
                                    defaults.kv_heads > 0 ? defaults.kv_heads : config.heads));
  const int head_width = defaults.head_width != 0 ? defaults.head_width : config.width / config.heads;
  HONE_TRY(config.head_width, ReadInt(json, "head_dim", 1, kMaxHeadWidth, head_width));
  HONE_TRY(config.ffn_width, ReadInt(json, "intermediate_size", 1, kMaxFfnWidth));
  HONE_TRY(config.vocab,
           ReadInt(json, "vocab_size", 1, kMaxVocab, config.vocab > 0 ? int64_t{config.vocab} : INT64_MIN));
  HONE_TRY(config.context, ReadInt(json, "max_position_embeddings", 1, kMaxContext, defaults.context));
  HONE_TRY(const double eps, ReadNumber(json, "rms_norm_eps", 0, 1, defaults.norm_eps));
  config.norm_eps = static_cast<float>(eps);
  HONE_TRY(config.activation, ReadActivation(json, defaults.activation_key, defaults.activation));
  HONE_TRY(config.tied_embeddings, json.Bool("tie_word_embeddings", defaults.tied_embeddings));
  config.layer.assign(config.layers, LayerConfig{});
  config.attention_scale = static_cast<float>(1 / std::sqrt(static_cast<double>(config.head_width)));

  HONE_TRY(const double theta, ReadNumber(json, "rope_theta", 1e-6, 1e15, defaults.rope_theta));
  const std::string_view key = json.IsObject("rope_parameters") ? "rope_parameters" : "rope_scaling";
  if (!json.Has(key)) {
    HONE_TRY(RopeConfig rope, ReadHfRope(json, nullptr, theta, config));
    config.ropes = {std::move(rope)};
    return {};
  }
  HONE_TRY(JsonConfig parameters, json.Object(key));
  // transformers 5 may write one object a layer type; families with several ropes read them themselves.
  if (parameters.IsObject("full_attention")) {
    HONE_TRY(parameters, parameters.Object("full_attention"));
  }
  HONE_TRY(RopeConfig rope, ReadHfRope(json, &parameters, theta, config));
  config.ropes = {std::move(rope)};
  return {};
}

namespace {

// rope_freqs.weight, rope_factors_long.weight ...: [R/2] F32 numbers that the file gives as tensors. Absent: empty.
Result<std::vector<double>> ReadGgufFactors(const GgufFile& file, std::string_view name, int count) {
  std::vector<double> factors;
  const NamedTensor* tensor = file.FindTensor(name);
  if (tensor == nullptr) return factors;
  if (tensor->view.type != DType::kF32 || tensor->view.shape != Shape{count}) {
    return InvalidInput(fmt::format("{}: tensor {} is {} {}; wanted F32 [{}] (half the rotary width)", file.path(),
                                    name, Info(tensor->view.type).name, tensor->view.shape.ToString(), count));
  }
  std::vector<float> values(count);
  DequantizeRow(DType::kF32, tensor->view.data, count, values.data());  // any alignment
  factors.assign(values.begin(), values.end());
  return factors;
}

Result<RopeConfig> ReadGgufRope(const GgufFile& file, const ModelConfig& config) {
  RopeConfig rope;
  HONE_TRY(rope.rotary_width,
           ReadInt(file, GgufKey(config, "rope.dimension_count"), 0, kMaxHeadWidth, config.head_width));
  HONE_TRY(rope.theta, ReadNumber(file, GgufKey(config, "rope.freq_base"), 1e-6, 1e15, 10000));
  HONE_TRY(rope.frequency_divisors, ReadGgufFactors(file, "rope_freqs.weight", rope.rotary_width / 2));
  HONE_TRY(const double scale_linear, ReadNumber(file, GgufKey(config, "rope.scale_linear"), 0, 1e9, 0));
  HONE_TRY(rope.factor, ReadNumber(file, GgufKey(config, "rope.scaling.factor"), 0, 1e9, scale_linear));
  const std::string kind_key = GgufKey(config, "rope.scaling.type");
  // A factor without a type is linear; a factor of 0 is none.
  HONE_TRY(const std::string kind, file.String(kind_key, rope.factor != 0 ? "linear" : "none"));
  HONE_TRY(rope.original_context,
           ReadNumber(file, GgufKey(config, "rope.scaling.original_context_length"), 1, kMaxContext, config.context));
  HONE_TRY(const double attention, ReadNumber(file, GgufKey(config, "rope.scaling.attn_factor"), 0, 1e6, 0));
  HONE_TRY(rope.short_factor, ReadGgufFactors(file, "rope_factors_short.weight", rope.rotary_width / 2));
  HONE_TRY(rope.long_factor, ReadGgufFactors(file, "rope_factors_long.weight", rope.rotary_width / 2));
  if (!rope.short_factor.empty() && !rope.long_factor.empty()) {
    rope.scaling = RopeScaling::kLongRope;
    rope.attention_factor = attention;
    if (rope.factor == 0) rope.factor = config.context / rope.original_context;
  } else if (kind == "linear") {
    rope.scaling = RopeScaling::kLinear;
  } else if (kind == "yarn") {
    rope.scaling = RopeScaling::kYarn;
    HONE_TRY(rope.beta_fast, ReadNumber(file, GgufKey(config, "rope.scaling.yarn_beta_fast"), 1e-6, 1e9, 32));
    HONE_TRY(rope.beta_slow, ReadNumber(file, GgufKey(config, "rope.scaling.yarn_beta_slow"), 1e-6, 1e9, 1));
    // llama.cpp multiplies its own 0.1 ln(factor) + 1 by attn_factor.
    if (attention != 0) rope.attention_factor = attention * YarnScale(rope.factor, 1);
  } else if (kind == "longrope") {
    return InvalidInput(
        fmt::format("{}: {} is longrope, but tensors rope_factors_short.weight and rope_factors_long.weight "
                    "are not both there",
                    file.path(), kind_key));
  } else if (kind != "none") {
    return Unsupported(
        fmt::format("{}: {} is \"{}\"; known: none, linear, yarn, longrope", file.path(), kind_key, kind));
  }
  if (rope.factor == 0) rope.factor = 1;
  return rope;
}

}  // namespace

Result<void> ReadGgufCommon(const GgufFile& file, ModelConfig& config) {
  const auto key = [&](std::string_view name) { return GgufKey(config, name); };
  HONE_TRY(config.layers, ReadInt(file, key("block_count"), 1, kMaxLayers));
  HONE_TRY(config.width, ReadInt(file, key("embedding_length"), 1, kMaxWidth));
  HONE_TRY(config.heads, ReadInt(file, key("attention.head_count"), 1, kMaxHeads));
  HONE_TRY(config.kv_heads, ReadInt(file, key("attention.head_count_kv"), 1, kMaxHeads, config.heads));
  HONE_TRY(config.head_width,
           ReadInt(file, key("attention.key_length"), 1, kMaxHeadWidth, config.width / config.heads));
  HONE_TRY(const int value_width, ReadInt(file, key("attention.value_length"), 1, kMaxHeadWidth, config.head_width));
  if (value_width != config.head_width) {
    return Unsupported(fmt::format("{}: keys are {} wide and values {}; hone wants them equal", file.path(),
                                   config.head_width, value_width));
  }
  HONE_TRY(config.ffn_width, ReadInt(file, key("feed_forward_length"), 1, kMaxFfnWidth));
  HONE_TRY(config.context, ReadInt(file, key("context_length"), 1, kMaxContext));
  const NamedTensor* embedding = file.FindTensor("token_embd.weight");
  int64_t vocab = embedding != nullptr && embedding->view.shape.rank() == 2 ? embedding->view.shape[0] : INT64_MIN;
  if (file.Has("tokenizer.ggml.tokens")) {
    HONE_TRY(const auto tokens, file.Strings("tokenizer.ggml.tokens"));
    vocab = static_cast<int64_t>(tokens.size());
  }
  HONE_TRY(config.vocab, ReadInt(file, key("vocab_size"), 1, kMaxVocab, vocab));
  HONE_TRY(const double eps, ReadNumber(file, key("attention.layer_norm_rms_epsilon"), 0, 1, 1e-5));
  config.norm_eps = static_cast<float>(eps);
  config.tied_embeddings = file.FindTensor("output.weight") == nullptr;
  config.layer.assign(config.layers, LayerConfig{});
  config.attention_scale = static_cast<float>(1 / std::sqrt(static_cast<double>(config.head_width)));
  HONE_TRY(RopeConfig rope, ReadGgufRope(file, config));
  config.ropes = {std::move(rope)};
  return {};
}

namespace {

Result<void> CheckRope(const RopeConfig& rope, const ModelConfig& config, const std::string& origin) {
  const auto bad = [&](std::string what) { return InvalidInput(origin + ": " + what); };
  if (rope.rotary_width < 0 || rope.rotary_width > config.head_width || rope.rotary_width % 2 != 0) {
    return bad(fmt::format("rotary width is {}; wanted an even number up to the head width {}", rope.rotary_width,
                           config.head_width));
  }
  const size_t half = static_cast<size_t>(rope.rotary_width / 2);
  for (const auto* factors : {&rope.short_factor, &rope.long_factor, &rope.frequency_divisors}) {
    if (!factors->empty() && factors->size() != half) return bad("rope factors are not half the rotary width");
    for (const double factor : *factors) {
      if (!(factor > 1e-9 && factor < 1e12))
        return bad(fmt::format("a rope factor is {}; wanted a positive number", factor));
    }
  }
  for (const double value : {rope.theta, rope.factor}) {
    if (!(value > 0 && std::isfinite(value)))
      return bad(fmt::format("a rope number is {}; wanted a positive one", value));
  }
  const bool scaled = rope.scaling != RopeScaling::kNone && rope.scaling != RopeScaling::kLinear;
  if (scaled && !(rope.original_context >= 1)) return bad("the original context of the rope scaling is missing");
  if (rope.scaling == RopeScaling::kLongRope && (rope.short_factor.empty() || rope.long_factor.empty()) && half != 0) {
    return bad("longrope without its factors");
  }
  if (rope.scaling == RopeScaling::kLlama3 && !(rope.high_freq_factor > rope.low_freq_factor)) {
    return bad("llama3 rope: high_freq_factor must be above low_freq_factor");
  }
  if (rope.scaling == RopeScaling::kYarn && !(rope.theta > 1)) return bad("yarn rope: rope_theta must be above 1");
  return {};
}

}  // namespace

Result<void> CheckConfig(const ModelConfig& config, const std::string& origin) {
  const auto bad = [&](std::string what) { return InvalidInput(origin + ": " + what); };
  if (config.heads % config.kv_heads != 0) {
    return bad(fmt::format("{} query heads cannot share {} key/value heads evenly", config.heads, config.kv_heads));
  }
  if (config.head_width < 1) return bad(fmt::format("width {} gives {} heads no width", config.width, config.heads));
  for (const float value : {config.norm_eps, config.attention_scale, config.attention_soft_cap, config.logits_soft_cap,
                            config.embedding_scale, config.residual_scale, config.logits_scale}) {
    if (!std::isfinite(value)) return bad("a scale of the configuration is not finite");
  }
  if (config.attention_soft_cap < 0 || config.logits_soft_cap < 0) return bad("a soft cap is negative");
  if (config.ropes.empty()) return bad("no rope");
  for (const RopeConfig& rope : config.ropes) HONE_RETURN_IF_ERROR(CheckRope(rope, config, origin));
  bool experts = false;
  for (const LayerConfig& layer : config.layer) {
    if (layer.rope < 0 || layer.rope >= static_cast<int>(config.ropes.size()) || layer.window < 0) {
      return bad("a layer's rope or window is out of range");
    }
    experts |= layer.experts;
  }
  if (experts && (config.experts < 1 || config.experts_per_token < 1 || config.expert_ffn_width < 1 ||
                  config.experts_per_token > std::min(config.experts, kMaxChosenExperts))) {
    return bad(fmt::format("{} of {} experts of width {} cannot be", config.experts_per_token, config.experts,
                           config.expert_ffn_width));
  }
  return {};
}

}  // namespace hone
