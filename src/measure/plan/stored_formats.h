// How weights and cached keys and values are stored, as far as planning needs it: bits a number, and what is known of
// the loss. One line a format in weight_formats.inc and kv_formats.inc. A model file's own mixture of types becomes a
// WeightFormat too ("as stored").
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "measure/plan/model_shape.h"
#include "tensor/dtype.h"

namespace hone {

struct WeightFormat {
  std::string name;
  double bits = 16;                             // of matrices in layers
  double value_down_bits = 16;                  // of attn_v and ffn_down in `value_down_share` of the layers
  double value_down_share = 0;
  double attention_output_bits = 16;
  double embedding_bits = 16, output_bits = 16;  // of a tied matrix: output_bits
  double kld = -1;                              // published for Llama-3-8B; -1: not known
  DType kernel = DType::kF16;                   // whose kernel multiplies with it
  bool int8_math = false;                       // activations are 8 bits too
  double expert_bits = 0;                       // 0: as `bits`
};

std::span<const WeightFormat> WeightFormats();              // best quality first
const WeightFormat* FindWeightFormat(std::string_view name);  // nullptr: there is none of this name

struct WeightAccount {
  double embedding = 0;  // one row a token is looked up; 0 if tied
  double output = 0, layers = 0, experts = 0, other = 0;
  double total() const { return embedding + output + layers + experts + other; }
  // Read by a step of `tokens` tokens.
  double ReadBy(const ModelShape& shape, double tokens) const {
    return output + layers + other + experts * ExpertShare(shape, tokens);
  }
};
WeightAccount BytesOfWeights(const ModelShape& shape, const WeightFormat& format);

struct KvFormat {
  std::string name;
  double bits = 16, scale_bits = 0;
  bool served = true;  // by hone serve
};
std::span<const KvFormat> KvFormats();
const KvFormat* FindKvFormat(std::string_view name);

// Bytes of the cached keys and values of one sequence of `tokens` tokens, windows counted.
double KvBytes(const ModelShape& shape, const KvFormat& format, double tokens);
// Of one more token where no window is full.
double KvTokenBytes(const ModelShape& shape, const KvFormat& format);
// Of the recurrent state of one sequence: F32.
double StateBytes(const ModelShape& shape);

}  // namespace hone
