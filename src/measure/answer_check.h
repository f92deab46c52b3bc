// Is the output right? Asked before anything is timed: a fast wrong answer is no result.
#pragma once

#include <string>

#include "base/result.h"
#include "base/runtime.h"
#include "kernels/attention/kv_view.h"
#include "models/model.h"

namespace hone {

// The root mean square of the difference of logits over the deviation of the wanted ones. 8-bit inputs lose 1 to 6 % in
// models of 4 bits; a wrong kernel gives about 140 %.
inline constexpr double kLogitsBound = 0.15;
// A row's greedy id must agree where the best logit leads by more than this many times the row's own rms difference.
inline constexpr double kMarginFactor = 6;

struct LogitsDifference {
  double relative_rms = 0;                        // of all rows
  int rows = 0, clear_rows = 0, clear_wrong = 0;  // rows whose lead is large enough, and those of them that disagree
  bool finite = true;
};
// `got` and `want`: [rows][vocab].
LogitsDifference CompareLogits(const float* got, const float* want, int rows, int vocab);

// Runs a few tokens at once and one at a time, and holds both against `reference` (the same weights loaded with
// LoadOptions::exact) one token at a time with F32 keys and values; without a reference the two against each other.
// Returns one line that says what was compared and how close it was. An error (kInternal) if it is outside of the
// bounds.
Result<std::string> CheckAnswers(Model& model, Model* reference, const Runtime& runtime, KvType kv);

}  // namespace hone
