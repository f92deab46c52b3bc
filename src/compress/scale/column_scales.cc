// See column_scales.h.
#include "compress/scale/column_scales.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "compress/layerwise/layer_stream.h"
#include "compress/read_matrix.h"

namespace hone {

void InputStats::Add(const float* x, int64_t stride, int64_t rows) {
  max.resize(columns);
  sum.resize(columns);
  sum2.resize(columns);
  for (int64_t r = 0; r < rows; ++r, x += stride) {
    for (int64_t i = 0; i < columns; ++i) {
      const float magnitude = std::fabs(x[i]);
      max[i] = std::max(max[i], magnitude);
      sum[i] += magnitude;
      sum2[i] += double{x[i]} * double{x[i]};
    }
  }
  tokens += static_cast<uint64_t>(rows);
}

std::map<std::string, std::string> InputSpeakers(const WeightMap& map) {
  std::map<std::string, std::string> speakers, spoken;
  for (const LayerUnit& unit : ListLayerUnits(map, true)) {
    if (spoken.emplace(unit.input, unit.name).second) speakers[unit.name] = unit.input;
  }
  return speakers;
}

Result<void> CheckFinite(const std::map<std::string, InputStats>& stats) {
  for (const auto& [input, sums] : stats) {
    for (size_t i = 0; i < sums.sum2.size(); ++i) {
      if (!std::isfinite(sums.sum2[i]))
        return InvalidInput(fmt::format(
            "the input of {} is NaN or infinite in column {}; the model is damaged or overflows", input, i));
    }
  }
  return {};
}

Result<std::map<std::string, InputStats>> CollectInputStats(LayerWalk& walk, const CalibrationText& text,
                                                            const std::function<bool(double)>& progress) {
  std::map<std::string, InputStats> all;
  const auto speakers = InputSpeakers(walk.map());
  for (const auto& [weight, input] : speakers) all[input].columns = walk.map().Find(weight)->view.shape[1];
  HONE_TRY(const auto stream, LayerStream::Make(walk, text));
  const int layers = walk.config().layers;
  for (int layer = 0; layer < layers; ++layer) {
    HONE_RETURN_IF_ERROR(walk.Load(layer, nullptr));
    const InputObserver observer = [&](const std::string& weight, const float* x, int64_t stride, int64_t rows,
                                       int64_t) {
      if (const auto found = speakers.find(weight); found != speakers.end()) all.at(found->second).Add(x, stride, rows);
    };
    for (size_t c = 0; c < stream->chunks(); ++c) {
      const double share = (layer + static_cast<double>(c) / static_cast<double>(stream->chunks())) / layers;
      if (progress && !progress(share)) return Error{ErrorCode::kCancelled, "stopped; nothing was written"};
      stream->Advance(c, observer);
    }
  }
  if (const Result<void> finite = CheckFinite(all); !finite) return BlameWeight(walk.checkpoint(), walk.map(), finite.error());
  return all;
}

std::string Taker(const WeightMap& map, const std::string& input) {
  const std::string layer = input.substr(0, input.find('.', 4) + 1);
  const auto rows = [&](const std::string& name) {
    const Weight* weight = map.Find(layer + name);
    return weight != nullptr ? weight->view.shape[0] : 0;
  };
  // A bias that shares its tensor with others is left alone.
  const auto bias_is_alone = [&](const std::string& name, const std::string& other) {
    const Weight *bias = map.Find(layer + name + ".bias"), *next = map.Find(layer + other + ".bias");
    return bias == nullptr || next == nullptr || bias->file_name != next->file_name;
  };
  const bool dense = map.Find(layer + "ffn_gate_inp.weight") == nullptr;
  std::string taker;
  if (input == layer + "qkv") taker = "attn_norm.weight";
  if (input == layer + "gate_up.weight" && dense) taker = "ffn_norm.weight";
  if (input == layer + "attn_output.weight" && map.Find(input)->view.shape[1] == rows("attn_v.weight") &&
      bias_is_alone("attn_v", "attn_k"))
    taker = "attn_v.weight";
  if (input == layer + "ffn_down.weight" && dense && rows("ffn_gate.weight") > 0 &&
      map.Find(input)->view.shape[1] == rows("ffn_up.weight") && bias_is_alone("ffn_up", "ffn_gate"))
    taker = "ffn_up.weight";
  return taker.empty() || map.Find(layer + taker) == nullptr ? "" : layer + taker;
}

Result<ColumnScales> SmoothQuantScales(const LayerWalk& walk, const std::map<std::string, InputStats>& stats,
                                       double alpha, const Runtime& runtime) {
  std::map<std::string, std::vector<float>> largest;
  for (const LayerUnit& unit : ListLayerUnits(walk.map(), true)) {
    if (!Taker(walk.map(), unit.input).ends_with("_norm.weight")) continue;
    HONE_TRY(const std::vector<float> w, ReadUnit(walk.checkpoint(), unit, *runtime.threads));
    std::vector<float>& of = largest[unit.input];
    of.resize(unit.columns());
    for (size_t i = 0; i < w.size(); ++i) {
      float& at = of[i % of.size()];
      at = std::max(at, std::fabs(w[i]));
    }
  }
  ColumnScales scales;
  for (const auto& [input, of] : largest) {
    ColumnScale& scale = scales[input];
    scale.taker = Taker(walk.map(), input);
    for (size_t i = 0; i < of.size(); ++i) {
      const double s = std::pow(stats.at(input).max[i], alpha) / std::pow(std::max(of[i], 1e-5f), 1 - alpha);
      scale.scale.push_back(static_cast<float>(std::isfinite(s) ? std::max(s, 1e-5) : 1.0));
    }
  }
  return scales;
}

std::map<std::string, float> LargestInputs(const std::map<std::string, InputStats>& stats, const ColumnScales& scales) {
  std::map<std::string, float> largest;
  for (const auto& [input, sums] : stats) {
    const auto scale = scales.find(input);
    float& at = largest[input];
    for (size_t i = 0; i < sums.max.size(); ++i)
      at = std::max(at, sums.max[i] / (scale != scales.end() ? scale->second.scale[i] : 1.0f));
  }
  return largest;
}

}  // namespace hone
