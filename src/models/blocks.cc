// See blocks.h. Element-wise work is called row by row, so that a row's place never decides which of its numbers fall
// into a kernel's vector part and which into its remainder.
#include "models/blocks.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/activation/activation.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/embed/embed.h"
#include "kernels/norm/norm.h"
#include "kernels/rope/rope.h"

namespace hone {
namespace {

// Below this many numbers, waking the other threads costs more than the work.
constexpr int64_t kInlineNumbers = 32 * 1024;

// fn(begin, end) over rows, on all threads if it is worth it.
template <typename Fn>
void ForRows(const Step& step, int64_t rows, int64_t numbers_a_row, Fn fn) {
  if (rows * numbers_a_row <= kInlineNumbers || rows == 1) {
    fn(size_t{0}, static_cast<size_t>(rows));
  } else {
    step.runtime.threads->ParallelFor(static_cast<size_t>(rows), 1, fn);
  }
}

Buffer Floats(int64_t rows, int64_t width) { return Buffer(static_cast<size_t>(rows) * width * sizeof(float)); }

int64_t QueryWidth(const ModelConfig& config) { return int64_t{config.heads} * config.head_width; }
int64_t KvWidth(const ModelConfig& config) { return int64_t{config.kv_heads} * config.head_width; }

// F of the layers without experts, 0 if there are none.
int64_t DenseWidth(const ModelConfig& config) {
  const bool dense =
      std::any_of(config.layer.begin(), config.layer.end(), [](const LayerConfig& layer) { return !layer.experts; });
  return dense ? config.ffn_width : 0;
}

// Numbers a row needs in gate and up, over all its experts.
int64_t FfnNumbers(const ModelConfig& config) {
  return std::max({DenseWidth(config), int64_t{config.experts_per_token} * config.expert_ffn_width,
                   int64_t{config.shared_ffn_width}});
}

int64_t LongestInput(const ModelConfig& config) {
  return std::max({int64_t{config.width}, QueryWidth(config), DenseWidth(config), int64_t{config.expert_ffn_width},
                   int64_t{config.shared_ffn_width}});
}

// Rows of x and y lie one after the other. Until InOrder, x_stride is what a row has; the matrix may be wider.
MatmulJob Job(const PackedMatrix& weight, const float* x, int64_t inputs, float* y, int64_t m, const float* bias) {
  return {.weight = &weight, .x = x, .x_stride = inputs, .y = y, .y_stride = weight.n(), .m = m, .bias = bias};
}
MatmulJob Job(const Linear& linear, const float* x, float* y, int64_t m) {
  return Job(linear.weight, x, linear.inputs, y, m, linear.bias_or_null());
}

// The jobs, with inputs put in order and filled up with zeros for the matrices that want them so; such inputs are read once for all that share them.
std::span<const MatmulJob> InOrder(Step& step, std::span<const MatmulJob> jobs) {
  StepScratch& scratch = step.scratch;
  if (scratch.orders == nullptr) [[likely]] return jobs;
  const auto order_of = [&](const MatmulJob& job) {
    const auto found = scratch.orders->find(job.weight);
    return found == scratch.orders->end() ? nullptr : found->second;
  };
  size_t most = 0;
  for (const MatmulJob& job : jobs) most += order_of(job) != nullptr ? job.m * job.weight->k() : 0;
  if (most == 0) return jobs;
  if (scratch.ordered.size() < most) scratch.ordered.resize(most);
  scratch.ordered_jobs.assign(jobs.begin(), jobs.end());
  size_t used = 0;
  for (size_t i = 0; i < jobs.size(); ++i) {
    const std::vector<int32_t>* order = order_of(jobs[i]);
    if (order == nullptr || jobs[i].m == 0) continue;
    MatmulJob& job = scratch.ordered_jobs[i];
    const int64_t k = job.weight->k();
    const auto same = [&](const MatmulJob& other) {
      return other.x == job.x && other.x_stride == job.x_stride && other.m == job.m && order_of(other) == order;
    };
    if (const auto before = std::find_if(jobs.begin(), jobs.begin() + i, same); before != jobs.begin() + i) {
      job.x = scratch.ordered_jobs[before - jobs.begin()].x;
      job.x_stride = k;
      continue;
    }
    float* out = scratch.ordered.data() + used;
    used += job.m * k;
    ForRows(step, job.m, k, [&](size_t begin, size_t end) {
      for (size_t r = begin; r < end; ++r) {
        const float* x = jobs[i].x + static_cast<int64_t>(r) * jobs[i].x_stride;
        for (int64_t c = 0; c < k; ++c) out[static_cast<int64_t>(r) * k + c] = (*order)[c] < 0 ? 0 : x[(*order)[c]];
      }
    });
    job.x = out;
    job.x_stride = k;
  }
  return scratch.ordered_jobs;
}

// `adapters`: which rows of the jobs have one. REQUIRES for those: extra.finish is null.
void Run(Step& step, std::span<const MatmulJob> jobs, const MatmulExtra& extra, std::span<const AdapterRows> adapters) {
  if (const InputWatch* watch = step.scratch.watch; watch != nullptr) [[unlikely]] {
    for (const MatmulJob& job : jobs) watch->observer(watch->names.at(job.weight), job.x, job.x_stride, job.m, job.x_stride);
    if (watch->only_inputs && !jobs.empty() && watch->names.at(jobs.front().weight).find(".ffn_down") != std::string::npos) return;
  }
  Matmul(InOrder(step, jobs), step.scratch.matmul, *step.runtime.threads, extra);
  AddLowRank(jobs, adapters, step.scratch.low_rank, step.scratch.matmul, step.runtime);
}
void Run(Step& step, std::span<const MatmulJob> jobs, const MatmulExtra& extra = {}) { Run(step, jobs, extra, step.scratch.adapters); }

// gate = act(gate) * up, rows of `width`.
void Activate(Step& step, float* gate, const float* up, int64_t rows, int64_t width) {
  ForRows(step, rows, width * 4, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      GatedActivation(step.config.activation, gate + i * width, up + i * width, gate + i * width, width,
                      step.runtime.isa);
    }
  });
}

void NormRows(const Step& step, const float* in, float* out, const float* weight, int64_t rows, int64_t width) {
  ForRows(step, rows, width, [&](size_t begin, size_t end) {
    const int64_t offset = static_cast<int64_t>(begin) * width;
    RmsNorm({.x = in + offset,
             .x_stride = width,
             .y = out + offset,
             .y_stride = width,
             .weight = weight,
             .eps = step.config.norm_eps,
             .rows = static_cast<int64_t>(end - begin),
             .width = width},
            step.runtime.isa);
  });
}

}  // namespace

RopeTables::RopeTables(const ModelConfig& config) {
  const bool longrope = std::any_of(config.ropes.begin(), config.ropes.end(),
                                    [](const RopeConfig& rope) { return rope.scaling == RopeScaling::kLongRope; });
  for (const RopeConfig& rope : config.ropes) {
    near.emplace_back(rope, false);
    if (longrope) far.emplace_back(rope, true);
  }
}

void RopeTables::Extend(int positions) {
  for (RopeTable& table : near) table.Extend(positions);
  for (RopeTable& table : far) table.Extend(positions);
}

StepScratch::StepScratch(const ModelConfig& config, int max_rows)
    : matmul(int64_t{max_rows} * std::max(1, config.experts_per_token), LongestInput(config)),
      gated(max_rows, config.width, std::max<int64_t>(DenseWidth(config), config.shared_ffn_width)),
      x(Floats(max_rows, config.width)),
      h(Floats(max_rows, config.width)),
      y(Floats(max_rows, config.width)),
      q(Floats(max_rows, QueryWidth(config))),
      k(Floats(max_rows, KvWidth(config))),
      v(Floats(max_rows, KvWidth(config))),
      attention(
          Floats(max_rows, std::max<int64_t>(QueryWidth(config), config.shared_ffn_width > 0 ? config.width : 0))),
      gate(Floats(max_rows, FfnNumbers(config))),
      up(Floats(max_rows, FfnNumbers(config))),
      router(Floats(max_rows, std::max(1, config.experts))),
      gathered(Floats(max_rows, int64_t{config.experts_per_token} * config.width)) {
  positions.reserve(max_rows);
  const size_t choices = static_cast<size_t>(max_rows) * config.experts_per_token;
  expert_ids.resize(choices);
  expert_weights.resize(choices);
  expert_rows.resize(choices);
  expert_begin.resize(config.experts + 1);
  jobs.reserve(2 * config.experts + 3);
}

Step BeginStep(const ModelConfig& config, const Runtime& runtime, const ForwardBatch& batch, const KvLayers& kv,
               RopeTables& ropes, StepScratch& scratch) {
  scratch.positions.clear();
  int length = 0;
  for (const SequenceRows& sequence : batch.sequences) {
    HONE_CHECK(sequence.first_row == static_cast<int>(scratch.positions.size()),
               "sequences must cover the rows in order");
    for (int i = 0; i < sequence.rows; ++i) scratch.positions.push_back(sequence.first_position + i);
    length = std::max(length, sequence.first_position + sequence.rows);
  }
  HONE_CHECK(scratch.positions.size() == batch.tokens.size(), "sequences must cover all rows");
  ropes.Extend(length);
  FindAdapterRows(batch, false, &scratch.adapters);
  return {.config = config,
          .runtime = runtime,
          .batch = batch,
          .kv = kv,
          .ropes = ropes,
          .scratch = scratch,
          .rows = static_cast<int>(batch.tokens.size()),
          .x = scratch.x.as<float>(),
          .h = scratch.h.as<float>(),
          .y = scratch.y.as<float>(),
          .q = scratch.q.as<float>(),
          .k = scratch.k.as<float>(),
          .v = scratch.v.as<float>(),
          .attention = scratch.attention.as<float>()};
}

void Norm(Step& step, const float* in, const std::vector<float>& weight, float* out) {
  const OpScope scope(step.scratch.times, Op::kNorm);
  NormRows(step, in, out, weight.data(), step.rows, step.config.width);
}

void ProjectQkv(Step& step, const LayerWeights& weights, const float* in) {
  const OpScope scope(step.scratch.times, Op::kProjection);
  const MatmulJob jobs[] = {Job(weights.q, in, step.q, step.rows), Job(weights.k, in, step.k, step.rows),
                            Job(weights.v, in, step.v, step.rows)};
  Run(step, jobs, {.next = &weights.attn_output.weight});
}

void NormHeads(Step& step, const LayerWeights& weights) {
  const OpScope scope(step.scratch.times, Op::kNorm);
  const ModelConfig& config = step.config;
  NormRows(step, step.q, step.q, weights.q_norm.data(), int64_t{step.rows} * config.heads, config.head_width);
  NormRows(step, step.k, step.k, weights.k_norm.data(), int64_t{step.rows} * config.kv_heads, config.head_width);
}

void NormProjections(Step& step, const LayerWeights& weights) {
  const OpScope scope(step.scratch.times, Op::kNorm);
  NormRows(step, step.q, step.q, weights.q_norm.data(), step.rows, QueryWidth(step.config));
  NormRows(step, step.k, step.k, weights.k_norm.data(), step.rows, KvWidth(step.config));
}

void Rotate(Step& step, const LayerWeights& weights) {
  const OpScope scope(step.scratch.times, Op::kRope);
  const ModelConfig& config = step.config;
  const RopeConfig& rope = config.ropes[weights.config->rope];
  if (rope.rotary_width == 0) return;
  const auto rotate = [&](const RopeTable& table, int64_t first, int64_t rows) {
    ForRows(step, rows, QueryWidth(config), [&](size_t begin, size_t end) {
      const int64_t row = first + static_cast<int64_t>(begin);
      RopeArgs args{.x = step.q + row * QueryWidth(config),
                    .x_stride = QueryWidth(config),
                    .rows = static_cast<int64_t>(end - begin),
                    .heads = config.heads,
                    .head_width = config.head_width,
                    .rotary_width = rope.rotary_width,
                    .order = rope.order,
                    .positions = step.scratch.positions.data() + row,
                    .cos = table.cos(),
                    .sin = table.sin()};
      Rope(args, step.runtime.isa);
      args.x = step.k + row * KvWidth(config);
      args.x_stride = KvWidth(config);
      args.heads = config.kv_heads;
      Rope(args, step.runtime.isa);
    });
  };
  const RopeTable& near = step.ropes.near[weights.config->rope];
  if (rope.scaling != RopeScaling::kLongRope) return rotate(near, 0, step.rows);
  // A sequence keeps one set of factors for life, chosen by the length it will reach: cached keys never change theirs.
  for (const SequenceRows& sequence : step.batch.sequences) {
    const int length = std::max(sequence.final_length, sequence.first_position + sequence.rows);
    const bool far = length > rope.original_context;
    rotate(far ? step.ropes.far[weights.config->rope] : near, sequence.first_row, sequence.rows);
  }
}

void Attend(Step& step, const LayerWeights& weights) {
  const OpScope scope(step.scratch.times, Op::kAttention);
  const ModelConfig& config = step.config;
  StepScratch& scratch = step.scratch;
  scratch.stores.clear();
  scratch.attention_jobs.clear();
  for (const SequenceRows& sequence : step.batch.sequences) {
    if (sequence.rows == 0) continue;
    const KvView view = step.kv.View(weights.index, sequence.blocks);
    const int64_t q_offset = sequence.first_row * QueryWidth(config), kv_offset = sequence.first_row * KvWidth(config);
    scratch.stores.push_back({.k = step.k + kv_offset,
                              .k_stride = KvWidth(config),
                              .v = step.v + kv_offset,
                              .v_stride = KvWidth(config),
                              .rows = sequence.rows,
                              .first_position = sequence.first_position,
                              .kv = view});
    scratch.attention_jobs.push_back({.q = step.q + q_offset,
                                      .q_stride = QueryWidth(config),
                                      .out = step.attention + q_offset,
                                      .out_stride = QueryWidth(config),
                                      .rows = sequence.rows,
                                      .first_position = sequence.first_position,
                                      .kv = view});
  }
  StoreKv(scratch.stores, step.runtime.isa, *step.runtime.threads);
  Attention(scratch.attention_jobs,
            {.heads = config.heads,
             .scale = config.attention_scale,
             .soft_cap = config.attention_soft_cap,
             .window = weights.config->window,
             .exact = step.exact,
             .fastest_for_few = !step.deterministic},
            step.runtime.isa, *step.runtime.threads);
}

void Project(Step& step, const Linear& linear, const float* in, float* out) {
  const OpScope scope(step.scratch.times, Op::kProjection);
  const MatmulJob job = Job(linear, in, out, step.rows);
  Run(step, {&job, 1}, {.next = linear.next});
}

namespace {

// Where many rows take tiles. False: nothing was done.
bool GatedFfnAtOnce(Step& step, const FfnWeights& ffn, const float* in, float* out) {
  const auto activate = [&step](float* gate, const float* up, int64_t n) {
    GatedActivation(step.config.activation, gate, up, gate, n, step.runtime.isa);
  };
  const FunctionRef<void(float*, const float*, int64_t)> activation = activate;
  return step.scratch.gated.Run({.gate = &ffn.gate.weight,
                                 .up = &ffn.up.weight,
                                 .down = &ffn.down.weight,
                                 .gate_bias = ffn.gate.bias_or_null(),
                                 .up_bias = ffn.up.bias_or_null(),
                                 .down_bias = ffn.down.bias_or_null(),
                                 .x = in,
                                 .x_stride = ffn.gate.weight.k(),
                                 .y = out,
                                 .y_stride = ffn.down.weight.n(),
                                 .m = step.rows,
                                 .activate = &activation},
                                *step.runtime.threads);
}

}  // namespace

void GatedFfn(Step& step, const FfnWeights& ffn, const float* in, float* out) {
  const OpScope scope(step.scratch.times, Op::kFfn);
  const bool adapted = !step.scratch.adapters.empty();  // then the products are not done when their columns are
  const bool ordered = ffn.gate.columns != nullptr || ffn.up.columns != nullptr || ffn.down.columns != nullptr;
  if (!adapted && !ordered && step.scratch.watch == nullptr && GatedFfnAtOnce(step, ffn, in, out)) return;
  float* gate = step.scratch.gate.as<float>();
  float* up = step.scratch.up.as<float>();
  const MatmulJob jobs[] = {Job(ffn.gate, in, gate, step.rows), Job(ffn.up, in, up, step.rows)};
  const int64_t width = ffn.gate.weight.n();
  // Columns begin at multiples of 32, so no number changes between a kernel's vector part and its remainder.
  const auto activate = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < begin + step.rows * width; i += width) {
      GatedActivation(step.config.activation, gate + i, up + i, gate + i, end - begin, step.runtime.isa);
    }
  };
  const FunctionRef<void(int64_t, int64_t)> finish = activate;
  Run(step, jobs, {.finish = adapted ? nullptr : &finish, .next = &ffn.down.weight});
  if (adapted) Activate(step, gate, up, step.rows, width);
  Project(step, ffn.down, gate, out);
}

namespace {

// Sorts (row, choice) pairs by expert, stably: expert e has gathered rows [expert_begin[e], expert_begin[e + 1]).
void SortByExpert(StepScratch& scratch, int64_t choices, int experts) {
  std::vector<int32_t>& begin = scratch.expert_begin;
  std::fill(begin.begin(), begin.end(), 0);
  for (int64_t i = 0; i < choices; ++i) ++begin[scratch.expert_ids[i] + 1];
  for (int e = 0; e < experts; ++e) begin[e + 1] += begin[e];
  for (int64_t i = 0; i < choices; ++i) scratch.expert_rows[i] = begin[scratch.expert_ids[i]]++;
  for (int e = experts; e > 0; --e) begin[e] = begin[e - 1];  // the pass above moved every start to the next one's
  begin[0] = 0;
}

}  // namespace

void Experts(Step& step, const LayerWeights& weights, const RouteParams& route, const float* in, float* out) {
  const OpScope scope(step.scratch.times, Op::kExperts);
  StepScratch& scratch = step.scratch;
  const int64_t width = step.config.width, ffn_width = step.config.expert_ffn_width, chosen = route.chosen;
  const int64_t choices = step.rows * chosen;
  Project(step, weights.router, in, scratch.router.as<float>());
  RouteExperts(route, scratch.router.as<float>(), step.rows, scratch.expert_ids.data(), scratch.expert_weights.data());
  SortByExpert(scratch, choices, route.experts);

  float* gathered = scratch.gathered.as<float>();
  float* gate = scratch.gate.as<float>();
  float* up = scratch.up.as<float>();
  const bool one_row = step.rows == 1;  // then all experts read the same row, and share its rounding
  if (!one_row) {
    ForRows(step, step.rows, chosen * width, [&](size_t begin, size_t end) {
      for (size_t i = begin * chosen; i < end * chosen; ++i) {
        std::memcpy(gathered + scratch.expert_rows[i] * width, in + i / chosen * width, width * sizeof(float));
      }
    });
  }
  scratch.jobs.clear();
  for (int e = 0; e < route.experts; ++e) {
    const int64_t first = scratch.expert_begin[e], rows = scratch.expert_begin[e + 1] - first;
    if (rows == 0) continue;
    const float* x = one_row ? in : gathered + first * width;
    scratch.jobs.push_back(Job(weights.experts[e].gate, x, gate + first * ffn_width, rows));
    scratch.jobs.push_back(Job(weights.experts[e].up, x, up + first * ffn_width, rows));
  }
  Run(step, scratch.jobs);
  Activate(step, gate, up, choices, ffn_width);

  scratch.jobs.clear();
  for (int e = 0; e < route.experts; ++e) {
    const int64_t first = scratch.expert_begin[e], rows = scratch.expert_begin[e + 1] - first;
    if (rows > 0)
      scratch.jobs.push_back(Job(weights.experts[e].down, gate + first * ffn_width, gathered + first * width, rows));
  }
  Run(step, scratch.jobs);
  ForRows(step, step.rows, chosen * width, [&](size_t begin, size_t end) {
    std::fill(out + begin * width, out + end * width, 0.0f);
    for (size_t i = begin * chosen; i < end * chosen; ++i) {
      AddScaled(out + i / chosen * width, gathered + scratch.expert_rows[i] * width, scratch.expert_weights[i], width,
                step.runtime.isa);
    }
  });
}

void SharedExpert(Step& step, const LayerWeights& weights, const float* in, float* out) {
  const OpScope scope(step.scratch.times, Op::kExperts);
  const int64_t width = step.config.width;
  float* gates = step.scratch.router.as<float>();  // one number a row; the router's logits are no longer needed
  Project(step, weights.shared_gate, in, gates);
  GatedFfn(step, weights.shared, in, step.attention);
  ForRows(step, step.rows, width, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      AddScaled(out + i * width, step.attention + i * width, 1 / (1 + std::exp(-gates[i])), width, step.runtime.isa);
    }
  });
}

void AddResidual(Step& step, const float* from) {
  const OpScope scope(step.scratch.times, Op::kResidual);
  const int64_t width = step.config.width;
  ForRows(step, step.rows, width, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      AddScaled(step.x + i * width, from + i * width, step.config.residual_scale, width, step.runtime.isa);
    }
  });
}

void AddResidualAndNorm(Step& step, const float* from, const std::vector<float>& weight, float* out) {
  const OpScope scope(step.scratch.times, Op::kNorm);
  const int64_t width = step.config.width;
  ForRows(step, step.rows, width, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      float* x = step.x + i * width;
      AddScaled(x, from + i * width, step.config.residual_scale, width, step.runtime.isa);
      RmsNorm({.x = x,
               .x_stride = width,
               .y = out + i * width,
               .y_stride = width,
               .weight = weight.data(),
               .eps = step.config.norm_eps,
               .rows = 1,
               .width = width},
              step.runtime.isa);
    }
  });
}

void Embed(Step& step, const TensorView& table) {
  const OpScope scope(step.scratch.times, Op::kEmbed);
  ForRows(step, step.rows, step.config.width * 2, [&](size_t begin, size_t end) {
    EmbedRows(table, step.batch.tokens.data() + begin, static_cast<int64_t>(end - begin), step.config.embedding_scale,
              step.x + begin * step.config.width, step.config.width, step.runtime.isa);
  });
}

void Logits(Step& step, const ModelWeights& weights, float* logits) {
  const OpScope scope(step.scratch.times, Op::kOutput);
  const ModelConfig& config = step.config;
  const int64_t width = config.width, vocab = config.vocab, rows = static_cast<int64_t>(step.batch.logit_rows.size());
  if (rows == 0) return;
  for (int64_t i = 0; i < rows; ++i) {
    std::memcpy(step.h + i * width, step.x + step.batch.logit_rows[i] * width, width * sizeof(float));
  }
  NormRows(step, step.h, step.h, weights.output_norm.data(), rows, width);
  const MatmulJob job = Job(weights.output, step.h, width, logits, rows, nullptr);
  FindAdapterRows(step.batch, true, &step.scratch.logit_adapters);
  Run(step, {&job, 1}, {}, step.scratch.logit_adapters);
  if (config.logits_scale == 1 && config.logits_soft_cap == 0) return;
  // Fixed pieces of a row, so that one row of a large vocabulary is spread over the threads too.
  constexpr int64_t kPiece = 4096;
  const int64_t pieces = (vocab + kPiece - 1) / kPiece;
  ForRows(step, rows * pieces, kPiece, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      const int64_t first = static_cast<int64_t>(i) % pieces * kPiece;
      float* part = logits + static_cast<int64_t>(i) / pieces * vocab + first;
      const int64_t n = std::min(kPiece, vocab - first);
      if (config.logits_scale != 1) Scale(part, config.logits_scale, n, step.runtime.isa);
      if (config.logits_soft_cap != 0) SoftCap(part, config.logits_soft_cap, n, step.runtime.isa);
    }
  });
}

}  // namespace hone
