// POST /v1/load_lora_adapter    {"lora_name": NAME, "lora_path": PATH, "load_inplace": false}
// POST /v1/unload_lora_adapter  {"lora_name": NAME}
// As vLLM has them; the admin key is checked by the router. PATH is a GGUF file or a PEFT folder of this machine. Requests that
// run keep the adapter that they began with.
#include <nlohmann/json.hpp>
#include <utility>

#include "serve/endpoint.h"
#include "serve/endpoints/model_card.h"
#include "serve/endpoints/request_rules.h"

namespace hone {
namespace {

constexpr std::string_view kLoadFields[] = {"lora_name", "lora_path", "load_inplace"};
constexpr std::string_view kUnloadFields[] = {"lora_name", "lora_int_id"};

std::optional<ApiError> ReadName(FieldReader& reader, std::string* name) {
  reader.String("lora_name", name);
  if (reader.error()) return reader.error();
  if (name->empty()) return ApiError{400, "lora_name: missing, wanted the adapter's name", "lora_name", "missing_field"};
  return std::nullopt;
}

std::optional<ApiError> Load(ServeContext& context, std::string_view body, std::string* name) {
  Json document;
  if (auto error = ParseBody(body, &document)) return error;
  if (auto error = CheckNames(document, "", kLoadFields, {context.options.lenient_fields, context.runtime.log})) return error;
  FieldReader reader(document);
  std::string path;
  bool in_place = false;
  if (auto error = ReadName(reader, name)) return error;
  reader.String("lora_path", &path);
  reader.Bool("load_inplace", &in_place);
  if (reader.error()) return reader.error();
  if (path.empty()) return ApiError{400, "lora_path: missing, wanted a GGUF file or a PEFT folder", "lora_path", "missing_field"};
  if (auto problem = CheckAdapterName(*name, context.options.name)) {
    return ApiError{400, "lora_name: " + *problem, "lora_name", "invalid_value"};
  }
  const Result<void> loaded = context.models.LoadAdapter(*name, path, in_place);
  if (loaded) return std::nullopt;
  ApiError error = FromError(loaded.error());
  error.param = "lora_path";
  if (loaded.error().code == ErrorCode::kUsage) error.status = 409, error.code = "conflict", error.param = "lora_name";
  if (error.status >= 500 || loaded.error().code == ErrorCode::kNotFound || loaded.error().code == ErrorCode::kIo) {
    error.status = 400, error.code = "invalid_value";  // a path of the caller's that cannot be read
  }
  error.may_retry = false;
  return error;
}

std::optional<ApiError> Unload(ServeContext& context, std::string_view body, std::string* name) {
  Json document;
  if (auto error = ParseBody(body, &document)) return error;
  if (auto error = CheckNames(document, "", kUnloadFields, {context.options.lenient_fields, context.runtime.log})) return error;
  FieldReader reader(document);
  if (auto error = ReadName(reader, name)) return error;
  if (!context.models.UnloadAdapter(*name)) {
    return ApiError{404, "lora_name: there is no adapter \"" + *name + "\"", "lora_name", "model_not_found"};
  }
  return std::nullopt;
}

}  // namespace

void LoadAdapterEndpoint(ServeContext& context, HttpRequest request, std::shared_ptr<ResponseWriter> writer) {
  std::string name;
  if (auto error = Load(context, request.body, &name)) return Refuse(*error, request, *writer);
  const std::shared_ptr<const AdapterMap> adapters = context.models.stable()->adapters.get();
  JsonWriter json;
  if (const auto it = adapters->find(name); it != adapters->end()) {
    WriteAdapterCard(json, context, name, *it->second);
  } else {  // another call has unloaded it already
    json.BeginObject().Field("id", name).EndObject();
  }
  HttpResponse response;
  response.body = std::move(json).text();
  writer->Send(std::move(response));
}

void UnloadAdapterEndpoint(ServeContext& context, HttpRequest request, std::shared_ptr<ResponseWriter> writer) {
  std::string name;
  if (auto error = Unload(context, request.body, &name)) return Refuse(*error, request, *writer);
  HttpResponse response;
  response.body = JsonWriter().BeginObject().Field("id", name).Field("object", "model").Field("deleted", true).EndObject().text();
  writer->Send(std::move(response));
}

}  // namespace hone
