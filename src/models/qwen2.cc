// Qwen2 and Qwen2.5 (Yang et al. 2024): Llama with biases on q, k and v.
#include "models/blocks.h"
#include "models/family.h"
#include "models/qwen.h"

namespace hone {
namespace {

Result<void> ReadHf(const JsonConfig& json, ModelConfig& config) {
  HONE_RETURN_IF_ERROR(ReadHfCommon(json, {}, config));
  HONE_RETURN_IF_ERROR(RefuseIfSet(json, "attn_logit_softcapping", config.family));
  config.qkv_bias = true;
  return ReadQwenWindows(json, config);
}

Result<void> ReadGguf(const GgufFile& file, ModelConfig& config) {
  HONE_RETURN_IF_ERROR(ReadGgufCommon(file, config));
  config.qkv_bias = true;
  return {};
}

std::vector<TensorRule> Tensors(const ModelConfig& config, int) {
  std::vector<TensorRule> rules;
  AddNorm("attn_norm", "input_layernorm", Dim::kWidth, rules);
  AddAttention(config, rules);
  AddNorm("ffn_norm", "post_attention_layernorm", Dim::kWidth, rules);
  AddGatedFfn(config, rules);
  return rules;
}

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

extern const Family kQwen2Family;
const Family kQwen2Family{
    .name = "qwen2",
    .hf_names = {"Qwen2ForCausalLM", "qwen2"},
    .gguf_names = {"qwen2"},
    .read_hf = ReadHf,
    .read_gguf = ReadGguf,
    .layer_tensors = Tensors,
    .layer = Layer,
};

}  // namespace hone
