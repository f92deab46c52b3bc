// GET /health: the process is alive. GET /ready: it takes requests; with what it is doing.
#include <utility>

#include "serve/endpoint.h"
#include "serve/json_writer.h"

namespace hone {

void HealthEndpoint(ServeContext& context, HttpRequest, std::shared_ptr<ResponseWriter> writer) {
  HttpResponse response;
  response.body = JsonWriter().BeginObject().Field("status", context.stopping ? "stopping" : "ok").EndObject().text();
  writer->Send(std::move(response));
}

void ReadyEndpoint(ServeContext& context, HttpRequest, std::shared_ptr<ResponseWriter> writer) {
  const std::shared_ptr<ServedModel> model = context.models.stable();
  const EngineStats stats = model->engine->stats();
  const EngineOptions& options = model->engine->options();
  const bool full = stats.running + stats.waiting >= options.max_sequences + options.max_queue;  // Submit would refuse
  const bool cold = context.warm != nullptr && !*context.warm;
  const bool ready = !context.stopping && !full && !cold;
  HttpResponse response;
  response.status = ready ? 200 : 503;
  JsonWriter json;
  json.BeginObject().Field("status", ready ? "ready" : context.stopping ? "stopping" : cold ? "warming" : "full");
  json.Field("running", stats.running).Field("waiting", stats.waiting);
  json.Field("kv_blocks", stats.blocks).Field("kv_blocks_used", stats.blocks_used);
  json.Field("preemptions", stats.preemptions).EndObject();
  response.body = std::move(json).text();
  writer->Send(std::move(response));
}

}  // namespace hone
