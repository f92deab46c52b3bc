// See report_page.h.
#include "cli/report_page.h"

#include <optional>
#include <utility>

#include "cli/input.h"
#include "cli/model_path.h"
#include "measure/report/report.h"

namespace hone {

void AddPageFlag(Flags& flags, std::string* html) {
  flags.Add("--html", *html, "write the report of this run to this file, as one self-contained page");
}

Result<void> CheckPage(const std::string& html, const std::vector<std::string>& inputs) {
  if (html.empty()) return {};
  for (const std::string& input : inputs) HONE_RETURN_IF_ERROR(CheckOutput(html, {input}));
  return CheckOutput(html, {});
}

Result<void> WritePage(const std::string& html, const std::string& report_json) {
  HONE_TRY(const std::string assets, AssetsFolder());
  HONE_TRY(const std::string page, ReadText(assets + "/report/index.html"));
  HONE_TRY(const std::string text, ReportHtml(page, report_json));
  return WriteFile(html, text);
}

Result<void> Deliver(const std::string& text, const std::string& html, const LedgerFlags& flags, const Runtime& runtime, LedgerEntry entry) {
  const int64_t id = EnterRun(flags, runtime, entry);
  WriteOut(text);
  if (html.empty()) return {};
  std::optional<LedgerEntry> base;
  const std::string path = LedgerPath(flags.file);
  if (Result<std::unique_ptr<Ledger>> ledger = path.empty() ? Result<std::unique_ptr<Ledger>>(NotFound("")) : Ledger::OpenToRead(path); ledger) {
    if (Result<LedgerEntry> entered = id > 0 ? (*ledger)->Get(id) : Result<LedgerEntry>(NotFound("")); entered) entry = std::move(*entered);
    if (Result<LedgerEntry> parent = flags.parent > 0 ? (*ledger)->Get(flags.parent) : Result<LedgerEntry>(NotFound("")); parent)
      base = std::move(*parent);
  }
  if (entry.command.empty()) {  // it is in no ledger
    entry.command = CommandLineText();
    entry.environment = EnvironmentJson(runtime);
    entry.label = flags.label;
    entry.time = NowUtc();
  }
  return WritePage(html, ReportJson(entry, base));
}

}  // namespace hone
