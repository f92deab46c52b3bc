// ServeContext: what endpoints may use. One a server; outlives every handler call.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "engine/engine.h"
#include "serve/serve.h"

namespace hone {

struct ServeContext {
  Engine& engine;
  std::shared_ptr<const ChatTemplate> chat;  // may be null
  ServeOptions options;
  Runtime runtime;
  int64_t created = 0;                 // Unix seconds of the start
  std::atomic<bool> stopping{false};

  const Tokenizer& tokenizer() const { return engine.tokenizer(); }
  int context() const { return engine.options().context; }
};

}  // namespace hone
