// See rope_table.h.
#include "models/rope_table.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace hone {
namespace {

constexpr double kTwoPi = 2 * std::numbers::pi;

double Llama3(double frequency, const RopeConfig& rope) {
  const double wavelength = kTwoPi / frequency;
  if (wavelength < rope.original_context / rope.high_freq_factor) return frequency;
  if (wavelength > rope.original_context / rope.low_freq_factor) return frequency / rope.factor;
  const double smooth =
      (rope.original_context / wavelength - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
  return (1 - smooth) * frequency / rope.factor + smooth * frequency;
}

// The index j at which a frequency turns `rotations` times over the original context.
double YarnIndex(double rotations, const RopeConfig& rope) {
  return rope.rotary_width * std::log(rope.original_context / (rotations * kTwoPi)) / (2 * std::log(rope.theta));
}

void Yarn(const RopeConfig& rope, std::vector<double>& frequencies) {
  double low = YarnIndex(rope.beta_fast, rope), high = YarnIndex(rope.beta_slow, rope);
  if (rope.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0);
  high = std::min(high, rope.rotary_width - 1.0);
  if (low == high) high += 0.001;  // no division by zero
  for (size_t j = 0; j < frequencies.size(); ++j) {
    const double ramp = std::clamp((static_cast<double>(j) - low) / (high - low), 0.0, 1.0);
    frequencies[j] = frequencies[j] / rope.factor * ramp + frequencies[j] * (1 - ramp);
  }
}

}  // namespace

std::vector<double> RopeFrequencies(const RopeConfig& rope, bool long_range) {
  std::vector<double> frequencies(rope.rotary_width / 2);
  for (size_t j = 0; j < frequencies.size(); ++j) {
    frequencies[j] = std::pow(rope.theta, -2.0 * static_cast<double>(j) / rope.rotary_width);
  }
  switch (rope.scaling) {
    case RopeScaling::kNone:
      break;
    case RopeScaling::kLinear:
      for (double& frequency : frequencies) frequency /= rope.factor;
      break;
    case RopeScaling::kLlama3:
      for (double& frequency : frequencies) frequency = Llama3(frequency, rope);
      break;
    case RopeScaling::kYarn:
      Yarn(rope, frequencies);
      break;
    case RopeScaling::kLongRope: {
      const std::vector<double>& factors = long_range ? rope.long_factor : rope.short_factor;
      for (size_t j = 0; j < frequencies.size(); ++j) frequencies[j] /= factors[j];
      break;
    }
  }
  if (!rope.frequency_divisors.empty()) {
    for (size_t j = 0; j < frequencies.size(); ++j) frequencies[j] /= rope.frequency_divisors[j];
  }
  return frequencies;
}

double RopeAttentionFactor(const RopeConfig& rope) {
  if (rope.attention_factor != 0) return rope.attention_factor;
  if (rope.scaling == RopeScaling::kYarn) return rope.factor <= 1 ? 1 : 0.1 * std::log(rope.factor) + 1;
  if (rope.scaling == RopeScaling::kLongRope && rope.factor > 1 && rope.original_context > 1) {
    return std::sqrt(1 + std::log(rope.factor) / std::log(rope.original_context));
  }
  return 1;
}

RopeTable::RopeTable(const RopeConfig& rope, bool long_range)
    : frequencies_(RopeFrequencies(rope, long_range)), attention_factor_(RopeAttentionFactor(rope)) {}

void RopeTable::Extend(int positions) {
  if (positions <= positions_) return;
  const size_t half = frequencies_.size();
  const size_t first = static_cast<size_t>(positions_);
  const size_t last = std::max(static_cast<size_t>(positions), first * 2);
  cos_.resize(last * half);
  sin_.resize(last * half);
  for (size_t p = first; p < last; ++p) {
    for (size_t j = 0; j < half; ++j) {
      const double angle = static_cast<double>(p) * frequencies_[j];
      cos_[p * half + j] = static_cast<float>(std::cos(angle) * attention_factor_);
      sin_[p * half + j] = static_cast<float>(std::sin(angle) * attention_factor_);
    }
  }
  positions_ = static_cast<int>(last);
}

}  // namespace hone
