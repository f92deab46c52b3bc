// hone serve: an OpenAI-compatible server over the batching engine, until a signal ends it.
#include "serve/serve.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>

#include "base/memory.h"
#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/interrupt.h"
#include "cli/loaded_model.h"
#include "cli/progress.h"
#include "serve/json_writer.h"
#include "text/utf8.h"

namespace hone {
namespace {

// `text` as it stands between the single quotes of a shell word.
std::string InShellQuotes(const std::string& text) {
  std::string quoted;
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted;
}

class ServeCommand : public Command {
 public:
  void AddFlags(Flags& flags) override {
    flags.Add("MODEL", model_, "GGUF file, Hugging Face folder, OWNER/NAME once pulled, builtin or builtin-draft")
        ->required();
    flags.Add("--host", serve_.host, "address to listen on; 0.0.0.0 is every one")->show_default();
    flags.Add("--port", serve_.port, "port to listen on; 0 takes a free one and says which")
        ->range(0, 65535)
        ->show_default();
    flags.Add("--name", name_, "what `model` in a request must say (default: the file's or folder's name)");
    AddEngineFlags(flags);
    AddLimitFlags(flags);
    flags.Add("--lora", lora_,
              "LoRA adapter NAME=PATH, a GGUF file or a PEFT folder; requests choose it by its name (repeatable)")
        ->one_value_each();
    flags.Add("--api-keys", serve_.api_keys_file,
                   "file of API keys, \"name: key\" a line; closes every route but /health");
    flags.Add("--admin-key", serve_.admin_key, "key that opens /admin/ (better given as HONE_ADMIN_KEY)");
    flags.Add("--open", serve_.open_routes, "route that needs no key, like /metrics (repeatable)")
        ->one_value_each();
    flags.Add("--allow-host", serve_.hosts,
              "name that Host of a request may say, beside localhost and addresses; * is any (repeatable; without keys on this machine)")
        ->one_value_each();
    flags.Add("--cors", serve_.cors, "origin that browsers may call from; * is any (default: none)");
    flags.Add("--tls-cert", serve_.tls_cert_file,
                   "certificate chain (PEM); with --tls-key the server speaks HTTPS");
    flags.Add("--tls-key", serve_.tls_key_file, "private key of the certificate (PEM)");
    flags.Add("--access-log", serve_.access_log, "file for one JSON line a request; - is stdout");
    flags.AddSwitch("--vllm-metrics", serve_.vllm_metrics, "/metrics has the names of vLLM too");
    flags.AddSwitch("--lenient-fields", serve_.lenient_fields, "unknown request fields are logged, not refused");
    flags.Add("--drain-timeout", drain_s_, "seconds that requests at work have to end after a signal")
        ->range(0.0, 86400.0)
        ->show_default();
  }

  Result<int> Run(const CommonFlags& flags) override {
    CatchInterrupts();
    const auto is_control = [](unsigned char c) { return c < 0x20 || c == 0x7f; };
    if (std::any_of(serve_.cors.begin(), serve_.cors.end(), is_control)) {
      return UsageError("--cors holds a control character; wanted an origin like https://example.org, or *");
    }
    if (std::any_of(name_.begin(), name_.end(), is_control) || !IsValidUtf8(name_)) {
      return UsageError("--name holds a control character or is not UTF-8; clients could not send it");
    }
    if (!(drain_s_ >= 0)) return UsageError("--drain-timeout is not a number of seconds");  // NaN passes every range
    for (const std::string& route : serve_.open_routes) {
      if (route.empty() || route.front() != '/' || route.starts_with("/admin/")) {
        return UsageError("--open " + route + ": wanted a route like /metrics, and none of /admin/");
      }
    }
    if (const size_t bytes = serve_.limits.header_bytes; bytes < 1024 || bytes > (16u << 20)) {
      return UsageError(fmt::format("--max-header: found {} bytes, wanted 1KiB to 16MiB", bytes));
    }
    if (const size_t bytes = serve_.limits.body_bytes; bytes < 1024 || bytes > serve_.limits.all_bodies_bytes) {
      return UsageError(fmt::format("--max-body: found {} bytes, wanted 1KiB to {}MiB, which all bodies at work share",
                                    bytes, serve_.limits.all_bodies_bytes >> 20));
    }
    if (const Result<void> policy = CheckPolicy(); !policy) return policy.error();
    engine_.kv_bytes = kv_bytes_;
    engine_.step_tokens = std::max(engine_.step_tokens, engine_.max_sequences);  // one token a step for each
    HONE_TRY(LoadedModel loaded, LoadModel(model_, flags, engine_));
    serve_.name = name_.empty() ? loaded.name : name_;
    serve_.root = loaded.name;
    for (const std::string& text : lora_) {
      const NamedAdapter adapter = ParseAdapter(text);
      serve_.adapters.emplace_back(adapter.name, adapter.path);
    }
    serve_.warm_up = true;
    serve_.loader = [this, flags](const std::string& model) { return LoadMore(model, flags); };
    // The runtime outlives the weights, which the server drops when others take their place.
    const std::unique_ptr<RuntimeOwner> owner = std::move(loaded.runtime);
    const Runtime& runtime = owner->runtime();
    const std::string about = About(loaded, runtime);
    const bool chats = loaded.chat_template != nullptr;
    HONE_TRY(const std::unique_ptr<Server> server, Server::Start(Weights(std::move(loaded)), serve_, runtime));
    if (!flags.quiet) Announce(about, chats, server->port());
    if (serve_.api_keys_file.empty() && !IsLoopback(serve_.host)) {
      runtime.log->Warn("{} is open to whoever reaches {}:{}: there are no keys (--api-keys FILE)", serve_.name,
                        serve_.host, server->port());
    }
    WaitForInterrupt();  // the interrupt is not taken: a second signal ends the program at once
    runtime.log->Info("stopping: requests at work have {:g} s to end", drain_s_);
    server->Stop(drain_s_);
    return kExitDone;
  }

 private:
  void AddEngineFlags(Flags& flags) {
    flags.Add("--max-sequences", engine_.max_sequences, "sequences running at once")
        ->range(1, 1024)
        ->show_default();
    flags.Add("--max-queue", engine_.max_queue, "sequences waiting; more are refused with 429")
        ->range(0, 1 << 20)
        ->show_default();
    flags.Add("--kv-bytes", kv_bytes_,
                   "memory for keys and values, like 2GiB (default: from context and free memory)")
        ->bytes();
    flags.Add("--step-ms", engine_.step_ms,
                   "what prompts may add to a step while streams run, in ms: they are cut to fit; 0: uncut")
        ->range(0.0, 1e6)
        ->show_default();
    flags.Add("--policy", engine_.policy, "who runs first: fcfs, priority or mlfq")->show_default();
    flags.AddSwitch("!--no-prefix-cache", engine_.prefix_cache, "keep no computed prompts for later ones");
  }

  void AddLimitFlags(Flags& flags) {
    HttpLimits& http = serve_.limits;
    flags.Add("--max-requests", serve_.request_limits.requests,
                   "requests at work at once; more are refused with 429")
        ->range(1, 1 << 20)
        ->show_default();
    flags.Add("--max-prompt-tokens", serve_.request_limits.prompt_tokens,
                   "tokens of a prompt (default: the context)")
        ->range(1, 1 << 30);
    flags.Add("--max-output-tokens", serve_.request_limits.output_tokens,
                   "tokens of an answer (default: the context)")
        ->range(1, 1 << 30);
    flags.Add("--queue-timeout", engine_.queue_timeout_s, "seconds that a sequence may wait for its turn; 0: any")
        ->range(0.0, 1e6)
        ->show_default();
    flags.Add("--request-timeout", engine_.request_timeout_s, "seconds that an answer may take; 0: any")
        ->range(0.0, 1e6)
        ->show_default();
    flags.Add("--max-body", http.body_bytes, "bytes of a request's body, like 8MiB (default: 32MiB)")
        ->bytes();
    flags.Add("--max-header", http.header_bytes, "bytes of a request's headers (default: 32KiB)")
        ->bytes();
    flags.Add("--max-connections", http.connections, "connections open at once; more are refused with 503")
        ->range(1, 1 << 20)
        ->show_default();
    flags.Add("--slow-client", http.write_s, "seconds without the client taking a byte after which it is dropped")
        ->range(0.1, 1e6)
        ->show_default();
    flags.Add("--ping", http.ping_s, "seconds of silence of a stream after which a comment is sent")
        ->range(0.1, 1e6)
        ->show_default();
  }

  Result<void> CheckPolicy() const {
    std::string known;
    for (const std::string& policy : SchedulingPolicies()) {
      if (policy == engine_.policy) return {};
      known += (known.empty() ? "" : ", ") + policy;
    }
    return UsageError("--policy " + engine_.policy + ": not known; wanted one of " + known);
  }

  static bool IsLoopback(const std::string& host) {
    return host == "localhost" || host == "::1" || host.starts_with("127.");
  }

  static LoadedWeights Weights(LoadedModel loaded) {
    auto owner = std::make_shared<LoadedModel>(std::move(loaded));
    uint64_t parameters = 0;
    const Result<bool> quantized = IsQuantizedFolder(*owner->checkpoint);
    const auto list = quantized && *quantized ? ListWeights(*owner->checkpoint) : Result<std::vector<WeightInfo>>(std::vector<WeightInfo>());
    if (list && !list->empty()) {
      for (const WeightInfo& weight : *list) parameters += static_cast<uint64_t>(weight.shape.elements());
    } else {
      for (const NamedTensor& tensor : owner->checkpoint->tensors()) parameters += static_cast<uint64_t>(tensor.view.shape.elements());
    }
    return {std::shared_ptr<Engine>(owner, owner->engine.get()), owner->chat_template, owner->name, parameters};
  }

  // Other weights, beside those that run: a model with threads of its own.
  Result<LoadedWeights> LoadMore(const std::string& model, CommonFlags flags) const {
    flags.quiet = true;
    HONE_TRY(LoadedModel loaded, LoadModel(model, flags, engine_));
    return Weights(std::move(loaded));
  }

  static std::string About(const LoadedModel& loaded, const Runtime& runtime) {
    const EngineOptions& options = loaded.engine->options();
    return fmt::format("{}, {} threads; context {}, {} of KV cache, loaded in {:.2f} s, {} resident",
                       IsaName(runtime.isa), runtime.threads->count(), options.context, FormatBytes(options.kv_bytes),
                       loaded.load_s, FormatBytes(ResidentBytes()));
  }

  void Announce(const std::string& about, bool chats, int port) const {
    const std::string host = serve_.host == "0.0.0.0" || serve_.host == "::" ? "127.0.0.1" : serve_.host;
    const std::string address = fmt::format("{}://{}:{}", serve_.tls_cert_file.empty() ? "http" : "https",
                                            host.find(':') == std::string::npos ? host : "[" + host + "]", port);
    std::fputs(fmt::format("{} on {} ({})\n\n", serve_.name, address, about).c_str(), stderr);
    const char* example = chats ? "curl {}/v1/chat/completions -H 'Content-Type: application/json' \\\n"
                                  "  -d '{{\"model\": {}, \"messages\": [{{\"role\": \"user\", \"content\": \"What is "
                                  "a KV cache?\"}}]}}'\n\n"
                                : "curl {}/v1/completions -H 'Content-Type: application/json' \\\n"
                                  "  -d '{{\"model\": {}, \"prompt\": \"Once upon a time\", \"max_tokens\": 64}}'\n\n";
    std::fputs(
        fmt::format(fmt::runtime(example), address, InShellQuotes(JsonWriter().String(serve_.name).text())).c_str(),
        stderr);
    std::fflush(stderr);
  }

  std::string model_, name_;
  std::vector<std::string> lora_;
  ServeOptions serve_;
  EngineOptions engine_;
  uint64_t kv_bytes_ = 0;
  double drain_s_ = 30;
};

}  // namespace

std::unique_ptr<Command> MakeServeCommand() { return std::make_unique<ServeCommand>(); }

}  // namespace hone
