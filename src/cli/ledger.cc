// hone ledger list | show | compare | export: what was measured before. docs/measure.md.
#include <charconv>

#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/input.h"
#include "cli/ledger_flags.h"
#include "cli/report_page.h"
#include "measure/report/report.h"

namespace hone {
namespace {

Result<int64_t> ParseId(const std::string& text) {
  int64_t id = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (error != std::errc() || end != text.data() + text.size() || id < 1)
    return UsageError("'" + text + "' is no id of the ledger; wanted a number such as hone ledger list shows");
  return id;
}

class LedgerCommand : public Command {
 public:
  void AddFlags(Flags& flags) override {
    flags.Add("WHAT", what_, "list, show, compare or export")
        ->required()
        ->one_of({"list", "show", "compare", "export"});
    flags.Add("IDS", ids_, "show: one; compare: two; export: any (default: all)");
    flags.Add("--ledger", file_, "the file (default: ledger.sqlite in the user's state folder)");
    flags.Add("--kind", filter_.kind, "list, export: only runs of this command (bench, eval, load ...)");
    flags.Add("--of", filter_.model, "list, export: only models with this in their name, or of this digest");
    flags.Add("--limit", filter_.limit, "list: the newest so many (default 50)")->range(1, 100000000);
    AddPageFlag(flags, &html_);
    flags.AddSwitch("--csv", csv_, "export: a line a figure, in place of JSON lines");
  }

  Result<int> Run(const CommonFlags& flags) override {
    const size_t wanted = what_ == "show" ? 1 : what_ == "compare" ? 2 : 0;
    if (what_ == "list" && !ids_.empty()) return UsageError("ledger list takes no ids; ledger show does");
    if (wanted > 0 && ids_.size() != wanted)
      return UsageError("ledger " + what_ + " takes " + (wanted == 1 ? "one id" : "two ids"));
    if (csv_ && what_ != "export") return UsageError("--csv is for ledger export");
    const std::string path = LedgerPath(file_);
    if (path.empty()) return UsageError("no ledger: name one with --ledger FILE");
    if (what_ == "export" && !html_.empty()) return UsageError("--html goes with list, show and compare; export writes JSON lines or --csv");
    HONE_RETURN_IF_ERROR(CheckPage(html_, {path}));
    HONE_TRY(const std::unique_ptr<Ledger> ledger, Ledger::OpenToRead(path));
    if (what_ == "list") {
      if (filter_.limit == 0) filter_.limit = 50;
      HONE_TRY(const std::vector<LedgerEntry> entries, ledger->List(filter_));
      if (!html_.empty()) HONE_RETURN_IF_ERROR(WritePage(html_, LedgerPageJson(entries)));
      if (flags.json || html_.empty()) WriteOut(flags.json ? LedgerListJson(entries) : LedgerListTable(entries));
      return kExitDone;
    }
    HONE_TRY(const std::vector<LedgerEntry> entries, Entries(*ledger));
    if (!html_.empty()) {
      const bool two = what_ == "compare";
      HONE_RETURN_IF_ERROR(WritePage(html_, ReportJson(entries.back(), two ? std::optional(entries[0]) : std::nullopt)));
      if (!flags.json) return kExitDone;
    }
    if (what_ == "show") {
      WriteOut(flags.json ? LedgerEntryJson(entries[0]) : LedgerEntryText(entries[0]));
    } else if (what_ == "compare") {
      WriteOut(flags.json ? LedgerCompareJson(entries[0], entries[1]) : LedgerCompareTable(entries[0], entries[1]));
    } else if (csv_) {
      WriteOut(LedgerCsv(entries));
    } else {
      for (const LedgerEntry& entry : entries) {
        if (!WriteOut(LedgerEntryJson(entry, true))) break;
      }
    }
    return kExitDone;
  }

 private:
  Result<std::vector<LedgerEntry>> Entries(Ledger& ledger) {
    std::vector<int64_t> numbers;
    for (const std::string& text : ids_) {
      HONE_TRY(const int64_t id, ParseId(text));
      numbers.push_back(id);
    }
    if (numbers.empty()) {
      filter_.limit = 0;
      HONE_TRY(const std::vector<LedgerEntry> all, ledger.List(filter_));
      for (auto it = all.rbegin(); it != all.rend(); ++it) numbers.push_back(it->id);  // oldest first
    }
    std::vector<LedgerEntry> entries;
    for (const int64_t id : numbers) {
      HONE_TRY(LedgerEntry entry, ledger.Get(id));
      entries.push_back(std::move(entry));
    }
    return entries;
  }

  std::string what_, file_, html_;
  std::vector<std::string> ids_;
  LedgerFilter filter_;
  bool csv_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeLedgerCommand() { return std::make_unique<LedgerCommand>(); }

}  // namespace hone
