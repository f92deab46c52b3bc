// See ledger.h. SQLite is used in this file only.
#include "measure/ledger/ledger.h"

#include <sqlite3.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <filesystem>

namespace hone {
namespace {

namespace fs = std::filesystem;

constexpr int kApplicationId = 0x686f6e65;  // "hone"
constexpr int kBusyMs = 5000;

// Version 1. A later version adds to it; PRAGMA user_version says which one a file has.
constexpr const char* kSchema = R"(
CREATE TABLE entry(
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  time TEXT NOT NULL, kind TEXT NOT NULL, command TEXT NOT NULL, label TEXT NOT NULL,
  model TEXT NOT NULL, model_digest TEXT NOT NULL, recipe TEXT NOT NULL,
  dataset TEXT NOT NULL, dataset_digest TEXT NOT NULL, other TEXT NOT NULL,
  seed TEXT, load TEXT NOT NULL, environment TEXT NOT NULL,
  parent INTEGER REFERENCES entry(id), outcome TEXT NOT NULL, result TEXT NOT NULL);
CREATE INDEX entry_by_model ON entry(kind, model_digest);
CREATE TABLE figure(
  entry INTEGER NOT NULL REFERENCES entry(id), position INTEGER NOT NULL, name TEXT NOT NULL,
  value REAL, low REAL, high REAL, confidence REAL NOT NULL, better TEXT NOT NULL,
  PRIMARY KEY(entry, position)) WITHOUT ROWID;
CREATE TABLE failure(
  entry INTEGER NOT NULL REFERENCES entry(id), position INTEGER NOT NULL,
  kind TEXT NOT NULL, input TEXT NOT NULL, text TEXT NOT NULL, count INTEGER NOT NULL,
  PRIMARY KEY(entry, position)) WITHOUT ROWID;
)";
constexpr const char* kColumns =
    "id, time, kind, command, label, model, model_digest, recipe, dataset, dataset_digest, other, seed, load, "
    "environment, parent, outcome";

const char* DirectionName(Direction better) {
  return better == Direction::kHigher ? "higher" : better == Direction::kLower ? "lower" : "";
}

Direction DirectionOf(const std::string& name) {
  return name == "higher" ? Direction::kHigher : name == "lower" ? Direction::kLower : Direction::kNeither;
}

class SqliteLedger;

// One prepared statement; bound and read by position.
class Statement {
 public:
  Statement(sqlite3* db, const std::string& sql) {
    ok_ = sqlite3_prepare_v2(db, sql.c_str(), -1, &statement_, nullptr) == SQLITE_OK;
  }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;

  bool ok() const { return ok_; }
  Statement& Text(const std::string& text) {
    ok_ = ok_ && sqlite3_bind_text(statement_, ++bound_, text.data(), static_cast<int>(text.size()),
                                   SQLITE_TRANSIENT) == SQLITE_OK;
    return *this;
  }
  Statement& Whole(std::optional<int64_t> value) {
    ++bound_;
    ok_ = ok_ &&
          (value ? sqlite3_bind_int64(statement_, bound_, *value) : sqlite3_bind_null(statement_, bound_)) == SQLITE_OK;
    return *this;
  }
  Statement& Real(double value) {  // what is no number is NULL
    ++bound_;
    ok_ = ok_ && (std::isfinite(value) ? sqlite3_bind_double(statement_, bound_, value)
                                       : sqlite3_bind_null(statement_, bound_)) == SQLITE_OK;
    return *this;
  }
  // True for a row; `ok()` is false after an error.
  bool Step() {
    if (!ok_) return false;
    const int code = sqlite3_step(statement_);
    ok_ = code == SQLITE_ROW || code == SQLITE_DONE;
    return code == SQLITE_ROW;
  }
  std::string TextAt(int column) const {
    const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
    return text == nullptr ? "" : std::string(text, static_cast<size_t>(sqlite3_column_bytes(statement_, column)));
  }
  bool NullAt(int column) const { return sqlite3_column_type(statement_, column) == SQLITE_NULL; }
  int64_t WholeAt(int column) const { return sqlite3_column_int64(statement_, column); }
  double RealAt(int column) const { return NullAt(column) ? NAN : sqlite3_column_double(statement_, column); }

 private:
  sqlite3_stmt* statement_ = nullptr;
  bool ok_ = false;
  int bound_ = 0;
};

class SqliteLedger : public Ledger {
 public:
  explicit SqliteLedger(std::string path) : path_(std::move(path)) {}
  ~SqliteLedger() override { sqlite3_close_v2(db_); }

  Result<void> OpenFile(bool to_read) {
    std::error_code error;
    if (to_read && !fs::exists(path_, error))
      return NotFound(path_ + ": there is no ledger yet; a run of bench, eval or load makes it");
    if (!to_read && fs::path(path_).has_parent_path()) fs::create_directories(fs::path(path_).parent_path(), error);
    const int flags = to_read ? SQLITE_OPEN_READWRITE : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
    int code = sqlite3_open_v2(path_.c_str(), &db_, flags, nullptr);
    if (to_read && code != SQLITE_OK) {  // a file that may only be read
      sqlite3_close_v2(db_);
      db_ = nullptr;
      code = sqlite3_open_v2(path_.c_str(), &db_, SQLITE_OPEN_READONLY, nullptr);
    }
    if (code != SQLITE_OK) return Fault("cannot be opened");
    sqlite3_busy_timeout(db_, kBusyMs);
    sqlite3_limit(db_, SQLITE_LIMIT_LENGTH, 256 << 20);
    return CheckSchema(to_read);
  }

  Result<int64_t> Add(const LedgerEntry& entry) override {
    if (!Execute("BEGIN IMMEDIATE")) return Fault("cannot be written");
    Result<int64_t> id = Insert(entry);
    if (!id || !Execute("COMMIT")) {
      Error fault = id ? Fault("cannot be written") : std::move(id).error();
      (void)Execute("ROLLBACK");
      return fault;
    }
    return id;
  }

  Result<LedgerEntry> Get(int64_t id) override {
    Statement select(db_, std::string("SELECT ") + kColumns + ", result FROM entry WHERE id = ?");
    select.Whole(id);
    if (!select.Step()) {
      if (!select.ok()) return Fault("cannot be read");
      return NotFound(path_ + ": has no entry " + std::to_string(id) + "; hone ledger list shows what is there");
    }
    LedgerEntry entry = EntryAt(select);
    entry.result = select.TextAt(16);
    HONE_RETURN_IF_ERROR(ReadParts(&entry));
    return entry;
  }

  Result<std::vector<LedgerEntry>> List(const LedgerFilter& filter) override {
    Statement select(db_,
                     std::string("SELECT ") + kColumns +
                         " FROM entry WHERE (?1 = '' OR kind = ?1 OR kind LIKE ?1 || ' %') AND (?2 = '' OR "
                         "instr(model, ?2) > 0 OR substr(model_digest, 1, length(?2)) = ?2) ORDER BY id DESC LIMIT ?3");
    select.Text(filter.kind).Text(filter.model).Whole(filter.limit > 0 ? filter.limit : -1);
    std::vector<LedgerEntry> entries;
    while (select.Step()) entries.push_back(EntryAt(select));
    if (!select.ok()) return Fault("cannot be read");
    return entries;
  }

  Result<std::optional<LedgerEntry>> Newest(const std::string& kind, const std::string& model_digest) override {
    Statement select(
        db_, "SELECT id FROM entry WHERE kind = ? AND model_digest = ? AND outcome = 'done' ORDER BY id DESC LIMIT 1");
    select.Text(kind).Text(model_digest);
    if (!select.Step()) {
      if (!select.ok()) return Fault("cannot be read");
      return std::optional<LedgerEntry>();
    }
    HONE_TRY(LedgerEntry entry, Get(select.WholeAt(0)));
    return std::optional<LedgerEntry>(std::move(entry));
  }

 private:
  // What SQLite says about the last call. A damaged file is bad input, everything else the system's refusal.
  Error Fault(const std::string& what) const {
    const int code = db_ == nullptr ? SQLITE_NOMEM : sqlite3_errcode(db_);
    const std::string message = path_ + ": " + what + ": " + (db_ == nullptr ? "out of memory" : sqlite3_errmsg(db_));
    if (code == SQLITE_NOTADB || code == SQLITE_CORRUPT) {
      return InvalidInput(message + "; it is left as it is: move it away, or name another with --ledger");
    }
    return IoError(message);
  }

  bool Execute(const char* sql) { return sqlite3_exec(db_, sql, nullptr, nullptr, nullptr) == SQLITE_OK; }

  Result<int64_t> Number(const char* sql) {
    Statement select(db_, sql);
    if (!select.Step()) return Fault("cannot be read");
    return select.WholeAt(0);
  }

  Result<void> CheckSchema(bool to_read) {
    HONE_TRY(const int64_t tables, Number("SELECT count(*) FROM sqlite_master"));
    if (tables == 0 && !to_read) return Make();
    HONE_TRY(const int64_t application, Number("PRAGMA application_id"));
    if (application != kApplicationId) return InvalidInput(path_ + ": is a database, but no ledger of hone");
    HONE_TRY(const int64_t version, Number("PRAGMA user_version"));
    if (version > kLedgerSchema) {
      return Unsupported(path_ + ": has schema " + std::to_string(version) + ", this hone knows " +
                         std::to_string(kLedgerSchema) + "; use the newer hone, or name another file with --ledger");
    }
    return {};
  }

  // Two processes may find the file empty at once: the second sees the tables under the lock.
  Result<void> Make() {
    (void)Execute("PRAGMA journal_mode = WAL");  // where the file system cannot, the usual journal serves
    if (!Execute("BEGIN IMMEDIATE")) return Fault("cannot be written");
    HONE_TRY(const int64_t tables, Number("SELECT count(*) FROM sqlite_master"));
    if (tables > 0) {
      (void)Execute("ROLLBACK");
      return CheckSchema(true);
    }
    const std::string versions = "PRAGMA application_id = " + std::to_string(kApplicationId) +
                                 "; PRAGMA user_version = " + std::to_string(kLedgerSchema);
    if (!Execute(kSchema) || !Execute(versions.c_str()) || !Execute("COMMIT")) {
      Error fault = Fault("cannot be made");
      (void)Execute("ROLLBACK");
      return fault;
    }
    return {};
  }

  Result<int64_t> Insert(const LedgerEntry& entry) {
    Statement insert(db_,
                     "INSERT INTO entry(time, kind, command, label, model, model_digest, recipe, dataset, "
                     "dataset_digest, other, seed, load, environment, parent, outcome, result) "
                     "VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)");
    insert.Text(entry.time.empty() ? NowUtc() : entry.time).Text(entry.kind).Text(entry.command).Text(entry.label);
    insert.Text(entry.model).Text(entry.model_digest).Text(entry.recipe).Text(entry.dataset).Text(entry.dataset_digest);
    insert.Text(entry.other);
    if (entry.seed) {
      insert.Text(std::to_string(*entry.seed));
    } else {
      insert.Whole(std::nullopt);
    }
    insert.Text(entry.load).Text(entry.environment).Whole(entry.parent).Text(entry.outcome).Text(entry.result);
    insert.Step();
    if (!insert.ok()) return Fault("cannot be written");
    const int64_t id = sqlite3_last_insert_rowid(db_);
    for (size_t i = 0; i < entry.figures.size(); ++i) {
      const Figure& figure = entry.figures[i];
      Statement row(db_, "INSERT INTO figure VALUES(?,?,?,?,?,?,?,?)");
      row.Whole(id).Whole(static_cast<int64_t>(i)).Text(figure.name).Real(figure.interval.value);
      row.Real(figure.interval.low).Real(figure.interval.high).Real(figure.interval.confidence);
      row.Text(DirectionName(figure.better)).Step();
      if (!row.ok()) return Fault("cannot be written");
    }
    for (size_t i = 0; i < entry.failures.size(); ++i) {
      const LedgerFailure& failure = entry.failures[i];
      Statement row(db_, "INSERT INTO failure VALUES(?,?,?,?,?,?)");
      row.Whole(id).Whole(static_cast<int64_t>(i)).Text(failure.kind).Text(failure.input).Text(failure.text);
      row.Whole(failure.count).Step();
      if (!row.ok()) return Fault("cannot be written");
    }
    return id;
  }

  static LedgerEntry EntryAt(const Statement& row) {
    LedgerEntry entry;
    entry.id = row.WholeAt(0);
    int column = 1;
    for (std::string* text : {&entry.time, &entry.kind, &entry.command, &entry.label, &entry.model, &entry.model_digest,
                              &entry.recipe, &entry.dataset, &entry.dataset_digest, &entry.other}) {
      *text = row.TextAt(column++);
    }
    if (!row.NullAt(11)) entry.seed = std::strtoull(row.TextAt(11).c_str(), nullptr, 10);
    entry.load = row.TextAt(12);
    entry.environment = row.TextAt(13);
    if (!row.NullAt(14)) entry.parent = row.WholeAt(14);
    entry.outcome = row.TextAt(15);
    return entry;
  }

  Result<void> ReadParts(LedgerEntry* entry) {
    Statement figures(
        db_, "SELECT name, value, low, high, confidence, better FROM figure WHERE entry = ? ORDER BY position");
    figures.Whole(entry->id);
    while (figures.Step()) {
      entry->figures.push_back({figures.TextAt(0),
                                {figures.RealAt(1), figures.RealAt(2), figures.RealAt(3), figures.RealAt(4)},
                                DirectionOf(figures.TextAt(5))});
    }
    Statement failures(db_, "SELECT kind, input, text, count FROM failure WHERE entry = ? ORDER BY position");
    failures.Whole(entry->id);
    while (failures.Step()) {
      entry->failures.push_back({failures.TextAt(0), failures.TextAt(1), failures.TextAt(2), failures.WholeAt(3)});
    }
    if (!figures.ok() || !failures.ok()) return Fault("cannot be read");
    return {};
  }

  const std::string path_;
  sqlite3* db_ = nullptr;
};

}  // namespace

Result<std::unique_ptr<Ledger>> Ledger::Open(const std::string& path) {
  auto ledger = std::make_unique<SqliteLedger>(path);
  HONE_RETURN_IF_ERROR(ledger->OpenFile(false));
  return std::unique_ptr<Ledger>(std::move(ledger));
}

Result<std::unique_ptr<Ledger>> Ledger::OpenToRead(const std::string& path) {
  auto ledger = std::make_unique<SqliteLedger>(path);
  HONE_RETURN_IF_ERROR(ledger->OpenFile(true));
  return std::unique_ptr<Ledger>(std::move(ledger));
}

std::string NowUtc() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts = {};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

}  // namespace hone
