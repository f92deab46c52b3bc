// One line a rule. NaN fails every comparison, so each rule is written as what must hold.
#include "engine/sampling_params.h"

#include <fmt/core.h>

#include <cmath>

#include "engine/limits.h"

namespace hone {
namespace {

Error Wrong(const char* field, double value, const char* wanted) {
  return InvalidInput(fmt::format("{} is {}; wanted {}", field, value, wanted));
}

}  // namespace

Result<void> CheckSamplingParams(const SamplingParams& p, int vocab) {
  struct Rule {
    const char* field;
    double value;
    bool holds;
    const char* wanted;
  };
  const auto probability = [](float x) { return x >= 0 && x <= 1; };
  const auto finite = [](float x) { return std::isfinite(x); };
  const Rule rules[] = {
      {"temperature", p.temperature, p.temperature >= 0 && finite(p.temperature), "0 (greedy) or a positive number"},
      {"top_k", double(p.top_k), p.top_k >= 0, "0 (off) or a positive number"},
      {"top_p", p.top_p, probability(p.top_p), "a number from 0 to 1 (off)"},
      {"min_p", p.min_p, probability(p.min_p), "a number from 0 (off) to 1"},
      {"typical", p.typical, probability(p.typical), "a number from 0 to 1 (off)"},
      {"repetition_penalty", p.repetition_penalty, p.repetition_penalty > 0 && finite(p.repetition_penalty),
       "a positive number; 1 is off"},
      {"frequency_penalty", p.frequency_penalty, finite(p.frequency_penalty), "a finite number; 0 is off"},
      {"presence_penalty", p.presence_penalty, finite(p.presence_penalty), "a finite number; 0 is off"},
      {"penalty_last_n", double(p.penalty_last_n), p.penalty_last_n >= -1, "-1 (all) or a number of tokens"},
      {"min_keep", double(p.min_keep), p.min_keep >= 1, "1 or more"},
      {"top_n_sigma", p.top_n_sigma, p.top_n_sigma >= 0 && finite(p.top_n_sigma), "0 (off) or a positive number"},
      {"xtc_probability", p.xtc_probability, probability(p.xtc_probability), "a number from 0 (off) to 1"},
      {"xtc_threshold", p.xtc_threshold, probability(p.xtc_threshold), "a number from 0 to 1"},
      {"epsilon_cutoff", p.epsilon_cutoff, probability(p.epsilon_cutoff), "a number from 0 (off) to 1"},
      {"eta_cutoff", p.eta_cutoff, probability(p.eta_cutoff), "a number from 0 (off) to 1"},
      {"dynatemp_range", p.dynatemp_range, p.dynatemp_range >= 0 && finite(p.dynatemp_range), "0 (off) or more"},
      {"dynatemp_exponent", p.dynatemp_exponent, p.dynatemp_exponent >= 0 && finite(p.dynatemp_exponent), "0 or more"},
      {"mirostat_tau", p.mirostat_tau, p.mirostat_tau >= 0 && finite(p.mirostat_tau), "0 or more"},
      {"mirostat_eta", p.mirostat_eta, p.mirostat_eta >= 0 && finite(p.mirostat_eta), "0 or more"},
      {"dry_multiplier", p.dry_multiplier, p.dry_multiplier >= 0 && finite(p.dry_multiplier), "0 (off) or more"},
      {"dry_base", p.dry_base, p.dry_base > 0 && finite(p.dry_base), "a positive number"},
      {"dry_allowed_length", double(p.dry_allowed_length), p.dry_allowed_length >= 0, "0 or more"},
      {"dry_last_n", double(p.dry_last_n), p.dry_last_n >= -1, "-1 (all) or a number of tokens"},
      {"no_repeat_ngram", double(p.no_repeat_ngram), p.no_repeat_ngram >= 0 && p.no_repeat_ngram <= kMaxNoRepeatNgram,
       "0 (off) to 256"},
  };
  for (const Rule& rule : rules) {
    if (!rule.holds) return Wrong(rule.field, rule.value, rule.wanted);
  }
  for (const auto& [id, bias] : p.logit_bias) {
    if (id < 0 || id >= vocab) {
      return InvalidInput(fmt::format("logit_bias names token {}; the vocabulary has ids 0 to {}", id, vocab - 1));
    }
    if (!finite(bias)) return Wrong("logit_bias", bias, "a finite number");
  }
  if (p.dry_breakers.size() > kMaxDryBreakers) {
    return InvalidInput(fmt::format("dry_breakers has {} ids; at most {}", p.dry_breakers.size(), kMaxDryBreakers));
  }
  return {};
}

}  // namespace hone
