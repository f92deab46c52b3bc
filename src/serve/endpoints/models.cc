// GET /v1/models and /v1/models/{id}.
#include <utility>

#include "serve/endpoint.h"
#include "serve/error.h"
#include "serve/json_writer.h"

namespace hone {
namespace {

void WriteModel(JsonWriter& json, const ServeContext& context) {
  json.BeginObject().Field("id", context.options.name).Field("object", "model").Field("created", context.created);
  const std::shared_ptr<ServedModel> model = context.models.stable();
  json.Field("owned_by", "hone").Field("root", model->root).NullField("parent");
  json.Field("max_model_len", model->context()).EndObject();
}

}  // namespace

void ModelsEndpoint(ServeContext& context, HttpRequest, std::shared_ptr<ResponseWriter> writer) {
  JsonWriter json;
  json.BeginObject().Field("object", "list").Key("data").BeginArray();
  WriteModel(json, context);
  json.EndArray().EndObject();
  HttpResponse response;
  response.body = std::move(json).text();
  writer->Send(std::move(response));
}

void ModelEndpoint(ServeContext& context, HttpRequest request, std::shared_ptr<ResponseWriter> writer) {
  const std::string id = request.path.substr(std::string_view("/v1/models/").size());
  if (id != context.options.name) {
    return writer->Send(
        ErrorResponse({404, "model: \"" + id + "\" does not exist; this server has \"" + context.options.name + "\"",
                       "model", "model_not_found"}));
  }
  JsonWriter json;
  WriteModel(json, context);
  HttpResponse response;
  response.body = std::move(json).text();
  writer->Send(std::move(response));
}

}  // namespace hone
