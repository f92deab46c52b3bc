// hone serve: an OpenAI-compatible server over the batching engine, until a signal ends it.
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <CLI/CLI.hpp>

#include "base/memory.h"
#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/interrupt.h"
#include "cli/loaded_model.h"
#include "cli/progress.h"
#include "serve/json_writer.h"
#include "serve/serve.h"
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
  void AddFlags(CLI::App& app) override {
    app.add_option("MODEL", model_, "GGUF file, Hugging Face folder, builtin or builtin-draft")->required();
    app.add_option("--host", serve_.host, "address to listen on; 0.0.0.0 is every one")->capture_default_str();
    app.add_option("--port", serve_.port, "port to listen on; 0 takes a free one and says which")
        ->check(CLI::Range(0, 65535))->capture_default_str();
    app.add_option("--name", name_, "what `model` in a request must say (default: the file's or folder's name)");
    app.add_option("--max-sequences", engine_.max_sequences, "sequences running at once")
        ->check(CLI::Range(1, 1024))->capture_default_str();
    app.add_option("--max-queue", engine_.max_queue, "sequences waiting; more are refused with 429")
        ->check(CLI::Range(0, 1 << 20))->capture_default_str();
    app.add_option("--kv-bytes", kv_bytes_, "memory for keys and values, like 2GiB (default: from context and free memory)")
        ->transform(CLI::AsSizeValue(false));
    app.add_option("--cors", serve_.cors, "origin that browsers may call from; * is any (default: none)");
    app.add_flag("--lenient-fields", serve_.lenient_fields, "unknown request fields are logged, not refused");
    app.add_option("--drain-timeout", drain_s_, "seconds that requests at work have to end after a signal")
        ->check(CLI::Range(0.0, 86400.0))->capture_default_str();
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
    engine_.kv_bytes = kv_bytes_;
    engine_.step_tokens = std::max(engine_.step_tokens, engine_.max_sequences);  // one token a step for each
    HONE_TRY(LoadedModel loaded, LoadModel(model_, flags, engine_));
    serve_.name = name_.empty() ? loaded.name : name_;
    serve_.root = loaded.name;
    loaded.engine->Start();
    HONE_TRY(const std::unique_ptr<Server> server,
             Server::Start(*loaded.engine, loaded.chat_template, serve_, loaded.runtime->runtime()));
    if (!flags.quiet) Announce(loaded, server->port());
    WaitForInterrupt();  // the interrupt is not taken: a second signal ends the program at once
    loaded.runtime->runtime().log->Info("stopping: {} sequences at work have {:g} s to end", loaded.engine->stats().running,
                                        drain_s_);
    server->Stop(drain_s_);
    loaded.engine->Stop();
    return kExitDone;
  }

 private:
  void Announce(const LoadedModel& loaded, int port) const {
    const std::string host = serve_.host == "0.0.0.0" || serve_.host == "::" ? "127.0.0.1" : serve_.host;
    const std::string address = fmt::format("http://{}:{}", host.find(':') == std::string::npos ? host : "[" + host + "]", port);
    const EngineOptions& options = loaded.engine->options();
    std::fputs(fmt::format("{} on {} ({}, {} threads; context {}, {} of KV cache, loaded in {:.2f} s, {} resident)\n\n", serve_.name,
                           address, IsaName(loaded.runtime->runtime().isa), loaded.runtime->runtime().threads->count(),
                           options.context, FormatBytes(options.kv_bytes), loaded.load_s, FormatBytes(ResidentBytes()))
                   .c_str(), stderr);
    const char* example = loaded.chat_template != nullptr
        ? "curl {}/v1/chat/completions -H 'Content-Type: application/json' \\\n"
          "  -d '{{\"model\": {}, \"messages\": [{{\"role\": \"user\", \"content\": \"What is a KV cache?\"}}]}}'\n\n"
        : "curl {}/v1/completions -H 'Content-Type: application/json' \\\n"
          "  -d '{{\"model\": {}, \"prompt\": \"Once upon a time\", \"max_tokens\": 64}}'\n\n";
    std::fputs(fmt::format(fmt::runtime(example), address, InShellQuotes(JsonWriter().String(serve_.name).text())).c_str(), stderr);
    std::fflush(stderr);
  }

  std::string model_, name_;
  ServeOptions serve_;
  EngineOptions engine_;
  uint64_t kv_bytes_ = 0;
  double drain_s_ = 30;
};

}  // namespace

std::unique_ptr<Command> MakeServeCommand() { return std::make_unique<ServeCommand>(); }

}  // namespace hone
