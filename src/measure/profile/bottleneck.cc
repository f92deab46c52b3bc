// See bottleneck.h.
#include "measure/profile/bottleneck.h"

#include <fmt/format.h>

#include <algorithm>

namespace hone {

BottleneckVerdict NameBottleneck(const CellFacts& facts) {
  if (facts.preemptions > 0) {
    return {Bottleneck::kCapacity, fmt::format("the cache was too small: {} preemptions", facts.preemptions)};
  }
  const bool queued = facts.ttft_s > 0 && facts.queue_s > kQueueShare * facts.ttft_s;
  if (queued && facts.asked_at_once > facts.places) {
    return {Bottleneck::kQueueing, fmt::format("{:.0f} % of TTFT is waiting: {} requests for {} places",
                                               100 * facts.queue_s / facts.ttft_s, facts.asked_at_once, facts.places)};
  }
  if (queued && facts.most_running < std::min(facts.asked_at_once, facts.places) && facts.most_blocks > kFullShare) {
    return {Bottleneck::kCapacity, fmt::format("{:.0f} % of TTFT is waiting: blocks for {} of {} sequences, {:.0f} % in use",
                                               100 * facts.queue_s / facts.ttft_s, facts.most_running, facts.asked_at_once,
                                               100 * facts.most_blocks)};
  }
  const double first_s = facts.ttft_s + facts.tokenize_s;
  if (first_s > 0 && facts.tokenize_s > kTokenizeShare * first_s) {
    return {Bottleneck::kTokenizer,
            fmt::format("{:.0f} % of the time to the first token is tokenising", 100 * facts.tokenize_s / first_s)};
  }
  if (facts.median_gap_s > 0 && facts.p99_gap_s > kTailRatio * facts.median_gap_s) {
    return {Bottleneck::kLongTail, fmt::format("the 99th percentile of the gaps is {} at a median of {}{}", SaySeconds(facts.p99_gap_s),
                                               SaySeconds(facts.median_gap_s),
                                               facts.asked_at_once > 1 ? "" : "; no other request was there: the machine was busy elsewhere")};
  }
  const bool prefill = facts.prefill.seconds >= facts.decode.seconds;
  const PhaseFacts& phase = prefill ? facts.prefill : facts.decode;
  const double bytes = phase.weight_bytes + phase.kv_bytes;
  const double read_share = phase.seconds > 0 && facts.read_bytes_s > 0 ? bytes / facts.read_bytes_s / phase.seconds : 0;
  const double ops_share = phase.seconds > 0 && facts.ops > 0 ? phase.flops / facts.ops / phase.seconds : 0;
  const std::string shares = fmt::format("{} takes {:.0f} % of the time, at {:.0f} % of the read roof and {:.0f} % of the peak",
                                         prefill ? "prefill" : "decode",
                                         100 * phase.seconds / std::max(1e-12, facts.prefill.seconds + facts.decode.seconds),
                                         100 * read_share, 100 * ops_share);
  if (std::max(read_share, ops_share) < kRoofShare) return {Bottleneck::kOverhead, shares};
  if (ops_share >= read_share) return {Bottleneck::kCompute, shares};
  return {phase.kv_bytes > phase.weight_bytes ? Bottleneck::kKvBandwidth : Bottleneck::kWeightBandwidth,
          fmt::format("{}; {} of weights and {} of cache read", shares, SayBytes(phase.weight_bytes), SayBytes(phase.kv_bytes))};
}

Finding FindingOf(const BottleneckVerdict& verdict, const CellFacts& facts) {
  Target target = facts.prefill.seconds >= facts.decode.seconds ? Target::kTtft : Target::kTpot;
  if (verdict.bottleneck == Bottleneck::kCapacity) target = Target::kMemory;
  if (verdict.bottleneck == Bottleneck::kQueueing || verdict.bottleneck == Bottleneck::kTokenizer) target = Target::kTtft;
  if (verdict.bottleneck == Bottleneck::kLongTail) target = Target::kGap;
  return {target, verdict.bottleneck, verdict.reason};
}

}  // namespace hone
