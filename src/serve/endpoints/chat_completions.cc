// POST /v1/chat/completions.
#include <utility>

#include "serve/endpoint.h"
#include "serve/endpoints/request_rules.h"
#include "serve/error.h"
#include "serve/openai/chat_answer.h"
#include "serve/openai/chat_request.h"

namespace hone {

void ChatCompletionsEndpoint(ServeContext& context, HttpRequest request, std::shared_ptr<ResponseWriter> writer) {
  const std::shared_ptr<ServedModel> model = context.models.Pick();
  if (model->chat == nullptr) return Refuse(NoChatTemplate(context), request, *writer);
  const RequestRules rules = RulesOf(context, *model);
  ChatRequest chat;
  if (auto error = ParseChatRequest(request.body, rules, model->chat->source(), &chat))
    return Refuse(*error, request, *writer);
  request.body = {};
  std::string prompt;
  if (auto error = RenderChat(*model->chat, chat, &prompt)) return Refuse(*error, request, *writer);
  // The template writes special tokens, BOS among them.
  std::vector<int32_t> ids = model->tokenizer().Encode(prompt, {.add_special = false, .parse_special = true});
  OutputFormat format = FormatOf(model->chat->source(), prompt, std::move(chat.tool_names));
  if (MarksAreSpecial(format, model->tokenizer())) chat.fields.sequence.skip_special = false;
  const AnswerMarks marks = {format, NamesBeforeArguments(model->chat->source())};
  if (auto error = FindGrammar(context.grammars, marks, &chat.fields)) return Refuse(*error, request, *writer);
  GenerationRequest generation;
  if (auto error = MakeChoices(chat.fields, std::move(ids), rules, "messages", &generation.prompts)) {
    return Refuse(*error, request, *writer);
  }
  generation.stream = chat.fields.stream;
  generation.include_usage = chat.fields.include_usage;
  ChatAnswerOptions options;
  options.model = generation.model = chat.fields.model;
  options.choices = chat.fields.n;
  options.include_usage = generation.stream && generation.include_usage;
  options.continuous_usage = chat.fields.continuous_usage;
  options.logprobs = chat.fields.sequence.logprobs >= 0;
  options.prompt_logprobs = chat.fields.sequence.prompt_logprobs >= 0;
  options.format = std::move(format);
  generation.shape = MakeChatAnswer(model, std::move(options));
  StartGeneration(context, model, request, std::move(generation), std::move(writer));
}

}  // namespace hone
