// See moments.h. On kernels/matmul H is made in strips of columns: each multiplies only the rows from its diagonal on.
#include "compress/layerwise/moments.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "kernels/dense/second_moments.h"
#include "tensor/float16.h"

namespace hone {
namespace {

constexpr int64_t kStrip = 1024;

}  // namespace

uint64_t SecondMoments::BytesFor(int64_t columns) {
  const uint64_t n = static_cast<uint64_t>(columns), strip = std::min<uint64_t>(n, kStrip);
  // H; the inputs turned, as F32 and BF16, and packed; one strip of products.
  return n * n * 4 + n * kTokensTogether * 8 + n * strip * 4;
}

SecondMoments::SecondMoments(int64_t columns, const Runtime& runtime)
    : columns_(columns),
      runtime_(runtime),
      pairs_(runtime.isa == Isa::kBf16),
      half_(runtime.isa >= Isa::kAmx),
      h_(static_cast<size_t>(columns * columns) * sizeof(float)),
      turned_(pairs_ ? 0 : static_cast<size_t>(columns * kTokensTogether)),
      turned_half_(half_ ? turned_.size() : 0),
      words_(pairs_ ? static_cast<size_t>(panels() * kMomentsPanel * kTokensTogether / 2) * sizeof(uint32_t) : 0) {}

int64_t SecondMoments::panels() const { return (columns_ + kMomentsPanel - 1) / kMomentsPanel; }

void SecondMoments::AddPairs(const float* x, int64_t x_stride, int64_t rows) {
  const std::vector<float> none(rows % 2 != 0 ? columns_ : 0);  // what an odd row is paired with adds nothing
  constexpr int64_t kStride = kMomentsPanel * kTokensTogether / 2;
  for (int64_t row = 0; row < rows;) {
    const int64_t pairs = std::min((rows - row + 1) / 2, (kTokensTogether - filled_) / 2);
    runtime_.threads->ParallelFor(static_cast<size_t>(pairs), 4, [&](size_t begin, size_t end) {
      for (int64_t p = static_cast<int64_t>(begin); p < static_cast<int64_t>(end); ++p) {
        const float* first = x + (row + 2 * p) * x_stride;
        PairRowsBf16(first, row + 2 * p + 1 < rows ? first + x_stride : none.data(), columns_,
                     words_.as<uint32_t>() + (filled_ / 2 + p) * kMomentsPanel, kStride);
      }
    });
    filled_ += 2 * pairs;
    row += 2 * pairs;
    if (filled_ == kTokensTogether) FlushPairs();
  }
}

void SecondMoments::FlushPairs() {
  constexpr int64_t kStride = kMomentsPanel * kTokensTogether / 2, kTile = 128;
  const SecondMomentsArgs args{words_.as<uint32_t>(), filled_ / 2, kStride, columns_, h_.as<float>()};
  // Dealt out in turn: later rows are longer.
  runtime_.threads->Run([&](int worker) {
    for (int64_t first = worker * kTile; first < columns_; first += runtime_.threads->count() * kTile)
      AddSecondMomentsBf16(args, first, std::min(first + kTile, columns_));
  });
  filled_ = 0;
}

void SecondMoments::Add(const float* x, int64_t x_stride, int64_t rows) {
  tokens_ += static_cast<uint64_t>(rows);
  if (pairs_) return AddPairs(x, x_stride, rows);
  while (rows > 0) {
    const int64_t take = std::min(rows, kTokensTogether - filled_);
    runtime_.threads->ParallelFor(static_cast<size_t>(columns_), 16, [&](size_t begin, size_t end) {
      constexpr int64_t kSide = 16;
      for (int64_t c0 = static_cast<int64_t>(begin); c0 < static_cast<int64_t>(end); c0 += kSide) {
        const int64_t c1 = std::min<int64_t>(c0 + kSide, static_cast<int64_t>(end));
        for (int64_t t = 0; t < take; ++t) {
          for (int64_t c = c0; c < c1; ++c) turned_[c * kTokensTogether + filled_ + t] = x[t * x_stride + c];
        }
      }
    });
    filled_ += take;
    x += take * x_stride;
    rows -= take;
    if (filled_ == kTokensTogether) Flush();
  }
}

void SecondMoments::Flush() {
  if (filled_ == 0) return;
  if (pairs_) return FlushPairs();
  const int64_t depth = (filled_ + 31) / 32 * 32;
  runtime_.threads->ParallelFor(static_cast<size_t>(columns_), 16, [&](size_t begin, size_t end) {
    for (size_t c = begin; c < end; ++c) {
      float* row = &turned_[c * kTokensTogether];
      std::fill(row + filled_, row + depth, 0.0f);
      if (!half_) continue;
      uint16_t* half = &turned_half_[c * kTokensTogether];
      for (int64_t t = 0; t < depth; ++t) {
        half[t] = F32ToBf16(row[t]);
        row[t] = Bf16ToF32(half[t]);
      }
    }
  });
  MatmulScratch scratch(columns_, depth);
  std::vector<float> product(static_cast<size_t>(columns_ * std::min(columns_, kStrip)));
  std::vector<std::byte> tight;  // the rows of a strip without the room between them
  for (int64_t first = 0; first < columns_; first += kStrip) {
    const int64_t width = std::min(kStrip, columns_ - first), rows = columns_ - first;
    const DType type = half_ ? DType::kBF16 : DType::kF32;
    const size_t row_bytes = hone::BytesFor(type, depth), room = hone::BytesFor(type, kTokensTogether);
    const std::byte* source =
        half_ ? reinterpret_cast<const std::byte*>(turned_half_.data()) : reinterpret_cast<const std::byte*>(turned_.data());
    source += first * room;
    if (row_bytes != room) {
      tight.resize(width * row_bytes);
      for (int64_t r = 0; r < width; ++r) std::copy_n(source + r * room, row_bytes, tight.data() + r * row_bytes);
      source = tight.data();
    }
    const auto packed = PackedMatrix::Pack({type, Shape{width, depth}, source}, {.isa = runtime_.isa}, *runtime_.threads);
    HONE_CHECK(packed.has_value());
    const MatmulJob job{.weight = &*packed,
                        .x = &turned_[first * kTokensTogether],
                        .x_stride = kTokensTogether,
                        .y = product.data(),
                        .y_stride = width,
                        .m = rows};
    Matmul({&job, 1}, scratch, *runtime_.threads);
    runtime_.threads->ParallelFor(static_cast<size_t>(rows), 16, [&](size_t begin, size_t end) {
      for (size_t r = begin; r < end; ++r) {
        float* to = h_.as<float>() + (first + static_cast<int64_t>(r)) * columns_ + first;
        for (int64_t c = 0; c < width; ++c) to[c] += product[r * width + c];
      }
    });
  }
  filled_ = 0;
}

void SecondMoments::Finish() {
  Flush();
  turned_ = {};
  turned_half_ = {};
  words_ = {};
}

bool SecondMoments::finite() const {
  // An input that is not finite makes its square on the diagonal so.
  for (int64_t i = 0; i < columns_; ++i) {
    if (!std::isfinite(h()[i * columns_ + i])) return false;
  }
  return true;
}

}  // namespace hone
