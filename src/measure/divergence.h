// Divergence of a model from a base model on the same tokens: KL divergence, change of the probability of the right
// token, agreement of the best tokens. Statistics as llama-perplexity --kl-divergence reports them.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "base/runtime.h"
#include "kernels/attention/kv_view.h"
#include "measure/kld_file.h"
#include "measure/perplexity.h"
#include "models/model.h"

namespace hone {

inline constexpr float kLeastLogProb = -16;  // entries of the base below it are not summed: files do not store them
inline constexpr int kOverlap = 10;

// One scored position.
struct DivergenceRow {
  double kld = 0;                // sum over base log-probs > -16 of p_base * (log p_base - log p)
  double nll = 0, nll_base = 0;  // of the right token
  double delta_p = 0;            // p(right token) - p_base(right token)
  bool same_top = false;         // the first of the highest of each is the same token
  double overlap = 0;            // of the base's ten best tokens above -16, the share among the model's ten best
};
// `base`: log-probabilities, `logits`: the model's. Not finite if a logit is not.
DivergenceRow Diverge(std::span<const float> base, std::span<const float> logits, int32_t target);

struct DivergenceResult {
  std::vector<DivergenceRow> rows;
  int context = 0, chunks = 0;
  std::string base, dataset_digest, bos_rule, saved;
  bool interrupted = false;
  std::string failed;  // why it ended early, if it did; the rows are of the windows before
};

// What a base is: a file, or a second model that runs beside the first.
struct DivergenceBase {
  const KldFile* file = nullptr;
  Model* model = nullptr;
};

// Runs `model` over windows of `text` (protocol llama.cpp). With a file as base `text` must hold the file's tokens.
// `writer`, if given, gets the base's rows. Errors: vocabularies differ; logits of the first window are not finite (later
// ones end the run: `failed`, and nothing is finished in `writer`).
Result<DivergenceResult> MeasureDivergence(Model& model, const DivergenceBase& base, const Runtime& runtime, KvType kv,
                                           const EvalText& text, const std::vector<Window>& windows, KldWriter* writer,
                                           const EvalCallbacks& callbacks);

// Only writes a model's own rows: what hone eval kld --save does without --base.
Result<void> SaveLogits(Model& model, const Runtime& runtime, KvType kv, const EvalText& text,
                        const std::vector<Window>& windows, KldWriter* writer, const EvalCallbacks& callbacks);

// Everything that is said about rows.
struct DivergenceFigures {
  struct Spread {  // percentiles: linear interpolation
    double mean = 0, error = 0, max = 0, min = 0, p999 = 0, p99 = 0, p95 = 0, p90 = 0, median = 0, p10 = 0, p05 = 0,
           p01 = 0, p001 = 0;
  };
  Spread kld, delta_p;
  double delta_p_rms = 0, delta_p_rms_error = 0;
  double same_top = 0, same_top_error = 0, overlap = 0;  // shares
  double ppl = 0, ppl_error = 0, ppl_base = 0, ppl_base_error = 0;
  double ln_ratio = 0, ln_ratio_error = 0, ln_correlation = 0;  // of the perplexities, tokens paired
  int64_t kld_below_zero = 0;                                   // rows; rounding of the file
};
DivergenceFigures FiguresOf(std::span<const DivergenceRow> rows);

std::string DivergenceJson(const DivergenceResult& result, const std::string& model);
std::string DivergenceTable(const DivergenceResult& result, const std::string& model);

}  // namespace hone
