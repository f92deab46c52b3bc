// See reference.h.
#include "reference/reference.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <utility>

#include "kernels/dequantize/dequantize.h"
#include "models/family.h"
#include "models/model.h"
#include "models/weight_map.h"

namespace hone::reference {

Result<ReferenceModel> ReferenceModel::Load(const Checkpoint& checkpoint) {
  ReferenceModel model;
  HONE_TRY(const Family* family, FindFamily(checkpoint));
  HONE_TRY(model.config_, ReadModelConfig(checkpoint));
  HONE_TRY(const WeightMap map, WeightMap::Make(checkpoint, *family, model.config_));
  for (const Weight& weight : map.weights()) {
    Matrix matrix;
    matrix.columns = weight.view.shape.back();
    matrix.rows = weight.view.shape.rows();
    matrix.values.resize(matrix.rows * matrix.columns);
    for (int64_t i = 0; i < matrix.rows; ++i) {
      DequantizeRow(weight.view.type, weight.view.data + i * weight.view.row_bytes(), matrix.columns,
                    matrix.values.data() + i * matrix.columns);
    }
    if (weight.plus_one) {
      for (float& value : matrix.values) value += 1;
    }
    model.weights_.emplace(weight.name, std::move(matrix));
  }
  return model;
}

Row ReferenceModel::Apply(const std::string& name, const Row& x) const {
  const Matrix& weight = Get(name + ".weight");
  Row y(weight.rows, 0.0);
  for (int64_t i = 0; i < weight.rows; ++i) {
    for (int64_t j = 0; j < weight.columns; ++j) y[i] += double{weight.values[i * weight.columns + j]} * x[j];
    if (Has(name + ".bias")) y[i] += Get(name + ".bias").values[i];
  }
  return y;
}

Row ReferenceModel::Norm(const Row& x, const std::string& name) const {
  const std::vector<float>& weight = Get(name + ".weight").values;
  Row y(x.size());
  for (size_t begin = 0; begin < x.size(); begin += weight.size()) {
    double squares = 0;
    for (size_t i = 0; i < weight.size(); ++i) squares += x[begin + i] * x[begin + i];
    const double root = std::sqrt(squares / static_cast<double>(weight.size()) + config_.norm_eps);
    for (size_t i = 0; i < weight.size(); ++i) y[begin + i] = x[begin + i] / root * weight[i];
  }
  return y;
}

namespace {

double Activate(Activation activation, double x) {
  switch (activation) {
    case Activation::kSilu:
      return x / (1 + std::exp(-x));
    case Activation::kGeluTanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    case Activation::kGeluErf:
      return 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2));
  }
  return x;
}

double Cap(double x, double cap) { return cap == 0 ? x : cap * std::tanh(x / cap); }

void Softmax(std::vector<double>& x) {
  const double max = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (double& value : x) sum += value = std::exp(value - max);
  for (double& value : x) value /= sum;
}

// Angle a token turns pair j by, and the factor of cos and sin.
struct Turn {
  double angle, factor;
};
Turn TurnOf(const RopeConfig& rope, int j, bool long_range) {
  const double width = rope.rotary_width, two_pi = 2 * std::numbers::pi;
  const double plain = std::pow(rope.theta, -2.0 * j / width);
  Turn turn{plain, 1};
  if (rope.scaling == RopeScaling::kLinear) turn.angle = plain / rope.factor;
  if (rope.scaling == RopeScaling::kLlama3) {
    const double turns = rope.original_context * plain / two_pi;  // over the original context
    const double keep =
        std::clamp((turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor), 0.0, 1.0);
    turn.angle = keep * plain + (1 - keep) * plain / rope.factor;
  }
  if (rope.scaling == RopeScaling::kYarn) {
    const auto index = [&](double turns) {
      return width * std::log(rope.original_context / (turns * two_pi)) / (2 * std::log(rope.theta));
    };
    double low = index(rope.beta_fast), high = index(rope.beta_slow);
    if (rope.truncate) low = std::floor(low), high = std::ceil(high);
    low = std::max(0.0, low), high = std::min(width - 1, high);
    const double scaled = std::clamp((j - low) / (high == low ? 0.001 : high - low), 0.0, 1.0);
    turn.angle = scaled * plain / rope.factor + (1 - scaled) * plain;
    turn.factor = rope.factor > 1 ? 0.1 * std::log(rope.factor) + 1 : 1;
  }
  if (rope.scaling == RopeScaling::kLongRope) {
    turn.angle = plain / (long_range ? rope.long_factor : rope.short_factor)[j];
    if (rope.factor > 1) turn.factor = std::sqrt(1 + std::log(rope.factor) / std::log(rope.original_context));
  }
  if (!rope.frequency_divisors.empty()) turn.angle /= rope.frequency_divisors[j];
  if (rope.attention_factor != 0) turn.factor = rope.attention_factor;
  return turn;
}

void Rotate(const RopeConfig& rope, int position, int final_length, double* head) {
  for (int j = 0; j < rope.rotary_width / 2; ++j) {
    const bool half = rope.order == RopeOrder::kHalf;
    double& a = head[half ? j : 2 * j];
    double& b = head[half ? j + rope.rotary_width / 2 : 2 * j + 1];
    const Turn turn = TurnOf(rope, j, final_length > rope.original_context);
    const double cos = std::cos(position * turn.angle) * turn.factor,
                 sin = std::sin(position * turn.angle) * turn.factor;
    const double a0 = a, b0 = b;
    a = a0 * cos - b0 * sin;
    b = b0 * cos + a0 * sin;
  }
}

void AddTo(Row& x, const Row& y, double scale) {
  for (size_t i = 0; i < x.size(); ++i) x[i] += scale * y[i];
}

}  // namespace

Row ReferenceModel::Ffn(const std::string& gate, const std::string& up, const std::string& down, const Row& x) const {
  Row hidden = Apply(gate, x);
  const Row other = Apply(up, x);
  for (size_t i = 0; i < hidden.size(); ++i) hidden[i] = Activate(config_.activation, hidden[i]) * other[i];
  return Apply(down, hidden);
}

Row ReferenceModel::Experts(const std::string& below, const Row& x) const {
  Row shares = Apply(below + "ffn_gate_inp", x);
  Softmax(shares);
  std::vector<int> order(shares.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return shares[a] > shares[b]; });
  order.resize(config_.experts_per_token);
  double sum = 0;
  for (const int e : order) sum += shares[e];
  Row y(x.size(), 0.0);
  for (const int e : order) {
    const std::string number = std::to_string(e);
    AddTo(y, Ffn(below + "ffn_gate." + number, below + "ffn_up." + number, below + "ffn_down." + number, x),
          config_.renormalise_experts ? shares[e] / sum : shares[e]);
  }
  if (Has(below + "ffn_gate_inp_shexp.weight")) {
    const double gate = Apply(below + "ffn_gate_inp_shexp", x)[0];
    AddTo(y, Ffn(below + "ffn_gate_shexp", below + "ffn_up_shexp", below + "ffn_down_shexp", x),
          1 / (1 + std::exp(-gate)));
  }
  return y;
}

void ReferenceModel::AddAttention(int layer, int final_length, Rows& x) const {
  const std::string below = "blk." + std::to_string(layer) + ".";
  const int width = config_.head_width, window = config_.layer[layer].window;
  const RopeConfig& rope = config_.ropes[config_.layer[layer].rope];
  Rows keys, values;
  for (size_t t = 0; t < x.size(); ++t) {
    const int position = static_cast<int>(t);
    const Row in = Has(below + "attn_norm.weight") ? Norm(x[t], below + "attn_norm") : x[t];
    Row q = Apply(below + "attn_q", in), k = Apply(below + "attn_k", in);
    if (Has(below + "attn_q_norm.weight")) {
      q = Norm(q, below + "attn_q_norm");
      k = Norm(k, below + "attn_k_norm");
    }
    for (int h = 0; h < config_.heads; ++h) Rotate(rope, position, final_length, &q[h * width]);
    for (int h = 0; h < config_.kv_heads; ++h) Rotate(rope, position, final_length, &k[h * width]);
    keys.push_back(std::move(k));
    values.push_back(Apply(below + "attn_v", in));

    // Later rows still hold their input: x[t] is written only after its own keys are made.
    const int first = window > 0 ? std::max(0, position - window + 1) : 0;
    Row joined(config_.heads * width, 0.0);
    for (int h = 0; h < config_.heads; ++h) {
      const int kv_head = h / (config_.heads / config_.kv_heads);
      std::vector<double> scores;
      for (int p = first; p <= position; ++p) {
        double dot = 0;
        for (int i = 0; i < width; ++i) dot += q[h * width + i] * keys[p][kv_head * width + i];
        scores.push_back(Cap(dot * config_.attention_scale, config_.attention_soft_cap));
      }
      Softmax(scores);
      for (int p = first; p <= position; ++p) {
        for (int i = 0; i < width; ++i) joined[h * width + i] += scores[p - first] * values[p][kv_head * width + i];
      }
    }
    Row out = Apply(below + "attn_output", joined);
    if (Has(below + "post_attention_norm.weight")) out = Norm(out, below + "post_attention_norm");
    AddTo(x[t], out, config_.residual_scale);
  }
}

void ReferenceModel::AddFeedForward(int layer, Rows& x) const {
  const std::string below = "blk." + std::to_string(layer) + ".";
  for (Row& row : x) {
    const Row in = Has(below + "ffn_norm.weight") ? Norm(row, below + "ffn_norm") : row;
    Row out = Has(below + "ffn_gate_inp.weight") ? Experts(below, in)
                                                 : Ffn(below + "ffn_gate", below + "ffn_up", below + "ffn_down", in);
    if (Has(below + "post_ffw_norm.weight")) out = Norm(out, below + "post_ffw_norm");
    AddTo(row, out, config_.residual_scale);
  }
}

Pass ReferenceModel::Run(std::span<const int32_t> tokens, int final_length) const {
  Pass pass;
  Rows x;
  const Matrix& embedding = Get("token_embd.weight");
  for (const int32_t token : tokens) {
    Row row(config_.width);
    for (int i = 0; i < config_.width; ++i) {
      row[i] = double{embedding.values[int64_t{token} * config_.width + i]} * config_.embedding_scale;
    }
    x.push_back(std::move(row));
  }
  pass.states.push_back(x);
  for (int layer = 0; layer < config_.layers; ++layer) {
    AddAttention(layer, final_length, x);
    AddFeedForward(layer, x);
    pass.states.push_back(x);
  }
  for (Row& row : x) row = Norm(row, "output_norm");
  pass.states.push_back(x);
  for (const Row& row : x) {
    Row logits = Apply(config_.tied_embeddings ? "token_embd" : "output", row);
    for (double& logit : logits) logit = Cap(logit * config_.logits_scale, config_.logits_soft_cap);
    pass.logits.push_back(std::move(logits));
  }
  return pass;
}

}  // namespace hone::reference
