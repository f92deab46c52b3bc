// What the Qwen families' files share.
#pragma once

#include "base/result.h"
#include "models/config_reader.h"

namespace hone {

// Qwen slides only with use_sliding_window, and then from layer max_window_layers on, unless layer_types decides.
Result<void> ReadQwenWindows(const JsonConfig& json, ModelConfig& config);
// num_experts ..., and which layers are dense: mlp_only_layers, decoder_sparse_step.
Result<void> ReadQwenExperts(const JsonConfig& json, ModelConfig& config);
Result<void> ReadQwenExperts(const GgufFile& file, ModelConfig& config);

}  // namespace hone
