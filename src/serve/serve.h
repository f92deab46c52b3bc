// Server: an Engine behind HTTP with OpenAI's shapes. What cli/ starts and stops.
//
// The life of a request: http_server.h reads it -> router.h finds the endpoint -> a worker parses it
// (openai/*_request.h), renders the chat template, tokenises -> generation.h submits sequences, turns events into
// chunks or one answer. Endpoints, fields and errors: docs/server.md. A new endpoint: docs/howto/add-an-endpoint.md.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/runtime.h"
#include "engine/engine.h"
#include "serve/limits.h"
#include "serve/served_model.h"
#include "text/chat_template.h"

namespace hone {

struct ServeOptions {
  std::string host = "127.0.0.1";
  int port = 8080;                          // 0: any free one, see Server::port()
  std::string name = "model";               // what `model` of a request must say
  std::string root;                         // /v1/models: where the model came from; "": the name
  std::vector<std::string> hosts;           // see CheckHost in router.cc; "*": any
  std::string cors;                         // origin that browsers may call from, "*" for any; "": none
  bool lenient_fields = false;              // fields that are not known or not honoured are logged, not refused
  std::string api_keys_file;                // tenants.h; "": everybody may call
  std::string admin_key;                    // opens /admin/; "": nobody may call those
  std::vector<std::string> open_routes;     // open without a key, besides /health
  std::string access_log;                   // a file, "-" for stdout; "": none
  bool vllm_metrics = false;                // /metrics has the names of vLLM too
  bool warm_up = false;                     // /ready says 503 until a first generation has been through the engine
  std::string tls_cert_file, tls_key_file;  // PEM; "": plain HTTP
  std::vector<std::pair<std::string, std::string>> adapters;  // name and path: there from the start
  WeightsLoader loader;                     // for POST /admin/models; may be empty
  HttpLimits limits;
  RequestLimits request_limits;
};

class Server {
 public:
  // Listens and answers from the moment it returns. `chat` may be null (a base model: /v1/chat/completions then
  // explains in a 400). `engine` must be started by the caller, and outlive the server, as must what `runtime` points
  // to (a clock among it). Errors: an address that cannot be listened on, saying why and what to try; a key file, certificate or log that
  // is not one.
  static Result<std::unique_ptr<Server>> Start(Engine& engine, std::shared_ptr<const ChatTemplate> chat,
                                               ServeOptions options, const Runtime& runtime);
  // The same with weights that the server owns: it starts their engine, and drops them when others have taken their
  // place. What `runtime` points to outlives the server, as ever, so it is no part of the weights.
  static Result<std::unique_ptr<Server>> Start(LoadedWeights first, ServeOptions options, const Runtime& runtime);
  virtual ~Server() = default;  // Stop(0)

  virtual int port() const = 0;
  // From now on /ready says 503 and new requests are refused with 503; requests at work have `drain_s` seconds to end,
  // then they are told so and their sequences are cancelled. Returns when all connections are closed. Safe to call
  // twice, and from any thread but the server's own.
  virtual void Stop(double drain_s) = 0;
  // Returns when Stop has been called (by another thread) and is done.
  virtual void Wait() = 0;
};

}  // namespace hone
