// See stored_formats.h.
#include "measure/plan/stored_formats.h"

#include <algorithm>
#include <cctype>

namespace hone {
namespace {

const WeightFormat kWeightFormats[] = {
#define HONE_WEIGHT_FORMAT(name, bits, value_down, share, attn_out, embedding, output, kld, kernel, int8) \
  {name, bits, value_down, share, attn_out, embedding, output, kld, DType::k##kernel, int8},
#include "measure/plan/weight_formats.inc"
#undef HONE_WEIGHT_FORMAT
};

const KvFormat kKvFormats[] = {
#define HONE_KV_FORMAT(name, bits, scale_bits, served) {name, bits, scale_bits, served},
#include "measure/plan/kv_formats.inc"
#undef HONE_KV_FORMAT
};

template <typename T>
const T* Find(std::span<const T> list, std::string_view name) {
  for (const T& entry : list) {
    if (std::equal(entry.name.begin(), entry.name.end(), name.begin(), name.end(),
                   [](unsigned char a, unsigned char b) { return a == std::tolower(b); })) {
      return &entry;
    }
  }
  return nullptr;
}

}  // namespace

std::span<const WeightFormat> WeightFormats() { return kWeightFormats; }
const WeightFormat* FindWeightFormat(std::string_view name) { return Find(WeightFormats(), name); }
std::span<const KvFormat> KvFormats() { return kKvFormats; }
const KvFormat* FindKvFormat(std::string_view name) { return Find(KvFormats(), name); }

WeightAccount BytesOfWeights(const ModelShape& shape, const WeightFormat& format) {
  const ParameterCount count = CountParameters(shape);
  const auto bytes = [](double numbers, double bits) { return numbers * bits / 8; };
  WeightAccount weights;
  if (shape.tied) {
    weights.output = bytes(static_cast<double>(count.embedding), format.output_bits);
  } else {
    weights.embedding = bytes(static_cast<double>(count.embedding), format.embedding_bits);
    weights.output = bytes(static_cast<double>(count.output), format.output_bits);
  }
  const double width = shape.width;
  const double value = shape.latent() ? 0 : static_cast<double>(shape.kv_heads) * shape.head_width * width;
  const double out = static_cast<double>(shape.heads) * (shape.latent() ? shape.value_width : shape.head_width) * width;
  const double down = static_cast<double>(shape.ffn_width) * width;
  const double layers = static_cast<double>(count.attention + count.dense_ffn + count.shared + count.recurrent);
  const double more_bits = format.value_down_bits - format.bits;
  weights.layers = bytes(layers, format.bits) +
                   bytes((shape.attention_layers() * value + shape.dense_layers() * down) * format.value_down_share, more_bits) +
                   bytes(shape.attention_layers() * out, format.attention_output_bits - format.bits);
  const double expert_bits = format.expert_bits > 0 ? format.expert_bits : format.bits;
  weights.experts = bytes(static_cast<double>(count.experts), expert_bits) +
                    bytes(static_cast<double>(count.experts) / 3 * format.value_down_share, more_bits);
  weights.other = bytes(static_cast<double>(count.other), 32);
  return weights;
}

double KvTokenBytes(const ModelShape& shape, const KvFormat& format) {
  const double numbers = static_cast<double>(KvNumbersFull(shape) + KvNumbersWindowed(shape));
  return (numbers * format.bits + static_cast<double>(KvScales(shape)) * format.scale_bits) / 8;
}

double KvBytes(const ModelShape& shape, const KvFormat& format, double tokens) {
  const double numbers = static_cast<double>(KvNumbersFull(shape) + KvNumbersWindowed(shape));
  if (numbers == 0) return 0;
  const double windowed = static_cast<double>(KvNumbersWindowed(shape)) / numbers;
  const double held = shape.window > 0 ? std::min<double>(tokens, shape.window) : tokens;
  return KvTokenBytes(shape, format) * (tokens * (1 - windowed) + held * windowed);
}

double StateBytes(const ModelShape& shape) { return 4.0 * static_cast<double>(StateNumbers(shape)); }

}  // namespace hone
