// See read_matrix.h.
#include "compress/read_matrix.h"

#include <fmt/format.h>

#include <cmath>

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
  std::vector<int64_t> bad(threads.count(), -1);
  threads.Run([&](int worker) {
    const auto [begin, end] = threads.Range(static_cast<size_t>(rows), 1, worker);
    for (size_t r = begin; r < end; ++r) {
      float* row = w.data() + static_cast<int64_t>(r) * columns;
      DequantizeRow(view.type, view.data + r * view.row_bytes(), columns, row);
      for (int64_t i = 0; i < columns; ++i) {
        if (!std::isfinite(row[i]) && bad[worker] < 0) bad[worker] = static_cast<int64_t>(r) * columns + i;
      }
    }
  });
  checkpoint.Release(view);
  for (const int64_t at : bad) {
    if (at < 0) continue;
    return Damaged(checkpoint, name, at, columns, w[at]);
  }
  return w;
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
