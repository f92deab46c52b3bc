// The answers of POST /v1/chat/completions: chat.completion and chat.completion.chunk.
#pragma once

#include <memory>

#include "serve/generation.h"
#include "serve/openai/output_parser.h"

namespace hone {

struct ChatAnswerOptions {
  std::string model;  // as the request called it
  int choices = 1;
  bool include_usage = false;  // of a stream
  bool continuous_usage = false;  // with include_usage: in every chunk
  bool logprobs = false;
  bool prompt_logprobs = false;
  OutputFormat format;  // where the answer's text goes
};

std::unique_ptr<AnswerShape> MakeChatAnswer(std::shared_ptr<ServedModel> model, ChatAnswerOptions options);

}  // namespace hone
