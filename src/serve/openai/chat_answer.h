// The answers of POST /v1/chat/completions: chat.completion and chat.completion.chunk.
#pragma once

#include <memory>

#include "serve/context.h"
#include "serve/generation.h"

namespace hone {

std::unique_ptr<AnswerShape> MakeChatAnswer(const ServeContext& context, int choices, const GenerationRequest& request,
                                            bool logprobs);

}  // namespace hone
