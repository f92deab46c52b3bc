// Packing: a stored weight to panels (panel_format.h), in parallel, each panel by the thread that will multiply it.
#include <algorithm>

#include "base/check.h"
#include "kernels/matmul/kernel.h"
#include "kernels/matmul/many_rows.h"
#include "kernels/matmul/matmul.h"

namespace hone {

bool CanMatmul(DType type) { return FindPanelFormat(type) != nullptr; }

std::string_view PackedMatrix::kernel_name() const { return kernel_ != nullptr ? std::string_view(kernel_->name) : "none"; }

const std::byte* PackedMatrix::Find(int64_t tile, int panel, int64_t k0) const {
  const std::byte* first = panels_ + tile * 2 * panel_bytes_;
  if (panel == 0 && k0 == 0) return first;
  const PanelFormat& format = *kernel_->format;
  const int64_t chunk_bytes = static_cast<int64_t>(format.chunk_bytes());
  const int64_t stretch_bytes = std::min<int64_t>(k_ - k0, format.stretch()) / format.chunk * chunk_bytes;
  const int64_t before = k0 / format.chunk * chunk_bytes;
  return first + panels_of(tile) * before + panel * stretch_bytes;
}

size_t PackedMatrix::BytesOf(DType type, int64_t n, int64_t k) {
  const PanelFormat* format = FindPanelFormat(type);
  if (format == nullptr || k % format->chunk != 0) return 0;
  return (n + kPanelRows - 1) / kPanelRows * (k / format->chunk) * format->chunk_bytes();
}

Result<PackedMatrix> PackedMatrix::Pack(const TensorView& weight, const PackOptions& options, ThreadPool& threads) {
  if (weight.shape.rank() != 2) return InvalidInput("matmul needs a weight of rank 2, this one is " + weight.shape.ToString());
  const PanelFormat* format = FindPanelFormat(weight.type);
  if (format == nullptr) {
    return Unsupported("matmul has no kernel for " + std::string(Info(weight.type).name) + " weights; convert them first");
  }
  PackedMatrix packed;
  packed.type_ = weight.type;
  packed.n_ = weight.shape[0], packed.k_ = weight.shape[1];
  if (packed.k_ % format->chunk != 0) {
    return InvalidInput("a row of " + std::to_string(packed.k_) + " elements is no multiple of the " +
                        std::to_string(format->chunk) + " of a " + std::string(Info(weight.type).name) + " block");
  }
  HONE_CHECK(options.input_terms == 1 || options.input_terms == 2);
  packed.input_terms_ = options.input_terms;
  packed.kernel_ = &FindMatmulKernel(weight.type, options.isa, options.exact && !format->is_float());
  const bool may_differ = !options.exact && !options.deterministic;  // many rows from few
  if (may_differ) packed.many_rows_ = FindBf16Arithmetic(weight.type, options.isa);
  packed.bytes_ = BytesOf(packed.type_, packed.n_, packed.k_);
  packed.panel_bytes_ = packed.k_ / format->chunk * static_cast<int64_t>(format->chunk_bytes());
  if (packed.bytes_ == 0) return packed;
  HONE_CHECK(!options.packed || options.place.size() >= packed.bytes_);
  if (options.place.size() < packed.bytes_) packed.owned_ = Buffer(packed.bytes_);
  packed.panels_ = packed.owned_.size() > 0 ? packed.owned_.data() : options.place.data();
  if (options.packed) return packed;

  const size_t row_bytes = weight.row_bytes();
  threads.ParallelFor(packed.tile_count(), 1, [&](size_t begin, size_t end) {
    for (size_t tile = begin; tile < end; ++tile) {
      for (int64_t k0 = 0; k0 < packed.k_; k0 += format->stretch()) {
        for (int panel = 0; panel < packed.panels_of(tile); ++panel) {
          const int64_t row = static_cast<int64_t>(tile) * kTileColumns + panel * kPanelRows;
          format->pack(weight.data + row * row_bytes + BytesFor(weight.type, k0), row_bytes,
                       static_cast<int>(std::min<int64_t>(kPanelRows, packed.n_ - row)),
                       std::min<int64_t>(packed.k_ - k0, format->stretch()) / format->chunk,
                       const_cast<std::byte*>(packed.Find(tile, panel, k0)));
        }
      }
    }
  });
  return packed;
}

}  // namespace hone
