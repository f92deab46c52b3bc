// hone chat: a conversation in the terminal. Ctrl-C stops the answer, not the program; on an empty line it leaves.
#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/loaded_model.h"
#include "cli/sampling_flags.h"

namespace hone {
namespace {

using nlohmann::ordered_json;

constexpr const char* kChatHelp =
    "/help           this text\n"
    "/system TEXT    start again with this system message\n"
    "/retry          answer the last message again\n"
    "/save FILE      write the conversation as JSON messages\n"
    "/clear          forget the conversation\n"
    "/exit           leave (also Ctrl-D)\n"
    "Ctrl-C stops an answer. A line that ends in \\ goes on in the next.\n";

class ChatCommand : public Command {
 public:
  void AddFlags(Flags& flags) override {
    flags.Add("MODEL", model_, "GGUF file, Hugging Face folder, builtin or builtin-draft")->required();
    flags.Add("--system", system_, "system message");
    flags.Add("--lora", lora_, kLoraHelp);
    sampling_.Add(flags);
  }

  Result<int> Run(const CommonFlags& flags) override {
    CatchInterrupts();
    SequenceRequest tried;
    HONE_RETURN_IF_ERROR(sampling_.Apply(flags, {}, &tried));  // wrong flags are said before a model is read
    EngineOptions options;
    options.max_sequences = 1;
    HONE_TRY(LoadedModel loaded, LoadModel(model_, flags, options));
    if (loaded.chat_template == nullptr) return UsageError(model_ + " has no chat template; use hone run --raw");
    HONE_TRY(adapter_, LoadAdapterFlag(lora_, *loaded.model));
    terminal_ = isatty(STDIN_FILENO) != 0;
    if (terminal_ && !flags.quiet) std::fprintf(stderr, "%s, /help for help\n", loaded.name.c_str());
    Reset();
    std::string line;
    while (ReadLine(&line)) {
      if (line.empty()) continue;
      if (line[0] == '/') {
        HONE_TRY(const bool stay, Obey(loaded, flags, line));
        if (!stay || reader_gone_) break;
        continue;
      }
      messages_.push_back({{"role", "user"}, {"content", line}});
      HONE_RETURN_IF_ERROR(Answer(loaded, flags));
      if (reader_gone_) break;
    }
    return kExitDone;
  }

 private:
  void Reset() {
    messages_ = ordered_json::array();
    if (!system_.empty()) messages_.push_back({{"role", "system"}, {"content", system_}});
  }

  // One message from stdin; false at its end, or after Ctrl-C at the prompt.
  bool ReadLine(std::string* line) {
    line->clear();
    for (std::string part;;) {
      if (terminal_) std::fputs(line->empty() ? "> " : ". ", stderr);
      if (!std::getline(std::cin, part)) return !line->empty();
      if (TakeInterrupt()) return false;
      const bool more = part.ends_with('\\');
      if (more) part.back() = '\n';
      *line += part;
      if (!more) return true;
    }
  }

  // A /command; false: leave.
  Result<bool> Obey(LoadedModel& loaded, const CommonFlags& flags, const std::string& line) {
    const size_t space = line.find(' ');
    const std::string word = line.substr(0, space);
    const std::string rest = space == std::string::npos ? "" : line.substr(space + 1);
    if (word == "/exit" || word == "/quit") return false;
    if (word == "/system") {
      system_ = rest;
      Reset();
    } else if (word == "/clear") {
      Reset();
    } else if (word == "/save") {
      Save(rest);
    } else if (word == "/retry") {
      while (!messages_.empty() && messages_.back()["role"] == "assistant") messages_.erase(messages_.size() - 1);
      if (messages_.empty() || messages_.back()["role"] != "user") {
        std::fputs("nothing to retry\n", stderr);
      } else {
        HONE_RETURN_IF_ERROR(Answer(loaded, flags));
      }
    } else {
      std::fputs(kChatHelp, stderr);
    }
    return true;
  }

  void Save(const std::string& path) const {
    if (path.empty()) {
      std::fputs("usage: /save FILE\n", stderr);
      return;
    }
    std::ofstream out(path);
    out << messages_.dump(1, ' ', false, ordered_json::error_handler_t::replace) << "\n";
    out.flush();
    std::fprintf(stderr, out ? "saved %s\n" : "%s: cannot write\n", path.c_str());
  }

  // Generates the answer to the conversation, streams it and appends it. A conversation that no longer fits, or a template
  // that refuses it, is said and the last message is taken back; only a broken engine ends the program.
  Result<void> Answer(LoadedModel& loaded, const CommonFlags& flags) {
    const auto replace = ordered_json::error_handler_t::replace;
    const auto prompt = loaded.chat_template->Render({.messages_json = messages_.dump(-1, ' ', false, replace)});
    if (!prompt) return TakeBack(prompt.error());
    SequenceRequest request;
    request.adapter = adapter_;
    request.prompt = loaded.tokenizer->Encode(*prompt, {.add_special = false, .parse_special = true});
    HONE_TRY(SamplingParams suggested, SuggestedSampling(*loaded.checkpoint));
    HONE_RETURN_IF_ERROR(sampling_.Apply(flags, std::move(suggested), &request));
    SequenceEvent last;
    std::string answer;
    const auto id = loaded.engine->Submit(std::move(request), [&](const SequenceEvent& event) {
      answer += event.text;
      if (!flags.json && !WriteOut(event.text)) reader_gone_ = true;
      last = event;
    });
    if (!id) return TakeBack(id.error());
    bool stopped = false;
    while (last.finish == FinishReason::kNone) {
      const bool interrupted = TakeInterrupt();
      stopped = stopped || interrupted;
      if (interrupted || reader_gone_) loaded.engine->Cancel(*id);
      loaded.engine->Step();
    }
    if (last.finish == FinishReason::kError) return Error{ErrorCode::kInternal, last.error};
    messages_.push_back({{"role", "assistant"}, {"content", answer}});
    if (flags.json) {
      reader_gone_ = !WriteOut(ordered_json{{"role", "assistant"}, {"content", answer}, {"output_tokens", last.output_tokens}}
                   .dump(-1, ' ', false, replace) + "\n");
    } else {
      reader_gone_ = !WriteOut("\n") || reader_gone_;
    }
    if (stopped) std::fputs("(stopped)\n", stderr);
    if (terminal_ && flags.verbose && last.decode_s > 0) {
      std::fputs(fmt::format("{} tokens, {:.1f} tok/s\n", last.output_tokens, (last.output_tokens - 1) / last.decode_s).c_str(),
                 stderr);
    }
    return {};
  }

  Result<void> TakeBack(const Error& error) {
    std::fprintf(stderr, "hone chat: %s (the message was taken back; /clear starts again)\n", error.message.c_str());
    if (!messages_.empty() && messages_.back()["role"] == "user") messages_.erase(messages_.size() - 1);
    return {};
  }

  std::string model_, system_, lora_;
  std::shared_ptr<const Adapter> adapter_;
  SamplingFlags sampling_;
  ordered_json messages_;
  bool terminal_ = false;
  bool reader_gone_ = false;  // nobody reads stdout any more: leave
};

}  // namespace

std::unique_ptr<Command> MakeChatCommand() { return std::make_unique<ChatCommand>(); }

}  // namespace hone
