// See domains.h.
#include "measure/domains.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace hone {

using nlohmann::ordered_json;

Result<DomainText> ParseDomain(const std::string& argument) {
  const size_t equals = argument.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == argument.size())
    return UsageError("'" + argument + "': wanted NAME=FILE, as code=sample.cc");
  return DomainText{argument.substr(0, equals), argument.substr(equals + 1), ""};
}

Result<DomainResult> MeasureDomain(Model& model, Model* base, const Runtime& runtime, KvType kv, const Tokenizer& tokenizer,
                                   const DomainText& domain, int context, int chunks, const EvalCallbacks& callbacks) {
  DomainResult result{.name = domain.name, .file = domain.file};
  const EvalText text = PrepareText(tokenizer, domain.text, Protocol::kLlamaCpp, domain.name == "tool");
  result.digest = text.digest;
  HONE_TRY(const ProtocolRules rules, ResolveRules({Protocol::kLlamaCpp, context, 0, chunks}));
  if (base == nullptr) {
    HONE_TRY(const PerplexityResult ppl, MeasurePerplexity(model, runtime, kv, tokenizer, text, rules, callbacks).Context(domain.file));
    result.rows = ppl.tokens_scored, result.ppl = ppl.ppl, result.ppl_stderr = ppl.ppl_stderr;
    return result;
  }
  HONE_TRY(const std::vector<Window> windows, PlanWindows(rules, static_cast<int64_t>(text.tokens.size())).Context(domain.file));
  HONE_TRY(const DivergenceResult divergence,
           MeasureDivergence(model, {nullptr, base}, runtime, kv, text, windows, nullptr, callbacks).Context(domain.file));
  const DivergenceFigures figures = FiguresOf(divergence.rows);
  result.compared = true;
  result.rows = static_cast<int64_t>(divergence.rows.size());
  result.ppl = figures.ppl, result.ppl_stderr = figures.ppl_error, result.ppl_base = figures.ppl_base;
  result.kld = figures.kld.mean, result.kld_stderr = figures.kld.error;
  result.same_top = figures.same_top, result.same_top_stderr = figures.same_top_error;
  result.ln_ratio = figures.ln_ratio, result.ln_ratio_stderr = figures.ln_ratio_error;
  return result;
}

std::string DomainsJson(const std::vector<DomainResult>& results, const std::string& model, const std::string& base, int context) {
  ordered_json json = {{"model", model}, {"base", base.empty() ? ordered_json() : ordered_json(base)}, {"protocol", "llama.cpp"}, {"ctx", context},
                       {"domains", ordered_json::array()}};
  for (const DomainResult& r : results) {
    ordered_json row = {{"name", r.name}, {"file", r.file}, {"dataset_digest", r.digest}, {"rows", r.rows}, {"ppl", r.ppl}, {"ppl_stderr", r.ppl_stderr}};
    if (r.compared) {
      row["ppl_base"] = r.ppl_base;
      row["ln_ppl_ratio"] = {{"value", r.ln_ratio}, {"stderr", r.ln_ratio_stderr}};
      row["kld"] = {{"mean", r.kld}, {"stderr", r.kld_stderr}};
      row["same_top"] = {{"percent", 100 * r.same_top}, {"stderr", 100 * r.same_top_stderr}};
    }
    json["domains"].push_back(std::move(row));
  }
  return json.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

LedgerEntry DomainsEntry(const std::vector<DomainResult>& results, const std::string& model, const std::string& model_path,
                         const std::string& base, bool interrupted, const std::string& json) {
  LedgerEntry entry{.kind = "eval domains", .model = model, .model_digest = ModelDigest(model_path), .other = base};
  entry.outcome = interrupted ? "interrupted" : "done";
  const auto add = [&](const std::string& name, const std::string& domain, double value, double error, Direction better) {
    entry.figures.push_back({fmt::format("{}[domain={}]", name, domain), {value, value - 1.96 * error, value + 1.96 * error, 0.95}, better});
  };
  for (const DomainResult& r : results) {
    entry.dataset += (entry.dataset.empty() ? "" : ", ") + r.name + "=" + r.file;
    entry.dataset_digest += (entry.dataset_digest.empty() ? "" : ",") + r.digest;
    add("ppl", r.name, r.ppl, r.ppl_stderr, Direction::kLower);
    if (!r.compared) continue;
    add("kld", r.name, r.kld, r.kld_stderr, Direction::kLower);
    add("same_top", r.name, r.same_top, r.same_top_stderr, Direction::kHigher);
  }
  entry.result = json;
  return entry;
}

std::string DomainsTable(const std::vector<DomainResult>& results, const std::string& model, const std::string& base) {
  std::string out = model + (base.empty() ? "" : " against " + base) + "\n";
  out += fmt::format("{:<14} {:>8} {:>18}", "domain", "tokens", "perplexity");
  if (!base.empty()) out += fmt::format(" {:>11} {:>10} {:>21} {:>18}", "base", "change", "KL divergence", "same best token");
  out += "\n";
  for (const DomainResult& r : results) {
    out += fmt::format("{:<14} {:>8} {:>18}", r.name, r.rows, fmt::format("{:.4f} +- {:.4f}", r.ppl, r.ppl_stderr));
    if (r.compared) {
      out += fmt::format(" {:>11.4f} {:>8.2f} % {:>21} {:>18}", r.ppl_base, 100 * (r.ppl / r.ppl_base - 1),
                         fmt::format("{:.5f} +- {:.5f}", r.kld, r.kld_stderr), fmt::format("{:.2f} +- {:.2f} %", 100 * r.same_top, 100 * r.same_top_stderr));
    }
    out += "\n";
  }
  return out;
}

}  // namespace hone
