// POST /v1/embeddings: the pooled final hidden states of texts, of length 1.
#include <utility>

#include "serve/endpoint.h"
#include "serve/endpoints/request_rules.h"
#include "serve/openai/embedding_request.h"

namespace hone {

void EmbeddingsEndpoint(ServeContext& context, HttpRequest request, std::shared_ptr<ResponseWriter> writer) {
  const std::shared_ptr<ServedModel> model = context.models.Pick();
  const RequestRules rules = RulesOf(context, *model);
  EmbeddingRequest embedding;
  if (auto error = ParseEmbeddingRequest(request.body, rules, model->engine->model_config().width, &embedding)) {
    return Refuse(*error, request, *writer);
  }
  request.body = {};
  GenerationRequest generation;
  for (size_t i = 0; i < embedding.inputs.size(); ++i) {
    std::vector<int32_t> ids;
    if (auto* text = std::get_if<std::string>(&embedding.inputs[i])) {
      ids = model->tokenizer().Encode(*text, {.add_special = embedding.add_special, .parse_special = true});
    } else {
      ids = std::get<std::vector<int32_t>>(std::move(embedding.inputs[i]));
    }
    const std::string param = embedding.inputs.size() == 1 ? "input" : "input[" + std::to_string(i) + "]";
    if (auto error = MakeChoices(embedding.fields, std::move(ids), rules, param, &generation.prompts)) {
      return Refuse(*error, request, *writer);
    }
  }
  generation.model = embedding.fields.model;
  generation.by_turns = true;
  generation.shape = MakeEmbeddingAnswer(embedding.fields.model, embedding.inputs.size(), embedding.base64);
  StartGeneration(context, model, request, std::move(generation), std::move(writer));
}

}  // namespace hone
