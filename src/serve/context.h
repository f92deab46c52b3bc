// ServeContext: what endpoints may use. One a server; outlives every handler call.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "engine/engine.h"
#include "serve/access_log.h"
#include "serve/metrics.h"
#include "serve/serve.h"
#include "serve/served_model.h"
#include "serve/structured/answer_form.h"
#include "serve/tenants.h"

namespace hone {

struct ServeContext {
  ModelSet models;
  ServeOptions options;
  Runtime runtime;
  std::optional<Tenants> tenants;       // none: everybody may call
  std::optional<Digest> admin_key;      // none: admin routes are closed
  std::unique_ptr<AccessLog> access_log;  // may be null
  HttpMetrics http;
  int64_t created = 0;                  // Unix seconds of the start
  std::atomic<bool> stopping{false};
  std::atomic<int> generations{0};      // at work
  GrammarCache grammars;                // of answers that must be JSON or calls
  std::shared_ptr<std::atomic<bool>> warm;  // null or true: the first generation is through

  double Now() const { return runtime.clock->Now(); }  // seconds; records and metrics use it
};

}  // namespace hone
