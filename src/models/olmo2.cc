// OLMo 2 (OLMo Team 2025): no norm before a block; RMSNorm on the outputs of attention and feed-forward, and on the
// whole q and k projections before they are split into heads.
#include "models/blocks.h"
#include "models/config_reader.h"
#include "models/family.h"

namespace hone {
namespace {

Result<void> ReadHf(const JsonConfig& json, ModelConfig& config) {
  HONE_RETURN_IF_ERROR(ReadHfCommon(json, {.norm_eps = 1e-5}, config));
  HONE_RETURN_IF_ERROR(RefuseIfSet(json, "attn_logit_softcapping", config.family));
  HONE_TRY(config.qkv_bias, json.Bool("attention_bias", false));
  config.output_bias = config.qkv_bias;
  return {};
}

Result<void> ReadGguf(const GgufFile& file, ModelConfig& config) { return ReadGgufCommon(file, config); }

std::vector<TensorRule> Tensors(const ModelConfig& config, int) {
  std::vector<TensorRule> rules;
  AddAttention(config, rules);
  AddNorm("attn_q_norm", "self_attn.q_norm", Dim::kQuery, rules);
  AddNorm("attn_k_norm", "self_attn.k_norm", Dim::kKeyValue, rules);
  AddNorm("post_attention_norm", "post_attention_layernorm", Dim::kWidth, rules);
  AddGatedFfn(config, rules);
  AddNorm("post_ffw_norm", "post_feedforward_layernorm", Dim::kWidth, rules);
  return rules;
}

void Layer(Step& s, const LayerWeights& w) {
  ProjectQkv(s, w, s.x);
  NormProjections(s, w);
  Rotate(s, w);
  Attend(s, w);
  Project(s, w.attn_output, s.attention, s.h);
  Norm(s, s.h, w.post_attn_norm, s.h);
  AddResidual(s, s.h);

  GatedFfn(s, w.ffn, s.x, s.y);
  Norm(s, s.y, w.post_ffn_norm, s.y);
  AddResidual(s, s.y);
}

}  // namespace

extern const Family kOlmo2Family;
const Family kOlmo2Family{
    .name = "olmo2",
    .hf_names = {"Olmo2ForCausalLM", "olmo2"},
    .gguf_names = {"olmo2"},
    .read_hf = ReadHf,
    .read_gguf = ReadGguf,
    .layer_tensors = Tensors,
    .layer = Layer,
};

}  // namespace hone
