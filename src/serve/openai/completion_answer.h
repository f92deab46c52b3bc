// The answers of POST /v1/completions: text_completion, with logprobs in the legacy shape.
#pragma once

#include <memory>

#include "serve/context.h"
#include "serve/generation.h"

namespace hone {

std::unique_ptr<AnswerShape> MakeCompletionAnswer(const ServeContext& context, int choices, const GenerationRequest& request,
                                                  bool logprobs);

}  // namespace hone
