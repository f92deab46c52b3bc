// Sampling flags of run and chat.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/common_flags.h"
#include "cli/flags.h"
#include "engine/engine.h"

namespace hone {

struct SamplingFlags {
  std::optional<float> temperature, top_p, min_p, typical, repetition_penalty, frequency_penalty, presence_penalty;
  std::optional<int> top_k;
  std::vector<std::string> logit_bias;  // "ID=V"
  std::vector<std::string> stop;
  bool ignore_eos = false;
  int max_tokens = 0;                   // 0: until the model ends or the context is full

  void Add(Flags& flags);
  // Fills sampling, stops and limits of a request; `suggested` is what holds where no flag is given.
  Result<void> Apply(const CommonFlags& flags, SamplingParams suggested, SequenceRequest* request) const;
};

}  // namespace hone
