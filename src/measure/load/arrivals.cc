// See arrivals.h.
#include "measure/load/arrivals.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace hone {
namespace {

constexpr std::pair<ArrivalKind, std::string_view> kArrivalNames[] = {
    {ArrivalKind::kClosed, "closed"}, {ArrivalKind::kConstant, "constant"}, {ArrivalKind::kPoisson, "poisson"},
    {ArrivalKind::kGamma, "gamma"},   {ArrivalKind::kRamp, "ramp"},         {ArrivalKind::kTrace, "trace"},
};

// Times of gaps, scaled so that all of them together take n / rate.
std::vector<double> Accumulate(std::vector<double> gaps, double rate) {
  double total = 0;
  for (const double gap : gaps) total += gap;
  const double scale = total > 0 ? static_cast<double>(gaps.size()) / rate / total : 0;
  double at = 0;
  for (double& gap : gaps) gap = at += gap * scale;
  return gaps;
}

}  // namespace

Result<ArrivalKind> ParseArrivalKind(std::string_view name) {
  if (name == "bursty") return ArrivalKind::kGamma;
  for (const auto& [kind, word] : kArrivalNames) {
    if (name == word) return kind;
  }
  return UsageError("arrivals '" + std::string(name) +
                    "' are not known; use closed, constant, poisson, gamma, ramp or trace");
}

std::string ArrivalName(ArrivalKind kind) {
  for (const auto& [known, word] : kArrivalNames) {
    if (known == kind) return std::string(word);
  }
  return "";
}

double DrawExponential(Rng& rng) { return -std::log1p(-rng.Uniform()); }

double DrawNormal(Rng& rng) {  // Box and Muller; the second value is not kept, so that a draw has no memory
  return std::sqrt(2 * DrawExponential(rng)) * std::cos(2 * M_PI * rng.Uniform());
}

double DrawGamma(Rng& rng, double shape) {
  HONE_CHECK(shape > 0);
  if (shape < 1) {  // of shape + 1, times u^(1 / shape)
    const double u = 1 - rng.Uniform();
    return DrawGamma(rng, shape + 1) * std::pow(u, 1 / shape);
  }
  const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  while (true) {
    const double x = DrawNormal(rng), root = 1 + c * x;
    if (root <= 0) continue;
    const double v = root * root * root, u = 1 - rng.Uniform();
    if (std::log(u) < 0.5 * x * x + d - d * v + d * std::log(v)) return d * v;
  }
}

std::vector<double> ArrivalTimes(const ArrivalSpec& spec, int n, uint64_t seed) {
  HONE_CHECK(n >= 0 && spec.rate > 0);
  Rng rng(seed);
  std::vector<double> gaps(static_cast<size_t>(n));
  switch (spec.kind) {
    case ArrivalKind::kConstant:
      for (int i = 0; i < n; ++i) gaps[i] = static_cast<double>(i) / spec.rate;
      return gaps;
    case ArrivalKind::kPoisson:
      for (double& gap : gaps) gap = DrawExponential(rng);
      return Accumulate(std::move(gaps), spec.rate);
    case ArrivalKind::kGamma:
      for (double& gap : gaps) gap = DrawGamma(rng, spec.burstiness);
      return Accumulate(std::move(gaps), spec.rate);
    case ArrivalKind::kRamp: {
      // Poisson with a rate that goes from a to b over d seconds: L(t) = a t + (b - a) t^2 / (2 d) requests are
      // expected until t, so unit-rate times u are put at the t with L(t) = u. Scaled so that the last is at d.
      HONE_CHECK(spec.rate_to > 0);
      const double a = spec.rate, b = spec.rate_to, d = 2 * static_cast<double>(n) / (a + b);
      for (double& gap : gaps) gap = DrawExponential(rng);
      std::vector<double> times = Accumulate(std::move(gaps), 1);
      for (double& t : times) t = std::min(d, 2 * t / (a + std::sqrt(a * a + 2 * (b - a) / d * t)));
      return times;
    }
    case ArrivalKind::kClosed:
    case ArrivalKind::kTrace:
      break;
  }
  HONE_CHECK(false, "a closed loop and a trace have no drawn times");
  return {};
}

}  // namespace hone
