// POST /v1/chat/completions.
#include <utility>

#include "serve/endpoint.h"
#include "serve/endpoints/request_rules.h"
#include "serve/error.h"
#include "serve/openai/chat_answer.h"
#include "serve/openai/chat_request.h"

namespace hone {

void ChatCompletionsEndpoint(ServeContext& context, HttpRequest request, std::shared_ptr<ResponseWriter> writer) {
  if (context.chat == nullptr) return writer->Send(ErrorResponse(NoChatTemplate(context)));
  const RequestRules rules = RulesOf(context);
  ChatRequest chat;
  if (auto error = ParseChatRequest(request.body, rules, context.chat->source(), &chat)) {
    return writer->Send(ErrorResponse(*error));
  }
  request.body = {};
  std::string prompt;
  if (auto error = RenderChat(*context.chat, chat, &prompt)) return writer->Send(ErrorResponse(*error));
  // The template writes special tokens, BOS among them.
  std::vector<int32_t> ids = context.tokenizer().Encode(prompt, {.add_special = false, .parse_special = true});
  GenerationRequest generation;
  if (auto error = MakeSequences(chat.fields, std::move(ids), rules, "messages", &generation.sequences)) {
    return writer->Send(ErrorResponse(*error));
  }
  generation.choices_a_prompt = chat.fields.n;
  generation.stream = chat.fields.stream;
  generation.include_usage = chat.fields.include_usage;
  generation.shape = MakeChatAnswer(context, chat.fields.n, generation, chat.fields.sequence.logprobs >= 0);
  StartGeneration(context.engine, std::move(generation), std::move(writer));
}

}  // namespace hone
