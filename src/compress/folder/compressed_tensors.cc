// compressed-tensors: pack-quantized (whole numbers), float-quantized (FP8), mxfp8-, mxfp4-pack- and nvfp4-pack-quantized. Numbers
// as llm-compressor 0.14 writes them: every scale is rounded to its stored type before codes are made with it, and
// arithmetic is that of the model's dtype.
#include <fmt/format.h>
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>

#include "compress/folder/linear_format.h"
#include "compress/numbers/small_floats.h"
#include "compress/numbers/uniform.h"

namespace hone {
namespace {

std::string Config(const char* format, const std::string& weights, const char* activations) {
  return fmt::format(
      "{{\"config_groups\": {{\"group_0\": {{\"format\": \"{0}\", \"input_activations\": {2}, \"output_activations\": "
      "null, "
      "\"targets\": [\"Linear\"], \"weights\": {1}}}}}, \"format\": \"{0}\", \"global_compression_ratio\": null, "
      "\"ignore\": [\"lm_head\"], "
      "\"kv_cache_scheme\": null, \"quant_method\": \"compressed-tensors\", \"quantization_status\": \"compressed\", "
      "\"sparsity_config\": {{}}, \"transform_config\": {{}}, \"version\": \"0.20.0\"}}",
      format, weights, activations);
}

Result<void> CheckDivides(int64_t columns, int64_t group, const char* what) {
  if (columns % group == 0) return {};
  return Unsupported(
      fmt::format("{} columns are no whole groups of {}{}; choose a --group that divides them", columns, group, what));
}

// A scale as stored: what underflows to zero becomes the smallest number above.
float StoredScale(DType dtype, float scale) {
  const float stored = RoundTo(dtype, scale);
  if (stored > 0) return stored;
  return dtype == DType::kF16 ? 0x1.0p-24f : 0x1.0p-126f;
}

// The scale of a slice that is all zeros.
float SmallestStep(DType dtype) {
  return RoundTo(dtype, dtype == DType::kF16 ? 0x1.0p-10f : dtype == DType::kBF16 ? 0x1.0p-7f : 0x1.0p-23f);
}

float Amax(const Slices& slices, const float* x, int64_t n) {
  float least, most;
  slices.range(x, n, &least, &most);
  return std::max(std::fabs(least), std::fabs(most));
}

void DivideAll(float* x, int64_t n, float by) {
  int64_t i = 0;
  for (; i + 4 <= n; i += 4) _mm_storeu_ps(x + i, _mm_div_ps(_mm_loadu_ps(x + i), _mm_set1_ps(by)));
  for (; i < n; ++i) x[i] /= by;
}

// What the codes of a small float mean.
template <const SmallFloat& format, int codes>
const std::array<float, codes>& Values() {
  static const std::array<float, codes> values = [] {
    std::array<float, codes> all;
    for (int i = 0; i < codes; ++i) all[i] = DecodeSmallFloat(format, static_cast<uint8_t>(i));
    return all;
  }();
  return values;
}

class PackQuantized : public LinearFormat {
 public:
  explicit PackQuantized(const LinearScheme& scheme)
      : scheme_(scheme), spec_{GridRule::kCompressedTensors, scheme.bits, scheme.symmetric} {}

  Result<void> Check(int64_t, int64_t columns) const override { return CheckDivides(columns, Group(columns), ""); }

  std::vector<TensorInfo> Outputs(const std::string& module, int64_t rows, int64_t columns,
                                  DType dtype) const override {
    const int64_t groups = columns / Group(columns), bits = scheme_.bits;
    std::vector<TensorInfo> outputs = {
        {module + ".weight_packed", DType::kI32, Shape{rows, (columns * bits + 31) / 32}},
        {module + ".weight_scale", dtype, Shape{rows, groups}},
        {module + ".weight_shape", DType::kI64, Shape{2}}};
    if (!scheme_.symmetric)
      outputs.push_back({module + ".weight_zero_point", DType::kI32, Shape{(rows * bits + 31) / 32, groups}});
    return outputs;
  }

  void Encode(const LinearWeight& m, std::span<std::vector<std::byte>> out, ThreadPool& threads) const override {
    const int64_t group = Group(m.columns), groups = m.columns / group;
    const size_t row_bytes = out[0].size() / m.rows, scale_bytes = BytesFor(m.dtype, 1);
    const int half = -LowestCode(spec_);
    ForBands(m.rows, m.columns, out, threads, [&](int64_t r0, int64_t band, Room& room) {
      const float* row = nullptr;
      for (int64_t r = r0; r < r0 + band; ++r) {
        row = m.Rows(r, 1, room.row.data());
        // All grids of a row first: each is a chain of operations that wait for one another.
        for (int64_t g = 0; g < groups; ++g) room.grids[g] = FindStoredGrid(row + g * group, group, m.dtype);
        for (int64_t g = 0; g < groups; ++g) {
          const Grid& grid = room.grids[g];
          room.zeros[g * band + r - r0] = static_cast<uint8_t>(static_cast<int>(grid.zero) + half);
          StoreAs(m.dtype, grid.scale, out[1].data() + (r * groups + g) * scale_bytes);
          slices_->round_in(m.dtype, row + g * group, group, grid.scale, grid.zero, half, &room.codes[g * group]);
        }
        PackRow(room.codes.data(), m.columns, out[0].data() + r * row_bytes, row_bytes);
      }
      PutZeros(r0, band, groups, room.zeros.data(), out);
      if (m.made) m.made(r0, band, band == 1 ? row : nullptr);
    });
  }
  bool tells_rows() const override { return true; }
  int64_t rows_together() const override { return scheme_.symmetric ? 1 : 32; }  // whole words of zeros

  bool takes_codes() const override { return true; }
  void EncodeCodes(const LinearCodes& m, std::span<std::vector<std::byte>> out, ThreadPool& threads) const override {
    const int64_t groups = m.columns / Group(m.columns);
    const size_t row_bytes = out[0].size() / m.rows, scale_bytes = BytesFor(m.dtype, 1);
    ForBands(m.rows, m.columns, out, threads, [&](int64_t r0, int64_t band, Room& room) {
      for (int64_t r = r0; r < r0 + band; ++r) {
        PackRow(m.codes.data() + r * m.columns, m.columns, out[0].data() + r * row_bytes, row_bytes);
        for (int64_t g = 0; g < groups; ++g) {
          const Grid& grid = m.grids[r * groups + g];
          StoreAs(m.dtype, grid.scale, out[1].data() + (r * groups + g) * scale_bytes);
          room.zeros[g * band + r - r0] = static_cast<uint8_t>(grid.zero);
        }
      }
      PutZeros(r0, band, groups, room.zeros.data(), out);
    });
  }

  void Decode(std::span<const std::span<const std::byte>> out, int64_t rows, int64_t columns, DType dtype,
              int64_t first, int64_t count, float* w) const override {
    const int64_t group = Group(columns), groups = columns / group;
    const size_t row_bytes = out[0].size() / rows;
    const auto codes = std::make_unique_for_overwrite<uint8_t[]>(static_cast<size_t>(columns));
    for (int64_t r = first; r < first + count; ++r) {
      slices_->unpack(out[0].data() + r * row_bytes, columns, scheme_.bits, codes.get());
      for (int64_t g = 0; g < groups; ++g, w += group) {
        float zero = static_cast<float>(-LowestCode(spec_));
        if (!scheme_.symmetric) {
          std::byte words[8] = {};
          const uint64_t bit = r * scheme_.bits, word = bit / 32;
          std::memcpy(words, out[3].data() + 4 * (word * groups + g), 4);
          if (4 * ((word + 1) * groups + g) + 4 <= out[3].size())
            std::memcpy(words + 4, out[3].data() + 4 * ((word + 1) * groups + g), 4);
          uint64_t both;
          std::memcpy(&both, words, 8);
          zero = static_cast<float>((both >> (bit % 32)) & ((1u << scheme_.bits) - 1));
        }
        const float scale = LoadAs(dtype, out[1].data() + (r * groups + g) * BytesFor(dtype, 1));
        slices_->dequantize(&codes[g * group], group, scale, zero, w);
      }
    }
  }

  void DecodeRows(std::span<const std::span<const std::byte>> out, int64_t rows, int64_t columns, DType dtype, int64_t first,
                  int64_t count, FunctionRef<void(int64_t row, const float* w)> visit) const override {
    const auto w = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(columns));
    for (int64_t r = first; r < first + count; ++r) {
      Decode(out, rows, columns, dtype, r, 1, w.get());
      visit(r, w.get());
    }
  }

  std::string ConfigJson(DType) const override {
    const bool channel = scheme_.group == 0;
    return Config("pack-quantized",
                  fmt::format("{{{}\"dynamic\": false, \"group_size\": {}, \"num_bits\": {}, \"observer\": "
                              "\"memoryless_minmax\", \"strategy\": \"{}\", "
                              "\"symmetric\": {}, \"type\": \"int\"}}",
                              scheme_.method == "gptq" && scheme_.order == "static" ? "\"actorder\": \"weight\", " : "",
                              channel ? "null" : std::to_string(scheme_.group), scheme_.bits,
                              channel ? "channel" : "group", scheme_.symmetric),
                  "null");
  }

 private:
  int64_t Group(int64_t columns) const { return scheme_.group > 0 ? scheme_.group : columns; }

  // A row is whole words; what the codes leave of the last one is zero.
  void PackRow(const uint8_t* codes, int64_t columns, std::byte* row, size_t row_bytes) const {
    const size_t packed = static_cast<size_t>((columns * scheme_.bits + 7) / 8);
    slices_->pack(codes, columns, scheme_.bits, row);
    std::memset(row + packed, 0, row_bytes - packed);
  }

  struct Room {  // of a thread
    std::vector<float> row;
    std::vector<Grid> grids;
    std::vector<uint8_t> codes, zeros;  // of a row; [groups, band]
  };
  // make(first, band, room) for all rows, as many at once as share words of zeros; and the shape.
  void ForBands(int64_t rows, int64_t columns, std::span<std::vector<std::byte>> out, ThreadPool& threads, auto&& make) const {
    const int64_t shape[2] = {rows, columns}, together = rows_together();
    std::memcpy(out[2].data(), shape, sizeof(shape));
    threads.ParallelFor(static_cast<size_t>(rows), static_cast<size_t>(together), [&](size_t begin, size_t end) {
      const auto n = static_cast<size_t>(columns), groups = n / Group(columns);
      Room room{std::vector<float>(n), std::vector<Grid>(groups), std::vector<uint8_t>(n), std::vector<uint8_t>(together * groups)};
      for (int64_t r0 = static_cast<int64_t>(begin); r0 < static_cast<int64_t>(end); r0 += together)
        make(r0, std::min(together, static_cast<int64_t>(end) - r0), room);
    });
  }

  // Of a band, from 0: packed down the columns, where the words of one column lie a row of groups apart.
  void PutZeros(int64_t r0, int64_t band, int64_t groups, const uint8_t* zeros, std::span<std::vector<std::byte>> out) const {
    if (scheme_.symmetric) return;
    const int64_t words = (band * scheme_.bits + 31) / 32;
    std::byte* to = out[3].data() + 4 * (r0 * scheme_.bits / 32 * groups);
    for (int64_t g = 0; g < groups; ++g) {
      uint32_t column[8] = {};
      slices_->pack(zeros + g * band, band, scheme_.bits, reinterpret_cast<std::byte*>(column));
      for (int64_t w = 0; w < words; ++w) std::memcpy(to + 4 * (w * groups + g), &column[w], 4);
    }
  }

  // In the model's dtype, step by step.
  Grid FindStoredGrid(const float* x, int64_t n, DType dtype) const {
    float least, most;
    slices_->range(x, n, &least, &most);
    const float low = std::min(least, 0.0f), high = std::max(most, 0.0f);
    const float bottom = static_cast<float>(LowestCode(spec_)), top = static_cast<float>(HighestCode(spec_));
    if (low == 0 && high == 0)
      return {SmallestStep(dtype), 0};
    if (scheme_.symmetric) return {StoredScale(dtype, std::max(-low, high) / ((top - bottom) / 2)), 0};
    const float scale = StoredScale(dtype, RoundTo(dtype, high - low) / (top - bottom));
    const float zero = RoundTo(dtype, bottom - RoundTo(dtype, low / scale));
    return {scale, std::clamp(std::nearbyint(zero), bottom, top)};
  }

  const LinearScheme scheme_;
  const GridSpec spec_;
};

// The strategy of weights with a scale a row, or one for the whole matrix.
const char* Strategy(bool per_tensor) { return per_tensor ? "tensor" : "channel"; }
Shape ScalesShape(bool per_tensor, int64_t rows) { return per_tensor ? Shape{1} : Shape{rows, 1}; }

// INT8 weights, a scale a row or (per_tensor) one; engines round activations a token at a time, or by one scale of the file. Matrices that
// an engine fuses share their one scale, as it keeps only one.
class IntQuantized : public LinearFormat {
 public:
  IntQuantized(bool static_activations, bool per_tensor) : static_activations_(static_activations), per_tensor_(per_tensor) {}
  bool needs_shared_amax() const override { return per_tensor_; }
  Result<void> Check(int64_t, int64_t) const override { return {}; }
  std::vector<TensorInfo> Outputs(const std::string& module, int64_t rows, int64_t columns,
                                  DType dtype) const override {
    std::vector<TensorInfo> outputs = {{module + ".weight", DType::kI8, Shape{rows, columns}},
                                       {module + ".weight_scale", dtype, ScalesShape(per_tensor_, rows)}};
    if (static_activations_) outputs.push_back({module + ".input_scale", dtype, Shape{1}});
    return outputs;
  }
  void Encode(const LinearWeight& m, std::span<std::vector<std::byte>> out, ThreadPool& threads) const override {
    if (per_tensor_) StoreAs(m.dtype, ScaleOf(m.dtype, m.shared_amax), out[1].data());
    threads.ParallelFor(static_cast<size_t>(m.rows), 1, [&](size_t begin, size_t end) {
      std::vector<float> place(static_cast<size_t>(m.columns));
      for (size_t r = begin; r < end; ++r) {
        const float* x = m.Rows(static_cast<int64_t>(r), 1, place.data());
        const float scale = ScaleOf(m.dtype, per_tensor_ ? m.shared_amax : Amax(*slices_, x, m.columns));
        if (!per_tensor_) StoreAs(m.dtype, scale, out[1].data() + r * BytesFor(m.dtype, 1));
        uint8_t* codes = reinterpret_cast<uint8_t*>(out[0].data()) + r * m.columns;
        slices_->round_in(m.dtype, x, m.columns, scale, 0, 128, codes);
        for (int64_t i = 0; i < m.columns; ++i) codes[i] ^= 128;  // signed
        if (m.made) m.made(static_cast<int64_t>(r), 1, x);
      }
    });
    if (static_activations_) StoreAs(m.dtype, ScaleOf(m.dtype, m.input_amax), out[2].data());
  }
  bool tells_rows() const override { return true; }
  void Decode(std::span<const std::span<const std::byte>> out, int64_t, int64_t columns, DType dtype, int64_t first,
              int64_t count, float* w) const override {
    for (int64_t r = first; r < first + count; ++r, w += columns)
      slices_->from_bytes(out[0].data() + r * columns, columns, LoadAs(dtype, out[1].data() + (per_tensor_ ? 0 : r) * BytesFor(dtype, 1)), w);
  }
  std::string ConfigJson(DType) const override {
    return Config("int-quantized",
                  fmt::format("{{\"dynamic\": false, \"group_size\": null, \"num_bits\": 8, \"observer\": \"memoryless_minmax\", "
                              "\"strategy\": \"{}\", \"symmetric\": true, \"type\": \"int\"}}",
                              Strategy(per_tensor_)),
                  static_activations_
                      ? "{\"dynamic\": false, \"group_size\": null, \"num_bits\": 8, \"observer\": \"minmax\", "
                        "\"strategy\": \"tensor\", \"symmetric\": true, \"type\": \"int\"}"
                      : "{\"dynamic\": true, \"group_size\": null, \"num_bits\": 8, \"strategy\": \"token\", "
                        "\"symmetric\": true, \"type\": \"int\"}");
  }

 private:
  static float ScaleOf(DType dtype, float amax) { return StoredScale(dtype, amax > 0 ? amax / 127.5f : SmallestStep(dtype)); }

  const bool static_activations_, per_tensor_;
};

// FP8 weights (E4M3), a scale a row or (per_tensor) one, as above; engines round activations a token at a time.
class FloatQuantized : public LinearFormat {
 public:
  explicit FloatQuantized(bool per_tensor) : per_tensor_(per_tensor) {}
  bool needs_shared_amax() const override { return per_tensor_; }
  Result<void> Check(int64_t, int64_t) const override { return {}; }
  std::vector<TensorInfo> Outputs(const std::string& module, int64_t rows, int64_t columns,
                                  DType dtype) const override {
    return {{module + ".weight", DType::kF8_E4M3, Shape{rows, columns}},
            {module + ".weight_scale", dtype, ScalesShape(per_tensor_, rows)}};
  }
  void Encode(const LinearWeight& m, std::span<std::vector<std::byte>> out, ThreadPool& threads) const override {
    if (per_tensor_) StoreAs(m.dtype, StoredScale(m.dtype, m.shared_amax / 448.0f), out[1].data());
    threads.ParallelFor(static_cast<size_t>(m.rows), 1, [&](size_t begin, size_t end) {
      std::vector<float> place(static_cast<size_t>(m.columns));
      for (size_t r = begin; r < end; ++r) {
        const float* x = m.Rows(static_cast<int64_t>(r), 1, place.data());
        const float scale = StoredScale(m.dtype, (per_tensor_ ? m.shared_amax : Amax(*slices_, x, m.columns)) / 448.0f);
        if (!per_tensor_) StoreAs(m.dtype, scale, out[1].data() + r * BytesFor(m.dtype, 1));
        slices_->to_e4m3(m.dtype, x, m.columns, scale, reinterpret_cast<uint8_t*>(out[0].data()) + r * m.columns);
        if (m.made) m.made(static_cast<int64_t>(r), 1, x);
      }
    });
  }
  bool tells_rows() const override { return true; }
  void Decode(std::span<const std::span<const std::byte>> out, int64_t, int64_t columns, DType dtype, int64_t first,
              int64_t count, float* w) const override {
    for (int64_t r = first; r < first + count; ++r) {
      const float scale = LoadAs(dtype, out[1].data() + (per_tensor_ ? 0 : r) * BytesFor(dtype, 1));
      slices_->from_e4m3(out[0].data() + r * columns, columns, scale, w);
      w += columns;
    }
  }
  std::string ConfigJson(DType) const override {
    return Config("float-quantized",
                  fmt::format("{{\"dynamic\": false, \"group_size\": null, \"num_bits\": 8, \"observer\": \"memoryless_minmax\", "
                              "\"strategy\": \"{}\", \"symmetric\": true, \"type\": \"float\"}}",
                              Strategy(per_tensor_)),
                  "{\"dynamic\": true, \"group_size\": null, \"num_bits\": 8, \"strategy\": \"token\", \"symmetric\": "
                  "true, \"type\": \"float\"}");
  }

 private:
  const bool per_tensor_;
};

// E4M3 in blocks of 32 under a power of two; engines round activations in such blocks too.
class Mxfp8Quantized : public LinearFormat {
 public:
  Result<void> Check(int64_t, int64_t columns) const override { return CheckDivides(columns, kBlock, " (MXFP8's)"); }
  std::vector<TensorInfo> Outputs(const std::string& module, int64_t rows, int64_t columns, DType) const override {
    return {{module + ".weight", DType::kF8_E4M3, Shape{rows, columns}},
            {module + ".weight_scale", DType::kU8, Shape{rows, columns / kBlock}}};
  }
  void Encode(const LinearWeight& m, std::span<std::vector<std::byte>> out, ThreadPool& threads) const override {
    const int64_t blocks = m.columns / kBlock;
    threads.ParallelFor(static_cast<size_t>(m.rows), 1, [&](size_t begin, size_t end) {
      std::vector<float> place(static_cast<size_t>(m.columns)), largest(static_cast<size_t>(blocks));
      for (size_t r = begin; r < end; ++r) {
        const float* x = m.Rows(static_cast<int64_t>(r), 1, place.data());
        uint8_t* codes = reinterpret_cast<uint8_t*>(out[0].data()) + r * m.columns;
        uint8_t* scales = reinterpret_cast<uint8_t*>(out[1].data()) + r * blocks;
        slices_->largest(x, blocks, kBlock, largest.data());
        for (int64_t b = 0; b < blocks; ++b) {
          scales[b] = MxScaleOfLargest(kE4M3, MxRule::kCompressedTensors, largest[b]);
          slices_->to_e4m3(DType::kF32, x + b * kBlock, kBlock, MxScaleValue(scales[b]), codes + b * kBlock);
        }
        if (m.made) m.made(static_cast<int64_t>(r), 1, x);
      }
    });
  }
  bool tells_rows() const override { return true; }
  void Decode(std::span<const std::span<const std::byte>> out, int64_t, int64_t columns, DType, int64_t first, int64_t count,
              float* w) const override {
    for (int64_t i = first * columns; i < (first + count) * columns; i += kBlock, w += kBlock)
      slices_->from_e4m3(out[0].data() + i, kBlock, MxScaleValue(static_cast<uint8_t>(out[1][i / kBlock])), w);
  }
  std::string ConfigJson(DType) const override {
    const auto arguments = [](const char* dynamic, const char* observer) {
      return fmt::format("{{\"dynamic\": {}, \"group_size\": 32, \"num_bits\": 8, {}\"scale_dtype\": \"torch.uint8\", "
                         "\"strategy\": \"group\", \"symmetric\": true, \"type\": \"float\"}}",
                         dynamic, observer);
    };
    return Config("mxfp8-quantized", arguments("false", "\"observer\": \"memoryless_minmax\", "), arguments("true", "").c_str());
  }

 private:
  static constexpr int kBlock = 32;
};

// Two FP4 codes a byte, the low half first.
class Fp4Packed : public LinearFormat {
 public:
  explicit Fp4Packed(bool nvidia) : nvidia_(nvidia), block_(nvidia ? 16 : 32) {}
  Result<void> Check(int64_t, int64_t columns) const override {
    return CheckDivides(columns, block_, nvidia_ ? " (NVFP4's)" : " (MXFP4's)");
  }
  bool needs_shared_amax() const override { return nvidia_; }
  std::vector<TensorInfo> Outputs(const std::string& module, int64_t rows, int64_t columns, DType) const override {
    std::vector<TensorInfo> outputs = {
        {module + ".weight_packed", DType::kU8, Shape{rows, columns / 2}},
        {module + ".weight_scale", nvidia_ ? DType::kF8_E4M3 : DType::kU8, Shape{rows, columns / block_}}};
    if (nvidia_) outputs.push_back({module + ".weight_global_scale", DType::kF32, Shape{1}});
    return outputs;
  }
  void Encode(const LinearWeight& m, std::span<std::vector<std::byte>> out, ThreadPool& threads) const override {
    const float tensor_scale = nvidia_ ? TensorScale(m) : 0;
    if (nvidia_) std::memcpy(out[2].data(), &tensor_scale, sizeof(tensor_scale));
    const int64_t blocks = m.columns / block_;
    threads.ParallelFor(static_cast<size_t>(m.rows), 1, [&](size_t begin, size_t end) {
      std::vector<float> place(static_cast<size_t>(m.columns)), largest(static_cast<size_t>(blocks)), scale_of(largest.size());
      for (size_t r = begin; r < end; ++r) {
        const float* x = m.Rows(static_cast<int64_t>(r), 1, place.data());
        uint8_t* scales = reinterpret_cast<uint8_t*>(out[1].data()) + r * blocks;
        slices_->largest(x, blocks, block_, largest.data());
        BlockScales(tensor_scale, largest, m.dtype, scales);
        // A code's largest value is the limit that NVFP4 asks for; MXFP4's scales are powers of two, so nothing else rounds.
        ScalesOf(out[1].data() + r * blocks, blocks, tensor_scale, scale_of.data());
        slices_->to_e2m1(x, blocks, block_, scale_of.data(), out[0].data() + r * m.columns / 2);
        if (m.made) m.made(static_cast<int64_t>(r), 1, x);
      }
    });
  }
  bool tells_rows() const override { return true; }
  void Decode(std::span<const std::span<const std::byte>> out, int64_t, int64_t columns, DType, int64_t first,
              int64_t count, float* w) const override {
    float tensor_scale = 1;
    if (nvidia_) std::memcpy(&tensor_scale, out[2].data(), sizeof(tensor_scale));
    const int64_t begin = first * columns / block_, blocks = count * columns / block_;
    std::vector<float> scale_of(static_cast<size_t>(blocks));
    ScalesOf(out[1].data() + begin, blocks, tensor_scale, scale_of.data());
    slices_->look_up(out[0].data() + begin * block_ / 2, blocks, block_, Values<kE2M1, 16>().data(), false, scale_of.data(), w);
  }
  std::string ConfigJson(DType) const override {
    return Config(
        nvidia_ ? "nvfp4-pack-quantized" : "mxfp4-pack-quantized",
        fmt::format("{{\"dynamic\": false, \"group_size\": {}, \"num_bits\": 4, \"observer\": \"memoryless_minmax\", "
                    "\"scale_dtype\": \"{}\", "
                    "\"strategy\": \"{}\", \"symmetric\": true, \"type\": \"float\"}}",
                    block_, nvidia_ ? "torch.float8_e4m3fn" : "torch.uint8", nvidia_ ? "tensor_group" : "group"),
        "null");
  }

 private:
  static float TensorScale(const LinearWeight& m) {
    const float scale = RoundTo(m.dtype, RoundTo(m.dtype, 1.0f / m.shared_amax) * (448.0f * 6.0f));
    return std::isfinite(scale) && scale > 0 ? scale : 1.0f;
  }
  // Of blocks, from their largest magnitudes, which are lost.
  void BlockScales(float tensor_scale, std::vector<float>& largest, DType dtype, uint8_t* scales) const {
    const int64_t blocks = static_cast<int64_t>(largest.size());
    if (!nvidia_) {
      for (int64_t b = 0; b < blocks; ++b) scales[b] = MxScaleOfLargest(kE2M1, MxRule::kCompressedTensors, largest[b]);
      return;
    }
    // As Nvfp4BlockScale: nothing is rounded between the product and E4M3.
    DivideAll(largest.data(), blocks, 6.0f);
    for (float& x : largest) x = tensor_scale * RoundTo(dtype, x);
    slices_->to_e4m3(DType::kF32, largest.data(), blocks, 1.0f, scales);
    for (int64_t b = 0; b < blocks; ++b) scales[b] = scales[b] == 0 ? kSmallestBlockScale : scales[b];
  }
  // What blocks' codes are multiplied by.
  void ScalesOf(const std::byte* codes, int64_t blocks, float tensor_scale, float* scale_of) const {
    if (nvidia_) {
      slices_->from_e4m3(codes, blocks, 1.0f, scale_of);
      return DivideAll(scale_of, blocks, tensor_scale);
    }
    for (int64_t b = 0; b < blocks; ++b) scale_of[b] = MxScaleValue(static_cast<uint8_t>(codes[b]));
  }
  static constexpr uint8_t kSmallestBlockScale = 0x20;  // 0.125

  const bool nvidia_;
  const int block_;
};

}  // namespace

Result<std::unique_ptr<LinearFormat>> MakePackQuantized(const LinearScheme& scheme) {
  if (scheme.bits < 2 || scheme.bits > 8)
    return UsageError("compressed-tensors packs 2 to 8 bits, not --bits " + std::to_string(scheme.bits));
  if (scheme.method == "gptq" && scheme.order == "activation")
    return UsageError("compressed-tensors holds no groups in another order; --order static or group, or --format gptq");
  return std::unique_ptr<LinearFormat>(new PackQuantized(scheme));
}
Result<std::unique_ptr<LinearFormat>> MakeIntQuantized(const LinearScheme& scheme) {
  return std::unique_ptr<LinearFormat>(new IntQuantized(scheme.static_activations, scheme.per_tensor));
}
Result<std::unique_ptr<LinearFormat>> MakeFloatQuantized(const LinearScheme& scheme) {
  if (scheme.e5m2) return UsageError("compressed-tensors' arguments have no E5M2: eight bits of a float are E4M3; --format fp8 has");
  return std::unique_ptr<LinearFormat>(new FloatQuantized(scheme.per_tensor));
}
Result<std::unique_ptr<LinearFormat>> MakeMxfp8Quantized(const LinearScheme&) {
  return std::unique_ptr<LinearFormat>(new Mxfp8Quantized());
}
Result<std::unique_ptr<LinearFormat>> MakeMxfp4Packed(const LinearScheme&) {
  return std::unique_ptr<LinearFormat>(new Fp4Packed(false));
}
Result<std::unique_ptr<LinearFormat>> MakeNvfp4Packed(const LinearScheme&) {
  return std::unique_ptr<LinearFormat>(new Fp4Packed(true));
}

}  // namespace hone
