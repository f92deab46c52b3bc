// hone template: the text that a model's chat template (or a .jinja file) makes of a conversation.

#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/input.h"
#include "cli/model_path.h"
#include "text/chat_template.h"

namespace hone {
namespace {

class TemplateCommand : public Command {
 public:
  void AddFlags(Flags& flags) override {
    flags.Add("MODEL-or-FILE.jinja", model_, "a model with a chat template, or a file that holds one")->required();
    flags.Add("-m,--messages", messages_,
                   "JSON file: {\"messages\": [...], \"tools\": [...], \"add_generation_prompt\": true, ...}; "
                   "every other key is a template variable; - is standard input")->required();
    flags.Add("--now", now_, "the clock of strftime_now, like 2026-01-02T03:04:05 (default: the system's)");
  }

  Result<int> Run(const CommonFlags&) override {
    HONE_TRY(const ChatTemplate chat_template, Load());
    HONE_TRY(const std::string input, ReadText(messages_));
    std::optional<jinja::CivilTime> now;
    if (!now_.empty()) {
      HONE_TRY(now, jinja::CivilTime::Parse(now_).Context("--now"));
    }
    HONE_TRY(const std::string text, chat_template.RenderJson(input, now));
    WriteOut(text);
    return kExitDone;
  }

 private:
  Result<ChatTemplate> Load() const {
    if (model_.ends_with(".jinja") || model_.ends_with(".jinja2")) {
      HONE_TRY(std::string source, ReadText(model_));
      return ChatTemplate::Create(std::move(source), "", "").Context(model_);
    }
    HONE_TRY(const auto checkpoint, OpenModel(model_));
    return ChatTemplateFromCheckpoint(*checkpoint);
  }

  std::string model_, messages_, now_;
};

}  // namespace

std::unique_ptr<Command> MakeTemplateCommand() { return std::make_unique<TemplateCommand>(); }

}  // namespace hone
