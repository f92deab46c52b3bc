// POST /v1/completions.
#include <utility>

#include "serve/endpoint.h"
#include "serve/endpoints/request_rules.h"
#include "serve/error.h"
#include "serve/openai/completion_answer.h"
#include "serve/openai/completion_request.h"

namespace hone {

void CompletionsEndpoint(ServeContext& context, HttpRequest request, std::shared_ptr<ResponseWriter> writer) {
  const RequestRules rules = RulesOf(context);
  CompletionRequest completion;
  if (auto error = ParseCompletionRequest(request.body, rules, &completion)) return writer->Send(ErrorResponse(*error));
  request.body = {};
  GenerationRequest generation;
  for (size_t i = 0; i < completion.prompts.size(); ++i) {
    std::vector<int32_t> ids;
    if (auto* text = std::get_if<std::string>(&completion.prompts[i])) {
      ids = context.tokenizer().Encode(*text, {.add_special = completion.add_special, .parse_special = true});
    } else {
      ids = std::get<std::vector<int32_t>>(std::move(completion.prompts[i]));
    }
    const std::string param = completion.prompts.size() == 1 ? "prompt" : "prompt[" + std::to_string(i) + "]";
    if (auto error = MakeSequences(completion.fields, std::move(ids), rules, param, &generation.sequences)) {
      return writer->Send(ErrorResponse(*error));
    }
  }
  const int choices = static_cast<int>(generation.sequences.size());
  generation.choices_a_prompt = completion.fields.n;
  generation.stream = completion.fields.stream;
  generation.include_usage = completion.fields.include_usage;
  generation.shape = MakeCompletionAnswer(context, choices, generation, completion.fields.sequence.logprobs >= 0);
  StartGeneration(context.engine, std::move(generation), std::move(writer));
}

}  // namespace hone
