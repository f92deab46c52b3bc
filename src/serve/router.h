// Router: from a request to its endpoint. Unknown paths are 404, wrong methods 405 with Allow, bodies that do not say they are
// JSON 415; HEAD is a GET without its body; OPTIONS lists the methods. Adds CORS headers where they are allowed.
#pragma once

#include <memory>

#include "serve/endpoint.h"
#include "serve/worker_pool.h"

namespace hone {

// On the I/O thread. `workers` and `context` must outlive all handler calls.
void Route(ServeContext& context, WorkerPool& workers, HttpRequest request, std::shared_ptr<ResponseWriter> writer);

// Counts and logs a request whose answer has ended.
void FinishRecord(ServeContext& context, const RequestRecord& record);

}  // namespace hone
