// See plan_report.h.
#include "measure/plan/plan_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "measure/roof_json.h"

namespace hone {
namespace {

using nlohmann::ordered_json;

std::string Row(std::string_view key, const std::string& value) { return fmt::format("{:<20} {}\n", key, value); }

std::string SayHardware(const Hardware& hardware, const WeightFormat& format) {
  return fmt::format("{} x {}: {}, {}, {} each", hardware.count, hardware.name, SayBytes(hardware.memory_bytes),
                     SayScaled(hardware.read_bytes_s, "B/s"), SayScaled(hardware.Ops(format), "FLOP/s"));
}

std::string SayCounts(const std::vector<int>& counts) {
  std::string out;
  for (const int count : counts) out += (out.empty() ? "" : ", ") + std::to_string(count);
  return out.empty() ? "none" : out;
}

std::string SaySplit(const Deployment& d) {
  if (d.hardware.count <= 1) return "";
  if (d.split == Split::kLayers) return ", layers split: cards take turns";
  const std::vector<int> counts = CountCards(d).tensor_counts;
  const bool can = std::find(counts.begin(), counts.end(), d.hardware.count) != counts.end();
  return can ? ", matrices split" : fmt::format(", matrices split, which {} cards cannot do evenly: take one of the counts below, or --split layers", d.hardware.count);
}

std::string SayMost(int64_t most) { return most >= 1000000000 ? "any number" : std::to_string(most); }

// A deployment's figures in one line: what each step of a plan changes.
std::string Figures(const Deployment& d) {
  const MemoryAccount memory = AccountMemory(d);
  const Prediction p = Predict(d);
  return fmt::format("weights {}, {} x {} tokens {}, {} of {}{}; TTFT {}, TPOT {}, {:.0f} tok/s", SayBytes(memory.weights.total()),
                     d.concurrency, d.reserved_tokens(), SayBytes(d.concurrency * (memory.kv_sequence_bytes + memory.state_bytes)),
                     SayBytes(memory.needed_bytes), SayBytes(memory.usable_bytes), memory.fits() ? "" : " (does not fit)",
                     SaySeconds(p.ttft_s), SaySeconds(p.tpot_s), p.tok_s);
}

std::string SayAsked(const Constraints& asked) {
  std::string out;
  const auto add = [&](const std::string& text) { out += (out.empty() ? "" : ", ") + text; };
  if (asked.ttft_s > 0) add("TTFT " + SaySeconds(asked.ttft_s));
  if (asked.tpot_s > 0) add("TPOT " + SaySeconds(asked.tpot_s));
  if (asked.p99_gap_s > 0) add("longest gap " + SaySeconds(asked.p99_gap_s));
  if (asked.sequences > 0) add(fmt::format("{} sequences at once", asked.sequences));
  if (asked.kld > 0) add(fmt::format("KL divergence {}", asked.kld));
  if (asked.most_cards > 0) add(fmt::format("{} cards", asked.most_cards));
  return out.empty() ? "that it fits" : out;
}

std::string ProposalText(const Proposal& p) {
  return fmt::format("  do       {}\n  gain     {}\n  risk     {}\n  test     {}\n  undo     {}\n", p.what, p.gain, p.risk, p.test, p.undo);
}

ordered_json ProposalJson(const Proposal& p) {
  return {{"move", p.move}, {"do", p.what}, {"gain", p.gain}, {"risk", p.risk}, {"test", p.test}, {"undo", p.undo}};
}

ordered_json PredictionJson(const Deployment& d) {
  const Prediction p = Predict(d);
  return {{"concurrency", d.concurrency}, {"input", d.input}, {"output", d.output}, {"ttft_s", Rounded(p.ttft_s)},
          {"ttft_all_s", Rounded(p.ttft_all_s)}, {"tpot_s", Rounded(p.tpot_s)}, {"tpot_limit_s", Rounded(p.tpot_limit_s)},
          {"tok_s", Rounded(p.tok_s)}, {"prefill_bound", BoundName(p.prefill.bound())}, {"decode_bound", BoundName(p.decode.bound())},
          {"prefill_flops", Rounded(p.prefill.flops)}, {"decode_weight_bytes", Rounded(p.decode.weight_bytes)},
          {"decode_kv_bytes", Rounded(p.decode.kv_bytes)}, {"decode_link_s", Rounded(p.decode.link_s)}};
}

std::vector<WeightFormat> FormatsToShow(const PlanReport& report) {
  std::vector<WeightFormat> formats;
  if (report.model.stored) formats.push_back(report.model.format);
  for (const char* name : {"bf16", "fp8", "q8_0", "q6_k", "q5_k_m", "q4_k_m", "q4_0", "awq-4bit-g128", "q3_k_m", "q2_k"})
    formats.push_back(*FindWeightFormat(name));
  return formats;
}

Finding WhatBounds(const PlanReport& report) {
  const std::optional<Finding> finding = FindBottleneck(report.deployment, report.asked);
  return finding ? *finding : BoundOf(report.deployment);
}

}  // namespace

std::string StepPlanText(const PlanReport& report) {
  const Deployment& d = report.deployment;
  std::string out = fmt::format("{} in {}, kv {}, on {}{}\n{} requests at once of {} + {} tokens; asked: {}\n\nas it is\n  {}\n",
                                d.shape.name, d.format.name, d.kv.name, SayHardware(d.hardware, d.format), SaySplit(d), d.concurrency,
                                d.input, d.output, SayAsked(report.asked), Figures(d));
  const StepPlan plan = MakeStepPlan(d, report.asked, report.model_name);
  int number = 0;
  for (const PlanStep& step : plan.steps) {
    out += fmt::format("\nstep {}: {}\n  because  {}\n{}  then     {}\n", ++number, BottleneckName(step.finding.bottleneck),
                       step.finding.reason, ProposalText(step.proposal), Figures(step.proposal.after));
  }
  if (plan.open) {
    return out + fmt::format("\nstill open: {}: {}\nnothing in the guide helps within what is asked; relax a constraint or change the model or the "
                             "hardware\n",
                             BottleneckName(plan.open->bottleneck), plan.open->reason);
  }
  return out + fmt::format("\nend: {} in {}, kv {}, on {} x {}{}; all that is asked holds, as far as arithmetic can tell\n", plan.end.shape.name,
                           plan.end.format.name, plan.end.kv.name, plan.end.hardware.count, plan.end.hardware.name, SaySplit(plan.end));
}

std::string PlanTable(const PlanReport& report) {
  if (report.steps) return StepPlanText(report);
  const Deployment& d = report.deployment;
  const ModelShape& shape = d.shape;
  const MemoryAccount memory = AccountMemory(d);
  const CardCount cards = CountCards(d);
  std::string out = Row("model", fmt::format("{} ({})", shape.name, report.model.source));
  out += Row("parameters", fmt::format("{:.3f} B, {:.3f} B used by a token", static_cast<double>(CountParameters(shape).total()) / 1e9,
                                       static_cast<double>(ActiveParameters(shape)) / 1e9));
  out += Row("attention", shape.AttentionName());
  out += Row("hardware", SayHardware(d.hardware, d.format) + SaySplit(d));
  out += Row("assumed", fmt::format("{:.0f} % of bandwidth, {:.0f} % of peak, {} a step ({})", 100 * d.efficiency.read_share,
                                    100 * d.efficiency.compute_share, SaySeconds(d.efficiency.step_overhead_s), d.efficiency.source));
  out += "\nmemory\n";
  out += Row("  weights", fmt::format("{} {}{}", SayBytes(memory.weights.total()), report.model.stored && d.format.name == "as stored" ? "" : "as ", d.format.name));
  out += Row("  cache", fmt::format("{} a token in {}, {} for {} tokens", SayBytes(memory.kv_token_bytes), d.kv.name,
                                    SayBytes(memory.kv_sequence_bytes), d.reserved_tokens()));
  if (memory.state_bytes > 0) out += Row("  state", fmt::format("{} a sequence, whatever its length", SayBytes(memory.state_bytes)));
  out += Row("  activations", fmt::format("{} for steps of {} tokens", SayBytes(memory.activation_bytes), d.step_tokens));
  out += Row("  needed", fmt::format("{} with {} at once, {} usable{}", SayBytes(memory.needed_bytes), d.concurrency,
                                     SayBytes(memory.usable_bytes), memory.fits() ? "" : ": DOES NOT FIT"));
  out += Row("  most sequences", SayMost(memory.most_sequences));
  out += Row("  cards", fmt::format("{} for the weights alone; with cache, activations and reserve: {} by layers, {} by matrices (allowed: {}; the count {})",
                                    cards.weights_only, cards.layers > 0 ? std::to_string(cards.layers) : "no count",
                                    cards.tensor > 0 ? std::to_string(cards.tensor) : "no count", SayCounts(cards.tensor_counts),
                                    cards.tensor_rule));
  if (cards.nodes > 0) out += Row("  nodes", fmt::format("{} of {} cards", cards.nodes, d.hardware.cards_a_node));
  out += fmt::format("\n{:>8} {:>12} {:>12} {:>12} {:>12} {:>10}  bound\n", "at once", "TTFT", "TTFT, all", "TPOT", "at the roof", "tok/s");
  for (const int batch : report.batches) {
    Deployment at = d;
    at.concurrency = batch;
    const Prediction p = Predict(at);
    out += fmt::format("{:>8} {:>12} {:>12} {:>12} {:>12} {:>10.1f}  {} / {}{}\n", batch, SaySeconds(p.ttft_s), SaySeconds(p.ttft_all_s),
                       SaySeconds(p.tpot_s), SaySeconds(p.tpot_limit_s), p.tok_s, BoundName(p.prefill.bound()),
                       BoundName(p.decode.bound()), AccountMemory(at).fits() ? "" : "  (does not fit)");
  }
  out += fmt::format("\n{:<16} {:>10} {:>10} {:>12} {:>10}  published KL divergence\n", "weights as", "bytes", "TPOT", "sequences", "cards");
  for (const WeightFormat& format : FormatsToShow(report)) {
    Deployment as = d;
    as.format = format;
    out += fmt::format("{:<16} {:>10} {:>10} {:>12} {:>10}  {}\n", format.name, SayBytes(BytesOfWeights(shape, format).total()),
                       SaySeconds(Predict(as).tpot_s), SayMost(AccountMemory(as).most_sequences), CountCards(as).layers,
                       format.kld >= 0 ? fmt::format("{}", format.kld) : "-");
  }
  const Finding finding = WhatBounds(report);
  out += fmt::format("\nbound by {}: {}\n", BottleneckName(finding.bottleneck), finding.reason);
  const std::vector<Proposal> proposals = Propose(d, finding, report.asked, report.model_name);
  if (proposals.empty()) return out + "next step: the guide has none against that\n";
  return out + "next step\n" + ProposalText(proposals[0]);
}

LedgerEntry PlanEntry(const PlanReport& report, const std::string& json) {
  const Deployment& d = report.deployment;
  LedgerEntry entry{.kind = "plan", .model = report.model_name};
  entry.recipe = fmt::format("{}, kv {}, on {}{}", d.format.name, d.kv.name, SayHardware(d.hardware, d.format), SaySplit(d));
  entry.load = fmt::format("{} at once of {} + {} tokens", d.concurrency, d.input, d.output);
  const auto add = [&](const std::string& name, double value, Direction better) { entry.figures.push_back({name, {value, value, value, 1}, better}); };
  const MemoryAccount memory = AccountMemory(d);
  add("weight_bytes", memory.weights.total(), Direction::kLower);
  add("kv_bytes_per_token", memory.kv_token_bytes, Direction::kLower);
  add("kv_bytes_per_sequence", memory.kv_sequence_bytes, Direction::kLower);
  add("state_bytes_per_sequence", memory.state_bytes, Direction::kLower);
  add("activation_bytes", memory.activation_bytes, Direction::kLower);
  add("needed_bytes", memory.needed_bytes, Direction::kLower);
  add("usable_bytes", memory.usable_bytes, Direction::kHigher);
  add("most_sequences", static_cast<double>(memory.most_sequences), Direction::kHigher);
  for (const int batch : report.batches) {
    Deployment at = d;
    at.concurrency = batch;
    const Prediction p = Predict(at);
    const std::string where = fmt::format("[concurrency={}]", batch);
    add("ttft_ms" + where, 1e3 * p.ttft_s, Direction::kLower);
    add("tpot_ms" + where, 1e3 * p.tpot_s, Direction::kLower);
    add("tpot_at_roof_ms" + where, 1e3 * p.tpot_limit_s, Direction::kLower);
    add("output_tok_s" + where, p.tok_s, Direction::kHigher);
  }
  for (const WeightFormat& format : FormatsToShow(report)) {
    Deployment as = d;
    as.format = format;
    add(fmt::format("weight_bytes[{}]", format.name), BytesOfWeights(d.shape, format).total(), Direction::kLower);
    add(fmt::format("tpot_ms[{}]", format.name), 1e3 * Predict(as).tpot_s, Direction::kLower);
  }
  entry.result = json;
  return entry;
}

std::string PlanJson(const PlanReport& report) {
  const Deployment& d = report.deployment;
  const ModelShape& shape = d.shape;
  const MemoryAccount memory = AccountMemory(d);
  const CardCount cards = CountCards(d);
  const ParameterCount count = CountParameters(shape);
  ordered_json json = {
      {"model",
       {{"name", shape.name}, {"source", report.model.source}, {"parameters", count.total()}, {"active_parameters", ActiveParameters(shape)},
        {"layers", shape.layers}, {"width", shape.width}, {"heads", shape.heads}, {"kv_heads", shape.kv_heads},
        {"head_width", shape.head_width}, {"ffn_width", shape.ffn_width}, {"vocab", shape.vocab}, {"context", shape.context},
        {"experts", shape.experts}, {"experts_per_token", shape.experts_per_token}, {"recurrent_layers", shape.recurrent_layers},
        {"windowed_layers", shape.windowed_layers}, {"window", shape.window}, {"attention", shape.AttentionName()}}},
      {"hardware",
       {{"name", d.hardware.name}, {"count", d.hardware.count}, {"memory_bytes", d.hardware.memory_bytes},
        {"read_bytes_s", d.hardware.read_bytes_s}, {"ops", d.hardware.Ops(d.format)}, {"link_bytes_s", d.hardware.link_bytes_s},
        {"split", d.split == Split::kTensor ? "tensor" : "layers"}, {"free_share", d.hardware.free_share}}},
      {"efficiency",
       {{"read_share", Rounded(d.efficiency.read_share)}, {"compute_share", Rounded(d.efficiency.compute_share)}, {"decode_share", Rounded(d.efficiency.decode_share)},
        {"step_overhead_s", Rounded(d.efficiency.step_overhead_s)}, {"many_rows_reads", Rounded(d.efficiency.many_rows_reads)},
        {"few_rows", d.efficiency.few_rows}, {"overlapped", d.efficiency.overlapped}, {"source", d.efficiency.source}}},
      {"format", d.format.name},
      {"kv", d.kv.name},
      {"weight_bytes", std::round(memory.weights.total())},
      {"kv_bytes_per_token", memory.kv_token_bytes},
      {"kv_bytes_per_sequence", memory.kv_sequence_bytes},
      {"state_bytes_per_sequence", memory.state_bytes},
      {"activation_bytes", memory.activation_bytes},
      {"needed_bytes", std::round(memory.needed_bytes)},
      {"usable_bytes", std::round(memory.usable_bytes)},
      {"fits", memory.fits()},
      {"context", d.reserved_tokens()},
      {"most_sequences", memory.most_sequences},
      {"cards",
       {{"weights_only", cards.weights_only}, {"layers", cards.layers}, {"tensor", cards.tensor},
        {"tensor_counts", cards.tensor_counts}, {"tensor_rule", cards.tensor_rule}, {"nodes", cards.nodes}}}};
  json["predictions"] = ordered_json::array();
  for (const int batch : report.batches) {
    Deployment at = d;
    at.concurrency = batch;
    json["predictions"].push_back(PredictionJson(at));
  }
  json["formats"] = ordered_json::array();
  for (const WeightFormat& format : FormatsToShow(report)) {
    Deployment as = d;
    as.format = format;
    ordered_json row = {{"name", format.name}, {"bytes", std::round(BytesOfWeights(shape, format).total())},
                        {"tpot_s", Rounded(Predict(as).tpot_s)}, {"most_sequences", AccountMemory(as).most_sequences},
                        {"cards", CountCards(as).layers}};
    row["published_kld"] = format.kld >= 0 ? ordered_json(format.kld) : ordered_json();
    json["formats"].push_back(std::move(row));
  }
  const Finding finding = WhatBounds(report);
  json["bottleneck"] = {{"name", BottleneckName(finding.bottleneck)}, {"reason", finding.reason}};
  json["proposals"] = ordered_json::array();
  for (const Proposal& p : Propose(d, finding, report.asked, report.model_name)) json["proposals"].push_back(ProposalJson(p));
  if (report.steps) {
    const StepPlan plan = MakeStepPlan(d, report.asked, report.model_name);
    json["steps"] = ordered_json::array();
    for (const PlanStep& step : plan.steps) {
      ordered_json entry = {{"bottleneck", BottleneckName(step.finding.bottleneck)}, {"because", step.finding.reason}};
      entry.update(ProposalJson(step.proposal));
      entry["then"] = PredictionJson(step.proposal.after);
      json["steps"].push_back(std::move(entry));
    }
    json["open"] = plan.open ? ordered_json(plan.open->reason) : ordered_json();
  }
  return json.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::string PlanLists(bool as_json) {
  if (as_json) {
    ordered_json json = {{"shapes", ordered_json::array()}, {"cards", ordered_json::array()}, {"formats", ordered_json::array()}};
    for (const ModelShape& shape : PublicShapes())
      json["shapes"].push_back({{"name", shape.name}, {"parameters", CountParameters(shape).total()}, {"context", shape.context}});
    for (const Hardware& card : Cards())
      json["cards"].push_back({{"name", card.name}, {"memory_bytes", card.memory_bytes}, {"read_bytes_s", card.read_bytes_s}, {"ops", card.ops_16bit}});
    for (const WeightFormat& format : WeightFormats()) json["formats"].push_back({{"name", format.name}, {"bits", format.bits}});
    return json.dump(1) + "\n";
  }
  std::string out = fmt::format("{:<18} {:>10} {:>12} {:>9}  attention\n", "shape", "parameters", "KV a token", "context");
  const KvFormat& bf16 = *FindKvFormat("bf16");
  for (const ModelShape& shape : PublicShapes()) {
    out += fmt::format("{:<18} {:>8.2f} B {:>12} {:>9}  {}\n", shape.name, static_cast<double>(CountParameters(shape).total()) / 1e9,
                       SayBytes(KvTokenBytes(shape, bf16)), shape.context, shape.AttentionName());
  }
  out += fmt::format("\n{:<18} {:>10} {:>12} {:>14} {:>12}\n", "card", "memory", "read", "16-bit", "link");
  for (const Hardware& card : Cards()) {
    out += fmt::format("{:<18} {:>10} {:>12} {:>14} {:>12}\n", card.name, SayBytes(card.memory_bytes), SayScaled(card.read_bytes_s, "B/s"),
                       SayScaled(card.ops_16bit, "FLOP/s"), card.link_bytes_s > 0 ? SayScaled(card.link_bytes_s, "B/s") : "-");
  }
  out += fmt::format("\n{:<18} {:>6} {:>10} {:>8}  published KL divergence\n", "weights", "bits", "embedding", "output");
  for (const WeightFormat& format : WeightFormats()) {
    out += fmt::format("{:<18} {:>6.4g} {:>10.4g} {:>8.4g}  {}\n", format.name, format.bits, format.embedding_bits, format.output_bits,
                       format.kld >= 0 ? fmt::format("{}", format.kld) : "-");
  }
  return out;
}

}  // namespace hone
