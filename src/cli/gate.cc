// hone gate BASE NEW --rules FILE: whether a change may stay. Models are measured now, side by side, by the commands
// that measure them (bench, eval, serve with the load client); ids of the ledger and JSON results are compared as they
// are.
#include "measure/gate/gate.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/ledger_flags.h"
#include "cli/model_path.h"
#include "cli/report_page.h"
#include "cli/subprocess.h"
#include "measure/ledger/entries.h"
#include "measure/load/load_session.h"

namespace hone {
namespace {

// What was measured before: figures, and the environment to compare.
struct Stored {
  std::vector<Figure> figures;
  std::string environment;
};

std::vector<std::string> PartsOf(const std::string& text, char between) {
  std::vector<std::string> parts;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(between, at), text.size());
    if (end > at) parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

bool IsId(const std::string& text) {
  std::error_code error;
  return !text.empty() && text.size() < 18 && text.find_first_not_of("0123456789") == std::string::npos &&
         !std::filesystem::exists(text, error);
}

bool IsResultFile(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) return false;
  const int c = std::fgetc(file);
  std::fclose(file);
  return c == '{';
}

// Ids and files, one or several with commas between.
bool IsStored(const std::string& text) {
  const std::vector<std::string> parts = PartsOf(text, ',');
  return !parts.empty() &&
         std::all_of(parts.begin(), parts.end(), [](const auto& part) { return IsId(part) || IsResultFile(part); });
}

class GateCommand : public Command {
 public:
  void AddFlags(Flags& flags) override {
    flags
        .Add("BASE", base_,
             "a model, or what was measured before: an id of the ledger, a JSON result, several with commas")
        ->required();
    flags.Add("NEW", next_, "the same, changed")->required();
    flags.Add("--rules", rules_file_, "the rules, JSON or TOML")->required();
    AddLedgerFlags(flags, &ledger_);
    AddPageFlag(flags, &html_);
  }

  Result<int> Run(const CommonFlags& flags) override {
    CatchInterrupts();
    HONE_TRY(const std::string text, ReadText(rules_file_));
    HONE_TRY(rules_, ParseGateRules(text).Context(rules_file_));
    HONE_RETURN_IF_ERROR(CheckPage(html_, {rules_file_}));
    HONE_TRY(const auto owner, RuntimeOwner::Create(flags));
    report_.base = base_;
    report_.next = next_;
    const bool stored = IsStored(base_), next_stored = IsStored(next_);
    if (stored != next_stored) {
      return UsageError((stored ? next_ : base_) + " is a model and " + (stored ? base_ : next_) +
                        " was measured before: give two models, or measure the model first (hone bench, eval, load)");
    }
    const Result<void> measured = stored ? Compare() : Measure(flags, owner->runtime());
    if (!measured && report_.figures.empty()) return measured.error();
    if (!measured) report_.notes.push_back("ended early: " + measured.error().message), report_.interrupted = true;
    report_.findings = Judge(rules_, report_.figures);
    const Verdict verdict = report_.verdict();
    const std::string json = GateJson(report_);
    LedgerEntry entry = Entry(json);
    if (!measured && measured.error().code != ErrorCode::kCancelled) entry.outcome = "failed";
    HONE_RETURN_IF_ERROR(Deliver(flags.json ? json : GateTable(report_), html_, ledger_, owner->runtime(), std::move(entry)));
    if (!measured) return measured.error();  // the figures until then are in the result
    if (report_.interrupted) return kExitInterrupted;
    return verdict == Verdict::kHolds ? kExitDone : verdict == Verdict::kFails ? kExitGateFailed : kExitGateOpen;
  }

 private:
  Result<Stored> Read(const std::string& text) const {
    Stored stored;
    for (const std::string& part : PartsOf(text, ',')) {
      std::vector<Figure> figures;
      if (IsId(part)) {
        const std::string path = LedgerPath(ledger_.file);
        if (path.empty())
          return UsageError("'" + part + "' is an id, but there is no ledger; name one with --ledger FILE");
        HONE_TRY(const std::unique_ptr<Ledger> ledger, Ledger::OpenToRead(path));
        HONE_TRY(LedgerEntry entry, ledger->Get(std::stoll(part)));
        figures = std::move(entry.figures);
        stored.environment = entry.environment;
      } else {
        HONE_TRY(const std::string json, ReadText(part));
        HONE_TRY(figures, FiguresOfJson(json).Context(part));
      }
      stored.figures.insert(stored.figures.end(), figures.begin(), figures.end());
    }
    return stored;
  }

  Result<void> Compare() {
    HONE_TRY(const Stored base, Read(base_));
    HONE_TRY(const Stored next, Read(next_));
    report_.figures = PairFigures(base.figures, next.figures, rules_.confidence);
    report_.notes.push_back(
        "the two were not measured side by side: what else changed on the machine is in the figures");
    if (base.environment != next.environment && !base.environment.empty() && !next.environment.empty())
      report_.notes.push_back("their environments differ; hone ledger compare shows how");
    return {};
  }

  // Flags that every measuring command gets as this one did.
  static std::vector<std::string> Common(const CommonFlags& flags) {
    std::vector<std::string> words;
    const auto add = [&](const std::string& name, const std::string& value) {
      words.push_back(name);
      words.push_back(value);
    };
    if (flags.threads > 0) add("--threads", std::to_string(flags.threads));
    if (flags.isa != "auto") add("--isa", flags.isa);
    if (!flags.kv.empty()) add("--kv", flags.kv);
    if (flags.exact) words.push_back("--exact");
    if (flags.deterministic) words.push_back("--deterministic");
    if (flags.pin) words.push_back("--pin");
    return words;
  }

  static std::string Joined(const std::vector<int>& numbers) {
    std::string text;
    for (const int number : numbers) text += (text.empty() ? "" : ",") + std::to_string(number);
    return text;
  }

  // Runs a command and takes its figures. A command that fails has said why on stderr.
  Result<void> Take(std::vector<std::string> arguments, const CommonFlags& flags, const Runtime& runtime) {
    if (Interrupted()) {
      report_.interrupted = true;
      return {};
    }
    arguments.push_back("--json");
    if (flags.quiet) arguments.push_back("--quiet");
    if (!ledger_.file.empty()) {
      arguments.push_back("--ledger");
      arguments.push_back(ledger_.file);
    }
    for (const std::string& word : Common(flags)) arguments.push_back(word);
    runtime.log->Info("hone {}", QuoteCommand(arguments));
    HONE_TRY(const ChildResult child, RunSelf(arguments));
    if (child.code == kExitInterrupted) {
      report_.interrupted = true;
    } else if (child.code != 0) {
      Keep(child.out);
      const ErrorCode code = child.code == kExitUsage      ? ErrorCode::kUsage
                             : child.code == kExitBadInput ? ErrorCode::kInvalidInput
                                                           : ErrorCode::kInternal;
      return Error{code, "hone " + arguments[0] + " could not measure: its message stands above"};
    }
    if (!Keep(child.out) && child.code == 0) return Error{ErrorCode::kInternal, "hone " + arguments[0] + ": its result cannot be read"};
    return {};
  }

  // The figures of a command's result, also of one that ended early; false if there are none.
  bool Keep(const std::string& out) {
    const Result<std::vector<PairedFigure>> figures = PairedOfResult(out, rules_.confidence);
    if (!figures) return false;
    report_.figures.insert(report_.figures.end(), figures->begin(), figures->end());
    return true;
  }

  Result<void> Measure(const CommonFlags& flags, const Runtime& runtime) {
    for (const std::string& model : {base_, next_}) {  // not after the first one's work
      HONE_RETURN_IF_ERROR(OpenModel(model));
    }
    const GateMeasure& measure = rules_.measure;
    const bool quality = rules_.Wants("kld.") || rules_.Wants("same_top_percent") || rules_.Wants("ppl") ||
                         rules_.Wants("bits_per_byte");
    if (quality) {
      if (measure.text.empty())
        return UsageError(rules_file_ +
                          ": rules on kld, ppl or same_top_percent need a text: [measure] text = \"FILE\"");
      std::vector<std::string> arguments = {"eval", "kld", next_, "--base", base_, "-f", measure.text};
      if (measure.chunks > 0) arguments.insert(arguments.end(), {"--chunks", std::to_string(measure.chunks)});
      HONE_RETURN_IF_ERROR(Take(arguments, flags, runtime));
    }
    if (rules_.Wants("accuracy")) {
      std::vector<std::string> arguments = {"eval", "tasks", next_};
      arguments.insert(arguments.end(), measure.tasks.begin(), measure.tasks.end());
      arguments.insert(arguments.end(), {"--compare", base_});
      HONE_RETURN_IF_ERROR(Take(arguments, flags, runtime));
    }
    const bool prefill = rules_.Wants("prefill_tok_s"), decode = rules_.Wants("decode_tok_s");
    if (prefill || decode) {
      std::vector<std::string> arguments = {"bench", next_,      "--compare",
                                            base_,   "--rounds", std::to_string(measure.rounds)};
      const auto list = [&](const char* flag, const std::vector<int>& numbers) {
        if (!numbers.empty()) arguments.insert(arguments.end(), {flag, Joined(numbers)});
      };
      if (prefill) {
        list("--prefill", measure.prefill);
      } else {
        arguments.insert(arguments.end(), {"--prefill", "0"});
      }
      if (decode) {
        list("--context", measure.context);
        list("--batch", measure.batch);
      } else {
        arguments.push_back("--no-decode");
      }
      HONE_RETURN_IF_ERROR(Take(arguments, flags, runtime));
    }
    if (rules_.WantsMatrix()) {
      std::vector<std::string> arguments = {"profile", next_, base_, "--no-keep", "--rounds", std::to_string(rules_.matrix.rounds)};
      for (const auto& [flag, numbers] : {std::pair("--input", &rules_.matrix.input), std::pair("--output", &rules_.matrix.output),
                                          std::pair("--concurrency", &rules_.matrix.concurrency)}) {
        if (!numbers->empty()) arguments.insert(arguments.end(), {flag, Joined(*numbers)});
      }
      HONE_RETURN_IF_ERROR(Take(arguments, flags, runtime));
    }
    if (rules_.WantsLoad() && !report_.interrupted) return Load(flags, runtime);
    return {};
  }

  // Both models are served; each seed's load is put on one and then on the other, the order turning around.
  Result<void> Load(const CommonFlags& flags, const Runtime& runtime) {
    const GateMeasure& measure = rules_.measure;
    std::unique_ptr<ServerProcess> servers[2];
    std::unique_ptr<HttpTransport> transports[2];
    LoadClientOptions options;
    options.requests = measure.requests;
    options.dataset.input_tokens = measure.input;
    options.dataset.output_tokens = measure.output;
    options.concurrency = measure.concurrency > 0 || measure.rate > 0 ? measure.concurrency : 4;
    if (measure.rate > 0) options.arrivals = {ArrivalKind::kPoisson, measure.rate};
    options.http.path = "/v1/completions";
    for (int side = 0; side < 2; ++side) {
      const std::string& model = side == 0 ? base_ : next_;
      HONE_TRY(servers[side], ServerProcess::Start(model, Common(flags)));
      options.http.url = servers[side]->url();
      HONE_TRY(transports[side], MakeHttpTransport(options.http, runtime.clock));
      runtime.log->Info("{} is served at {} for the load", model, options.http.url);
    }
    std::map<std::string, std::vector<double>> values[2];
    std::map<std::string, Direction> better;
    std::vector<std::string> order;
    Result<void> trouble;  // what was measured before it is judged all the same
    for (size_t i = 0; i < measure.seeds.size() && trouble && !Interrupted(); ++i) {
      for (int turn = 0; turn < 2; ++turn) {
        const int side = (static_cast<int>(i) + turn) % 2;
        options.http.url = servers[side]->url();
        options.seeds = {measure.seeds[i]};
        const LoadCallbacks callbacks{{}, [] { return Interrupted(); }, {}};
        const Result<LoadReport> report = MeasureLoad(options, *transports[side], callbacks);
        trouble = report ? Complete(*report) : Result<void>(report.error());
        if (!trouble) {
          const std::string ended = servers[side]->Ended();
          trouble = std::move(trouble).Context((side == 0 ? base_ : next_) + ": seed " + std::to_string(measure.seeds[i]) + (ended.empty() ? "" : ": " + ended));
        }
        if (!trouble || report->interrupted) break;
        for (const Figure& figure : LoadFigureList(*report)) {
          if (values[0].count(figure.name) + values[1].count(figure.name) == 0) order.push_back(figure.name);
          values[side][figure.name].push_back(figure.interval.value);
          better[figure.name] = figure.better;
        }
        const std::string& limit = report->points[0].figures.client_limit;
        if (!limit.empty()) report_.notes.push_back("seed " + std::to_string(measure.seeds[i]) + ": " + limit);
        if (turn == 1) runtime.log->Info("seed {}: both are measured", measure.seeds[i]);
      }
    }
    report_.interrupted |= Interrupted();
    for (const std::string& name : order) {
      std::vector<double>&base = values[0][name], &next = values[1][name];
      const size_t pairs = std::min(base.size(), next.size());  // an interrupted pair is none
      if (pairs == 0) continue;
      report_.figures.push_back(PairValues(name, better[name], std::span(base).first(pairs),
                                           std::span(next).first(pairs), rules_.confidence));
    }
    return trouble;
  }

  // A load of which a part failed is not the same load: its latencies are those of the requests that were answered.
  static Result<void> Complete(const LoadReport& report) {
    if (!report.gave_up.empty()) return IoError(report.gave_up);
    for (const LoadPoint& point : report.points) {
      if (point.figures.failed == 0 || report.interrupted) continue;
      const auto& [kind, error] = *point.figures.errors.begin();
      return IoError(std::to_string(point.figures.failed) + " of " + std::to_string(point.figures.completed + point.figures.failed) +
                     " requests failed, " + std::to_string(error.count) + " of them with " + kind + ": " + error.first);
    }
    return {};
  }

  LedgerEntry Entry(const std::string& json) const {
    LedgerEntry entry;
    entry.kind = "gate";
    entry.model = next_;
    if (const auto model = IsStored(next_) ? Result<std::shared_ptr<const Checkpoint>>(NotFound("")) : OpenModel(next_);
        model)
      entry.model_digest = ModelDigest((*model)->path());
    entry.other = base_;
    entry.recipe = rules_file_;
    entry.outcome = report_.interrupted ? "interrupted" : VerdictName(report_.verdict());
    for (const PairedFigure& figure : report_.figures) {
      if (figure.next) entry.figures.push_back({figure.name, *figure.next, figure.better});
      if (figure.ratio) entry.figures.push_back({"ratio of " + figure.name, *figure.ratio, figure.better});
    }
    for (const GateFinding& finding : report_.findings) {
      if (finding.verdict != Verdict::kHolds)
        entry.failures.push_back(
            {VerdictName(finding.verdict), finding.figure, finding.rule + ": " + finding.reason, 1});
    }
    entry.result = json;
    return entry;
  }

  std::string base_, next_, rules_file_, html_;
  GateRules rules_;
  GateReport report_;
  LedgerFlags ledger_;
};

}  // namespace

std::unique_ptr<Command> MakeGateCommand() { return std::make_unique<GateCommand>(); }

}  // namespace hone
