// See codebooks.h.
#include "compress/numbers/codebooks.h"

#include <algorithm>
#include <cmath>

namespace hone {
namespace {

// Codes in rising order of value, and the midpoints between neighbours.
struct Ladder {
  std::array<uint8_t, 16> code;
  std::array<float, 15> middle;
};

Ladder MakeLadder(const std::array<float, 16>& values) {
  Ladder ladder{};
  for (int i = 0; i < 16; ++i) ladder.code[i] = static_cast<uint8_t>(i);
  std::stable_sort(ladder.code.begin(), ladder.code.end(), [&](uint8_t a, uint8_t b) { return values[a] < values[b]; });
  for (int i = 0; i < 15; ++i) ladder.middle[i] = (values[ladder.code[i]] + values[ladder.code[i + 1]]) / 2;
  return ladder;
}

std::array<float, 256> MakeDynamicMap() {
  // Seven decades, twice as many steps in each as in the one below; the middles of evenly spaced steps over (0.1, 1).
  std::vector<float> values = {0.0f, 1.0f};
  for (int decade = 0; decade < 7; ++decade) {
    const int steps = 1 << decade;
    const float step = (1.0f - 0.1f) / static_cast<float>(steps);
    const auto boundary = [&](int i) {  // from the nearer end, rounded once
      return i < (steps + 1) / 2 ? std::fma(step, static_cast<float>(i), 0.1f)
                                 : std::fma(-step, static_cast<float>(steps - i), 1.0f);
    };
    const float power = static_cast<float>(std::pow(10.0, decade - 6));
    for (int i = 0; i < steps; ++i) {
      const float middle = (boundary(i) + boundary(i + 1)) / 2;
      values.push_back(power * middle);
      values.push_back(-(power * middle));
    }
  }
  std::sort(values.begin(), values.end());
  std::array<float, 256> map{};
  std::copy(values.begin(), values.end(), map.begin());
  return map;
}

}  // namespace

const std::array<float, 16>& CodebookValues(Codebook4 codebook) {
  static const std::array<float, 16> nf4 = {-1.0f,
                                            -0.6961928009986877f,
                                            -0.5250730514526367f,
                                            -0.39491748809814453f,
                                            -0.28444138169288635f,
                                            -0.18477343022823334f,
                                            -0.09105003625154495f,
                                            0.0f,
                                            0.07958029955625534f,
                                            0.16093020141124725f,
                                            0.24611230194568634f,
                                            0.33791524171829224f,
                                            0.44070982933044434f,
                                            0.5626170039176941f,
                                            0.7229568362236023f,
                                            1.0f};
  static const std::array<float, 16> fp4 = [] {
    const float twelfths[8] = {0, 0.0625f, 8, 12, 4, 6, 2, 3};
    std::array<float, 16> values{};
    for (int i = 0; i < 8; ++i) values[i] = twelfths[i] / 12, values[i + 8] = -twelfths[i] / 12;
    return values;
  }();
  return codebook == Codebook4::kNf4 ? nf4 : fp4;
}

const std::array<float, 256>& DynamicMap() {
  static const std::array<float, 256> map = MakeDynamicMap();
  return map;
}

void QuantizeCodebook4(Codebook4 codebook, std::span<const float> x, int block, const Slices& slices,
                       std::span<uint8_t> packed, std::span<float> absmax) {
  static const Ladder ladders[2] = {MakeLadder(CodebookValues(Codebook4::kNf4)),
                                    MakeLadder(CodebookValues(Codebook4::kFp4))};
  const Ladder& ladder = ladders[static_cast<int>(codebook)];
  std::vector<float> factors(absmax.size());
  const auto quantize = [&](size_t b, size_t blocks, size_t size) {  // `blocks` of them from b on
    const float* from = &x[b * block];
    if (size % 16 == 0) {
      slices.largest(from, static_cast<int64_t>(blocks), static_cast<int>(size), &absmax[b]);
    } else {
      for (size_t i = 0; i < blocks; ++i) {
        float least, most;
        slices.range(from + i * size, static_cast<int64_t>(size), &least, &most);
        absmax[b + i] = std::max(std::fabs(least), std::fabs(most));
      }
    }
    for (size_t i = b; i < b + blocks; ++i) factors[i] = absmax[i] > 0 ? 1 / absmax[i] : 0;
    // A value at a midpoint takes the lower entry.
    slices.to_codebook(from, static_cast<int64_t>(blocks), static_cast<int64_t>(size), &factors[b], ladder.middle.data(),
                       ladder.code.data(), &packed[b * block / 2]);
  };
  const size_t whole = x.size() / block, rest = x.size() % block;
  if (whole > 0) quantize(0, whole, static_cast<size_t>(block));
  if (rest > 0) quantize(whole, 1, rest);
}

Codebook4Tensor QuantizeCodebook4(Codebook4 codebook, std::span<const float> x, int block) {
  Codebook4Tensor out{std::vector<uint8_t>((x.size() + 1) / 2), std::vector<float>((x.size() + block - 1) / block)};
  QuantizeCodebook4(codebook, x, block, kSlicesV2, out.packed, out.absmax);
  return out;
}

void DequantizeCodebook4(Codebook4 codebook, const Codebook4Tensor& tensor, int block, std::span<float> out) {
  const std::array<float, 16>& values = CodebookValues(codebook);
  for (size_t i = 0; i < out.size(); ++i) {
    const uint8_t code = i % 2 == 0 ? tensor.packed[i / 2] >> 4 : tensor.packed[i / 2] & 15;
    out[i] = values[code] * tensor.absmax[i / block];
  }
}

DoubleQuantized QuantizeAbsmax(std::span<const float> absmax, const Slices& slices) {
  DoubleQuantized out;
  if (absmax.empty()) return out;
  double sum = 0;
  for (const float a : absmax) sum += a;
  out.offset = static_cast<float>(sum / static_cast<double>(absmax.size()));
  const std::array<float, 256>& map = DynamicMap();
  out.codes.resize(absmax.size());
  for (size_t first = 0; first < absmax.size(); first += kNestedBlock) {
    const size_t n = std::min<size_t>(kNestedBlock, absmax.size() - first);
    float least, most;
    slices.range(&absmax[first], static_cast<int64_t>(n), &least, &most);
    const float largest = std::max(std::fabs(least - out.offset), std::fabs(most - out.offset));  // differences rise as what they are of
    out.nested_absmax.push_back(largest);
    slices.to_nearest(&absmax[first], static_cast<int64_t>(n), out.offset, largest > 0 ? 1 / largest : 0, map.data(), &out.codes[first]);
  }
  return out;
}

std::vector<float> DequantizeAbsmax(const DoubleQuantized& absmax) {
  std::vector<float> out(absmax.codes.size());
  for (size_t i = 0; i < out.size(); ++i) out[i] = AbsmaxOf(DynamicMap(), absmax, i);
  return out;
}

Int8Row QuantizeInt8Row(std::span<const float> x, float threshold, int8_t* codes) {
  Int8Row row;
  for (const float v : x) {
    const float a = std::fabs(v);
    if (threshold <= 0 || a < threshold) row.absmax = std::max(row.absmax, a);
  }
  const float factor = row.absmax > 0 ? 127.0f * (1.0f / row.absmax) : 0;
  for (size_t i = 0; i < x.size(); ++i)
    codes[i] = static_cast<int8_t>(std::clamp(std::nearbyint(x[i] * factor), -127.0f, 127.0f));
  return row;
}

std::vector<int32_t> OutlierColumns(const float* x, int64_t rows, int64_t columns, float threshold) {
  std::vector<int32_t> found;
  for (int64_t c = 0; c < columns; ++c) {
    for (int64_t r = 0; r < rows; ++r) {
      if (std::fabs(x[r * columns + c]) < threshold) continue;
      found.push_back(static_cast<int32_t>(c));
      break;
    }
  }
  return found;
}

}  // namespace hone
