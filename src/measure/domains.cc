// See domains.h.
#include "measure/domains.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "measure/json_text.h"

namespace hone {

using nlohmann::ordered_json;

Result<DomainText> ParseDomain(const std::string& argument) {
  const size_t equals = argument.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == argument.size())
    return UsageError("'" + argument + "': wanted NAME=FILE, as code=sample.cc");
  return DomainText{argument.substr(0, equals), argument.substr(equals + 1), ""};
}

Result<std::string> TextOfTasks(const std::string& file, std::string_view jsonl) {
  std::string text;
  for (int number = 1; !jsonl.empty(); ++number) {
    const size_t end = std::min(jsonl.find('\n'), jsonl.size());
    const std::string_view line = jsonl.substr(0, end);
    jsonl.remove_prefix(std::min(end + 1, jsonl.size()));
    if (line.empty()) continue;
    const ordered_json item = ParseJson(line);
    const auto messages = item.is_object() ? item.find("messages") : item.end();
    if (!item.is_object() || messages == item.end() || !messages->is_array()) return InvalidInput(fmt::format("{}: line {}: wanted an object with messages", file, number));
    for (const ordered_json& message : *messages) {
      if (message.is_object() && message.contains("content") && message["content"].is_string()) text += message["content"].get<std::string>() + "\n";
    }
    if (item.contains("answer") && item["answer"].is_string()) text += item["answer"].get<std::string>() + "\n\n";
  }
  return text;
}

Result<std::vector<DomainText>> DefaultDomains(const std::string& assets) {
  struct Source {
    const char *name, *file;
  };
  constexpr Source kSources[] = {{"prose", "builtin/tasks/held-out-prose.txt"}, {"code", "domains/code.txt"},
                                 {"mathematics", "builtin/tasks/think.jsonl"},  {"recall", "builtin/tasks/recall.jsonl"},
                                 {"tool", "builtin/tasks/tool.jsonl"}};
  std::vector<DomainText> domains;
  for (const auto& [name, file] : kSources) {
    DomainText domain{name, assets + "/" + file, ""};
    std::ifstream in(domain.file, std::ios::binary);
    std::ostringstream text;
    text << in.rdbuf();
    domain.text = text.str();
    if (!in || domain.text.empty()) return NotFound(domain.file + ": cannot be read; give NAME=FILE of each domain");
    if (domain.file.ends_with(".jsonl")) {
      HONE_TRY(domain.text, TextOfTasks(domain.file, domain.text));
    }
    domains.push_back(std::move(domain));
  }
  return domains;
}

Result<DomainResult> MeasureDomain(Model& model, Model* base, const Runtime& runtime, KvType kv, const Tokenizer& tokenizer,
                                   const DomainText& domain, int context, int chunks, const EvalCallbacks& callbacks) {
  DomainResult result{.name = domain.name, .file = domain.file};
  const EvalText text = PrepareText(tokenizer, domain.text, Protocol::kLlamaCpp, domain.name == "tool");
  result.digest = text.digest;
  HONE_TRY(const ProtocolRules rules, ResolveRules({Protocol::kLlamaCpp, context, 0, chunks}));
  if (base == nullptr) {
    HONE_TRY(const PerplexityResult ppl, MeasurePerplexity(model, runtime, kv, tokenizer, text, rules, callbacks).Context(domain.file));
    if (!ppl.failed.empty()) result.failed = domain.file + ": " + ppl.failed;
    result.rows = ppl.tokens_scored, result.ppl = ppl.ppl, result.ppl_stderr = ppl.ppl_stderr;
    return result;
  }
  HONE_TRY(const std::vector<Window> windows, PlanWindows(rules, static_cast<int64_t>(text.tokens.size())).Context(domain.file));
  HONE_TRY(const DivergenceResult divergence,
           MeasureDivergence(model, {nullptr, base}, runtime, kv, text, windows, nullptr, callbacks).Context(domain.file));
  if (!divergence.failed.empty()) result.failed = domain.file + ": " + divergence.failed;
  const DivergenceFigures figures = FiguresOf(divergence.rows);
  result.compared = true;
  result.rows = static_cast<int64_t>(divergence.rows.size());
  result.ppl = figures.ppl, result.ppl_stderr = figures.ppl_error, result.ppl_base = figures.ppl_base;
  result.kld = figures.kld.mean, result.kld_stderr = figures.kld.error;
  result.same_top = figures.same_top, result.same_top_stderr = figures.same_top_error;
  result.ln_ratio = figures.ln_ratio, result.ln_ratio_stderr = figures.ln_ratio_error;
  return result;
}

std::string DomainsJson(const std::vector<DomainResult>& results, const std::string& model, const std::string& base, int context,
                        bool interrupted, const std::string& failed) {
  ordered_json json = {{"model", model}, {"base", base.empty() ? ordered_json() : ordered_json(base)}, {"protocol", "llama.cpp"}, {"ctx", context},
                       {"interrupted", interrupted}, {"failed", failed}, {"domains", ordered_json::array()}};
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
                         const std::string& base, bool interrupted, const std::string& failed, const std::string& json) {
  LedgerEntry entry{.kind = "eval domains", .model = model, .model_digest = ModelDigest(model_path), .other = base};
  entry.outcome = interrupted ? "interrupted" : failed.empty() ? "done" : "failed";
  if (!failed.empty()) entry.failures.push_back({"ended early", "", failed, 1});
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

std::string DomainsTable(const std::vector<DomainResult>& results, const std::string& model, const std::string& base, bool interrupted,
                         const std::string& failed) {
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
  if (interrupted || !failed.empty()) out += interrupted ? "INTERRUPTED\n" : "ENDED EARLY\n";
  return out;
}

}  // namespace hone
