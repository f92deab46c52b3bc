// Quality by domain: the same figures on several texts (prose, code, mathematics, tool calls ...), since formats hurt
// them differently. Windows and scored targets of protocol llama.cpp, so that figures are those of eval perplexity and
// eval kld on each text.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "measure/divergence.h"
#include "measure/ledger/ledger.h"
#include "measure/perplexity.h"

namespace hone {

struct DomainText {
  std::string name, file, text;
};
// "code=src/main.cc": a name and a file. Errors (usage) say what was wanted; a name that is there twice is one.
Result<DomainText> ParseDomain(const std::string& argument);

// The texts of hone's own assets, by domain: prose, code, mathematics, recall (facts that stand far back), tool (calls).
// Errors name the file.
Result<std::vector<DomainText>> DefaultDomains(const std::string& assets);

// The questions and answers of a task file (tasks.h) as a text. Errors name the file and line.
Result<std::string> TextOfTasks(const std::string& file, std::string_view jsonl);

struct DomainResult {
  std::string name, file, digest;
  std::string failed;  // why it ended early, if it did
  int64_t rows = 0;
  double ppl = 0, ppl_stderr = 0;
  bool compared = false;  // the rest is of a comparison with a base
  double ppl_base = 0, kld = 0, kld_stderr = 0, same_top = 0, same_top_stderr = 0, ln_ratio = 0, ln_ratio_stderr = 0;
};

// `base` may be nullptr. Errors: a text too short for a window of `context`; logits that are not finite in
// the first window; later, the windows before it are the result, and it says why it ended (as it does when stopped).
Result<DomainResult> MeasureDomain(Model& model, Model* base, const Runtime& runtime, KvType kv, const Tokenizer& tokenizer,
                                   const DomainText& domain, int context, int chunks, const EvalCallbacks& callbacks);

// `failed`: why the run ended before the next domain; "" if it did not.
std::string DomainsJson(const std::vector<DomainResult>& results, const std::string& model, const std::string& base, int context,
                        bool interrupted, const std::string& failed);
std::string DomainsTable(const std::vector<DomainResult>& results, const std::string& model, const std::string& base, bool interrupted,
                         const std::string& failed);

LedgerEntry DomainsEntry(const std::vector<DomainResult>& results, const std::string& model, const std::string& model_path,
                         const std::string& base, bool interrupted, const std::string& failed, const std::string& json);

}  // namespace hone
