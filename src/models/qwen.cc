// See qwen.h.
#include "models/qwen.h"

#include <algorithm>

namespace hone {

Result<void> ReadQwenWindows(const JsonConfig& json, ModelConfig& config) {
  HONE_TRY(const bool slides, json.Bool("use_sliding_window", false));
  HONE_TRY(const int64_t window, json.Int("sliding_window", slides ? 4096 : 0));
  HONE_TRY(const int64_t first, json.Int("max_window_layers", 28));
  HONE_RETURN_IF_ERROR(ReadHfWindows(
      json, slides ? window : 0, [](int) { return true; }, config));
  if (json.Has("layer_types")) return {};
  for (int i = 0; i < config.layers && i < first; ++i) config.layer[i].window = 0;
  return {};
}

Result<void> ReadQwenExperts(const JsonConfig& json, ModelConfig& config) {
  HONE_TRY(config.experts, ReadInt(json, "num_experts", 1, kMaxExperts));
  HONE_TRY(config.experts_per_token, ReadInt(json, "num_experts_per_tok", 1, config.experts));
  HONE_TRY(config.expert_ffn_width, ReadInt(json, "moe_intermediate_size", 1, kMaxFfnWidth));
  HONE_TRY(config.renormalise_experts, json.Bool("norm_topk_prob", false));
  HONE_TRY(const int step, ReadInt(json, "decoder_sparse_step", 1, INT32_MAX, 1));
  std::vector<int64_t> dense;
  if (json.Has("mlp_only_layers")) {
    HONE_TRY(dense, json.Ints("mlp_only_layers"));
  }
  for (int i = 0; i < config.layers; ++i) {
    config.layer[i].experts = (i + 1) % step == 0 && std::find(dense.begin(), dense.end(), i) == dense.end();
  }
  return {};
}

Result<void> ReadQwenExperts(const GgufFile& file, ModelConfig& config) {
  HONE_TRY(config.experts, ReadInt(file, GgufKey(config, "expert_count"), 1, kMaxExperts));
  HONE_TRY(config.experts_per_token, ReadInt(file, GgufKey(config, "expert_used_count"), 1, config.experts));
  HONE_TRY(config.expert_ffn_width, ReadInt(file, GgufKey(config, "expert_feed_forward_length"), 1, kMaxFfnWidth));
  for (LayerConfig& layer : config.layer) layer.experts = true;
  return {};
}

}  // namespace hone
