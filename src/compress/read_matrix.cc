// See read_matrix.h.
#include "compress/read_matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "compress/numbers/slices.h"
#include "kernels/dequantize/dequantize.h"

namespace hone {
namespace {

Error Damaged(const Checkpoint& checkpoint, const std::string& name, int64_t at, int64_t columns, float value) {
  return InvalidInput(fmt::format("{}: {}: row {}, column {} is {}; the model is damaged, nothing can be made of it",
                                  checkpoint.path(), name, at / columns, at % columns, value));
}

}  // namespace

Result<std::vector<float>> ReadFiniteMatrix(const Checkpoint& checkpoint, const TensorView& view,
                                            const std::string& name, ThreadPool& threads) {
  const int64_t rows = view.shape[0], columns = view.shape[1];
  std::vector<float> w(static_cast<size_t>(rows * columns));
  std::vector<int64_t> bad(threads.count(), -1);  // rows
  threads.Run([&](int worker) {
    const auto [begin, end] = threads.Range(static_cast<size_t>(rows), 1, worker);
    for (int64_t r = static_cast<int64_t>(begin); r < static_cast<int64_t>(end) && bad[worker] < 0; ++r) {
      if (!ReadFiniteRow(kSlicesV2, view.type, view.data + r * view.row_bytes(), columns, w.data() + r * columns)) bad[worker] = r;
    }
  });
  for (const int64_t row : bad) {
    if (row >= 0) return NotFinite(checkpoint, view, name, row);
  }
  checkpoint.Release(view);
  return w;
}

Result<std::vector<float>> ReadFiniteMatrix(const Checkpoint& checkpoint, const QuantizedMatrix& matrix, int64_t first, int64_t count,
                                            ThreadPool& threads) {
  const int64_t columns = matrix.columns();
  std::vector<float> w(static_cast<size_t>(count * columns));
  constexpr int64_t kRows = 32;  // that share words of most formats
  std::vector<int64_t> bad(threads.count(), -1);
  threads.Run([&](int worker) {
    const auto [begin, end] = threads.Range(static_cast<size_t>(count), kRows, worker);
    for (int64_t r = static_cast<int64_t>(begin); r < static_cast<int64_t>(end) && bad[worker] < 0; r += kRows) {
      const int64_t some = std::min(kRows, static_cast<int64_t>(end) - r);
      matrix.Decode(first + r, some, w.data() + r * columns);
      for (int64_t i = r; i < r + some && bad[worker] < 0; ++i) {
        if (!kSlicesV2.finite(w.data() + i * columns, columns)) bad[worker] = i;
      }
    }
  });
  for (const int64_t row : bad) {
    if (row >= 0) return NotFinite(matrix, first + row);
  }
  matrix.Release(checkpoint);
  return w;
}

bool ReadFiniteRow(const Slices& slices, DType type, const std::byte* row, int64_t columns, float* w) {
  if (type == DType::kBF16) return slices.from_bf16(row, columns, w);
  DequantizeRow(type, row, columns, w);
  return slices.finite(w, columns);
}

Error NotFinite(const Checkpoint& checkpoint, const TensorView& view, const std::string& name, int64_t row) {
  const int64_t columns = view.shape.back();
  std::vector<float> w(static_cast<size_t>(columns));
  DequantizeRow(view.type, view.data + row * view.row_bytes(), columns, w.data());
  const auto bad = std::find_if_not(w.begin(), w.end(), [](float x) { return std::isfinite(x); });
  return Damaged(checkpoint, name, row * columns + (bad - w.begin()), columns, *bad);
}

Error NotFinite(const QuantizedMatrix& matrix, int64_t row) {
  return InvalidInput(fmt::format("{}: row {} holds a weight or scale that is no finite number; the model is damaged, nothing can be made of it",
                                  matrix.where(), row));
}

Error NotFinite(const Checkpoint& checkpoint, const NamedTensor& tensor, uint64_t offset, std::span<const std::byte> bytes) {
  const size_t width = BytesFor(tensor.view.type, 1);
  size_t at = 0;
  while (AllFinite(tensor.view.type, bytes.subspan(at, width))) at += width;
  float value = 0;
  DequantizeRow(tensor.view.type, bytes.data() + at, 1, &value);
  return Damaged(checkpoint, tensor.name, static_cast<int64_t>((offset + at) / width), tensor.view.shape.back(), value);
}

bool AllFinite(DType type, std::span<const std::byte> bytes) {
  // NaN and infinity have all bits of the exponent, so adding its lowest one carries into the sign, here of several at once.
  const uint64_t lowest = type == DType::kF32 ? 0x0080000000800000 : type == DType::kF16 ? 0x0400040004000400
                          : type == DType::kBF16 ? 0x0080008000800080 : 0;
  const uint64_t signs = type == DType::kF32 ? 0x8000000080000000 : 0x8000800080008000;
  uint64_t carried = 0;
  size_t at = 0;
  for (; at + 4 * sizeof(uint64_t) <= bytes.size(); at += 4 * sizeof(uint64_t)) {
    uint64_t some[4];
    std::memcpy(some, bytes.data() + at, sizeof(some));
    carried |= ((some[0] & ~signs) + lowest) | ((some[1] & ~signs) + lowest) | ((some[2] & ~signs) + lowest) | ((some[3] & ~signs) + lowest);
  }
  for (; at < bytes.size(); at += sizeof(uint64_t)) {
    uint64_t some = 0;
    std::memcpy(&some, bytes.data() + at, std::min(sizeof(some), bytes.size() - at));
    carried |= (some & ~signs) + lowest;
  }
  return (carried & signs) == 0;
}

Error BlameWeight(const Checkpoint& checkpoint, const WeightMap& map, Error observed) {
  std::vector<float> row;
  for (const Weight& weight : map.weights()) {
    const int64_t columns = weight.view.shape.back();
    row.resize(columns);
    for (int64_t r = 0; r < weight.view.shape.rows(); ++r) {
      if (weight.quantized != nullptr) {
        weight.quantized->Decode(weight.first_row + r, 1, row.data());
      } else {
        DequantizeRow(weight.view.type, weight.view.data + r * weight.view.row_bytes(), columns, row.data());
      }
      for (int64_t i = 0; i < columns; ++i) {
        if (!std::isfinite(row[i])) return Damaged(checkpoint, weight.file_name, r * columns + i, columns, row[i]);
      }
    }
    weight.Release(checkpoint);
  }
  return observed;
}

}  // namespace hone
