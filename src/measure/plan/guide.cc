// See guide.h. Every step is a function: a deployment and what bounds it in, a proposal or nothing out. A step is
// proposed only where the arithmetic of deployment.h says that it helps.
#include "measure/plan/guide.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

namespace hone {
namespace {

constexpr double kLeastGain = 0.03;  // less is not worth a change
constexpr int kMostSteps = 12;
constexpr double kMostUnaskedKld = 0.1;  // a published divergence above it is not proposed unless the user allows it

std::string Upper(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return std::toupper(c); });
  return out;
}

bool IsGguf(const WeightFormat& format) { return format.name.size() > 1 && format.name[0] == 'q' && std::isdigit(static_cast<unsigned char>(format.name[1])); }

std::string Percent(double before, double after) { return fmt::format("{:.0f} %", 100 * (1 - after / before)); }

// How speed is measured: hone runs CPUs; a card's server is measured over HTTP.
std::string SpeedTest(const Deployment& d, const std::string& model) {
  if (!d.hardware.cpu) return fmt::format("hone load URL --concurrency {} against the card's server, before and after", d.concurrency);
  return fmt::format("hone profile {} --input {} --output {} --concurrency {}", model, d.input, d.output, d.concurrency);
}

double StepTail(const Deployment& d) {  // a stream's gap while another prompt is computed
  const int rows = std::max(1, std::min(d.step_tokens, d.input - d.cached_input));
  return PredictStep(d, 1, rows, d.input - rows).seconds();
}

// What a proposal must improve: smaller is better.
double Score(const Deployment& d, Target target, const Constraints& asked) {
  switch (target) {
    case Target::kMemory: {
      Deployment full = d;  // with as many sequences as must fit
      full.concurrency = std::max(d.concurrency, asked.sequences);
      const MemoryAccount account = AccountMemory(full);
      return account.needed_bytes / std::max(1.0, account.usable_bytes);
    }
    case Target::kTtft: return Predict(d).ttft_s;
    case Target::kTpot: return Predict(d).tpot_s;
    case Target::kGap: return StepTail(d);
  }
  return 0;
}

Proposal Make(const char* move, const Deployment& after) {
  Proposal proposal;
  proposal.move = move;
  proposal.after = after;
  return proposal;
}

struct Question {
  const Deployment& now;
  const Finding& finding;
  const Constraints& asked;
  const std::string& model;
  bool Is(std::initializer_list<Bottleneck> list) const {
    return std::find(list.begin(), list.end(), finding.bottleneck) != list.end();
  }
  bool Helps(const Deployment& after) const {
    return Score(after, finding.target, asked) <= Score(now, finding.target, asked) * (1 - kLeastGain);
  }
  // Nothing that was asked is in the way any more in the same respect.
  bool Settles(const Deployment& after) const {
    const std::optional<Finding> left = FindBottleneck(after, asked);
    return !left || left->target != finding.target;
  }
};
using Answer = std::optional<Proposal>;

Answer ReserveLess(const Question& q) {
  if (!q.Is({Bottleneck::kCapacity}) || q.now.context <= q.now.input + q.now.output) return std::nullopt;
  Deployment after = q.now;
  after.context = q.now.input + q.now.output;
  const MemoryAccount before = AccountMemory(q.now), then = AccountMemory(after);
  Proposal p = Make("reserve-less", after);
  p.what = fmt::format("plan for the {} tokens that requests use, not for {} (--ctx {})", after.context, q.now.context, after.context);
  p.gain = fmt::format("a sequence takes {} in place of {}; {} fit in place of {}", SayBytes(then.kv_sequence_bytes),
                       SayBytes(before.kv_sequence_bytes), then.most_sequences, before.most_sequences);
  p.risk = "longer requests are refused; look at the lengths of real traffic first";
  p.test = fmt::format("hone load URL --ctx {} with the lengths of real traffic: no request refused", after.context);
  p.undo = "start with the old --ctx";
  return p;
}

Answer KvInt8(const Question& q) {
  if (!q.Is({Bottleneck::kCapacity, Bottleneck::kKvBandwidth}) || q.now.kv.bits < 16 || KvTokenBytes(q.now.shape, q.now.kv) == 0)
    return std::nullopt;
  Deployment after = q.now;
  after.kv = *FindKvFormat(q.now.hardware.cpu ? "int8" : "fp8");
  const MemoryAccount before = AccountMemory(q.now), then = AccountMemory(after);
  Proposal p = Make("kv-8bit", after);
  p.what = fmt::format("keep keys and values in 8 bits ({})",
                       q.now.hardware.cpu ? "--kv int8" : "the server's FP8 cache");
  p.gain = fmt::format("{} a token in place of {}: {} sequences of {} tokens fit in place of {}, TPOT {} in place of {}",
                       SayBytes(then.kv_token_bytes), SayBytes(before.kv_token_bytes), then.most_sequences,
                       q.now.reserved_tokens(), before.most_sequences, SaySeconds(Predict(after).tpot_s),
                       SaySeconds(Predict(q.now).tpot_s));
  p.risk = "attention to far tokens loses a little; models with a few large key channels lose more";
  p.test = fmt::format("hone eval kld {0} --base {0} --kv int8 -f TEXT, and hone eval needle {0} --kv int8", q.model);
  p.undo = "start without the flag";
  return p;
}

Answer SmallerStep(const Question& q) {
  if (!q.Is({Bottleneck::kLongTail}) || q.now.step_tokens <= 32) return std::nullopt;
  Deployment after = q.now;
  after.step_tokens = std::clamp(q.now.input - q.now.cached_input, 32, q.now.step_tokens);
  do {
    after.step_tokens = std::max(32, after.step_tokens / 2);
  } while (after.step_tokens > 32 && q.asked.p99_gap_s > 0 && StepTail(after) > q.asked.p99_gap_s);
  if (!q.Helps(after)) return std::nullopt;
  const double before_s = StepTail(q.now), then_s = StepTail(after);
  Proposal p = Make("smaller-step", after);
  p.what = q.now.hardware.cpu
               ? fmt::format("cut prompts into steps of about {} tokens (--step-ms {:.0f})", after.step_tokens, std::max(1.0, 1e3 * then_s))
               : fmt::format("cut prompts into chunks of {} tokens (the server's prefill chunk)", after.step_tokens);
  p.gain = fmt::format("a stream waits {} for somebody's prompt in place of {}; a prompt of {} tokens takes {} in place of {}",
                       SaySeconds(then_s), SaySeconds(before_s), q.now.input, SaySeconds(Predict(after).ttft_s),
                       SaySeconds(Predict(q.now).ttft_s));
  p.risk = "prompts take longer: weights are read once a step, and small steps use the matrix units less";
  p.test = "hone load URL --rate R (requests a second): p99 of the gaps falls, TTFT stays within its limit";
  p.undo = "start with the old step";
  return p;
}

Answer MoreAtOnce(const Question& q) {
  if (!q.Is({Bottleneck::kQueueing})) return std::nullopt;
  Deployment after = q.now;
  const int64_t most = AccountMemory(q.now).most_sequences;
  after.concurrency = static_cast<int>(std::min<int64_t>(2 * q.now.concurrency, most));
  if (after.concurrency <= q.now.concurrency) return std::nullopt;
  const Prediction before = Predict(q.now), then = Predict(after);
  if (then.tok_s < before.tok_s * (1 + kLeastGain) || (q.asked.tpot_s > 0 && then.tpot_s > q.asked.tpot_s)) return std::nullopt;
  Proposal p = Make("more-at-once", after);
  p.what = fmt::format("decode at most {} at once (--max-sequences {})", after.concurrency, after.concurrency);
  p.gain = fmt::format("{:.0f} tokens/s in place of {:.0f}: weights are read once for all; {} sequences fit", then.tok_s, before.tok_s, most);
  p.risk = fmt::format("each stream slows down: TPOT {} in place of {}", SaySeconds(then.tpot_s), SaySeconds(before.tpot_s));
  p.test = "hone load URL --sweep: goodput rises and p99 TPOT holds";
  p.undo = "start with the old --max-sequences";
  return p;
}

Answer FewerAtOnce(const Question& q) {
  if (q.finding.target != Target::kTpot || q.asked.tpot_s <= 0 || q.now.concurrency <= 1) return std::nullopt;
  if (q.asked.sequences >= q.now.concurrency || Predict(q.now).tpot_s <= q.asked.tpot_s) return std::nullopt;
  Deployment after = q.now;
  while (after.concurrency > std::max(1, q.asked.sequences) && Predict(after).tpot_s > q.asked.tpot_s) --after.concurrency;
  if (!q.Helps(after)) return std::nullopt;
  const Prediction before = Predict(q.now), then = Predict(after);
  Proposal p = Make("fewer-at-once", after);
  p.what = fmt::format("decode at most {} at once (--max-sequences {})", after.concurrency, after.concurrency);
  p.gain = fmt::format("TPOT {} in place of {}: a step reads {} of cache in place of {}", SaySeconds(then.tpot_s),
                       SaySeconds(before.tpot_s), SayBytes(then.decode.kv_bytes), SayBytes(before.decode.kv_bytes));
  p.risk = fmt::format("less throughput, {:.0f} tokens/s in place of {:.0f}; others wait", then.tok_s, before.tok_s);
  p.test = "hone load URL at the real arrival rate: TPOT holds and the queue does not grow";
  p.undo = "start with the old --max-sequences";
  return p;
}

Answer KeepPrefix(const Question& q) {
  if (q.finding.target != Target::kTtft || q.now.cached_input > 0 || q.now.shared_input <= 0) return std::nullopt;
  Deployment after = q.now;
  after.cached_input = std::min(q.now.shared_input, q.now.input - 1);
  Proposal p = Make("keep-prefix", after);
  p.what = fmt::format("put the {} tokens that prompts share first, so that they are computed once", q.now.shared_input);
  p.gain = fmt::format("{} of {} prompt tokens are found in the cache: TTFT {} in place of {}", after.cached_input, q.now.input,
                       SaySeconds(Predict(after).ttft_s), SaySeconds(Predict(q.now).ttft_s));
  p.risk = "the first request of each prefix still computes it; cached blocks leave when memory runs out";
  p.test = "hone load URL --dataset shared-prefix: cached_tokens in usage, TTFT of second and later requests";
  p.undo = "nothing to undo; --no-prefix-cache turns it off";
  return p;
}

Answer SendIds(const Question& q) {
  if (!q.Is({Bottleneck::kTokenizer})) return std::nullopt;
  Proposal p = Make("send-ids", q.now);
  p.what = "send token ids in place of text where the client has them, or split requests over two servers";
  p.gain = "the tokenizer's share of TTFT goes away";
  p.risk = "ids of another tokenizer give nonsense without an error";
  p.test = "hone profile: tokenise share before and after; answers equal on a handful of prompts";
  p.undo = "send text again";
  return p;
}

Answer TensorSplit(const Question& q) {
  if (q.now.hardware.count <= 1 || q.now.split == Split::kTensor || !q.Is({Bottleneck::kWeightBandwidth, Bottleneck::kCompute, Bottleneck::kKvBandwidth}))
    return std::nullopt;
  const std::vector<int> counts = CountCards(q.now).tensor_counts;
  if (std::find(counts.begin(), counts.end(), q.now.hardware.count) == counts.end()) return std::nullopt;
  Deployment after = q.now;
  after.split = Split::kTensor;
  if (!q.Helps(after)) return std::nullopt;
  const Prediction before = Predict(q.now), then = Predict(after);
  Proposal p = Make("tensor-split", after);
  p.what = fmt::format("split every matrix over the {} cards in place of the layers", q.now.hardware.count);
  p.gain = fmt::format("cards read at once in place of one after the other: TPOT {} in place of {}, of which {} are exchanges",
                       SaySeconds(then.tpot_s), SaySeconds(before.tpot_s), SaySeconds(then.decode.link_s));
  p.risk = fmt::format("two exchanges a layer over {}/s links: slow links eat the gain", SayBytes(q.now.hardware.link_bytes_s));
  p.test = SpeedTest(q.now, q.model);
  p.undo = "start with the layer split";
  return p;
}

bool NothingAsked(const Constraints& asked) {
  return asked.ttft_s == 0 && asked.tpot_s == 0 && asked.p99_gap_s == 0 && asked.sequences == 0;
}

Answer SmallerWeights(const Question& q) {
  if (!q.Is({Bottleneck::kCapacity, Bottleneck::kWeightBandwidth, Bottleneck::kKvBandwidth, Bottleneck::kCompute})) return std::nullopt;
  const double now_bytes = BytesOfWeights(q.now.shape, q.now.format).total();
  Answer best;
  for (const WeightFormat& format : WeightFormats()) {
    const bool runs = q.now.hardware.cpu ? IsGguf(format) : !IsGguf(format) && format.bits <= 8.5;
    if (!runs || BytesOfWeights(q.now.shape, format).total() >= now_bytes * (1 - kLeastGain)) continue;
    if (format.kld > (q.asked.kld > 0 ? q.asked.kld : kMostUnaskedKld)) continue;
    Deployment after = q.now;
    after.format = format;
    if (!q.Helps(after)) continue;
    if (best && Score(after, q.finding.target, q.asked) > Score(best->after, q.finding.target, q.asked) * (1 - kLeastGain)) continue;
    best = Make("smaller-weights", after);
    if (NothingAsked(q.asked) || q.Settles(after)) break;  // the best quality that is enough
  }
  if (!best) return std::nullopt;
  const Deployment& after = best->after;
  const Prediction before = Predict(q.now), then = Predict(after);
  best->what = fmt::format("weights as {}, a new file beside the old one", after.format.name);
  best->gain = fmt::format("{} in place of {}: {} less to read for each token, TPOT {} in place of {}",
                           SayBytes(BytesOfWeights(q.now.shape, after.format).total()), SayBytes(now_bytes),
                           Percent(now_bytes, BytesOfWeights(q.now.shape, after.format).total()),
                           SaySeconds(then.tpot_s), SaySeconds(before.tpot_s));
  best->risk = after.format.kld >= 0
                   ? fmt::format("quality: KL divergence {} was published for Llama-3-8B; smaller and newer models lose more", after.format.kld)
                   : "quality: no divergence is published for this format; it depends on calibration, so measure it";
  // A file that is quantised already is a bad source: its losses would be kept and new ones added.
  const bool lossy = q.now.format.bits < 15;
  const std::string source = lossy ? "ORIGINAL" : q.model;
  if (lossy) best->risk += "; quantise from the original weights, not from this file";
  const std::string out = after.format.name + (q.now.hardware.cpu ? ".gguf" : "/");
  const std::string make = q.now.hardware.cpu ? fmt::format("hone quantize {} {} --type {}", source, out, Upper(after.format.name))
                                              : fmt::format("hone quantize {} {} --method {}", source, out,
                                                            after.format.name.substr(0, after.format.name.find('-')));
  best->test = fmt::format("{}; hone eval kld {} --base {} -f TEXT; {}", make, out, source, SpeedTest(after, out));
  best->undo = fmt::format("serve {} again; it was not changed", q.model);
  return best;
}

Answer MoreCards(const Question& q) {
  if (q.now.hardware.cpu || q.Is({Bottleneck::kTokenizer, Bottleneck::kLongTail, Bottleneck::kLink, Bottleneck::kOverhead})) return std::nullopt;
  for (const int count : CountCards(q.now).tensor_counts) {
    if (count <= q.now.hardware.count) continue;
    if (q.asked.most_cards > 0 && count > q.asked.most_cards) break;
    Deployment after = q.now;
    after.hardware.count = count;
    after.split = Split::kTensor;
    if (!q.Settles(after) || !q.Helps(after)) continue;
    const Prediction before = Predict(q.now), then = Predict(after);
    Proposal p = Make("more-cards", after);
    p.what = fmt::format("{} cards in place of {}, every matrix split over them", count, q.now.hardware.count);
    p.gain = fmt::format("{} usable in place of {}; TPOT {} in place of {}, of which {} are exchanges",
                         SayBytes(AccountMemory(after).usable_bytes), SayBytes(AccountMemory(q.now).usable_bytes),
                         SaySeconds(then.tpot_s), SaySeconds(before.tpot_s), SaySeconds(then.decode.link_s));
    p.risk = fmt::format("cost; the count {}; slow links eat the gain", CountCards(q.now).tensor_rule);
    p.test = SpeedTest(q.now, q.model);
    p.undo = "give the cards back";
    return p;
  }
  return std::nullopt;
}

using Move = Answer (*)(const Question&);
constexpr Move kMoves[] = {
#define HONE_MOVE(Name) Name,
#include "measure/plan/guide.inc"
#undef HONE_MOVE
};

Bottleneck FromBound(Bound bound) {
  switch (bound) {
    case Bound::kCompute: return Bottleneck::kCompute;
    case Bound::kWeights: return Bottleneck::kWeightBandwidth;
    case Bound::kKv: return Bottleneck::kKvBandwidth;
    case Bound::kLink: return Bottleneck::kLink;
    case Bound::kOverhead: return Bottleneck::kOverhead;
  }
  return Bottleneck::kCompute;
}

}  // namespace

std::string_view BottleneckName(Bottleneck bottleneck) {
  switch (bottleneck) {
    case Bottleneck::kCompute: return "compute";
    case Bottleneck::kWeightBandwidth: return "weight bandwidth";
    case Bottleneck::kKvBandwidth: return "KV bandwidth";
    case Bottleneck::kCapacity: return "capacity";
    case Bottleneck::kQueueing: return "queueing";
    case Bottleneck::kTokenizer: return "tokeniser";
    case Bottleneck::kLongTail: return "long-tail";
    case Bottleneck::kLink: return "link";
    case Bottleneck::kOverhead: return "overhead";
  }
  return "";
}

std::string SaySeconds(double seconds) {
  if (seconds < 0.9995e-3) return fmt::format("{:.0f} us", seconds * 1e6);
  if (seconds < 0.9995) return fmt::format("{:.{}f} ms", seconds * 1e3, seconds < 0.0995 ? 1 : 0);
  return fmt::format("{:.{}f} s", seconds, seconds < 9.995 ? 2 : 1);
}

std::optional<Finding> FindBottleneck(const Deployment& d, const Constraints& asked) {
  const MemoryAccount memory = AccountMemory(d);
  if (!memory.fits()) {
    return Finding{Target::kMemory, Bottleneck::kCapacity,
                   fmt::format("{} needed for {} sequences of {} tokens, {} usable", SayBytes(memory.needed_bytes), d.concurrency,
                               d.reserved_tokens(), SayBytes(memory.usable_bytes))};
  }
  if (memory.most_sequences < asked.sequences) {
    return Finding{Target::kMemory, Bottleneck::kCapacity, fmt::format("{} sequences of {} tokens fit, {} asked", memory.most_sequences,
                                                      d.reserved_tokens(), asked.sequences)};
  }
  const Prediction prediction = Predict(d);
  if (asked.tpot_s > 0 && prediction.tpot_s > asked.tpot_s) {
    return Finding{Target::kTpot, FromBound(prediction.decode.bound()),
                   fmt::format("TPOT {}, {} asked: a step reads {} of weights and {} of cache and does {}",
                               SaySeconds(prediction.tpot_s), SaySeconds(asked.tpot_s), SayBytes(prediction.decode.weight_bytes),
                               SayBytes(prediction.decode.kv_bytes), SayScaled(prediction.decode.flops, "FLOP"))};
  }
  if (asked.ttft_s > 0 && prediction.ttft_s > asked.ttft_s) {
    return Finding{Target::kTtft, FromBound(prediction.prefill.bound()),
                   fmt::format("TTFT {}, {} asked: a prompt of {} tokens is {}", SaySeconds(prediction.ttft_s),
                               SaySeconds(asked.ttft_s), d.input, SayScaled(prediction.prefill.flops, "FLOP"))};
  }
  if (asked.p99_gap_s > 0 && StepTail(d) > asked.p99_gap_s) {
    return Finding{Target::kGap, Bottleneck::kLongTail, fmt::format("a stream waits {} for a step with somebody's prompt, {} asked",
                                                      SaySeconds(StepTail(d)), SaySeconds(asked.p99_gap_s))};
  }
  return std::nullopt;
}

Finding BoundOf(const Deployment& d) {
  const Prediction p = Predict(d);
  const double decode_s = p.tpot_s * d.output / std::max(1, d.concurrency);
  const bool prefill = p.ttft_s > decode_s;
  const StepTime& step = prefill ? p.prefill : p.decode;
  return {prefill ? Target::kTtft : Target::kTpot, FromBound(step.bound()),
          fmt::format("{} is {} of a request's {}: reading takes {}, arithmetic {}{}", prefill ? "the prompt" : "decode",
                      SaySeconds(prefill ? p.ttft_s : decode_s), SaySeconds(p.ttft_s + decode_s), SaySeconds(step.read_s),
                      SaySeconds(step.compute_s), step.link_s > 0 ? ", exchanges " + SaySeconds(step.link_s) : "")};
}

std::vector<Proposal> Propose(const Deployment& deployment, const Finding& finding, const Constraints& asked,
                              const std::string& model) {
  std::vector<Proposal> proposals;
  const Question question{deployment, finding, asked, model};
  for (const Move move : kMoves) {
    if (Answer answer = move(question)) proposals.push_back(*std::move(answer));
  }
  return proposals;
}

StepPlan MakeStepPlan(const Deployment& deployment, const Constraints& asked, const std::string& model) {
  StepPlan plan;
  plan.end = deployment;
  std::string name = model;
  for (int i = 0; i < kMostSteps; ++i) {
    plan.open = FindBottleneck(plan.end, asked);
    if (!plan.open) break;
    std::vector<Proposal> proposals = Propose(plan.end, *plan.open, asked, name);
    // The smallest step that helps: it is measured and kept or taken back before the next one.
    const auto taken = std::find_if(proposals.begin(), proposals.end(), [&](const Proposal& p) {
      return Score(p.after, plan.open->target, asked) < Score(plan.end, plan.open->target, asked) * (1 - kLeastGain);
    });
    if (taken == proposals.end()) break;
    plan.end = taken->after;
    if (taken->move == "smaller-weights") name = plan.end.format.name + (plan.end.hardware.cpu ? ".gguf" : "/");
    plan.steps.push_back({*plan.open, std::move(*taken)});
  }
  plan.open = FindBottleneck(plan.end, asked);
  return plan;
}

}  // namespace hone
