// hone run: a prompt in, text on stdout as it comes, statistics on stderr at the end.
#include <fmt/core.h>

#include <cstdio>
#include <optional>
#include <nlohmann/json.hpp>

#include "base/memory.h"
#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/loaded_model.h"
#include "cli/progress.h"
#include "cli/sampling_flags.h"

namespace hone {
namespace {

using nlohmann::ordered_json;

class RunCommand : public Command {
 public:
  void AddFlags(Flags& flags) override {
    flags.Add("MODEL", model_, "GGUF file, Hugging Face folder, builtin or builtin-draft")->required();
    auto* prompt = flags.Add("-p,--prompt", prompt_, "the prompt");
    auto* file = flags.Add("-f,--file", file_, "read the prompt from this file; - is standard input");
    auto* ids = flags.Add("--ids", ids_, "read the prompt from this file as a JSON array of token ids");
    prompt->excludes(file)->excludes(ids);
    file->excludes(ids);
    auto* raw = flags.AddSwitch("--raw", raw_, "the prompt as it is, no template (default for a base model)");
    flags.AddSwitch("--chat", chat_, "the prompt as one user message through the chat template (default if there is one)")
        ->excludes(raw);
    flags.Add("--system", system_, "system message, with the chat template")->excludes(raw);
    flags.Add("--lora", lora_, kLoraHelp);
    sampling_.Add(flags);
  }

  Result<int> Run(const CommonFlags& flags) override {
    CatchInterrupts();
    std::string text = prompt_.value_or("");
    if (!file_.empty()) {
      HONE_TRY(text, ReadText(file_));
    } else if (ids_.empty() && !prompt_) {
      return UsageError("no prompt: give -p TEXT, -f FILE or --ids FILE");
    }
    SequenceRequest tried;
    HONE_RETURN_IF_ERROR(sampling_.Apply(flags, {}, &tried));  // wrong flags are said before a model is read
    EngineOptions options;
    options.max_sequences = 1;
    HONE_TRY(LoadedModel loaded, LoadModel(model_, flags, options));
    SequenceRequest request;
    HONE_TRY(request.prompt, Prompt(loaded, text));
    HONE_TRY(request.adapter, LoadAdapterFlag(lora_, *loaded.model));
    HONE_TRY(SamplingParams suggested, SuggestedSampling(*loaded.checkpoint));
    HONE_RETURN_IF_ERROR(sampling_.Apply(flags, std::move(suggested), &request));
    return Generate(loaded, std::move(request), flags);
  }

 private:
  Result<std::vector<int32_t>> Prompt(const LoadedModel& loaded, const std::string& text) const {
    if (!ids_.empty()) return ReadIds(ids_, loaded.model->config().vocab);
    const bool chat = chat_ || !system_.empty() || (!raw_ && loaded.chat_template != nullptr);
    EncodeOptions encode{.add_special = true, .parse_special = false};
    std::string prompt = text;
    if (chat) {
      if (loaded.chat_template == nullptr) return UsageError(model_ + " has no chat template; use --raw");
      ordered_json messages = ordered_json::array();
      const auto replace = ordered_json::error_handler_t::replace;  // invalid UTF-8 in a prompt becomes U+FFFD
      if (!system_.empty()) messages.push_back({{"role", "system"}, {"content", system_}});
      messages.push_back({{"role", "user"}, {"content", text}});
      HONE_TRY(prompt, loaded.chat_template->Render({.messages_json = messages.dump(-1, ' ', false, replace)}));
      encode = {.add_special = false, .parse_special = true};
    }
    std::vector<int32_t> ids = loaded.tokenizer->Encode(prompt, encode);
    if (ids.empty() && loaded.tokenizer->bos()) ids.push_back(*loaded.tokenizer->bos());
    if (ids.empty()) return UsageError("the prompt has no tokens");
    return ids;
  }

  Result<int> Generate(LoadedModel& loaded, SequenceRequest request, const CommonFlags& flags) const {
    SequenceEvent last;
    std::string text;
    std::vector<int32_t> output;
    bool reader_gone = false;
    const std::vector<int32_t> prompt = request.prompt;
    HONE_TRY(const SequenceId id, loaded.engine->Submit(std::move(request), [&](const SequenceEvent& event) {
      for (const TokenResult& token : event.tokens) output.push_back(token.id);
      if (flags.json) {
        text += event.text;
      } else if (!event.text.empty() && !WriteOut(event.text)) {
        reader_gone = true;
      }
      last = event;
    }));
    while (last.finish == FinishReason::kNone) {
      if (Interrupted() || reader_gone) loaded.engine->Cancel(id);
      loaded.engine->Step();
    }
    if (last.finish == FinishReason::kError) return Error{ErrorCode::kInternal, last.error};
    Report(loaded, last, flags, text, prompt, output);
    return last.finish == FinishReason::kCancelled && !reader_gone ? kExitInterrupted : kExitDone;
  }

  static void Report(const LoadedModel& loaded, const SequenceEvent& last, const CommonFlags& flags, const std::string& text,
                     const std::vector<int32_t>& prompt, const std::vector<int32_t>& output) {
    const char* finish = last.finish == FinishReason::kStop ? "stop" : last.finish == FinishReason::kLength ? "length" : "cancelled";
    const double prefill = last.prefill_s > 0 ? last.prompt_tokens / last.prefill_s : 0;
    // The first output token comes out of the prefill; decode makes the others.
    const double decode = last.decode_s > 0 ? (last.output_tokens - 1) / last.decode_s : 0;
    if (flags.json) {
      ordered_json result = {
          {"text", text}, {"finish_reason", finish}, {"prompt_ids", prompt}, {"ids", output},
          {"prompt_tokens", last.prompt_tokens}, {"output_tokens", last.output_tokens}, {"seed", last.seed},
          {"prefill_tok_s", prefill}, {"decode_tok_s", decode}, {"load_s", loaded.load_s},
          {"rss_bytes", ResidentBytes()}, {"peak_rss_bytes", PeakResidentBytes()}};
      if (!last.stop_string.empty()) result["stop_string"] = last.stop_string;
      WriteOut(result.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n");
      return;
    }
    WriteOut("\n");
    if (flags.quiet) return;
    const std::string line = fmt::format(
        "{} prompt tokens at {:.1f} tok/s, {} output tokens{} ({}), seed {}, {} resident, loaded in {:.2f} s\n",
        last.prompt_tokens, prefill, last.output_tokens,
        last.output_tokens > 1 ? fmt::format(" at {:.1f} tok/s", decode) : "", finish, last.seed, FormatBytes(ResidentBytes()),
        loaded.load_s);
    std::fputs(line.c_str(), stderr);
  }

  std::string model_, file_, ids_, system_, lora_;
  std::optional<std::string> prompt_;  // an empty one is a prompt
  bool raw_ = false, chat_ = false;
  SamplingFlags sampling_;
};

}  // namespace

std::unique_ptr<Command> MakeRunCommand() { return std::make_unique<RunCommand>(); }

}  // namespace hone
