// ModelConfig: everything about a decoder that is not a weight, in one form whatever file it came from.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/activation/activation.h"
#include "kernels/rope/rope.h"

namespace hone {

enum class RopeScaling { kNone, kLinear, kLlama3, kYarn, kLongRope };

// Frequencies of one kind of layer. models/rope_table.h turns it into cosines and sines.
struct RopeConfig {
  double theta = 10000;
  int rotary_width = 0;  // R; 0: no rope
  RopeOrder order = RopeOrder::kHalf;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1;                                 // linear, llama3, yarn, longrope
  double original_context = 0;                       // llama3, yarn, longrope
  double low_freq_factor = 1, high_freq_factor = 4;  // llama3
  double beta_fast = 32, beta_slow = 1;              // yarn
  bool truncate = true;                              // yarn: the ramp's ends are rounded
  double attention_factor = 0;                       // multiplies cos and sin; 0: the kind's own rule
  std::vector<double> short_factor, long_factor;     // longrope, [R/2]
  std::vector<double> frequency_divisors;            // [R/2] given by the file (rope_freqs.weight); empty: none
};

struct LayerConfig {
  int window = 0;        // sliding window; 0: full attention
  int rope = 0;          // index into ModelConfig::ropes
  bool experts = false;  // a mixture-of-experts feed-forward
};

struct ModelConfig {
  std::string family;        // "llama", "qwen3", ...: the family's name in models/families.inc
  std::string architecture;  // as the file says it
  std::string name;          // general.name or the folder's name
  int layers = 0, width = 0, heads = 0, kv_heads = 0, head_width = 0, ffn_width = 0, vocab = 0;
  int context = 0;  // longest context the model was made for
  float norm_eps = 1e-5f;
  Activation activation = Activation::kSilu;
  bool tied_embeddings = false;
  std::vector<RopeConfig> ropes;
  std::vector<LayerConfig> layer;  // [layers]

  float attention_scale = 0;                                        // multiplies q . k
  float attention_soft_cap = 0, logits_soft_cap = 0;                // 0: none
  float embedding_scale = 1, residual_scale = 1, logits_scale = 1;  // multipliers

  int experts = 0, experts_per_token = 0, expert_ffn_width = 0;  // mixture of experts; 0: dense
  bool renormalise_experts = true;
  int shared_ffn_width = 0;  // a gated expert that every token takes (Qwen2-MoE); 0: none

  bool norms_store_minus_one = false;  // the file holds w - 1 of every norm (Gemma in Hugging Face form)
  bool qkv_bias = false, output_bias = false, ffn_bias = false;  // which projections have a bias

  uint64_t kv_bytes_per_token(size_t element_bytes) const {
    return uint64_t{2} * layers * kv_heads * head_width * element_bytes;
  }
};

}  // namespace hone
