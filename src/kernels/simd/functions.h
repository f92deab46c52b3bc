// exp, tanh and their kin on Vecs. Included after simd/avx2.h or simd/avx512.h, with internal linkage like them.
//
// Each reduces its argument and evaluates a minimax polynomial (fitted by weighted least squares in double); relative errors,
// besides the rounding of the last steps, are named at each. Infinities and NaN give what the mathematical limit gives.
#pragma once

namespace hone {
namespace {

// e^x, polynomial error 4e-9; overflows to infinity above 88.72, subnormal results are right, 0 below -104.
inline Vec Exp(Vec x) {
  x = Vec::Min(Vec::Set(90.0f), Vec::Max(Vec::Set(-106.0f), x));  // operand order: NaN stays
  const Vec n = (x * Vec::Set(1.44269504f)).Round();
  Vec r = Vec::NegFma(n, Vec::Set(0.693359375f), x);              // ln 2 in two parts: the first product is exact
  r = Vec::NegFma(n, Vec::Set(-2.12194440e-4f), r);
  Vec p = Vec::Set(0.001386373214f);
  p = Vec::Fma(p, r, Vec::Set(0.00836754302f));
  p = Vec::Fma(p, r, Vec::Set(0.04166723992f));
  p = Vec::Fma(p, r, Vec::Set(0.1666653354f));
  p = Vec::Fma(p, r, Vec::Set(0.5f));
  p = Vec::Fma(p, r * r, r);
  return (p + Vec::Set(1.0f)).TimesPowerOfTwo(n);
}

// 2^x for x <= 0 (and NaN), polynomial error 2e-9; 2^0 is exactly 1, 2^-inf exactly 0.
inline Vec Exp2OfNegative(Vec x) {
  x = Vec::Max(Vec::Set(-160.0f), x);
  const Vec n = x.Round();
  const Vec f = x - n;
  Vec p = Vec::Set(0.0001534569184f);
  p = Vec::Fma(p, f, Vec::Set(0.001340006328f));
  p = Vec::Fma(p, f, Vec::Set(0.009618490414f));
  p = Vec::Fma(p, f, Vec::Set(0.05550328451f));
  p = Vec::Fma(p, f, Vec::Set(0.2402264687f));
  p = Vec::Fma(p, f, Vec::Set(0.6931472059f));
  p = Vec::Fma(p, f, Vec::Set(1.0f));
  return p.TimesPowerOfTwo(n);
}

// tanh x: an odd polynomial (error 4e-9) below 0.625, (1 - e^-2|x|) / (1 + e^-2|x|) above, where nothing cancels.
inline Vec Tanh(Vec x) {
  const Vec a = x.Abs(), one = Vec::Set(1.0f), square = x * x;
  const Vec z = Exp(a * Vec::Set(-2.0f));
  const Vec large = ((one - z) / (one + z)).WithSignOf(x);
  Vec p = Vec::Set(-0.005717036557f);
  p = Vec::Fma(p, square, Vec::Set(0.020650579f));
  p = Vec::Fma(p, square, Vec::Set(-0.05374349526f));
  p = Vec::Fma(p, square, Vec::Set(0.1333149125f));
  p = Vec::Fma(p, square, Vec::Set(-0.3333328392f));
  const Vec small = Vec::Fma(p * square, x, x);
  return Vec::Select(Vec::Less(a, Vec::Set(0.625f)), small, large);
}

// x / (1 + e^-t), written with e^-|t| so that it keeps its relative accuracy for any t. REQUIRES: x not -inf.
inline Vec TimesSigmoid(Vec x, Vec t) {
  const Vec one = Vec::Set(1.0f), zero = Vec::Zero();
  const Vec z = Exp(zero - t.Abs());
  return x * (Vec::Select(Vec::Less(t, zero), z, one) / (one + z));
}

// Below this, silu and both gelus are -0 in F32: the clamp keeps -inf from meeting a zero.
inline Vec ClampGate(Vec x) { return Vec::Max(Vec::Set(-200.0f), x); }

inline Vec Silu(Vec x) {
  x = ClampGate(x);
  return TimesSigmoid(x, x);
}

// 0.5 (1 + tanh u) = 1 / (1 + e^-2u), u = sqrt(2/pi) (x + 0.044715 x^3).
inline Vec GeluTanh(Vec x) {
  x = ClampGate(x);
  const Vec cubic = Vec::Fma(x * x, Vec::Set(0.044715f), Vec::Set(1.0f));
  return TimesSigmoid(x, x * Vec::Set(1.5957691216f) * cubic);
}

// x Phi(x), Phi(-a) = 0.5 e^(-a^2/2) erfcx(a / sqrt 2), erfcx(z) = e^(z^2) erfc(z) = t P(t), t = 1 / (1 + 0.4 z), error 2e-8.
inline Vec GeluErf(Vec x) {
  x = ClampGate(x);
  const Vec one = Vec::Set(1.0f);
  const Vec a = Vec::Min(Vec::Set(200.0f), x.Abs());
  const Vec t = one / Vec::Fma(a, Vec::Set(0.4f * 0.70710678f), one);
  Vec p = Vec::Set(-0.02310147328f);
  p = Vec::Fma(p, t, Vec::Set(0.16340623f));
  p = Vec::Fma(p, t, Vec::Set(-0.4191499978f));
  p = Vec::Fma(p, t, Vec::Set(0.4437501198f));
  p = Vec::Fma(p, t, Vec::Set(-0.2004900169f));
  p = Vec::Fma(p, t, Vec::Set(0.2284483415f));
  p = Vec::Fma(p, t, Vec::Set(0.1442229968f));
  p = Vec::Fma(p, t, Vec::Set(0.2119280071f));
  p = Vec::Fma(p, t, Vec::Set(0.2252956888f));
  p = Vec::Fma(p, t, Vec::Set(0.2256901222f));
  const Vec half = a * Vec::Set(0.5f), square = half * a, rest = Vec::FmaSub(half, a, square);  // a^2/2 = square + rest
  const Vec gauss = Exp(Vec::Zero() - square) * (one - rest);
  const Vec tail = Vec::Set(0.5f) * gauss * (t * p);
  return x * Vec::Select(Vec::Less(x, Vec::Zero()), tail, one - tail);
}

}  // namespace
}  // namespace hone
