// The answers of POST /v1/responses: a response object, or the events that build it.
#pragma once

#include <memory>

#include "serve/generation.h"
#include "serve/openai/output_parser.h"
#include "serve/openai/responses_request.h"

namespace hone {

std::unique_ptr<AnswerShape> MakeResponsesAnswer(std::shared_ptr<ServedModel> model,
                                                 const ResponsesRequest& request, OutputFormat format);

}  // namespace hone
