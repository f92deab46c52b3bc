// HQQ's own layout in safetensors (models/quantized/hqq_layout.h): 2, 3, 4 or 8 bits with float zeros, as the hqq library
// and transformers read it. Scales and zeros are F16; codes are made with what is stored.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "compress/folder/linear_format.h"
#include "compress/numbers/hqq.h"
#include "models/quantized/hqq_layout.h"

namespace hone {
namespace {

class Hqq : public LinearFormat {
 public:
  explicit Hqq(const LinearScheme& scheme) : bits_(scheme.bits), group_(scheme.group) {}

  Result<void> Check(int64_t rows, int64_t columns) const override {
    if (columns % group_ != 0)
      return Unsupported(
          fmt::format("{} columns are no whole groups of {}; choose a --group that divides them", columns, group_));
    const HqqLayout layout = Layout(rows, columns);
    if (layout.whole()) return {};
    return Unsupported(fmt::format("{} groups of {}: HQQ packs {} groups a word, and loses the rest", layout.rows, group_,
                                   layout.parts));
  }

  std::vector<TensorInfo> Outputs(const std::string& module, int64_t rows, int64_t columns, DType) const override {
    const HqqLayout layout = Layout(rows, columns);
    std::vector<TensorInfo> outputs = {
        {module + ".W_q", layout.word_bytes == 4 ? DType::kI32 : DType::kU8, Shape{layout.word_rows(), layout.columns}},
        {module + ".scale", DType::kF16, Shape{layout.rows, 1}},
        {module + ".zero", DType::kF16, Shape{layout.rows, 1}},
        {module + ".shape", DType::kI64, Shape{2}}};
    for (const auto& [name, text] : Texts())
      outputs.push_back({module + "." + name, DType::kU8, Shape{static_cast<int64_t>(text.size())}});
    for (const auto& [name, number] : Numbers()) outputs.push_back({module + "." + name, DType::kU8, Shape{}});
    return outputs;
  }

  bool reads_rows() const override { return false; }
  bool wants_zeros() const override { return true; }  // words are added to
  void Encode(const LinearWeight& m, std::span<std::vector<std::byte>> out, ThreadPool& threads) const override {
    const HqqLayout layout = Layout(m.rows, m.columns);
    const HqqResult found = QuantizeHqq({.bits = bits_, .round_zero = bits_ == 4}, m.w, layout.rows, group_, &threads);
    const float top = static_cast<float>((1 << bits_) - 1);
    for (int64_t g = 0; g < layout.rows; ++g) {
      const float* x = m.w + g * group_;
      float scale = RoundTo(DType::kF16, found.scale[g]), zero = RoundTo(DType::kF16, found.zero[g]);
      // A group far from zero for its width: one number for all of it. One too wide for a scale stays so: nothing may come of it.
      if (std::isfinite(scale) && (!std::isfinite(zero) || scale == 0))
        scale = 1, zero = RoundTo(DType::kF16, -*std::min_element(x, x + group_));
      StoreAs(DType::kF16, scale, out[1].data() + 2 * g);
      StoreAs(DType::kF16, zero, out[2].data() + 2 * g);
      for (int64_t i = 0; i < group_; ++i) {
        const float code = std::clamp(std::nearbyint(x[i] / scale + zero), 0.0f, top);
        layout.Put(out[0].data(), g, i, static_cast<uint32_t>(code));
      }
    }
    const int64_t shape[2] = {m.rows, m.columns};
    std::memcpy(out[3].data(), shape, sizeof(shape));
    size_t at = 4;
    for (const auto& [name, text] : Texts()) std::memcpy(out[at++].data(), text.data(), text.size());
    for (const auto& [name, number] : Numbers()) out[at++][0] = static_cast<std::byte>(number);
  }

  void Decode(std::span<const std::span<const std::byte>> out, int64_t rows, int64_t columns, DType, int64_t first,
              int64_t count, float* w) const override {
    const HqqLayout layout = Layout(rows, columns);
    for (int64_t i = first * columns; i < (first + count) * columns; ++i) {
      const int64_t g = i / group_;
      const float scale = LoadAs(DType::kF16, out[1].data() + 2 * g), zero = LoadAs(DType::kF16, out[2].data() + 2 * g);
      *w++ = (static_cast<float>(layout.Get(out[0].data(), g, i % group_)) - zero) * scale;
    }
  }

  std::string ConfigJson(DType) const override {
    return fmt::format(
        "{{\"quant_config\": {{\"offload_meta\": false, \"scale_quant_params\": null, \"weight_quant_params\": "
        "{{\"axis\": 1, \"channel_wise\": true, \"group_size\": {}, \"nbits\": {}, \"optimize\": true, \"round_zero\": "
        "{}, \"view_as_float\": false}}, \"zero_quant_params\": null}}, \"quant_method\": \"hqq\", \"skip_modules\": "
        "[\"lm_head\"]}}",
        group_, bits_, bits_ == 4);
  }

 private:
  std::string Packing() const { return bits_ == 3 ? "3bit_32" : fmt::format("{}bit_u8", bits_); }
  HqqLayout Layout(int64_t rows, int64_t columns) const {
    return HqqLayout::Make(Packing(), rows * columns / group_, group_);
  }
  // What the library keeps beside the codes, as it encodes it: texts as bytes, numbers and truths as one byte.
  std::vector<std::pair<std::string, std::string>> Texts() const {
    return {{"packing", Packing()},
            {"unpack_view_dtype", bits_ == 3 ? "torch.int32" : "torch.uint8"},
            {"compute_dtype", "torch.float16"}};
  }
  std::vector<std::pair<std::string, int>> Numbers() const {
    return {{"nbits", bits_},        {"group_size", static_cast<int>(group_)}, {"axis", 1},         {"view_as_float", 0},
            {"quant_scale", 0},      {"quant_zero", 0},                        {"offload_meta", 0}, {"encoded_state_dict", 1},
            {"stores_quant_config", 1}, {"channel_wise", 1},                   {"optimize", 1},     {"round_zero", bits_ == 4}};
  }

  const int bits_;
  const int64_t group_;
};

}  // namespace

Result<std::unique_ptr<LinearFormat>> MakeHqq(const LinearScheme& scheme) {
  if (scheme.bits != 2 && scheme.bits != 3 && scheme.bits != 4 && scheme.bits != 8)
    return UsageError(fmt::format("hqq holds 2, 3, 4 or 8 bits, not --bits {}", scheme.bits));
  if (scheme.group < 8 || scheme.group > 248 || scheme.group % 8 != 0)
    return UsageError(fmt::format(
        "hqq stores the group in one byte and wants a multiple of 8: 8 to 248, not --group {}", scheme.group));
  return std::unique_ptr<LinearFormat>(new Hqq(scheme));
}

}  // namespace hone
