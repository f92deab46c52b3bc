// The answers of POST /v1/completions: text_completion, with logprobs in the legacy shape.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "serve/generation.h"

namespace hone {

struct CompletionAnswerOptions {
  std::string model;  // as the request called it
  int choices = 1;  // made; the answer has `n` of each `best_of`
  int n = 1, best_of = 1;
  bool include_usage = false;  // of a stream
  bool continuous_usage = false;  // with include_usage: in every chunk
  bool logprobs = false;
  bool prompt_logprobs = false;
  bool prompt_only = false;                    // no token is made: what ends the answer is its length
  std::vector<std::string> echo;               // the text of each prompt, to stand before its choices; empty: none
  std::vector<std::vector<int32_t>> echo_ids;  // with logprobs: the prompts' ids
};

std::unique_ptr<AnswerShape> MakeCompletionAnswer(std::shared_ptr<ServedModel> model, CompletionAnswerOptions options);

}  // namespace hone
