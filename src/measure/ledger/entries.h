// What the results of bench and eval look like in the ledger: names of figures, what is better. The same names are what
// gates judge, whether a figure was measured now, entered earlier, or stands in a JSON result.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "measure/bench.h"
#include "measure/divergence.h"
#include "measure/ledger/ledger.h"
#include "measure/perplexity.h"
#include "measure/roof.h"
#include "measure/tasks.h"

namespace hone {

// "prefill_tok_s[tokens=512]", "decode_tok_s[context=0,batch=1]"
std::string BenchFigureName(const BenchWork& work);

// "[input=128,output=32,concurrency=1]": a cell of hone profile. `variant`: "model=a,kv=bf16," of several, else "".
std::string ProfilePlace(const std::string& variant, double input, double output, double concurrency);

// "read_gbs", "gops[unit=amx-bf16]": the best of each, and its median as the lower bound.
LedgerEntry RoofEntry(const Roof& roof, const std::string& json);
LedgerEntry BenchEntry(const BenchReport& report, const std::string& model_path, const std::string& json);
LedgerEntry PerplexityEntry(const PerplexityResult& result, const std::string& model, const std::string& model_path,
                            const std::string& dataset, const std::string& json);
LedgerEntry DivergenceEntry(const DivergenceResult& result, const std::string& model, const std::string& model_path,
                            const std::string& dataset, const std::string& json);
// `failed`: why the run ended early; "" if it did not.
LedgerEntry TasksEntry(std::span<const TaskResult> results, const std::string& model, const std::string& model_path,
                       const std::string& other, const std::string& failed, const std::string& json);

// The figures of a --json result of bench, eval, load or profile, by its keys. Errors: none of them.
Result<std::vector<Figure>> FiguresOfJson(std::string_view text);

}  // namespace hone
