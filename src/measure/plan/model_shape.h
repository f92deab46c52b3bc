// ModelShape: what of a model decides memory and time, without its weights. Wider than models/config.h: it also holds
// models that hone cannot run (latent attention, recurrent layers), so that a deployment can be planned for them.
//
// Pure arithmetic. Numbers of parameters are exact for the models of shapes.inc that have a published count; where a
// term is left out (biases of norms, sinks) it is below 0.1 %. Where shapes come from: read_shape.h.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace hone {

enum class Recurrence { kNone, kMamba, kMamba2 };

struct ModelShape {
  std::string name;
  int layers = 0, width = 0, heads = 0, kv_heads = 0, head_width = 0, ffn_width = 0, vocab = 0;
  int context = 0;  // longest sequence that the model was made for
  bool tied = false;
  bool gated_ffn = true;    // three matrices; false: two
  bool qkv_bias = false;
  bool head_norms = false;  // RMSNorm of q and k, a head at a time
  int norms = 2;            // of width D, a layer
  int window = 0, windowed_layers = 0;  // attention layers that see only the last `window` tokens

  // Mixture of experts in `expert_layers` of the layers; the others are dense.
  int experts = 0, experts_per_token = 0, expert_ffn_width = 0, expert_layers = 0;
  int shared_ffn_width = 0;  // all shared experts together
  bool shared_gate = false, router_bias = false;

  // Latent attention (DeepSeek): one latent of kv_rank + rope_width numbers a token and layer is cached.
  int q_rank = 0, kv_rank = 0, rope_width = 0, nope_width = 0, value_width = 0;

  // Layers with a recurrent state in place of attention.
  Recurrence recurrence = Recurrence::kNone;
  int recurrent_layers = 0, inner_width = 0, state_width = 0, conv_width = 0, dt_rank = 0, state_heads = 0,
      state_groups = 1;
  bool state_norms = false;  // RMSNorm of dt, B and C (Jamba)

  bool latent() const { return kv_rank > 0; }
  int attention_layers() const { return layers - recurrent_layers; }
  int dense_layers() const { return ffn_width > 0 ? layers - expert_layers : 0; }
  std::string AttentionName() const;  // "GQA, 8 query heads a KV head", "MLA, latent of 576", "none"
};

// Numbers of parameters, by how a step reads them.
struct ParameterCount {
  int64_t embedding = 0;  // a lookup: one row a token
  int64_t output = 0;     // 0 if tied; then the embedding is read as output matrix
  int64_t attention = 0, dense_ffn = 0, experts = 0, shared = 0, recurrent = 0;  // shared: with routers
  int64_t other = 0;      // norms, biases
  int64_t total() const { return embedding + output + attention + dense_ffn + experts + shared + recurrent + other; }
  int64_t layer_matrices() const { return attention + dense_ffn + experts + shared + recurrent; }
};
ParameterCount CountParameters(const ModelShape& shape);

// Parameters that one token is multiplied with: without the lookup, with its share of the experts and the output.
int64_t ActiveParameters(const ModelShape& shape);

// Of the routed experts, the share that `tokens` tokens of one step are expected to reach if the router spreads evenly.
double ExpertShare(const ModelShape& shape, double tokens);

// Numbers cached for one token at the end of a long sequence in all full-attention layers / in all windowed ones.
int64_t KvNumbersFull(const ModelShape& shape);
int64_t KvNumbersWindowed(const ModelShape& shape);
// Heads (of keys and of values) a token that have a scale each where the cache is quantised.
int64_t KvScales(const ModelShape& shape);
// Tokens whose keys the windowed layers hold of a sequence of `tokens`.
int64_t WindowedTokens(const ModelShape& shape, int64_t tokens);

// Numbers of the state of one sequence, whatever its length.
int64_t StateNumbers(const ModelShape& shape);

// Floating-point numbers of working memory that a row of a step needs: residual and its copies, projections, FFN.
int64_t ActivationNumbers(const ModelShape& shape);

// The named public shapes, in the order of shapes.inc.
std::span<const ModelShape> PublicShapes();
const ModelShape* FindPublicShape(std::string_view name);  // case ignored; nullptr: there is none of this name

}  // namespace hone
