// See deployment.h.
#include "measure/plan/deployment.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace hone {
namespace {

constexpr int kMostCards = 4096;
constexpr int kMostTensorCards = 64;

// Share of the cached bytes that each of `count` cards holds under tensor parallelism: KV heads are shared out while
// there are enough; a latent is kept whole by each.
double KvShare(const ModelShape& shape, int count) {
  if (shape.latent()) return 1;
  return 1.0 / std::min(count, std::max(1, shape.kv_heads));
}

bool TensorAllows(const ModelShape& shape, int count) {
  if (shape.attention_layers() > 0 && !shape.latent()) {
    const bool kv = shape.kv_heads % count == 0 || count % shape.kv_heads == 0;
    if (shape.heads % count != 0 || !kv) return false;
  }
  if (shape.latent() && shape.heads % count != 0) return false;
  if (shape.recurrent_layers > 0 && shape.inner_width % count != 0) return false;
  if (shape.experts > 0 && shape.expert_ffn_width % count != 0 && shape.experts % count != 0) return false;
  return shape.ffn_width % count == 0;
}

// What each of `count` cards must hold.
double BytesOfACard(const Deployment& d, const MemoryAccount& account, int count, Split split) {
  const double cache = d.concurrency * account.kv_sequence_bytes, state = d.concurrency * account.state_bytes;
  const double total = account.weights.total();
  if (split == Split::kLayers) {  // whole layers, the fullest card counts
    const double layers = std::ceil(static_cast<double>(d.shape.layers) / count) / d.shape.layers;
    const double ends = account.weights.embedding + account.weights.output;
    return (total - ends + cache + state) * layers + ends / std::min(count, 2) + account.activation_bytes;
  }
  return (total + state) / count + cache * KvShare(d.shape, count) + account.activation_bytes;
}

double AttentionFlops(const ModelShape& s, double rows, double cached) {
  const double all = rows * cached + rows * (rows + 1) / 2;  // tokens seen by all rows together
  double windowed = all;
  if (s.window > 0) {
    const double full_rows = std::clamp(s.window - cached, 0.0, rows);  // rows before the window is full
    windowed = full_rows * cached + full_rows * (full_rows + 1) / 2 + (rows - full_rows) * s.window;
  }
  // Scores and sum, two operations a number; a latent is what both run over.
  const double a_token = s.latent() ? 2.0 * s.heads * (2 * s.kv_rank + s.rope_width) : 4.0 * s.heads * s.head_width;
  return a_token * (all * (s.attention_layers() - s.windowed_layers) + windowed * s.windowed_layers);
}

}  // namespace

std::string_view BoundName(Bound bound) {
  switch (bound) {
    case Bound::kCompute: return "compute";
    case Bound::kWeights: return "weight bandwidth";
    case Bound::kKv: return "KV bandwidth";
    case Bound::kLink: return "link";
    case Bound::kOverhead: return "overhead";
  }
  return "";
}

Bound StepTime::bound() const {
  const double work = std::max(read_s, compute_s);
  if (overhead_s > work && overhead_s > link_s) return Bound::kOverhead;
  if (link_s > work) return Bound::kLink;
  if (compute_s >= read_s) return Bound::kCompute;
  return kv_bytes > weight_bytes ? Bound::kKv : Bound::kWeights;
}

MemoryAccount AccountMemory(const Deployment& d) {
  MemoryAccount account;
  account.weights = BytesOfWeights(d.shape, d.format);
  account.kv_token_bytes = KvTokenBytes(d.shape, d.kv);
  account.kv_sequence_bytes = KvBytes(d.shape, d.kv, d.reserved_tokens());
  account.state_bytes = StateBytes(d.shape);
  const double number_bytes = d.hardware.cpu ? 4 : 2;
  account.activation_bytes = number_bytes * static_cast<double>(ActivationNumbers(d.shape)) * d.step_tokens +
                             4.0 * d.shape.vocab * std::max(1, d.concurrency);
  const int count = std::max(1, d.hardware.count);
  account.usable_bytes = d.hardware.memory_bytes * d.hardware.free_share * count;
  const double kv_copies = d.split == Split::kTensor ? KvShare(d.shape, count) * count : 1;
  const double a_sequence = account.kv_sequence_bytes * kv_copies + account.state_bytes;
  const double fixed = account.weights.total() + account.activation_bytes * count;
  account.needed_bytes = fixed + d.concurrency * a_sequence;
  const double left = account.usable_bytes - fixed;
  if (left > 0) account.most_sequences = a_sequence > 0 ? static_cast<int64_t>(std::min(left / a_sequence, 1e9)) : 1000000000;
  return account;
}

CardCount CountCards(const Deployment& d) {
  Deployment one = d;
  one.hardware.count = 1;
  const MemoryAccount account = AccountMemory(one);
  CardCount cards;
  const double memory = std::max(1.0, d.hardware.memory_bytes), usable = memory * d.hardware.free_share;
  cards.weights_only = static_cast<int>(std::min<double>(std::ceil(account.weights.total() / memory), kMostCards));
  for (int count = 1; count <= std::min(kMostCards, d.shape.layers) && cards.layers == 0; ++count) {
    if (BytesOfACard(d, account, count, Split::kLayers) <= usable) cards.layers = count;
  }
  for (int count = 1; count <= kMostTensorCards; ++count) {
    if (!TensorAllows(d.shape, count)) continue;
    cards.tensor_counts.push_back(count);
    if (cards.tensor == 0 && BytesOfACard(d, account, count, Split::kTensor) <= usable) cards.tensor = count;
  }
  cards.tensor_rule = d.shape.attention_layers() == 0
                          ? fmt::format("must divide the inner width {}", d.shape.inner_width)
                      : d.shape.latent()
                          ? fmt::format("must divide {} heads; every card keeps the whole latent", d.shape.heads)
                          : fmt::format("must divide {} query heads and fit {} KV heads (more cards than that repeat them)",
                                        d.shape.heads, d.shape.kv_heads);
  const int fewest = cards.tensor > 0 && cards.layers > 0 ? std::min(cards.tensor, cards.layers)
                                                          : std::max(cards.tensor, cards.layers);
  if (fewest > 0) cards.nodes = (fewest + d.hardware.cards_a_node - 1) / std::max(1, d.hardware.cards_a_node);
  return cards;
}

StepTime PredictStep(const Deployment& d, int sequences, int rows, double cached) {
  const ModelShape& shape = d.shape;
  const double tokens = static_cast<double>(sequences) * rows;
  const WeightAccount weights = BytesOfWeights(shape, d.format);
  const ParameterCount count = CountParameters(shape);
  StepTime step;
  step.weight_bytes = weights.ReadBy(shape, tokens);
  step.kv_bytes = sequences * (KvBytes(shape, d.kv, cached + rows) + 2 * StateBytes(shape));  // a state is written too
  const double in_layers = static_cast<double>(ActiveParameters(shape)) -
                           static_cast<double>(shape.tied ? count.embedding : count.output);
  step.flops = 2 * in_layers * tokens + 2 * static_cast<double>(count.embedding) * sequences +
               sequences * AttentionFlops(shape, rows, cached);
  const int cards = std::max(1, d.hardware.count);
  // Cards with layers of their own take turns: one sequence's step never has more than one card's limits.
  const double together = d.split == Split::kTensor ? cards : 1;
  const double kv_together = d.split == Split::kTensor ? 1 / KvShare(shape, cards) : 1;
  const double read_rate = std::max(1.0, d.hardware.read_bytes_s * d.efficiency.read_share), ops = d.hardware.Ops(d.format);
  const double kv_s = step.kv_bytes / kv_together / read_rate;
  step.read_s = step.weight_bytes / together / read_rate + kv_s;
  step.overlapped = d.efficiency.overlapped;
  const double share = rows > 1 ? d.efficiency.compute_share : d.efficiency.decode_share;
  step.compute_s = step.flops / together / std::max(1.0, ops * share);
  if (!step.overlapped) {
    const bool fitted = d.efficiency.many_rows_reads >= 0;
    const double few_s = step.flops * (tokens - 1) / tokens / together / std::max(1.0, ops * d.efficiency.decode_share);
    const double many_s = step.flops / together / std::max(1.0, ops * d.efficiency.compute_share);
    const double unpack_s = (fitted ? d.efficiency.many_rows_reads : 1 / d.efficiency.read_share) * step.weight_bytes / together /
                            std::max(1.0, d.hardware.read_bytes_s);
    // Also where reading hides behind the arithmetic of many rows (unpack_s is 0), no step is shorter than its reading.
    const double many_read_s = std::max(unpack_s, step.read_s - kv_s - many_s) + kv_s;
    const bool few_known = tokens <= std::max(1, d.efficiency.few_rows);
    const bool many = fitted ? !few_known && (rows > 1 || many_read_s + many_s < step.read_s + few_s) : rows > 1;
    if (many) step.read_s = many_read_s;
    step.compute_s = many ? many_s : few_s;
  }
  step.overhead_s = d.efficiency.step_overhead_s;
  if (cards > 1) {
    const double row_bytes = 2.0 * shape.width * tokens;
    const double link = std::max(1e9, d.hardware.link_bytes_s);
    if (d.split == Split::kTensor) {
      const double exchange = 2.0 * (cards - 1) / cards * row_bytes / link + d.efficiency.link_latency_s;
      step.link_s = 2 * shape.layers * exchange;
    } else {
      step.link_s = (cards - 1) * (row_bytes / link + d.efficiency.link_latency_s);
    }
  }
  return step;
}

Prediction Predict(const Deployment& d) {
  Prediction prediction;
  const int chunk = std::max(1, d.step_tokens);
  for (int first = std::clamp(d.cached_input, 0, std::max(0, d.input - 1)); first < d.input; first += chunk) {
    const StepTime step = PredictStep(d, 1, std::min(chunk, d.input - first), first);
    prediction.ttft_s += step.seconds();
    StepTime& sum = prediction.prefill;
    sum.weight_bytes += step.weight_bytes, sum.kv_bytes += step.kv_bytes, sum.flops += step.flops;
    sum.read_s += step.read_s, sum.compute_s += step.compute_s, sum.link_s += step.link_s;
    sum.overhead_s += step.overhead_s, sum.overlapped = step.overlapped;
  }
  prediction.ttft_all_s = prediction.ttft_s * std::max(1, d.concurrency);
  const double middle = d.input + d.output / 2.0;
  prediction.decode = PredictStep(d, std::max(1, d.concurrency), 1, middle);
  prediction.tpot_s = prediction.decode.seconds();
  prediction.tok_s = std::max(1, d.concurrency) / std::max(1e-12, prediction.tpot_s);
  Deployment ideal = d;
  ideal.efficiency = {1, 1, 1, 0, 0, "", -1, true};
  const StepTime limit = PredictStep(ideal, std::max(1, d.concurrency), 1, middle);
  prediction.tpot_limit_s = std::max(limit.read_s, limit.compute_s);
  return prediction;
}

}  // namespace hone
