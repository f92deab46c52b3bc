// Phi-3 and Phi-4 (Abdin et al. 2024): Llama with q, k, v in one tensor, gate and up in another, a partial rotary
// width, and longrope factors for long contexts.
#include "models/blocks.h"
#include "models/config_reader.h"
#include "models/family.h"

namespace hone {
namespace {

Result<void> ReadHf(const JsonConfig& json, ModelConfig& config) {
  HONE_RETURN_IF_ERROR(ReadHfCommon(json, {.norm_eps = 1e-5}, config));
  HONE_RETURN_IF_ERROR(RefuseIfSet(json, "attn_logit_softcapping", config.family));
  HONE_TRY(const int64_t window, json.Int("sliding_window", 0));
  return ReadHfWindows(
      json, window, [](int) { return true; }, config);
}

Result<void> ReadGguf(const GgufFile& file, ModelConfig& config) {
  HONE_RETURN_IF_ERROR(ReadGgufCommon(file, config));
  HONE_TRY(const int window, ReadInt(file, GgufKey(config, "attention.sliding_window"), 0, INT32_MAX, 0));
  for (LayerConfig& layer : config.layer) layer.window = window;
  return {};
}

std::vector<TensorRule> Tensors(const ModelConfig&, int) {
  std::vector<TensorRule> rules;
  const auto part = [&](const char* name, const char* gguf, const char* hf, std::vector<Dim> parts, int i) {
    rules.push_back(
        {.name = name, .hf = hf, .rows = parts[i], .columns = Dim::kWidth, .gguf = gguf, .parts = parts, .part = i});
  };
  const std::vector<Dim> qkv = {Dim::kQuery, Dim::kKeyValue, Dim::kKeyValue}, gate_up = {Dim::kFfn, Dim::kFfn};
  AddNorm("attn_norm", "input_layernorm", Dim::kWidth, rules);
  part("attn_q.weight", "attn_qkv.weight", "self_attn.qkv_proj.weight", qkv, 0);
  part("attn_k.weight", "attn_qkv.weight", "self_attn.qkv_proj.weight", qkv, 1);
  part("attn_v.weight", "attn_qkv.weight", "self_attn.qkv_proj.weight", qkv, 2);
  AddLinear("attn_output", "self_attn.o_proj", Dim::kWidth, Dim::kQuery, false, rules);
  AddNorm("ffn_norm", "post_attention_layernorm", Dim::kWidth, rules);
  part("ffn_gate.weight", "ffn_up.weight", "mlp.gate_up_proj.weight", gate_up, 0);
  part("ffn_up.weight", "ffn_up.weight", "mlp.gate_up_proj.weight", gate_up, 1);
  AddLinear("ffn_down", "mlp.down_proj", Dim::kWidth, Dim::kFfn, false, rules);
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

extern const Family kPhi3Family;
const Family kPhi3Family{
    .name = "phi3",
    .hf_names = {"Phi3ForCausalLM", "phi3"},
    .gguf_names = {"phi3"},
    .read_hf = ReadHf,
    .read_gguf = ReadGguf,
    .layer_tensors = Tensors,
    .layer = Layer,
};

}  // namespace hone
