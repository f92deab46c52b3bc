// See gguf_export.h.
#include "models/gguf_export.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "models/family.h"
#include "models/model.h"
#include "models/rope_table.h"

namespace hone {
namespace {

// Row `i` of a head with `width` rows, as GGUF orders the llama family: pairs (2j, 2j + 1) where Hugging Face has halves
// (j, j + width / 2).
int64_t SourceRow(int64_t i, int64_t width) { return i % 2 * (width / 2) + i / 2; }

uint64_t FileType(DType type) {  // general.file_type: what most weights are
  switch (type) {
    case DType::kF32: return 0;
    case DType::kF16: return 1;
    case DType::kQ4_0: return 2;
    case DType::kQ8_0: return 7;
    case DType::kQ5_0: return 8;
    case DType::kMXFP4: return 38;
    default: return 32;
  }
}

// The GGUF type that holds a matrix as it is: none if no packed type does, or only with its columns in another order.
std::optional<DType> ExactType(const Weight& weight) {
  if (weight.quantized == nullptr) return weight.view.type;
  const DType type = weight.quantized->type(true);
  if (!IsBlock(type) || !weight.quantized->order(true).empty()) return std::nullopt;
  return type;
}

}  // namespace

GgufValue GgufU32(uint64_t value) { return {GgufType::kU32, GgufType::kU32, value}; }
GgufValue GgufF32(double value) { return {GgufType::kF32, GgufType::kU32, value}; }
GgufValue GgufBool(bool value) { return {GgufType::kBool, GgufType::kU32, value}; }
GgufValue GgufString(std::string value) { return {GgufType::kString, GgufType::kU32, std::move(value)}; }

Result<GgufExport> GgufExport::Make(std::shared_ptr<const Checkpoint> checkpoint, std::optional<DType> type) {
  GgufExport out;
  HONE_TRY(const Family* family, FindFamily(*checkpoint));
  if (family->gguf_names.empty()) {
    return Unsupported(checkpoint->path() + ": GGUF has no name for the architecture " + std::string(family->name));
  }
  HONE_TRY(out.config_, ReadModelConfig(*checkpoint));
  HONE_TRY(WeightMap map, WeightMap::Make(*checkpoint, *family, out.config_));
  std::map<std::string, DType> types;  // of tensors that several weights make
  for (const Weight& weight : map.weights()) {
    if (!map.quantized() || type || weight.view.shape.rank() < 2) continue;
    const std::optional<DType> exact = ExactType(weight);
    if (exact && types.emplace(weight.gguf_name, *exact).first->second == *exact) continue;
    const std::string stored = weight.quantized != nullptr ? weight.quantized->stored() : std::string(Info(weight.view.type).name);
    return Unsupported(fmt::format("{}: {} is stored as {}, and GGUF has no type that holds it as it is; --type bf16, f16 or f32 "
                                   "dequantises all matrices", checkpoint->path(), weight.file_name, stored));
  }
  out.checkpoint_ = std::move(checkpoint);
  out.map_ = std::make_unique<WeightMap>(std::move(map));
  out.architecture_ = family->gguf_names.front();
  out.PlanTensors(type, family->gguf_permutes_qk);
  out.AddRopeTensors();
  out.DescribeModel();
  if (family->write_gguf != nullptr) {
    ModelConfig named = out.config_;
    named.architecture = out.architecture_;
    family->write_gguf(named, out.metadata_);
  }
  return out;
}

void GgufExport::PlanTensors(std::optional<DType> type, bool permutes_qk) {
  std::map<std::string, size_t> index;
  for (const Weight& weight : map_->weights()) {
    const auto [at, fresh] = index.emplace(weight.gguf_name, outputs_.size());
    if (!fresh) {
      outputs_[at->second].sources.push_back(&weight);
      continue;
    }
    Output output{.info = {weight.gguf_name, DType::kF32, Shape{}}, .sources = {&weight}};
    if (weight.view.shape.rank() > 1) output.info.type = type ? *type : ExactType(weight).value_or(DType::kF32);
    const bool query = weight.name.find(".attn_q.") != std::string::npos, key = weight.name.find(".attn_k.") != std::string::npos;
    if (permutes_qk && (query || key)) output.permuted_heads = query ? config_.heads : config_.kv_heads;
    outputs_.push_back(std::move(output));
  }
  for (Output& output : outputs_) {
    const Shape& first = output.sources.front()->view.shape;
    if (output.sources.front()->stacked) output.info.shape.Append(static_cast<int64_t>(output.sources.size()));
    int64_t rows = 0;
    for (const Weight* source : output.sources) rows += source->view.shape[0];
    output.info.shape.Append(output.sources.front()->stacked ? first[0] : rows);
    if (first.rank() > 1) output.info.shape.Append(first.back());
  }
}

void GgufExport::AddRopeTensors() {
  const RopeConfig& rope = config_.ropes.front();
  const auto add = [&](const char* name, const std::vector<double>& values) {
    if (values.empty()) return;
    Output output{.info = {name, DType::kF32, Shape{static_cast<int64_t>(values.size())}}};
    output.values.assign(values.begin(), values.end());
    outputs_.push_back(std::move(output));
  };
  if (rope.scaling == RopeScaling::kLlama3) {  // GGUF stores what each plain frequency is divided by
    RopeConfig plain = rope;
    plain.scaling = RopeScaling::kNone;
    std::vector<double> divisors = RopeFrequencies(plain, false);
    const std::vector<double> scaled = RopeFrequencies(rope, false);
    for (size_t i = 0; i < divisors.size(); ++i) divisors[i] /= scaled[i];
    add("rope_freqs.weight", divisors);
  }
  add("rope_factors_long.weight", rope.long_factor);
  add("rope_factors_short.weight", rope.short_factor);
}

void GgufExport::DescribeModel() {
  const auto put = [&](const std::string& key, GgufValue value) { metadata_.emplace_back(key, std::move(value)); };
  const auto own = [&](const std::string& key, GgufValue value) { put(architecture_ + "." + key, std::move(value)); };
  put("general.architecture", GgufString(architecture_));
  put("general.type", GgufString("model"));
  put("general.name", GgufString(config_.name));
  std::map<DType, uint64_t> bytes;
  for (const Output& output : outputs_) bytes[output.info.type] += output.info.bytes();
  const auto most = std::max_element(bytes.begin(), bytes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  put("general.file_type", GgufU32(FileType(most->first)));
  if (IsBlock(most->first)) put("general.quantization_version", GgufU32(2));

  own("block_count", GgufU32(config_.layers));
  own("context_length", GgufU32(config_.context));
  own("embedding_length", GgufU32(config_.width));
  own("feed_forward_length", GgufU32(config_.ffn_width));
  own("attention.head_count", GgufU32(config_.heads));
  own("attention.head_count_kv", GgufU32(config_.kv_heads));
  own("attention.key_length", GgufU32(config_.head_width));
  own("attention.value_length", GgufU32(config_.head_width));
  own("attention.layer_norm_rms_epsilon", GgufF32(config_.norm_eps));
  own("vocab_size", GgufU32(config_.vocab));
  if (config_.experts > 0) {
    own("expert_count", GgufU32(config_.experts));
    own("expert_used_count", GgufU32(config_.experts_per_token));
    own("expert_feed_forward_length", GgufU32(config_.expert_ffn_width));
  }
  if (config_.shared_ffn_width > 0) own("expert_shared_feed_forward_length", GgufU32(config_.shared_ffn_width));
  int window = 0;
  for (const LayerConfig& layer : config_.layer) window = std::max(window, layer.window);
  if (window > 0) own("attention.sliding_window", GgufU32(window));
  if (config_.attention_soft_cap > 0) own("attn_logit_softcapping", GgufF32(config_.attention_soft_cap));
  if (config_.logits_soft_cap > 0) own("final_logit_softcapping", GgufF32(config_.logits_soft_cap));
  DescribeRope();
}

void GgufExport::DescribeRope() {
  const auto own = [&](const char* key, GgufValue value) { metadata_.emplace_back(architecture_ + "." + key, std::move(value)); };
  const RopeConfig& rope = config_.ropes.front();
  own("rope.dimension_count", GgufU32(rope.rotary_width));
  own("rope.freq_base", GgufF32(rope.theta));
  const char* kind = rope.scaling == RopeScaling::kLinear     ? "linear"
                     : rope.scaling == RopeScaling::kYarn     ? "yarn"
                     : rope.scaling == RopeScaling::kLongRope ? "longrope"
                                                              : nullptr;  // none, or llama3 by its tensor
  if (kind == nullptr) return;
  own("rope.scaling.type", GgufString(kind));
  own("rope.scaling.factor", GgufF32(rope.factor));
  if (rope.original_context > 0) own("rope.scaling.original_context_length", GgufU32(static_cast<uint64_t>(rope.original_context)));
  if (rope.attention_factor > 0) own("rope.scaling.attn_factor", GgufF32(rope.attention_factor));
  if (rope.scaling == RopeScaling::kYarn) {
    own("rope.scaling.yarn_beta_fast", GgufF32(rope.beta_fast));
    own("rope.scaling.yarn_beta_slow", GgufF32(rope.beta_slow));
  }
}

std::vector<TensorInfo> GgufExport::tensors() const {
  std::vector<TensorInfo> infos;
  for (const Output& output : outputs_) infos.push_back(output.info);
  return infos;
}

// A vector is permuted and converted element by element, as a matrix of width 1.
static TensorView AsMatrix(const Weight& source) {
  TensorView view = source.view;
  if (view.shape.rank() == 1) view.shape = Shape{view.shape[0], 1};
  return view;
}

Result<void> GgufExport::ReadRow(const Output& output, const Weight& source, int64_t row, DType as, std::byte* out,
                                 RoundingCount* tally) {
  TensorView view = AsMatrix(source);
  const int64_t head_rows = output.permuted_heads > 0 ? view.shape.rows() / output.permuted_heads : 0;
  const int64_t from = head_rows > 0 ? row / head_rows * head_rows + SourceRow(row % head_rows, head_rows) : row;
  if (source.quantized == nullptr) {
    ConvertRows(view, from, 1, source.plus_one, as, out, tally);
    return {};
  }
  if (IsBlock(as)) {
    tally->values += static_cast<uint64_t>(view.shape.back());
    return source.quantized->TranscodeRow(source.first_row + from, true, out);
  }
  std::vector<float> values(view.shape.back());
  source.quantized->Decode(source.first_row + from, 1, values.data());
  view = {DType::kF32, Shape{1, view.shape.back()}, reinterpret_cast<const std::byte*>(values.data())};
  ConvertRows(view, 0, 1, false, as, out, tally);
  return {};
}

void GgufExport::ReadRows(size_t tensor, int64_t first, int64_t count, DType as, std::byte* out) const {
  const Output& output = outputs_[tensor];
  HONE_CHECK(as == DType::kF32 || as == output.info.type);
  RoundingCount ignored;
  if (output.info.shape.rank() == 1) {  // one row, in one source or made here
    HONE_CHECK(first == 0 && count <= 1 && as == output.info.type);
    if (!output.values.empty()) return void(std::memcpy(out, output.values.data(), output.values.size() * sizeof(float)));
    const Weight& source = *output.sources.front();
    for (int64_t i = 0; i < source.view.shape[0]; ++i) ReadRow(output, source, i, as, out + i * BytesFor(as, 1), &ignored).value();
    return;
  }
  const size_t row_bytes = BytesFor(as, output.info.shape.back());
  for (const Weight* source : output.sources) {
    const int64_t rows = source->view.shape.rows();
    for (; first < rows && count > 0; ++first, --count, out += row_bytes) {
      ReadRow(output, *source, first, as, out, &ignored).value();  // nothing can fail: read as F32, or not quantised
    }
    first -= rows;
    if (first < 0) first = 0;
  }
}

void GgufExport::Release(size_t tensor) const {
  for (const Weight* source : outputs_[tensor].sources) source->Release(*checkpoint_);
}

Result<void> GgufExport::Write(GgufWriter& writer, const std::function<bool(uint64_t, uint64_t)>& progress,
                               RoundingCount* tally) const {
  uint64_t total = 0, done = 0;
  for (const Output& output : outputs_) total += output.info.bytes();
  std::vector<std::byte> row;
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const Output& output = outputs_[i];
    if (!output.values.empty()) HONE_RETURN_IF_ERROR(writer.Append(std::as_bytes(std::span(output.values))));
    for (const Weight* source : output.sources) {
      const TensorView view = AsMatrix(*source);
      row.resize(BytesFor(output.info.type, view.shape.back()));
      for (int64_t r = 0; r < view.shape.rows(); ++r) {
        const uint64_t bad_before = tally->not_finite;
        HONE_RETURN_IF_ERROR(ReadRow(output, *source, r, output.info.type, row.data(), tally));
        if (source->quantized != nullptr && tally->not_finite > bad_before) {
          return InvalidInput(fmt::format("{}: row {} has weights that are NaN or infinite; a scale of the file is damaged",
                                          source->quantized->where(), source->first_row + r));
        }
        HONE_RETURN_IF_ERROR(writer.Append(row));
      }
    }
    Release(i);
    done += output.info.bytes();
    if (progress && !progress(done, total)) return Error{ErrorCode::kCancelled, "stopped; nothing was written"};
  }
  return {};
}

Result<void> CheckSameModel(const ModelConfig& a, const ModelConfig& b) {
  const auto differ = [](std::string_view what, double x, double y) {
    return Unsupported(fmt::format("GGUF cannot say this model's {} ({:g}; a reader would take {:g})", what, x, y));
  };
  const auto same = [](double x, double y) { return std::abs(x - y) <= 1e-6 * std::max(std::abs(x), std::abs(y)); };
  const struct { std::string_view what; double x, y; } numbers[] = {
      {"layers", double(a.layers), double(b.layers)}, {"width", double(a.width), double(b.width)},
      {"heads", double(a.heads), double(b.heads)}, {"KV heads", double(a.kv_heads), double(b.kv_heads)},
      {"head width", double(a.head_width), double(b.head_width)}, {"FFN width", double(a.ffn_width), double(b.ffn_width)},
      {"vocabulary", double(a.vocab), double(b.vocab)}, {"context", double(a.context), double(b.context)},
      {"norm epsilon", a.norm_eps, b.norm_eps}, {"activation", double(a.activation), double(b.activation)},
      {"attention scale", a.attention_scale, b.attention_scale}, {"score cap", a.attention_soft_cap, b.attention_soft_cap},
      {"logits cap", a.logits_soft_cap, b.logits_soft_cap}, {"embedding scale", a.embedding_scale, b.embedding_scale},
      {"residual scale", a.residual_scale, b.residual_scale}, {"logits scale", a.logits_scale, b.logits_scale},
      {"experts", double(a.experts), double(b.experts)}, {"experts a token", double(a.experts_per_token), double(b.experts_per_token)},
      {"renormalised experts", double(a.experts > 0 && a.renormalise_experts), double(b.experts > 0 && b.renormalise_experts)},
      {"ropes", double(a.ropes.size()), double(b.ropes.size())}};
  for (const auto& number : numbers) {
    if (!same(number.x, number.y)) return differ(number.what, number.x, number.y);
  }
  for (int i = 0; i < a.layers; ++i) {
    // A window that no sequence can fill is none.
    const auto window = [](const ModelConfig& config, int layer) {
      const int w = config.layer[layer].window;
      return w >= config.context ? 0 : w;
    };
    if (window(a, i) != window(b, i)) return differ(fmt::format("sliding window of layer {}", i), window(a, i), window(b, i));
    if (a.layer[i].experts != b.layer[i].experts) return differ(fmt::format("experts of layer {}", i), a.layer[i].experts, b.layer[i].experts);
  }
  for (size_t r = 0; r < a.ropes.size(); ++r) {
    if (!same(RopeAttentionFactor(a.ropes[r]), RopeAttentionFactor(b.ropes[r]))) {
      return differ("rope attention factor", RopeAttentionFactor(a.ropes[r]), RopeAttentionFactor(b.ropes[r]));
    }
    for (const bool long_range : {false, true}) {
      const std::vector<double> x = RopeFrequencies(a.ropes[r], long_range), y = RopeFrequencies(b.ropes[r], long_range);
      if (x.size() != y.size()) return differ("rotary width", double(x.size()), double(y.size()));
      for (size_t j = 0; j < x.size(); ++j) {
        if (!same(x[j], y[j])) return differ("rotary frequencies", x[j], y[j]);
      }
    }
  }
  return {};
}

}  // namespace hone
