// hone load: a server under load, whoever made it. What is measured and how: docs/measure.md.
#include <set>

#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/ledger_flags.h"
#include "cli/progress.h"
#include "cli/report_page.h"
#include "measure/load/load_session.h"
#include "measure/sha256.h"

namespace hone {
namespace {

class LoadCommand : public Command {
 public:
  void AddFlags(Flags& flags) override {
    flags.Add("URL", options_.http.url, "the server, as http://127.0.0.1:8080")->required();
    flags.AddSwitch("--chat", options_.shape.chat, "/v1/chat/completions in place of /v1/completions");
    flags.Add("--model", options_.shape.model, "the name to ask for (default: the first that the server lists)");
    flags.Add("--api-key", options_.http.api_key, "sent as a bearer token");
    flags.Add("--header", options_.http.headers, "a further header, \"Name: value\"; can be repeated");
    flags.Add("--extra", options_.shape.extra, "a JSON object whose members are added to every request");
    flags.Add("--temperature", options_.shape.temperature, "of every request (default 0)")->range(0.0, 2.0);
    flags.AddSwitch("--no-ignore-eos", no_ignore_eos_, "answers may end early (for servers that refuse ignore_eos)");
    flags.AddSwitch("--no-usage", no_usage_, "no stream_options; output tokens are then counted as chunks");
    flags.Add("--timeout", options_.http.timeout_s, "seconds that a request may take (default 600)")->range(0.001, 1e6);
    AddArrivalFlags(flags);
    AddDatasetFlags(flags);
    const char* result = "Result";
    flags.Add("--seeds", options_.seeds, "a run each; two or more give intervals (default 1, or --seed)")
        ->delimiter(',')
        ->group(result);
    flags.Add("--slo", slo_, "limits for goodput, as ttft=200,tpot=50,e2e=3s (milliseconds)")->group(result);
    flags.Add("--warmup", options_.warmup, "requests before anything is timed (default 2)")
        ->range(0, 100000)
        ->group(result);
    flags.Add("--records", records_, "write a JSON line of every request to this file")->group(result);
    AddLedgerFlags(flags, &ledger_);
    AddPageFlag(flags, &html_);
  }

  Result<int> Run(const CommonFlags& flags) override {
    CatchInterrupts();
    HONE_RETURN_IF_ERROR(TakeFlags(flags));
    if (!records_.empty()) HONE_RETURN_IF_ERROR(CheckOutput(records_, {file_, trace_}));
    HONE_RETURN_IF_ERROR(CheckPage(html_, {file_, trace_}));
    HONE_TRY(const auto owner, RuntimeOwner::Create(flags));
    HONE_TRY(const std::unique_ptr<HttpTransport> transport, MakeHttpTransport(options_.http, owner->runtime().clock));
    ProgressLine progress("load", flags.progress());
    const LoadCallbacks callbacks{[&](double share, const std::string& what) { progress.Update(share, what); },
                                  [] { return Interrupted(); },
                                  [&](const std::string& text) { owner->runtime().log->Info("{}", text); }};
    HONE_TRY(const LoadReport report, MeasureLoad(options_, *transport, callbacks));
    progress.Clear();
    const std::string json = LoadJson(report, owner->runtime());
    const Result<void> page = Deliver(flags.json ? json : LoadTable(report), html_, ledger_, owner->runtime(), LoadEntry(report, json));
    if (!records_.empty()) HONE_RETURN_IF_ERROR(WriteFile(records_, LoadRecordsJsonl(report)));
    HONE_RETURN_IF_ERROR(page);
    if (report.interrupted) return kExitInterrupted;
    if (!report.gave_up.empty()) return IoError(report.gave_up);
    for (const LoadPoint& point : report.points) {
      if (point.figures.completed > 0) return kExitDone;
    }
    return IoError("no request was answered; the errors are in the result");
  }

 private:
  void AddArrivalFlags(Flags& flags) {
    const char* group = "Arrivals";
    flags
        .Add("--arrivals", arrivals_,
             "closed, constant, poisson, gamma or ramp (default: poisson with --rate, else closed)")
        ->group(group);
    concurrency_option_ = flags
                              .Add("--concurrency", options_.concurrency,
                                   "closed: requests at once (default 1); else at most so many at once")
                              ->range(1, 100000)
                              ->group(group);
    flags.Add("--rate", options_.arrivals.rate, "requests a second")->range(1e-6, 1e6)->group(group);
    flags.Add("--rate-to", options_.arrivals.rate_to, "ramp: requests a second at the end")
        ->range(1e-6, 1e6)
        ->group(group);
    burstiness_option_ = flags
                             .Add("--burstiness", options_.arrivals.burstiness,
                                  "gamma: shape of the gaps; 1 is poisson, below 1 bursty, above 1 smoother")
                             ->range(1e-3, 1e6)
                             ->group(group);
    flags.Add("--trace", trace_, "replay a JSONL file of timestamp (ms), input_length, output_length, hash_ids")
        ->group(group);
    flags.Add("--speed", options_.dataset.speed, "trace: so many times faster")->range(1e-6, 1e6)->group(group);
    flags.Add("--sweep", options_.sweep, "from one request at a time to saturation, over so many rates (5 is usual)")
        ->range(1, 100)
        ->group(group);
    requests_option_ = flags.Add("--requests", options_.requests, "requests (conversations) of a run (default 100)")
                           ->range(1, 10000000)
                           ->group(group);
    flags.Add("--duration", options_.duration_s, "nothing is sent after so many seconds")
        ->range(0.0, 1e7)
        ->group(group);
    flags.Add("--think", options_.think_s, "multi-turn: seconds from an answer to the next turn")
        ->range(0.0, 1e6)
        ->group(group);
  }

  void AddDatasetFlags(Flags& flags) {
    const char* group = "Requests";
    DatasetSpec& dataset = options_.dataset;
    flags.Add("--dataset", dataset_, "random, shared, multi-turn, or a JSONL file (ShareGPT, messages or prompts)")
        ->group(group);
    flags.Add("--input", dataset.input_tokens, "tokens of a prompt (default 256)")->range(1, 1 << 24)->group(group);
    flags.Add("--output", dataset.output_tokens, "tokens of an answer (default 64; a file: as its answers are)")
        ->range(1, 1 << 24)
        ->group(group);
    flags.Add("--range", dataset.range, "lengths differ by this share, up and down (default 0)")
        ->range(0.0, 0.999)
        ->group(group);
    flags.Add("--shared-words", dataset.shared_words, "words that all prompts begin with")
        ->range(0, 1 << 20)
        ->group(group);
    flags.Add("--prefixes", dataset.prefixes, "different shared beginnings (default 1)")
        ->range(1, 100000)
        ->group(group);
    flags.Add("--turns", dataset.turns, "multi-turn: turns of a conversation (default 4)")
        ->range(1, 1000)
        ->group(group);
  }

  Result<void> TakeFlags(const CommonFlags& flags) {
    options_.shape.ignore_eos = !no_ignore_eos_;
    options_.shape.usage = !no_usage_;
    options_.http.path = options_.shape.chat ? "/v1/chat/completions" : "/v1/completions";
    while (!options_.http.url.empty() && options_.http.url.back() == '/') options_.http.url.pop_back();
    if (options_.http.url.ends_with("/v1")) options_.http.url.resize(options_.http.url.size() - 3);
    if (options_.seeds == std::vector<uint64_t>{1} && flags.seed) options_.seeds = {*flags.seed};
    if (std::set<uint64_t>(options_.seeds.begin(), options_.seeds.end()).size() < options_.seeds.size())
      return UsageError("--seeds: one is there twice; a seed used again is the same load, which the server's cache knows");
    HONE_TRY(options_.slo, ParseSlo(slo_));
    HONE_RETURN_IF_ERROR(TakeDataset());
    return TakeArrivals();
  }

  Result<void> TakeDataset() {
    DatasetSpec& dataset = options_.dataset;
    if (!trace_.empty()) {
      if (!dataset_.empty()) return UsageError("--trace brings its own requests; leave out --dataset");
      dataset.kind = DatasetKind::kTrace;
      file_ = trace_;
    } else if (dataset_.empty()) {
      dataset.kind = dataset.shared_words > 0 ? DatasetKind::kShared : DatasetKind::kRandom;
    } else if (dataset_ == "random" || dataset_ == "shared" || dataset_ == "multi-turn") {
      HONE_TRY(dataset.kind, ParseDatasetKind(dataset_));
      if (dataset.kind == DatasetKind::kShared && dataset.shared_words == 0) dataset.shared_words = 128;
    } else {
      dataset.kind = DatasetKind::kFile;
      file_ = dataset_;
    }
    if (dataset.kind == DatasetKind::kTrace && !requests_option_->given()) options_.requests = 0;
    if (file_.empty()) return {};
    HONE_TRY(options_.dataset_text, ReadText(file_));
    options_.dataset_name = file_;
    options_.dataset_digest = Sha256Hex(options_.dataset_text);
    // A file that is none is said before the server is asked.
    HONE_RETURN_IF_ERROR(MakeTasks(dataset, options_.dataset_text, 1, 1).Context(file_));
    return {};
  }

  Result<void> TakeArrivals() {
    ArrivalSpec& arrivals = options_.arrivals;
    if (!trace_.empty()) {
      if (!arrivals_.empty() || arrivals.rate > 0 || options_.sweep > 0)
        return UsageError(
            "--trace brings its own arrivals; leave out --arrivals, --rate and --sweep (--speed scales it)");
      arrivals.kind = ArrivalKind::kTrace;
      return {};
    }
    if (!arrivals_.empty()) {
      HONE_TRY(arrivals.kind, ParseArrivalKind(arrivals_));
      if (arrivals.kind == ArrivalKind::kTrace) return UsageError("--arrivals trace: give the file with --trace FILE");
    } else if (arrivals.rate_to > 0) {
      arrivals.kind = ArrivalKind::kRamp;
    } else if (burstiness_option_->given()) {
      arrivals.kind = ArrivalKind::kGamma;
    } else if (arrivals.rate > 0) {
      arrivals.kind = ArrivalKind::kPoisson;
    }
    if (options_.sweep > 0) {
      if (arrivals.rate > 0) return UsageError("--sweep finds the rates; leave out --rate");
      return {};
    }
    const bool closed = arrivals.kind == ArrivalKind::kClosed;
    if (closed && arrivals.rate > 0) return UsageError("a closed loop has no --rate; it has --concurrency");
    if (closed && options_.concurrency == 0) options_.concurrency = 1;
    if (!closed && arrivals.rate <= 0) return UsageError("arrivals " + ArrivalName(arrivals.kind) + " need --rate");
    if (arrivals.kind == ArrivalKind::kRamp && arrivals.rate_to <= 0)
      return UsageError("a ramp goes from --rate to --rate-to");
    if (burstiness_option_->given() && arrivals.kind != ArrivalKind::kGamma)
      return UsageError("--burstiness is for arrivals gamma");
    return {};
  }

  LoadClientOptions options_;
  LedgerFlags ledger_;
  std::string arrivals_, dataset_, trace_, file_, slo_, records_, html_;
  bool no_ignore_eos_ = false, no_usage_ = false;
  Flag *concurrency_option_ = nullptr, *burstiness_option_ = nullptr, *requests_option_ = nullptr;
};

}  // namespace

std::unique_ptr<Command> MakeLoadCommand() { return std::make_unique<LoadCommand>(); }

}  // namespace hone
