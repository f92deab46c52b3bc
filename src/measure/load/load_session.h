// hone load: measures a server under load, from the first question who is there to the table. Runs of several seeds, or
// a sweep from one request at a time to saturation. What the figures mean: load_stats.h, docs/measure.md.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/runtime.h"
#include "measure/ledger/ledger.h"
#include "measure/load/load_stats.h"

namespace hone {

struct LoadClientOptions {
  HttpClientOptions http;    // the path is filled in
  RequestShape shape;  // an empty model: the first that the server lists
  DatasetSpec dataset;
  std::string dataset_name, dataset_text, dataset_digest;  // kFile, kTrace: the file, its bytes and SHA-256
  ArrivalSpec arrivals;
  int concurrency = 0;
  int requests = 100;  // tasks of each run; kTrace: 0 for all
  double duration_s = 0, think_s = 0;
  std::vector<uint64_t> seeds = {1};
  Slo slo;
  int warmup = 2;
  int sweep = 0;  // rates between one at a time and saturation; 0: no sweep
};

// A load and what came of it.
struct LoadPoint {
  std::string name;  // "closed, 8 at once", "poisson, 2.5 a second"
  ArrivalSpec arrivals;
  int concurrency = 0;
  LoadFigures figures;
  // The queue grows throughout the run: the server is asked for more than it can do.
  bool saturated = false;
};

struct LoadReport {
  LoadClientOptions options;
  std::string model;
  std::vector<LoadPoint> points;    // one; a sweep: one at a time, as many as it takes, then the rates
  std::vector<LoadRun> runs;        // of the points, one after the other
  double saturation_request_s = 0;  // sweep: of the closed loop
  bool interrupted = false;
  std::string gave_up;  // why it ended early
};

struct LoadCallbacks {
  std::function<void(double share, const std::string& what)> progress;  // may be empty
  std::function<bool()> stop;                                           // may be empty
  std::function<void(const std::string& text)> note;                    // one line for people; may be empty
};

// "closed, 8 at once"
std::string PointName(const ArrivalSpec& arrivals, int concurrency);

// Asks the server for its model, counts tokens a word, warms up, measures. An error if the server cannot be reached or
// refuses the first request; later trouble ends the run early and is in the report.
Result<LoadReport> MeasureLoad(LoadClientOptions options, HttpTransport& transport, const LoadCallbacks& callbacks);

std::string LoadJson(const LoadReport& report, const Runtime& runtime);
std::string LoadTable(const LoadReport& report);
std::string LoadRecordsJsonl(const LoadReport& report);  // a line a request
std::vector<Figure> LoadFigureList(const LoadReport& report);
// The run as the ledger keeps it; `json`: LoadJson().
LedgerEntry LoadEntry(const LoadReport& report, const std::string& json);

}  // namespace hone
