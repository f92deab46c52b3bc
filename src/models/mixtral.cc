// Mixtral (Jiang et al. 2024): Mistral whose feed-forward is a choice of 2 of 8 experts, weighted by a softmax over the
// chosen experts' router logits. Its GGUF files say "llama" and have an expert_count.
#include "models/blocks.h"
#include "models/config_reader.h"
#include "models/family.h"

namespace hone {
namespace {

Result<void> ReadHf(const JsonConfig& json, ModelConfig& config) {
  HONE_RETURN_IF_ERROR(ReadHfCommon(json, {.rope_theta = 1e6, .norm_eps = 1e-5}, config));
  HONE_RETURN_IF_ERROR(RefuseIfSet(json, "attn_logit_softcapping", config.family));
  HONE_TRY(config.experts, ReadInt(json, "num_local_experts", 1, kMaxExperts, 8));
  HONE_TRY(config.experts_per_token, ReadInt(json, "num_experts_per_tok", 1, config.experts, 2));
  config.expert_ffn_width = config.ffn_width;
  for (LayerConfig& layer : config.layer) layer.experts = true;
  HONE_TRY(const int64_t window, json.Int("sliding_window", 0));
  return ReadHfWindows(
      json, window, [](int) { return true; }, config);
}

Result<void> ReadGguf(const GgufFile& file, ModelConfig& config) {
  HONE_RETURN_IF_ERROR(ReadGgufCommon(file, config));
  config.ropes[0].order = RopeOrder::kInterleaved;
  HONE_TRY(config.experts, ReadInt(file, GgufKey(config, "expert_count"), 1, kMaxExperts));
  HONE_TRY(config.experts_per_token, ReadInt(file, GgufKey(config, "expert_used_count"), 1, config.experts));
  HONE_TRY(config.expert_ffn_width,
           ReadInt(file, GgufKey(config, "expert_feed_forward_length"), 1, kMaxFfnWidth, config.ffn_width));
  for (LayerConfig& layer : config.layer) layer.experts = true;
  return {};
}

std::vector<TensorRule> Tensors(const ModelConfig& config, int) {
  std::vector<TensorRule> rules;
  AddNorm("attn_norm", "input_layernorm", Dim::kWidth, rules);
  AddAttention(config, rules);
  AddNorm("ffn_norm", "post_attention_layernorm", Dim::kWidth, rules);
  AddExperts({.router = "block_sparse_moe.gate",
              .gate = "block_sparse_moe.experts.*.w1",
              .up = "block_sparse_moe.experts.*.w3",
              .down = "block_sparse_moe.experts.*.w2"},
             rules);
  return rules;
}

void Layer(Step& s, const LayerWeights& w) {
  Norm(s, s.x, w.attn_norm, s.h);
  ProjectQkv(s, w, s.h);
  Rotate(s, w);
  Attend(s, w);
  Project(s, w.attn_output, s.attention, s.h);

  AddResidualAndNorm(s, s.h, w.ffn_norm, s.h);
  Experts(s, w, {.experts = s.config.experts, .chosen = s.config.experts_per_token, .softmax_first = false}, s.h, s.y);
  AddResidual(s, s.y);
}

}  // namespace

extern const Family kMixtralFamily;
const Family kMixtralFamily{
    .name = "mixtral",
    .hf_names = {"MixtralForCausalLM", "mixtral"},
    .gguf_names = {"llama"},
    .gguf_experts = true,
    .read_hf = ReadHf,
    .read_gguf = ReadGguf,
    .gguf_permutes_qk = true,
    .layer_tensors = Tensors,
    .layer = Layer,
};

}  // namespace hone
