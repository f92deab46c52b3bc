// POST /tokenize: {"prompt": text} or {"messages": [...]} to {"tokens": [ids], "count", "max_model_len"}.
// POST /detokenize: {"tokens": [ids]} to {"prompt": text}. Shapes as vLLM has them.
#include <nlohmann/json.hpp>
#include <utility>

#include "serve/endpoint.h"
#include "serve/endpoints/request_rules.h"
#include "serve/json_writer.h"
#include "serve/openai/chat_request.h"

namespace hone {
namespace {

constexpr std::string_view kTokenizeFields[] = {
    "model", "prompt", "messages", "add_special_tokens", "add_generation_prompt", "return_token_strs"};
constexpr std::string_view kDetokenizeFields[] = {"model", "tokens"};

std::optional<ApiError> Tokenize(ServeContext& context, std::string_view body, std::string* answer) {
  const std::shared_ptr<ServedModel> model = context.models.stable();
  const RequestRules rules = RulesOf(context, *model);
  Json document;
  if (auto error = ParseBody(body, &document)) return error;
  if (auto error = CheckNames(document, "", kTokenizeFields, rules.policy)) return error;
  FieldReader reader(document);
  const bool chat = reader.Has("messages");
  bool add_special = !chat, strings = false;
  ChatRequest request;
  std::string text;
  CheckModel(reader, rules, nullptr);
  reader.String("prompt", &text);
  reader.Bool("add_special_tokens", &add_special);
  reader.Bool("return_token_strs", &strings);
  reader.Bool("add_generation_prompt", &request.add_generation_prompt);
  if (reader.error()) return reader.error();
  if (chat == reader.Has("prompt"))
    return ApiError{400, "wanted prompt or messages, one of them", "prompt", "invalid_value"};
  if (chat) {
    if (model->chat == nullptr) return NoChatTemplate(context);
    if (auto error = ParseMessages(document, rules, &request)) return error;
    if (auto error = RenderChat(*model->chat, request, &text)) return error;
  }
  const std::vector<int32_t> ids = model->tokenizer().Encode(text, {.add_special = add_special, .parse_special = true});
  JsonWriter json;
  json.BeginObject().Field("count", static_cast<int64_t>(ids.size())).Field("max_model_len", model->context());
  json.Key("tokens").BeginArray();
  for (const int32_t id : ids) json.Int(id);
  json.EndArray();
  if (strings) {
    json.Key("token_strs").BeginArray();
    for (const int32_t id : ids) json.String(model->tokenizer().TokenText(id));
    json.EndArray();
  }
  json.EndObject();
  *answer = std::move(json).text();
  return std::nullopt;
}

std::optional<ApiError> Detokenize(ServeContext& context, std::string_view body, std::string* answer) {
  const std::shared_ptr<ServedModel> model = context.models.stable();
  const RequestRules rules = RulesOf(context, *model);
  Json document;
  if (auto error = ParseBody(body, &document)) return error;
  if (auto error = CheckNames(document, "", kDetokenizeFields, rules.policy)) return error;
  FieldReader reader(document);
  if (!reader.Has("tokens"))
    return ApiError{400, "tokens: missing, wanted an array of token ids", "tokens", "missing_field"};
  CheckModel(reader, rules, nullptr);
  std::vector<int32_t> ids;
  reader.Ids("tokens", kMaxJsonValues, rules.vocab, &ids);
  if (reader.error()) return reader.error();
  *answer = JsonWriter().BeginObject().Field("prompt", model->tokenizer().Decode(ids, false)).EndObject().text();
  return std::nullopt;
}

using Convert = std::optional<ApiError> (*)(ServeContext&, std::string_view, std::string*);

void Answer(Convert convert, ServeContext& context, const HttpRequest& request, ResponseWriter& writer) {
  HttpResponse response;
  if (auto error = convert(context, request.body, &response.body)) response = ErrorResponse(*error);
  writer.Send(std::move(response));
}

}  // namespace

void TokenizeEndpoint(ServeContext& context, HttpRequest request, std::shared_ptr<ResponseWriter> writer) {
  Answer(&Tokenize, context, request, *writer);
}

void DetokenizeEndpoint(ServeContext& context, HttpRequest request, std::shared_ptr<ResponseWriter> writer) {
  Answer(&Detokenize, context, request, *writer);
}

}  // namespace hone
