// fuzzes: models
// Every family's reader on arbitrary config.json text: a refusal, or a configuration whose sizes and rope frequencies are sane.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "formats/json_config.h"
#include "models/config_reader.h"
#include "models/family.h"
#include "models/rope_table.h"

namespace {

void CheckSane(const hone::Family& family, const hone::ModelConfig& config) {
  HONE_CHECK(config.layer.size() == static_cast<size_t>(config.layers) && config.heads % config.kv_heads == 0);
  for (const hone::RopeConfig& rope : config.ropes) {
    for (const bool far : {false, true}) {
      if (far && rope.scaling != hone::RopeScaling::kLongRope) continue;
      for (const double frequency : hone::RopeFrequencies(rope, far)) HONE_CHECK(!std::isnan(frequency));
    }
    HONE_CHECK(!std::isnan(hone::RopeAttentionFactor(rope)));
  }
  for (const hone::TensorRule& rule : family.layer_tensors(config, config.layers - 1)) {
    HONE_CHECK(hone::DimSize(rule.rows, config) > 0 && hone::DimSize(rule.columns, config) >= 0);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto json = hone::JsonConfig::Parse({reinterpret_cast<const char*>(data), size}, "fuzz");
  if (!json) return 0;
  for (const hone::Family* family : hone::Families()) {
    hone::ModelConfig config;
    config.family = family->name;
    config.architecture = family->hf_names.front();
    if (!family->read_hf(*json, config).has_value() || !hone::CheckConfig(config, "fuzz").has_value()) continue;
    CheckSane(*family, config);
  }
  return 0;
}
