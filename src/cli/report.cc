// hone report ID: an experiment of the ledger as a page, as Markdown or as JSON. docs/measure.md.
#include "measure/report/report.h"

#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/input.h"
#include "cli/ledger_flags.h"
#include "cli/report_page.h"

namespace hone {
namespace {

class ReportCommand : public Command {
 public:
  void AddFlags(Flags& flags) override {
    flags.Add("ID", id_, "an entry of the ledger (hone ledger list)")->required()->range(1, 1 << 30);
    flags.Add("--base", base_, "the entry to compare with (default: the one that it follows)")->range(1, 1 << 30);
    AddPageFlag(flags, &html_);
    flags.Add("--ledger", ledger_, "the file (default: ledger.sqlite in the user's state folder)");
  }

  Result<int> Run(const CommonFlags& flags) override {
    const std::string path = LedgerPath(ledger_);
    if (path.empty()) return UsageError("no ledger: name one with --ledger FILE");
    HONE_RETURN_IF_ERROR(CheckPage(html_, {path}));
    HONE_TRY(const std::unique_ptr<Ledger> ledger, Ledger::OpenToRead(path));
    HONE_TRY(const LedgerEntry entry, ledger->Get(id_));
    std::optional<LedgerEntry> base;
    if (base_ > 0) {
      HONE_TRY(base, ledger->Get(base_));
    } else if (entry.parent) {
      Result<LedgerEntry> parent = ledger->Get(*entry.parent);  // may have been entered elsewhere
      if (parent) base = std::move(*parent);
    }
    const std::string json = ReportJson(entry, base);
    if (!html_.empty()) HONE_RETURN_IF_ERROR(WritePage(html_, json));
    if (flags.json) {
      WriteOut(json);
    } else if (html_.empty()) {
      WriteOut(ReportMarkdown(json));
    }
    return kExitDone;
  }

 private:
  int id_ = 0, base_ = 0;
  std::string html_, ledger_;
};

}  // namespace

std::unique_ptr<Command> MakeReportCommand() { return std::make_unique<ReportCommand>(); }

}  // namespace hone
