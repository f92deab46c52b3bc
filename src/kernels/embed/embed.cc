// A row is dequantised straight into its place, then scaled.
#include "kernels/embed/embed.h"

#include "base/check.h"
#include "kernels/dequantize/dequantize.h"
#include "kernels/elementwise/elementwise.h"

namespace hone {

void EmbedRows(const TensorView& table, const int32_t* ids, int64_t count, float scale, float* out, int64_t out_stride,
               Isa isa) {
  HONE_CHECK(table.shape.rank() == 2 && CanDequantize(table.type));
  const int64_t width = table.shape[1];
  const size_t row_bytes = table.row_bytes();
  for (int64_t i = 0; i < count; ++i, out += out_stride) {
    HONE_CHECK(ids[i] >= 0 && ids[i] < table.shape[0]);
    DequantizeRow(table.type, table.data + static_cast<size_t>(ids[i]) * row_bytes, width, out);
    if (scale != 1) Scale(out, scale, width, isa);
  }
}

}  // namespace hone
