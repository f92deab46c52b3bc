// bitsandbytes: NF4 and FP4 in blocks of 64 with double quantisation, and LLM.int8() rows. The files load in
// transformers without bitsandbytes touching a weight.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>

#include "compress/folder/block_comparison.h"
#include "compress/folder/linear_format.h"
#include "compress/numbers/codebooks.h"

namespace hone {
namespace {

constexpr int kAbsmaxBlock = 64, kNestedAbsmaxBlock = 256;

template <typename T>
void Store(const std::vector<T>& values, std::vector<std::byte>& out) {
  std::memcpy(out.data(), values.data(), values.size() * sizeof(T));
}

const char* TorchName(DType dtype) {
  return dtype == DType::kF16 ? "float16" : dtype == DType::kBF16 ? "bfloat16" : "float32";
}

class Bitsandbytes4 : public LinearFormat {
 public:
  explicit Bitsandbytes4(Codebook4 codebook) : codebook_(codebook) {}
  Result<void> Check(int64_t rows, int64_t columns) const override {
    if (rows * columns % 2 == 0) return {};
    return Unsupported("an odd number of weights: two share a byte");
  }
  std::vector<TensorInfo> Outputs(const std::string& module, int64_t rows, int64_t columns, DType) const override {
    const int64_t n = rows * columns, blocks = (n + kAbsmaxBlock - 1) / kAbsmaxBlock;
    return {{module + ".weight", DType::kU8, Shape{n / 2, 1}},
            {module + ".weight.absmax", DType::kU8, Shape{blocks}},
            {module + ".weight.nested_absmax", DType::kF32, Shape{(blocks + kNestedAbsmaxBlock - 1) / kNestedAbsmaxBlock}},
            {module + ".weight.nested_quant_map", DType::kF32, Shape{256}},
            {module + ".weight.quant_map", DType::kF32, Shape{16}},
            {module + ".weight.quant_state.bitsandbytes__" + name(), DType::kU8, Shape{kStateBytes}}};
  }
  void Encode(const LinearWeight& m, std::span<std::vector<std::byte>> out, ThreadPool& threads) const override {
    std::vector<float> largest(out[1].size());
    const std::span<uint8_t> packed(reinterpret_cast<uint8_t*>(out[0].data()), out[0].size());
    const int64_t band = kAbsmaxBlock / std::gcd(m.columns, int64_t{kAbsmaxBlock});  // rows of whole blocks
    static thread_local BlockComparison mine;
    BlockComparison* const compared = m.deviation != nullptr ? &mine : nullptr;
    if (compared != nullptr) compared->Begin(m.rows * m.columns, kAbsmaxBlock, band * m.columns);
    threads.ParallelFor(static_cast<size_t>(m.rows), static_cast<size_t>(band), [&](size_t begin, size_t end) {
      std::vector<float> place(static_cast<size_t>(band * m.columns));
      for (int64_t r = static_cast<int64_t>(begin); r < static_cast<int64_t>(end); r += band) {
        const int64_t count = std::min(band, static_cast<int64_t>(end) - r), n = count * m.columns, at = r * m.columns;
        const std::span<const float> x(m.Rows(r, count, place.data()), static_cast<size_t>(n));
        const std::span<float> scales = std::span(largest).subspan(at / kAbsmaxBlock, (n + kAbsmaxBlock - 1) / kAbsmaxBlock);
        QuantizeCodebook4(codebook_, x, kAbsmaxBlock, *slices_, packed.subspan(at / 2, (n + 1) / 2), scales);
        if (compared != nullptr) compared->Add(r / band, x, out[0].data() + at / 2, CodebookValues(codebook_).data(), scales, *slices_);
      }
    });
    const DoubleQuantized absmax = QuantizeAbsmax(largest, *slices_);
    Store(absmax.codes, out[1]);
    Store(absmax.nested_absmax, out[2]);
    std::memcpy(out[3].data(), DynamicMap().data(), 256 * sizeof(float));
    std::memcpy(out[4].data(), CodebookValues(codebook_).data(), 16 * sizeof(float));
    // Padded with spaces, which JSON allows, so that its size is known before the offset is.
    std::string state = fmt::format(
        "{{\"quant_type\": \"{}\", \"blocksize\": {}, \"dtype\": \"{}\", \"shape\": [{}, {}], \"nested_blocksize\": "
        "{}, "
        "\"nested_dtype\": \"float32\", \"nested_offset\": {}}}",
        name(), kAbsmaxBlock, TorchName(m.dtype), m.rows, m.columns, kNestedAbsmaxBlock, static_cast<double>(absmax.offset));
    state.resize(kStateBytes, ' ');
    std::memcpy(out[5].data(), state.data(), state.size());
    if (compared == nullptr) return;
    const std::vector<std::span<const std::byte>> written(out.begin(), out.end());
    std::vector<float> place, back;
    *m.deviation = compared->Finish(largest, absmax, [&](int64_t index) {
      const int64_t first = index * band, count = std::min(band, m.rows - first), n = count * m.columns;
      place.resize(static_cast<size_t>(n)), back.resize(place.size());
      Deviation rows;
      Decode(written, m.rows, m.columns, m.dtype, first, count, back.data());
      slices_->compare(back.data(), m.Rows(first, count, place.data()), n, &rows.error, &rows.power, &rows.largest);
      return rows.largest;
    });
  }
  bool compares() const override { return true; }
  void Decode(std::span<const std::span<const std::byte>> out, int64_t, int64_t columns, DType, int64_t first,
              int64_t count, float* w) const override {
    const std::string_view state(reinterpret_cast<const char*>(out[5].data()), out[5].size());
    const std::string_view key = "\"nested_offset\": ";
    const float offset = std::strtof(state.data() + state.find(key) + key.size(), nullptr);
    const std::array<float, 16>& values = CodebookValues(codebook_);
    const std::array<float, 256>& map = DynamicMap();
    const auto absmax_of = [&](int64_t block) {
      float nested;
      std::memcpy(&nested, out[2].data() + 4 * (block / kNestedAbsmaxBlock), 4);
      return map[static_cast<uint8_t>(out[1][block])] * nested + offset;
    };
    std::vector<float> scales;
    for (int64_t i = first * columns, end = (first + count) * columns; i < end;) {
      if (const int64_t blocks = (end - i) / kAbsmaxBlock; i % kAbsmaxBlock == 0 && blocks > 0) {
        scales.resize(static_cast<size_t>(blocks));
        for (int64_t b = 0; b < blocks; ++b) scales[b] = absmax_of(i / kAbsmaxBlock + b);
        slices_->look_up(out[0].data() + i / 2, blocks, kAbsmaxBlock, values.data(), true, scales.data(), w);
        i += blocks * kAbsmaxBlock, w += blocks * kAbsmaxBlock;
        continue;
      }
      const float absmax = absmax_of(i / kAbsmaxBlock);
      const int64_t stop = std::min(end, (i / kAbsmaxBlock + 1) * kAbsmaxBlock);
      const auto one = [&] {  // rows of odd length begin and end within a byte
        const int pair = static_cast<int>(out[0][i / 2]);
        *w++ = values[i % 2 == 0 ? pair >> 4 : pair & 15] * absmax;
        ++i;
      };
      if (i % 2 != 0) one();
      const int64_t whole = (stop - i) / 2 * 2;
      slices_->look_up(out[0].data() + i / 2, 1, whole, values.data(), true, &absmax, w);
      i += whole, w += whole;
      if (i < stop) one();
    }
  }
  int64_t rows_together() const override { return 4; }  // reading the state takes as long as some blocks
  std::string ConfigJson(DType dtype) const override {
    return fmt::format(
        "{{\"_load_in_4bit\": true, \"_load_in_8bit\": false, \"bnb_4bit_compute_dtype\": \"{}\", "
        "\"bnb_4bit_quant_storage\": \"uint8\", "
        "\"bnb_4bit_quant_type\": \"{}\", \"bnb_4bit_use_double_quant\": true, \"llm_int8_enable_fp32_cpu_offload\": "
        "false, "
        "\"llm_int8_has_fp16_weight\": false, \"llm_int8_skip_modules\": null, \"llm_int8_threshold\": 6.0, "
        "\"load_in_4bit\": true, "
        "\"load_in_8bit\": false, \"quant_method\": \"bitsandbytes\"}}",
        TorchName(dtype), name());
  }

 private:
  static constexpr int64_t kStateBytes = 256;
  const char* name() const { return codebook_ == Codebook4::kNf4 ? "nf4" : "fp4"; }
  const Codebook4 codebook_;
};

class Bitsandbytes8 : public LinearFormat {
 public:
  Result<void> Check(int64_t, int64_t) const override { return {}; }
  std::vector<TensorInfo> Outputs(const std::string& module, int64_t rows, int64_t columns, DType) const override {
    return {{module + ".weight", DType::kI8, Shape{rows, columns}},
            {module + ".SCB", DType::kF32, Shape{rows}},
            {module + ".weight_format", DType::kU8, Shape{}}};
  }
  void Encode(const LinearWeight& m, std::span<std::vector<std::byte>> out, ThreadPool& threads) const override {
    threads.ParallelFor(static_cast<size_t>(m.rows), 1, [&](size_t begin, size_t end) {
      std::vector<float> place(static_cast<size_t>(m.columns));
      for (size_t r = begin; r < end; ++r) {
        const float* x = m.Rows(static_cast<int64_t>(r), 1, place.data());
        float least, most;
        slices_->range(x, m.columns, &least, &most);
        const float absmax = std::max(std::fabs(least), std::fabs(most));
        slices_->round_to_bytes(x, m.columns, absmax > 0 ? 127.0f * (1.0f / absmax) : 0,
                                reinterpret_cast<int8_t*>(out[0].data()) + static_cast<int64_t>(r) * m.columns);
        std::memcpy(out[1].data() + 4 * r, &absmax, 4);
        if (m.made) m.made(static_cast<int64_t>(r), 1, x);
      }
    });
    out[2][0] = std::byte{0};  // rows one after the other
  }
  bool tells_rows() const override { return true; }
  void Decode(std::span<const std::span<const std::byte>> out, int64_t, int64_t columns, DType, int64_t first,
              int64_t count, float* w) const override {
    for (int64_t r = first; r < first + count; ++r) {
      const float scale = LoadAs(DType::kF32, out[1].data() + 4 * r) / 127;
      slices_->from_bytes(out[0].data() + r * columns, columns, scale, w);
      w += columns;
    }
  }
  std::string ConfigJson(DType) const override {
    return "{\"_load_in_4bit\": false, \"_load_in_8bit\": true, \"bnb_4bit_compute_dtype\": \"float32\", "
           "\"bnb_4bit_quant_storage\": \"uint8\", "
           "\"bnb_4bit_quant_type\": \"fp4\", \"bnb_4bit_use_double_quant\": false, "
           "\"llm_int8_enable_fp32_cpu_offload\": false, \"llm_int8_has_fp16_weight\": false, "
           "\"llm_int8_skip_modules\": null, \"llm_int8_threshold\": 6.0, \"load_in_4bit\": false, \"load_in_8bit\": "
           "true, "
           "\"quant_method\": \"bitsandbytes\"}";
  }
};

}  // namespace

Result<std::unique_ptr<LinearFormat>> MakeBitsandbytes4(const LinearScheme& scheme) {
  return std::unique_ptr<LinearFormat>(new Bitsandbytes4(scheme.method == "nf4" ? Codebook4::kNf4 : Codebook4::kFp4));
}
Result<std::unique_ptr<LinearFormat>> MakeBitsandbytes8(const LinearScheme&) {
  return std::unique_ptr<LinearFormat>(new Bitsandbytes8);
}

}  // namespace hone
