// GET /health: the process answers. GET /ready: it takes requests; with what it is doing.
#include <utility>

#include "serve/endpoint.h"
#include "serve/json_writer.h"

namespace hone {

void HealthEndpoint(ServeContext& context, HttpRequest, std::shared_ptr<ResponseWriter> writer) {
  const bool stopping = context.stopping;
  HttpResponse response;
  response.status = stopping ? 503 : 200;
  response.body = JsonWriter().BeginObject().Field("status", stopping ? "stopping" : "ok").EndObject().text();
  writer->Send(std::move(response));
}

void ReadyEndpoint(ServeContext& context, HttpRequest, std::shared_ptr<ResponseWriter> writer) {
  const EngineStats stats = context.engine.stats();
  const EngineOptions& options = context.engine.options();
  const bool full = stats.running + stats.waiting >= options.max_sequences + options.max_queue;  // Submit would refuse
  const bool ready = !context.stopping && !full;
  HttpResponse response;
  response.status = ready ? 200 : 503;
  JsonWriter json;
  json.BeginObject().Field("status", ready ? "ready" : context.stopping ? "stopping" : "full");
  json.Field("running", stats.running).Field("waiting", stats.waiting);
  json.Field("kv_blocks", stats.blocks).Field("kv_blocks_used", stats.blocks_used);
  json.Field("preemptions", stats.preemptions).EndObject();
  response.body = std::move(json).text();
  writer->Send(std::move(response));
}

}  // namespace hone
