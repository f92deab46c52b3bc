// Hardware: what a plan runs on: this machine as hone roof measured it, a card of cards.inc, or one that the user
// describes. Efficiency: which share of those limits is really reached; assumed until hone profile has fitted it.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "measure/plan/stored_formats.h"
#include "measure/roof.h"

namespace hone {

struct Hardware {
  std::string name;
  int count = 1;              // equal cards
  double memory_bytes = 0;    // of one card
  double read_bytes_s = 0;    // of one card
  double ops_16bit = 0;       // of one card, a multiply-add counting two
  double ops_8bit = 0;        // 0: as 16-bit
  double link_bytes_s = 0;    // between two cards, one way; 0: none
  int cards_a_node = 8;
  bool cpu = false;
  double free_share = 0.9;    // of the memory that weights, cache and activations may take
  double Ops(const WeightFormat& format) const { return format.int8_math && ops_8bit > 0 ? ops_8bit : ops_16bit; }
};

std::span<const Hardware> Cards();
const Hardware* FindCard(std::string_view name);  // nullptr: there is none of this name

// This machine: bandwidth of all threads, the peak of the unit that multiplies with `format` (so a plan for several
// formats asks once for each), memory that hone may still take.
Hardware ThisMachine(const Roof& roof, const WeightFormat& format, bool exact, double memory_bytes);

struct Efficiency {
  double read_share = 0;
  double compute_share = 0;     // of the peak, in steps with many rows of a sequence (prompts)
  double decode_share = 0;      // of the peak, in steps with one row a sequence
  double step_overhead_s = 0;   // of each step, whatever it does
  double link_latency_s = 15e-6;  // of one exchange between cards
  std::string source;           // "assumed for CPUs", "fitted by hone profile on ..."
  // What a step of many rows takes beside its arithmetic, in times that reading all weights takes at the roof: kernels
  // of many rows unpack weights first. Below 0: not known, as reading does.
  double many_rows_reads = -1;
  // Reading and arithmetic hide each other, the dearer counts. Fitted constants add them up, as measured steps do.
  bool overlapped = true;
  // The most rows of the steps that decode_share was fitted to: how kernels of few rows do with more is not known, so a prompt
  // of more rows takes what was measured of prompts.
  int few_rows = 0;
};
Efficiency AssumedEfficiency(const Hardware& hardware);

// "80GB", "24GiB", "512M", "1.5e9": bytes. "2TB/s", "936GB/s": bytes a second. "312T", "312TFLOPS", "500G": operations a
// second. Errors name the flag, what was found and what was wanted.
Result<double> ParseBytes(std::string_view flag, std::string_view text);
Result<double> ParseRate(std::string_view flag, std::string_view text);
Result<double> ParseOps(std::string_view flag, std::string_view text);

// "1.34 GB", "70.3 kB": decimal, as vendors count memory.
std::string SayBytes(double bytes);
// "2.04 TB/s", "312 TFLOP": three digits and a decimal prefix.
std::string SayScaled(double value, std::string_view unit);

}  // namespace hone
