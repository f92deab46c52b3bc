// A report of one experiment of the ledger, beside the one that it follows: tables, charts, environment, and
// conclusions in three lists: what was shown, what is inferred from it, and what is open. One document, written as
// JSON, as Markdown, or into the page of assets/report (web/report), which draws the charts. docs/measure.md.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "measure/ledger/ledger.h"

namespace hone {

// The document as JSON: title, entry, base, environment, tables, charts, conclusions. `base`: what `entry` is compared
// with; may be none.
std::string ReportJson(const LedgerEntry& entry, const std::optional<LedgerEntry>& base);

// The newest entries of a ledger as a document of the same kind: a table, no conclusions.
std::string LedgerPageJson(const std::vector<LedgerEntry>& entries);

// The same document for people who read text. Charts are left to the tables, which hold their numbers.
std::string ReportMarkdown(const std::string& report_json);

// The page with the document in it: one file that asks nobody for anything. `page`: the built page. An error
// (kInternal) if it has no place for a document.
Result<std::string> ReportHtml(std::string_view page, const std::string& report_json);

}  // namespace hone
