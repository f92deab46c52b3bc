// See kv_ranges.h.
#include "compress/calibrate/kv_ranges.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "compress/read_matrix.h"
#include "formats/safetensors.h"
#include "formats/safetensors_writer.h"

namespace hone {
namespace {

constexpr float kLargestE4m3 = 448, kHalfInt8Range = 127.5f;

// The largest magnitude among the first `rows` tokens of a head; not finite if one is not.
float Largest(const KvView& kv, int head, int rows, bool keys) {
  float largest = 0;
  for (int p = 0; p < rows; ++p) {
    const int block = p / kKvBlockTokens, place = p % kKvBlockTokens;
    const std::byte* data = keys ? kv.KeyBlock(head, block) : kv.ValueBlock(head, block);
    for (int e = 0; e < kv.head_width; ++e) {
      const size_t at = keys ? KvKeyOffset(KvType::kF32, place, e) : KvValueOffset(KvType::kF32, kv.head_width, place, e);
      const float x = std::fabs(*reinterpret_cast<const float*>(data + at));
      if (!(x <= largest)) largest = x;  // NaN too
      if (!std::isfinite(largest)) return largest;
    }
  }
  return largest;
}

std::string Name(size_t layer, bool keys) { return fmt::format("layers.{}.{}_absmax", layer, keys ? "k" : "v"); }

}  // namespace

Result<KvRanges> CollectKvRanges(LayerWalk& walk, const CalibrationText& text, const StreamOptions& options,
                                 const std::function<bool(uint64_t, uint64_t)>& progress) {
  StreamOptions exact = options;
  exact.kv = KvType::kF32;
  HONE_TRY(const auto stream, LayerStream::Make(walk, text, exact));
  const int layers = walk.config().layers, heads = walk.config().kv_heads;
  KvRanges ranges;
  for (int layer = 0; layer < layers; ++layer) {
    HONE_RETURN_IF_ERROR(walk.Load(layer, nullptr));
    std::vector<float> keys(heads), values(heads);
    for (size_t c = 0; c < stream->chunks(); ++c) {
      if (progress && !progress(layer * stream->chunks() + c, layers * stream->chunks()))
        return Error{ErrorCode::kCancelled, "stopped; nothing was written"};
      stream->Advance(c);
      for (int h = 0; h < heads; ++h) {
        keys[h] = std::max(Largest(stream->kv(), h, stream->rows(c), true), keys[h]);
        values[h] = std::max(Largest(stream->kv(), h, stream->rows(c), false), values[h]);
        if (!std::isfinite(keys[h]) || !std::isfinite(values[h]))
          return BlameWeight(walk.checkpoint(), walk.map(),
                             InvalidInput(fmt::format("{}: layer {}: a key or value is NaN or infinite; the model is damaged or overflows",
                                                      walk.checkpoint().path(), layer)));
      }
    }
    HONE_RETURN_IF_ERROR(stream->status());
    ranges.keys.push_back(std::move(keys));
    ranges.values.push_back(std::move(values));
  }
  return ranges;
}

Result<void> WriteKvRanges(const std::string& path, const KvRanges& ranges) {
  std::vector<NamedTensor> tensors;
  for (size_t layer = 0; layer < ranges.keys.size(); ++layer) {
    for (const bool keys : {true, false}) {
      const std::vector<float>& from = (keys ? ranges.keys : ranges.values)[layer];
      tensors.push_back({Name(layer, keys), TensorView{DType::kF32, Shape{static_cast<int64_t>(from.size())},
                                                       reinterpret_cast<const std::byte*>(from.data())}});
    }
  }
  return WriteSafetensors(path, tensors, {{"format", "hone kv ranges"}});
}

Result<KvRanges> ReadKvRanges(const std::string& path, int layers, int kv_heads) {
  HONE_TRY(const auto file, SafetensorsFile::Open(path));
  KvRanges ranges;
  for (size_t layer = 0; layer < static_cast<size_t>(layers); ++layer) {
    for (const bool keys : {true, false}) {
      const NamedTensor* tensor = file->FindTensor(Name(layer, keys));
      if (tensor == nullptr || tensor->view.type != DType::kF32 || !(tensor->view.shape == Shape{kv_heads})) {
        return InvalidInput(fmt::format("{}: wanted {} as F32 [{}]; ranges are of one model, made by hone calibrate --kv-scales",
                                        path, Name(layer, keys), kv_heads));
      }
      const float* values = tensor->view.as<float>();
      if (!std::all_of(values, values + kv_heads, [](float x) { return std::isfinite(x) && x >= 0; }))
        return InvalidInput(fmt::format("{}: {} holds a number that is no magnitude", path, Name(layer, keys)));
      (keys ? ranges.keys : ranges.values).emplace_back(values, values + kv_heads);
    }
  }
  if (file->FindTensor(Name(static_cast<size_t>(layers), true)) != nullptr)
    return InvalidInput(fmt::format("{}: has more layers than the model's {}", path, layers));
  return ranges;
}

KvCacheScales MakeKvCacheScales(const KvRanges& ranges, KvScheme scheme, bool per_head) {
  const float largest = scheme == KvScheme::kFp8 ? kLargestE4m3 : kHalfInt8Range;
  KvCacheScales scales;
  scales.scheme = fmt::format(
      "{{\"actorder\": null, \"block_structure\": null, \"dynamic\": false, \"group_size\": null, \"num_bits\": 8, "
      "\"observer\": \"minmax\", \"observer_kwargs\": {{}}, \"strategy\": \"{}\", \"symmetric\": true, \"type\": \"{}\"}}",
      per_head ? "attn_head" : "tensor", scheme == KvScheme::kFp8 ? "float" : "int");
  const auto scale = [&](float magnitude) {
    const float s = magnitude / largest;
    return s > 1e-30f ? s : 1.0f;
  };
  for (size_t layer = 0; layer < ranges.keys.size(); ++layer) {
    for (const bool keys : {true, false}) {
      const std::vector<float>& from = (keys ? ranges.keys : ranges.values)[layer];
      KvCacheScales::Scale tensor{fmt::format("model.layers.{}.self_attn.{}_scale", layer, keys ? "k" : "v"), Shape{1}, {}};
      if (per_head) {
        tensor.shape = Shape{static_cast<int64_t>(from.size()), 1, 1};
        for (const float magnitude : from) tensor.values.push_back(scale(magnitude));
      } else {
        tensor.values.push_back(scale(*std::max_element(from.begin(), from.end())));
      }
      scales.tensors.push_back(std::move(tensor));
    }
  }
  return scales;
}

}  // namespace hone
