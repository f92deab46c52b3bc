// POST /v1/responses.
#include <utility>

#include "serve/endpoint.h"
#include "serve/endpoints/request_rules.h"
#include "serve/openai/responses_answer.h"

namespace hone {

void ResponsesEndpoint(ServeContext& context, HttpRequest request, std::shared_ptr<ResponseWriter> writer) {
  const std::shared_ptr<ServedModel> model = context.models.Pick();
  if (model->chat == nullptr) return Refuse(NoChatTemplate(context, "input"), request, *writer);
  const RequestRules rules = RulesOf(context, *model);
  ResponsesRequest responses;
  if (auto error = ParseResponsesRequest(request.body, rules, model->chat->source(), &responses)) {
    return Refuse(*error, request, *writer);
  }
  request.body = {};
  std::string prompt;
  if (auto error = RenderChat(*model->chat, responses.chat, &prompt)) {
    if (error->param == "messages") error->param = "input";
    return Refuse(*error, request, *writer);
  }
  std::vector<int32_t> ids = model->tokenizer().Encode(prompt, {.add_special = false, .parse_special = true});
  OutputFormat format = FormatOf(model->chat->source(), prompt, responses.chat.tool_names);
  if (MarksAreSpecial(format, model->tokenizer())) responses.chat.fields.sequence.skip_special = false;
  const AnswerMarks marks = {format, NamesBeforeArguments(model->chat->source())};
  if (auto error = FindGrammar(context.grammars, marks, &responses.chat.fields)) return Refuse(*error, request, *writer);
  GenerationRequest generation;
  if (auto error = MakeChoices(responses.chat.fields, std::move(ids), rules, "input", &generation.prompts)) {
    return Refuse(*error, request, *writer);
  }
  generation.model = responses.chat.fields.model;
  generation.stream = responses.chat.fields.stream;
  generation.shape = MakeResponsesAnswer(model, responses, std::move(format));
  StartGeneration(context, model, request, std::move(generation), std::move(writer));
}

}  // namespace hone
