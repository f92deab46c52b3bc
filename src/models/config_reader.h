// Reading a ModelConfig from config.json or from GGUF metadata: what all families share, with limits on every number,
// so that nothing later can overflow or ask for absurd memory. A family's file calls one of the two Read*Common
// functions and then sets what is its own.
//
// Keys and their quirks: docs/models.md. Every error names the file, the key, what was found and what was wanted.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "formats/checkpoint.h"
#include "kernels/attention/kv_view.h"  // kMaxHeadWidth
#include "models/config.h"

namespace hone {

// Limits on what a file may say. Generous against any published model; far below what an int or a product of two can
// hold.
inline constexpr int kMaxLayers = 1024, kMaxWidth = 1 << 17, kMaxHeads = 4096, kMaxFfnWidth = 1 << 21,
                     kMaxVocab = 1 << 24, kMaxContext = 1 << 28, kMaxExperts = 4096, kMaxChosenExperts = 64;

// What a family's class assumes where config.json leaves a key out.
struct HfDefaults {
  double rope_theta = 10000;
  double norm_eps = 1e-6;
  int heads = 0, kv_heads = 0, context = 0;  // 0: the key must be there (kv_heads: as many as heads)
  int head_width = 0;                        // 0: hidden_size / num_attention_heads
  bool tied_embeddings = false;
  std::string_view activation_key = "hidden_act", activation = "silu";
};

// Sizes, norm_eps, activation, tied_embeddings, one plain entry a layer, ropes[0], attention_scale = E^-1/2. `json` is
// config.json or its text_config. Refuses a quantization_config that models/quantized does not read, and soft caps (families that have them read them after).
Result<void> ReadHfCommon(const JsonConfig& json, const HfDefaults& defaults, ModelConfig& config);
// The same from GGUF: keys "<architecture>.*". Windows, experts and scales are left to the family.
Result<void> ReadGgufCommon(const GgufFile& file, ModelConfig& config);

// One rope from a rope_scaling / rope_parameters object (nullptr: plain).
Result<RopeConfig> ReadHfRope(const JsonConfig& json, const JsonConfig* parameters, double theta,
                              const ModelConfig& config);

// Sets the windows of layers: by `layer_types` where config.json has it, else where `slides(layer)` says so.
Result<void> ReadHfWindows(const JsonConfig& json, int64_t window, bool (*slides)(int layer), ModelConfig& config);

// A whole number in [low, high]. `fallback` < low: the key must be there.
Result<int> ReadInt(const JsonConfig& json, std::string_view key, int low, int high, int64_t fallback = INT64_MIN);
Result<int> ReadInt(const GgufFile& file, std::string_view key, int low, int high, int64_t fallback = INT64_MIN);
// A finite number in [low, high]; absent: fallback.
Result<double> ReadNumber(const JsonConfig& json, std::string_view key, double low, double high, double fallback);
Result<double> ReadNumber(const GgufFile& file, std::string_view key, double low, double high, double fallback);

std::string GgufKey(const ModelConfig& config, std::string_view key);  // "<architecture>.<key>"
bool GgufHas(const GgufFile& file, std::string_view tensor);           // biases are not told by metadata
bool Mentions(const JsonConfig& json, std::string_view key);           // the key is there, be it null
// A key that this family does not know, with a value that would change the result, is refused by name.
Result<void> RefuseIfSet(const JsonConfig& json, std::string_view key, std::string_view family);

// The last word on a configuration, whoever read it: sizes fit each other, ropes are complete, all numbers are finite.
Result<void> CheckConfig(const ModelConfig& config, const std::string& origin);

}  // namespace hone
