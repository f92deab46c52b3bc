// See model_shape.h.
#include "measure/plan/model_shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

namespace hone {
namespace {

constexpr int64_t Times(int a, int b) { return int64_t{a} * b; }

int64_t AttentionMatrices(const ModelShape& s) {
  if (s.latent()) {
    const int64_t query = Times(s.heads, s.nope_width + s.rope_width);
    const int64_t q = s.q_rank > 0 ? Times(s.width, s.q_rank) + s.q_rank * query : s.width * query;
    const int64_t kv = Times(s.width, s.kv_rank + s.rope_width) +
                       int64_t{s.kv_rank} * Times(s.heads, s.nope_width + s.value_width);
    return q + kv + Times(s.heads, s.value_width) * s.width;
  }
  const int64_t query = Times(s.heads, s.head_width), kv = Times(s.kv_heads, s.head_width);
  return s.width * (2 * query + 2 * kv);
}

// Norms and biases of one attention layer.
int64_t AttentionOther(const ModelShape& s) {
  int64_t other = 0;
  if (s.latent()) other += s.kv_rank + s.q_rank;
  if (s.qkv_bias) other += Times(s.heads + 2 * s.kv_heads, s.head_width);
  if (s.head_norms) other += 2 * s.head_width;
  return other;
}

int64_t RecurrentMatrices(const ModelShape& s) {
  const int64_t inner = s.inner_width, width = s.width;
  switch (s.recurrence) {
    case Recurrence::kNone: return 0;
    case Recurrence::kMamba:
      return width * 2 * inner + inner * (s.dt_rank + 2 * s.state_width) + s.dt_rank * inner + inner * width;
    case Recurrence::kMamba2:
      return width * (2 * inner + 2 * Times(s.state_groups, s.state_width) + s.state_heads) + inner * width;
  }
  return 0;
}

// Channels that the short convolution runs over.
int64_t ConvChannels(const ModelShape& s) {
  return s.inner_width + (s.recurrence == Recurrence::kMamba2 ? 2 * Times(s.state_groups, s.state_width) : 0);
}

int64_t RecurrentOther(const ModelShape& s) {
  const int64_t conv = ConvChannels(s) * (s.conv_width + 1);
  switch (s.recurrence) {
    case Recurrence::kNone: return 0;
    case Recurrence::kMamba:  // bias of dt, A, D
      return conv + s.inner_width + Times(s.inner_width, s.state_width) + s.inner_width +
             (s.state_norms ? s.dt_rank + 2 * s.state_width : 0);
    case Recurrence::kMamba2:  // bias of dt, A, D, norm before the output
      return conv + 3 * int64_t{s.state_heads} + s.inner_width;
  }
  return 0;
}

const ModelShape kShapes[] = {
#define HONE_SHAPE(...) ModelShape{__VA_ARGS__},
#include "measure/plan/shapes.inc"
#undef HONE_SHAPE
};

}  // namespace

std::string ModelShape::AttentionName() const {
  std::string text;
  if (attention_layers() == 0) return "none";
  if (latent()) {
    text = fmt::format("MLA, a latent of {} a token", kv_rank + rope_width);
  } else if (kv_heads == heads) {
    text = fmt::format("MHA, {} heads", heads);
  } else if (kv_heads == 1) {
    text = fmt::format("MQA, {} query heads on one KV head", heads);
  } else {
    text = fmt::format("GQA, {} query heads on {} KV heads", heads, kv_heads);
  }
  if (window > 0 && windowed_layers > 0)
    text += fmt::format("; {} of {} layers see {} tokens", windowed_layers, attention_layers(), window);
  if (recurrent_layers > 0) text += fmt::format("; {} layers have a state instead", recurrent_layers);
  return text;
}

ParameterCount CountParameters(const ModelShape& s) {
  ParameterCount count;
  count.embedding = Times(s.vocab, s.width);
  count.output = s.tied ? 0 : count.embedding;
  count.attention = s.attention_layers() * AttentionMatrices(s);
  count.dense_ffn = s.dense_layers() * Times(s.width, s.ffn_width) * (s.gated_ffn ? 3 : 2);
  if (s.experts > 0) {
    count.experts = s.expert_layers * Times(s.experts, s.expert_ffn_width) * s.width * 3;
    count.shared = s.expert_layers * (Times(s.width, s.experts) + Times(s.width, s.shared_ffn_width) * 3 +
                                      (s.shared_gate ? s.width : 0));
  }
  count.recurrent = s.recurrent_layers * RecurrentMatrices(s);
  count.other = s.attention_layers() * AttentionOther(s) + s.recurrent_layers * RecurrentOther(s) +
                s.layers * Times(s.norms, s.width) + s.width + (s.router_bias ? Times(s.expert_layers, s.experts) : 0);
  return count;
}

double ExpertShare(const ModelShape& s, double tokens) {
  if (s.experts == 0) return 0;
  return 1 - std::pow(1 - static_cast<double>(s.experts_per_token) / s.experts, tokens);
}

int64_t ActiveParameters(const ModelShape& s) {
  const ParameterCount count = CountParameters(s);
  const int64_t experts = s.experts > 0 ? count.experts / s.experts * s.experts_per_token : 0;
  return count.attention + count.dense_ffn + experts + count.shared + count.recurrent + count.other +
         (s.tied ? count.embedding : count.output);
}

namespace {

int64_t KvNumbersOfLayer(const ModelShape& s) {
  return s.latent() ? s.kv_rank + s.rope_width : 2 * Times(s.kv_heads, s.head_width);
}

}  // namespace

int64_t KvNumbersFull(const ModelShape& s) { return (s.attention_layers() - s.windowed_layers) * KvNumbersOfLayer(s); }

int64_t KvNumbersWindowed(const ModelShape& s) { return s.windowed_layers * KvNumbersOfLayer(s); }

int64_t KvScales(const ModelShape& s) { return s.attention_layers() * int64_t{s.latent() ? 1 : 2 * s.kv_heads}; }

int64_t WindowedTokens(const ModelShape& s, int64_t tokens) {
  return s.window > 0 ? std::min<int64_t>(tokens, s.window) : tokens;
}

int64_t StateNumbers(const ModelShape& s) {
  if (s.recurrence == Recurrence::kNone) return 0;
  const int64_t conv = ConvChannels(s) * (s.conv_width - 1);
  return s.recurrent_layers * (Times(s.inner_width, s.state_width) + conv);
}

int64_t ActivationNumbers(const ModelShape& s) {
  const int64_t query = s.latent() ? Times(s.heads, s.nope_width + s.rope_width) : Times(s.heads, s.head_width);
  const int64_t kv = s.latent() ? 2 * Times(s.heads, s.nope_width) : 2 * Times(s.kv_heads, s.head_width);
  const int64_t ffn = std::max({int64_t{s.ffn_width}, Times(s.experts_per_token, s.expert_ffn_width),
                                int64_t{s.shared_ffn_width}, int64_t{s.inner_width}});
  const int64_t routed = Times(s.experts_per_token, s.width);
  return 3 * int64_t{s.width} + 2 * query + kv + 2 * ffn + routed;
}

std::span<const ModelShape> PublicShapes() { return kShapes; }

const ModelShape* FindPublicShape(std::string_view name) {
  const auto same = [name](const ModelShape& shape) {
    return shape.name.size() == name.size() &&
           std::equal(name.begin(), name.end(), shape.name.begin(),
                      [](unsigned char a, unsigned char b) { return std::tolower(a) == std::tolower(b); });
  };
  const auto it = std::find_if(std::begin(kShapes), std::end(kShapes), same);
  return it == std::end(kShapes) ? nullptr : &*it;
}

}  // namespace hone
