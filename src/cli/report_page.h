// --html: the report of a run as one self-contained page (assets/report), written by the command that ran.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/flags.h"
#include "cli/ledger_flags.h"

namespace hone {

void AddPageFlag(Flags& flags, std::string* html);

// Before anything is measured: the page can be written, and is none of `inputs`. "" is no page.
Result<void> CheckPage(const std::string& html, const std::vector<std::string>& inputs);

// `report_json`: ReportJson(). Errors name the file.
Result<void> WritePage(const std::string& html, const std::string& report_json);

// A run is over: enters it (ledger_flags.h), writes `text`, its result, to stdout, and, if `html` is not "", its report,
// beside the entry that it follows where the ledger has it. In this order, so that a page or a ledger that cannot be written
// costs no result.
Result<void> Deliver(const std::string& text, const std::string& html, const LedgerFlags& flags, const Runtime& runtime, LedgerEntry entry);

}  // namespace hone
