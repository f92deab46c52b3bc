// POST /v1/completions.
#include <algorithm>
#include <utility>

#include "serve/endpoint.h"
#include "serve/endpoints/request_rules.h"
#include "serve/error.h"
#include "serve/openai/completion_answer.h"
#include "serve/openai/completion_request.h"

namespace hone {

void CompletionsEndpoint(ServeContext& context, HttpRequest request, std::shared_ptr<ResponseWriter> writer) {
  const std::shared_ptr<ServedModel> model = context.models.Pick();
  const RequestRules rules = RulesOf(context, *model);
  CompletionRequest completion;
  if (auto error = ParseCompletionRequest(request.body, rules, &completion)) return Refuse(*error, request, *writer);
  request.body = {};
  GenerationFields& fields = completion.fields;
  CompletionAnswerOptions options;
  options.model = fields.model;
  options.n = fields.n;
  options.best_of = std::max(fields.n, fields.best_of);
  options.logprobs = fields.sequence.logprobs >= 0;
  options.prompt_logprobs = fields.sequence.prompt_logprobs >= 0 && !(completion.echo && options.logprobs);
  if (options.best_of > options.n) fields.sequence.logprobs = std::max(fields.sequence.logprobs, 0);  // to choose by
  options.prompt_only = fields.sequence.prompt_only;
  if (auto error = FindGrammar(context.grammars, {}, &fields)) return Refuse(*error, request, *writer);
  GenerationRequest generation;
  for (size_t i = 0; i < completion.prompts.size(); ++i) {
    std::vector<int32_t> ids;
    if (auto* text = std::get_if<std::string>(&completion.prompts[i])) {
      ids = model->tokenizer().Encode(*text, {.add_special = completion.add_special, .parse_special = true});
    } else {
      ids = std::get<std::vector<int32_t>>(std::move(completion.prompts[i]));
    }
    if (completion.echo) {
      const auto* text = std::get_if<std::string>(&completion.prompts[i]);
      options.echo.push_back(text != nullptr ? *text : model->tokenizer().Decode(ids, true));
      options.echo_ids.push_back(options.logprobs ? ids : std::vector<int32_t>());
    }
    const std::string param = completion.prompts.size() == 1 ? "prompt" : "prompt[" + std::to_string(i) + "]";
    if (auto error = MakeChoices(fields, std::move(ids), rules, param, &generation.prompts))
      return Refuse(*error, request, *writer);
  }
  options.choices = options.best_of * static_cast<int>(generation.prompts.size());
  generation.model = fields.model;
  generation.stream = fields.stream;
  generation.include_usage = fields.include_usage;
  options.include_usage = fields.stream && fields.include_usage;
  options.continuous_usage = fields.continuous_usage;
  generation.shape = MakeCompletionAnswer(model, std::move(options));
  StartGeneration(context, model, request, std::move(generation), std::move(writer));
}

}  // namespace hone
