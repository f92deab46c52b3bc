// GET /v1/models and /v1/models/{id}: the model and its adapters, with what they take of the memory.
#include <utility>

#include "serve/endpoint.h"
#include "serve/endpoints/model_card.h"
#include "serve/error.h"

namespace hone {

void WriteModelCard(JsonWriter& json, const ServeContext& context) {
  json.BeginObject().Field("id", context.options.name).Field("object", "model").Field("created", context.created);
  const std::shared_ptr<ServedModel> model = context.models.stable();
  json.Field("owned_by", "hone").Field("root", model->root).NullField("parent");
  json.Field("max_model_len", model->context());
  const std::string& architecture = model->engine->model_config().architecture;
  if (!architecture.empty()) json.Field("architecture", architecture);
  if (model->parameters > 0) json.Field("parameters", model->parameters);
  json.Field("weight_bytes", model->engine->weight_bytes()).Field("kv_bytes", model->engine->options().kv_bytes);
  json.Field("adapter_bytes", AdapterBytes(*model->adapters.get())).EndObject();
}

void WriteAdapterCard(JsonWriter& json, const ServeContext& context, const std::string& name, const Adapter& adapter) {
  json.BeginObject().Field("id", name).Field("object", "model").Field("created", context.created).Field("owned_by", "hone");
  json.Field("root", adapter.info().path).Field("parent", context.options.name);
  json.Field("max_model_len", context.models.stable()->context());
  json.Field("adapter_bytes", adapter.info().bytes).Field("rank", adapter.info().rank);
  json.Field("content_id", adapter.info().content_id).EndObject();
}

void ModelsEndpoint(ServeContext& context, HttpRequest, std::shared_ptr<ResponseWriter> writer) {
  JsonWriter json;
  json.BeginObject().Field("object", "list").Key("data").BeginArray();
  WriteModelCard(json, context);
  for (const auto& [name, adapter] : *context.models.stable()->adapters.get()) WriteAdapterCard(json, context, name, *adapter);
  json.EndArray().EndObject();
  HttpResponse response;
  response.body = std::move(json).text();
  writer->Send(std::move(response));
}

void ModelEndpoint(ServeContext& context, HttpRequest request, std::shared_ptr<ResponseWriter> writer) {
  const std::string id = request.path.substr(std::string_view("/v1/models/").size());
  const std::shared_ptr<const AdapterMap> adapters = context.models.stable()->adapters.get();
  JsonWriter json;
  if (id == context.options.name) {
    WriteModelCard(json, context);
  } else if (const auto it = adapters->find(id); it != adapters->end()) {
    WriteAdapterCard(json, context, id, *it->second);
  } else {
    return writer->Send(
        ErrorResponse({404, "model: \"" + id + "\" does not exist; this server has \"" + context.options.name + "\"",
                       "model", "model_not_found"}));
  }
  HttpResponse response;
  response.body = std::move(json).text();
  writer->Send(std::move(response));
}

}  // namespace hone
