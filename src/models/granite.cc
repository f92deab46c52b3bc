// Granite 3 (Granite Team 2024): Llama with four multipliers: embeddings, residual branches, attention scores (in place
// of E^-1/2) and logits (which are divided). GGUF rows of q and k are permuted as Llama's.
#include "models/blocks.h"
#include "models/config_reader.h"
#include "models/family.h"
#include "models/gguf_export.h"

namespace hone {
namespace {

// Multipliers of both file kinds, checked. `logits` divides.
void SetScales(double embedding, double residual, double attention, double logits, ModelConfig& config) {
  config.embedding_scale = static_cast<float>(embedding);
  config.residual_scale = static_cast<float>(residual);
  config.attention_scale = static_cast<float>(attention);
  config.logits_scale = static_cast<float>(1 / logits);
}

Result<void> ReadHf(const JsonConfig& json, ModelConfig& config) {
  HONE_RETURN_IF_ERROR(ReadHfCommon(json, {}, config));
  HONE_RETURN_IF_ERROR(RefuseIfSet(json, "attn_logit_softcapping", config.family));
  HONE_TRY(config.qkv_bias, json.Bool("attention_bias", false));
  config.output_bias = config.qkv_bias;
  HONE_TRY(config.ffn_bias, json.Bool("mlp_bias", false));
  HONE_TRY(const double embedding, ReadNumber(json, "embedding_multiplier", -1e9, 1e9, 1));
  HONE_TRY(const double residual, ReadNumber(json, "residual_multiplier", -1e9, 1e9, 1));
  HONE_TRY(const double attention, ReadNumber(json, "attention_multiplier", -1e9, 1e9, 1));
  HONE_TRY(const double logits, ReadNumber(json, "logits_scaling", 1e-9, 1e9, 1));
  SetScales(embedding, residual, attention, logits, config);
  return {};
}

Result<void> ReadGguf(const GgufFile& file, ModelConfig& config) {
  HONE_RETURN_IF_ERROR(ReadGgufCommon(file, config));
  config.ropes[0].order = RopeOrder::kInterleaved;
  config.qkv_bias = GgufHas(file, "blk.0.attn_q.bias");
  config.output_bias = GgufHas(file, "blk.0.attn_output.bias");
  config.ffn_bias = GgufHas(file, "blk.0.ffn_gate.bias");
  HONE_TRY(const double embedding, ReadNumber(file, GgufKey(config, "embedding_scale"), -1e9, 1e9, 1));
  HONE_TRY(const double residual, ReadNumber(file, GgufKey(config, "residual_scale"), -1e9, 1e9, 1));
  HONE_TRY(const double attention,
           ReadNumber(file, GgufKey(config, "attention.scale"), -1e9, 1e9, config.attention_scale));
  HONE_TRY(const double logits, ReadNumber(file, GgufKey(config, "logit_scale"), 1e-9, 1e9, 1));
  SetScales(embedding, residual, attention, logits, config);
  return {};
}

void WriteGguf(const ModelConfig& config, GgufMetadata& metadata) {
  metadata.emplace_back(GgufKey(config, "embedding_scale"), GgufF32(config.embedding_scale));
  metadata.emplace_back(GgufKey(config, "residual_scale"), GgufF32(config.residual_scale));
  metadata.emplace_back(GgufKey(config, "attention.scale"), GgufF32(config.attention_scale));
  metadata.emplace_back(GgufKey(config, "logit_scale"), GgufF32(1 / config.logits_scale));
}

std::vector<TensorRule> Tensors(const ModelConfig& config, int) {
  std::vector<TensorRule> rules;
  AddNorm("attn_norm", "input_layernorm", Dim::kWidth, rules);
  AddAttention(config, rules);
  AddNorm("ffn_norm", "post_attention_layernorm", Dim::kWidth, rules);
  AddGatedFfn(config, rules);
  return rules;
}

// The multipliers stand in the configuration: Embed, AddResidual, Attend and Logits apply them.
void Layer(Step& s, const LayerWeights& w) {
  Norm(s, s.x, w.attn_norm, s.h);
  ProjectQkv(s, w, s.h);
  Rotate(s, w);
  Attend(s, w);
  Project(s, w.attn_output, s.attention, s.h);

  AddResidualAndNorm(s, s.h, w.ffn_norm, s.h);
  GatedFfn(s, w.ffn, s.h, s.y);
  AddResidual(s, s.y);
}

}  // namespace

extern const Family kGraniteFamily;
const Family kGraniteFamily{
    .name = "granite",
    .hf_names = {"GraniteForCausalLM", "granite"},
    .gguf_names = {"granite"},
    .read_hf = ReadHf,
    .read_gguf = ReadGguf,
    .gguf_permutes_qk = true,
    .write_gguf = WriteGguf,
    .layer_tensors = Tensors,
    .layer = Layer,
};

}  // namespace hone
