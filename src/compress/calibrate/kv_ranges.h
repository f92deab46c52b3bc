// KvRanges: how large the keys and values of each layer and head become over a text, from which the scales of a cache in FP8
// or INT8 follow. Keys are those that are cached: after their norm and their rotation.
//
// On disk: safetensors, "layers.N.k_absmax" and "layers.N.v_absmax", F32 [G].
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "compress/layerwise/layer_stream.h"
#include "formats/named_tensor.h"

namespace hone {

struct KvRanges {
  std::vector<std::vector<float>> keys, values;  // [L][G]: the largest magnitude
};

// One layer's weights are in memory. Errors: a key or value that is not finite (the layer is named), a stop.
Result<KvRanges> CollectKvRanges(LayerWalk& walk, const CalibrationText& text, const StreamOptions& stream,
                                 const std::function<bool(uint64_t, uint64_t)>& progress);

Result<void> WriteKvRanges(const std::string& path, const KvRanges& ranges);
// Errors: a file of another model (layers and heads are compared), numbers that are negative or not finite.
Result<KvRanges> ReadKvRanges(const std::string& path, int layers, int kv_heads);

enum class KvScheme : uint8_t { kFp8, kInt8 };

// What a compressed-tensors folder says of its cache (a value cached as code * scale): "kv_cache_scheme" of its
// quantization_config, and the tensors "model.layers.N.self_attn.k_scale" and "v_scale", F32 [1], or [G, 1, 1] with
// `per_head`. A scale is the largest magnitude / 448 (E4M3) or / 127.5 (INT8, as that library takes it); 1 where nothing but
// zeros was seen.
struct KvCacheScales {
  std::string scheme;  // a JSON object
  struct Scale {
    std::string name;
    Shape shape;
    std::vector<float> values;
  };
  std::vector<Scale> tensors;
};
KvCacheScales MakeKvCacheScales(const KvRanges& ranges, KvScheme scheme, bool per_head);

}  // namespace hone
