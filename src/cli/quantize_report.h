// What a run of hone quantize did, the same for all that it writes: error a layer and the worst tensors for the summary
// and --json, and the run's entry of the ledger.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/ledger_flags.h"
#include "cli/quantize_quality.h"
#include "compress/layerwise/layer_quantizer.h"

namespace hone {

// One quantised tensor. Errors are of its weights; output_error is of what it puts out over the calibration text (negative:
// nobody looked).
struct TensorLoss {
  std::string name;
  std::string to;  // the type; "" where all have the same
  double relative_error = 0, max_error = 0, power = 0;  // power: sum of squares of the weights
  double output_error = -1;
};

struct QuantizeOutcome {
  std::string in, out;       // paths of the models
  std::string recipe;        // "Q4_K_M", "gptq, 4 bits, group 128, compressed-tensors"
  std::string calibration;   // the text; "" without
  uint64_t bytes_before = 0, bytes = 0;
  double bits_per_weight = 0;  // of the whole output
  double relative_error = 0;
  std::vector<TensorLoss> tensors;
  LayerwiseReport layerwise;
  uint64_t peak_rss_bytes = 0;  // before the result was measured
  bool measured = false;
  Quality quality;
  std::string json;         // the result, whole
  bool started = false;     // checks are over: from here on the run is one for the ledger, also if it fails
};

// What a plan says of memory.
std::string MemoryText(uint64_t peak_bytes, uint64_t allowed_bytes);
// An error where a job's peak is more than --memory allows. `least`: the peak with the smallest buffers, to be told.
Result<void> CheckPeak(uint64_t peak_bytes, uint64_t least_bytes, uint64_t allowed_bytes);
// --memory, or half of what is free; 16 GiB where that is unknown.
uint64_t AllowedMemory(uint64_t flag_bytes);

// Tensors that lost most, worst first; at most five. Indices of `tensors`.
std::vector<size_t> WorstTensors(const std::vector<TensorLoss>& tensors);

// Lines of the summary: totals, error of each layer, worst tensors, calibration, quality.
std::string OutcomeText(const QuantizeOutcome& outcome);
// Adds to an object what every result has: in, digests of both (read from the files), sizes, errors, layers, worst, quality.
void AddOutcome(const QuantizeOutcome& outcome, nlohmann::ordered_json* json);

// Enters a run that is done.
void EnterQuantize(const LedgerFlags& flags, const Runtime& runtime, const QuantizeOutcome& outcome);
// Enters a run that was stopped or failed after it had started.
void EnterFailedQuantize(const LedgerFlags& flags, const Runtime& runtime, const QuantizeOutcome& outcome,
                         const Error& error);

}  // namespace hone
