// hone tokenize: text to a JSON array of ids, or with --decode an array to text.

#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/input.h"
#include "cli/model_path.h"
#include "text/tokenizer.h"

namespace hone {
namespace {

class TokenizeCommand : public Command {
 public:
  void AddFlags(Flags& flags) override {
    flags.Add("MODEL", model_, "GGUF file or Hugging Face folder; its vocabulary is enough")->required();
    prompt_option_ = flags.Add("-p,--prompt", prompt_, "the text");
    auto* file = flags.Add("-f,--file", file_, "read the text from this file; - is standard input");
    auto* decode = flags.Add("--decode", decode_, "turn this file's JSON array of ids into text instead");
    prompt_option_->excludes(file)->excludes(decode);
    file->excludes(decode);
    flags.AddSwitch("--add-special", add_special_, "add what the tokenizer adds by itself (BOS, EOS ...)");
    flags.AddSwitch("--parse-special", parse_special_, "special tokens written in the text become their ids");
    flags.AddSwitch("--skip-special", skip_special_, "with --decode: special tokens leave no text");
  }

  Result<int> Run(const CommonFlags& flags) override {
    HONE_TRY(const auto checkpoint, OpenModel(model_));
    HONE_TRY(const auto tokenizer, Tokenizer::FromCheckpoint(*checkpoint, flags.pre));
    if (!decode_.empty()) {
      HONE_TRY(const std::vector<int32_t> ids, ReadIds(decode_, tokenizer->vocab_size()));
      WriteOut(tokenizer->Decode(ids, skip_special_));
      return kExitDone;
    }
    std::string text = prompt_;
    if (!file_.empty()) {
      HONE_TRY(text, ReadText(file_));
    } else if (!prompt_option_->given()) {
      return UsageError("no text: give -p TEXT, -f FILE or --decode FILE");
    }
    WriteOut(FormatIds(tokenizer->Encode(text, {.add_special = add_special_, .parse_special = parse_special_})) + "\n");
    return kExitDone;
  }

 private:
  Flag* prompt_option_ = nullptr;
  std::string model_, prompt_, file_, decode_;
  bool add_special_ = false, parse_special_ = false, skip_special_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeTokenizeCommand() { return std::make_unique<TokenizeCommand>(); }

}  // namespace hone
