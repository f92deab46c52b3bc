// Endpoint: one method and path, and the function that answers it. The list is endpoints.inc; each is one file of endpoints/.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "serve/context.h"
#include "serve/http.h"

namespace hone {

// Where an endpoint runs: on the I/O thread (it must be done in microseconds), or on a worker.
enum class RunsOn { kIo, kWorker };

using EndpointFn = void (*)(ServeContext& context, HttpRequest request, std::shared_ptr<ResponseWriter> writer);

struct Endpoint {
  std::string_view method;
  std::string_view path;  // ends with '*': a prefix of at least one more character
  EndpointFn fn;
  RunsOn runs_on;
};

std::span<const Endpoint> Endpoints();

#define HONE_ENDPOINT(method, path, name, runs_on) \
  void name(ServeContext& context, HttpRequest request, std::shared_ptr<ResponseWriter> writer);
#include "serve/endpoints.inc"
#undef HONE_ENDPOINT

}  // namespace hone
