// The ledger: every run that measured or made something, in one SQLite file that other programs can read too.
//
// Several processes may write at once (WAL, a busy timeout). A file that is no ledger, is damaged, or was written by a
// newer hone is an error that says so and is left as it is. Writing down a run never fails the run: see Enter().
// Tables: docs/measure.md.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/runtime.h"
#include "measure/ledger/figure.h"

namespace hone {

inline constexpr int kLedgerSchema = 1;

// What went wrong within a run, with the input that did it.
struct LedgerFailure {
  std::string kind, input, text;
  int64_t count = 1;
};

struct LedgerEntry {
  int64_t id = 0;       // given by the ledger
  std::string time;     // UTC, "2026-01-31T12:00:00Z"; filled in if empty
  std::string kind;     // the command: "bench", "eval perplexity", "load", "profile", "quantize"
  std::string command;  // the whole command line
  std::string label;    // a word to find it by; may be empty
  std::string model, model_digest, recipe, dataset, dataset_digest;
  std::string other;  // what it was compared with: a model, a file; may be empty
  std::optional<uint64_t> seed;
  std::string load;               // the load in words ("poisson, 2.5 a second"); "" if there was none
  std::string environment;        // a JSON object: EnvironmentJson()
  std::optional<int64_t> parent;  // the experiment that this one follows
  std::string outcome = "done";   // "done", "interrupted", "failed"
  std::vector<Figure> figures;
  std::vector<LedgerFailure> failures;
  std::string result;  // the command's --json output, whole; may be empty
};

struct LedgerFilter {
  std::string kind, model;  // "" for all; model: a part of its name or the beginning of its digest
  int limit = 0;            // the newest so many; 0: all
};

class Ledger {
 public:
  virtual ~Ledger() = default;
  // Opens or makes the file (and its folder). Errors name the file: not to be opened, no ledger, newer than this hone.
  static Result<std::unique_ptr<Ledger>> Open(const std::string& path);
  // The same for reading only: a file that does not exist is an error (kNotFound).
  static Result<std::unique_ptr<Ledger>> OpenToRead(const std::string& path);

  // Writes one entry, all of it or nothing; its id.
  virtual Result<int64_t> Add(const LedgerEntry& entry) = 0;
  // With figures and failures. Errors: no such id (kNotFound).
  virtual Result<LedgerEntry> Get(int64_t id) = 0;
  // Newest first; without result, figures and failures.
  virtual Result<std::vector<LedgerEntry>> List(const LedgerFilter& filter) = 0;
  // The newest entry of this model with a figure of this name, for advisors; nullopt if there is none.
  virtual Result<std::optional<LedgerEntry>> Newest(const std::string& kind, const std::string& model_digest) = 0;
};

// --ledger FILE; "off" for none. "" means the default: $XDG_STATE_HOME/hone/ledger.sqlite or
// ~/.local/state/hone/ledger.sqlite, "" if neither can be told.
std::string LedgerPath(const std::string& flag);

// CPU, cores, threads, ISA, kernel of the system, compiler, version of hone, memory: a JSON object.
std::string EnvironmentJson(const Runtime& runtime);

// Enters a finished run. What cannot be written is one warning on `log`, never an error. The id, or 0.
int64_t Enter(const std::string& flag, LedgerEntry entry, Log* log);

// Now, as entries have it: "2026-01-31T12:00:00Z".
std::string NowUtc();

// Digest of a model: SHA-256 over the sizes and the first and last MiB of its files and their names, which tells files
// apart without reading all of them; "" if it cannot be read. `path`: a file or a folder.
std::string ModelDigest(const std::string& path);

std::string LedgerListJson(const std::vector<LedgerEntry>& entries);
std::string LedgerListTable(const std::vector<LedgerEntry>& entries);
std::string LedgerEntryJson(const LedgerEntry& entry, bool one_line = false);
std::string LedgerEntryText(const LedgerEntry& entry);
// Figures of the same name side by side, and what else differs (model, recipe, environment ...).
std::string LedgerCompareJson(const LedgerEntry& a, const LedgerEntry& b);
std::string LedgerCompareTable(const LedgerEntry& a, const LedgerEntry& b);
// One line a figure: id, time, kind, model, name, value, low, high, confidence.
std::string LedgerCsv(const std::vector<LedgerEntry>& entries);

}  // namespace hone
