// See small_floats.h. Everything is computed from the formats' definitions; there are no tables.
#include "compress/numbers/small_floats.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace hone {
namespace {

int Bias(const SmallFloat& format) { return (1 << (format.exponent_bits - 1)) - 1; }
int SignBit(const SmallFloat& format) { return 1 << (format.exponent_bits + format.mantissa_bits); }
bool IsFp8(const SmallFloat& format) { return format.exponent_bits + format.mantissa_bits == 7; }

float LargestMagnitude(const float* x, int n) {
  float amax = 0;
  for (int i = 0; i < n; ++i) amax = std::max(amax, std::fabs(x[i]));
  return amax;
}

// FP4 of a scaled weight: a negative zero loses its sign, a negative that rounds to zero keeps it.
uint8_t EncodeScaled(const SmallFloat& format, float x) { return x == 0 ? uint8_t{0} : EncodeSmallFloat(format, x); }

}  // namespace

int SmallFloat::emax() const { return (max_code >> mantissa_bits) - Bias(*this); }

uint8_t EncodeSmallFloat(const SmallFloat& format, float x, bool saturate) {
  const int sign = std::signbit(x) ? SignBit(format) : 0;
  if (std::isnan(x)) return static_cast<uint8_t>(IsFp8(format) ? sign | 0x7f : 0);
  const double magnitude = std::fabs(static_cast<double>(x));
  int code = format.max_code + 1;
  if (std::isfinite(x)) {
    // In units of the last place of its binade; a carry into the next one is a carry in the code too.
    const int exponent = std::max(magnitude > 0 ? std::ilogb(magnitude) : -1000, 1 - Bias(format));
    const double units = std::nearbyint(std::ldexp(magnitude, format.mantissa_bits - exponent));
    const double whole = std::ldexp(exponent + Bias(format) - 1, format.mantissa_bits) + units;
    code = static_cast<int>(std::min(whole, static_cast<double>(code)));
  }
  if (code > format.max_code && (saturate || !format.infinity)) code = format.max_code;
  return static_cast<uint8_t>(sign | code);
}

float DecodeSmallFloat(const SmallFloat& format, uint8_t code) {
  const int magnitude = code & (SignBit(format) - 1);
  const int exponent = magnitude >> format.mantissa_bits, mantissa = magnitude & ((1 << format.mantissa_bits) - 1);
  double value = exponent == 0 ? std::ldexp(mantissa, 1 - Bias(format) - format.mantissa_bits)
                               : std::ldexp(mantissa + (1 << format.mantissa_bits),
                                            exponent - Bias(format) - format.mantissa_bits);
  if (magnitude > format.max_code)
    value = format.infinity && magnitude == format.max_code + 1 ? HUGE_VAL : std::nan("");
  return static_cast<float>((code & SignBit(format)) != 0 ? -value : value);
}

uint8_t MxScale(const SmallFloat& format, MxRule rule, const float* x, int n) {
  return MxScaleOfLargest(format, rule, LargestMagnitude(x, n));
}

uint8_t MxScaleOfLargest(const SmallFloat& format, MxRule rule, float amax) {
  if (amax == 0) return 0;
  if (rule == MxRule::kCompressedTensors) {
    const int exponent = static_cast<int>((std::bit_cast<uint32_t>(amax) + (1u << 21)) >> 23);
    return exponent == 0 ? uint8_t{0} : static_cast<uint8_t>(std::clamp(exponent - format.emax(), 0, 254));
  }
  return static_cast<uint8_t>(std::clamp(std::ilogb(amax) - format.emax() + 127, 0, 254));
}

float MxScaleValue(uint8_t scale) {
  if (scale > 0 && scale < 255) return std::bit_cast<float>(uint32_t{scale} << 23);
  return std::ldexp(1.0f, scale - 127);
}

void EncodeMx(const SmallFloat& format, MxRule rule, uint8_t scale, const float* x, int n, uint8_t* codes) {
  for (int i = 0; i < n; ++i) {
    const float scaled = static_cast<float>(std::ldexp(static_cast<double>(x[i]), 127 - scale));
    codes[i] = rule == MxRule::kOcp ? EncodeSmallFloat(format, scaled) : EncodeScaled(format, scaled);
  }
}

float Nvfp4TensorScale(float amax) {
  const float scale = 1.0f / amax * (448.0f * 6.0f);  // torch divides a number by a tensor so
  return std::isfinite(scale) && scale > 0 ? scale : 1.0f;
}

uint8_t Nvfp4BlockScale(float tensor_scale, float sixth) {
  const uint8_t code = EncodeSmallFloat(kE4M3, tensor_scale * sixth);
  return code == 0 ? EncodeSmallFloat(kE4M3, 0.125f) : code;
}

void EncodeNvfp4(float tensor_scale, uint8_t block_scale, const float* x, uint8_t* codes) {
  const float scale = DecodeSmallFloat(kE4M3, block_scale) / tensor_scale;
  for (int i = 0; i < 16; ++i) codes[i] = EncodeScaled(kE2M1, std::clamp(x[i] / scale, -6.0f, 6.0f));
}

}  // namespace hone
