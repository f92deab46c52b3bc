// HQQ folders against the hqq library's own packed words (goldens/compress/quant/codebooks), and from the writer through
// the reader into a model that loads.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "base/test_runtime.h"
#include "compress/folder/quantize_folder.h"
#include "compress/test_golden.h"
#include "kernels/dequantize/dequantize.h"
#include "models/model.h"
#include "models/quantized/hqq_layout.h"
#include "models/quantized/quantized_folder.h"

namespace hone {
namespace {

class HqqTest : public RuntimeTest {};

// A folder whose one matrix "m" lies as the library writes it.
std::string LibraryFolder(const Golden& golden, int bits, int axis, std::vector<Tensor>* kept) {
  const auto bytes = [&](const std::string& name, const std::string& text, const Shape& shape) {
    kept->emplace_back(DType::kU8, shape);
    std::copy(text.begin(), text.end(), reinterpret_cast<char*>(kept->back().data()));
    return NamedTensor{"m." + name, kept->back().view()};
  };
  const auto number = [&](const std::string& name, int n) { return bytes(name, std::string(1, static_cast<char>(n)), Shape{1}); };
  const std::string packing = bits == 3 ? "3bit_32" : std::to_string(bits) + "bit_u8";
  std::vector<NamedTensor> tensors = {{"m.W_q", golden.View("packed")},
                                      {"m.scale", golden.View("scale")},
                                      {"m.zero", golden.View("zero")},
                                      bytes("packing", packing, Shape{static_cast<int64_t>(packing.size())}),
                                      number("nbits", bits),
                                      number("group_size", 64),
                                      number("axis", axis),
                                      number("view_as_float", 0)};
  return WriteModelFolder("hqq_library", R"({"model_type": "llama", "quantization_config": {"quant_method": "hqq"}})",
                          tensors);
}

TEST_F(HqqTest, WordsOfTheLibraryAreReadAndWrittenAsTheyAre) {
  HONE_NEED_SHARED(folder, "goldens/compress/quant/codebooks");
  for (const int bits : {2, 3, 4}) {
    for (const int axis : {0, 1}) {
      const std::string name = "hqq-b" + std::to_string(bits) + "-axis" + std::to_string(axis);
      const Golden golden(folder + "/" + name + ".safetensors");
      const TensorView &codes = golden.View("W_q"), &packed = golden.View("packed");
      const HqqLayout layout =
          HqqLayout::Make(bits == 3 ? "3bit_32" : std::to_string(bits) + "bit_u8", codes.shape[0], codes.shape[1]);
      ASSERT_EQ(layout.bytes(), packed.bytes()) << name;
      std::vector<std::byte> words(packed.bytes());
      for (int64_t r = 0; r < codes.shape[0]; ++r) {
        for (int64_t c = 0; c < codes.shape[1]; ++c) {
          layout.Put(words.data(), r, c, codes.as<uint8_t>()[r * codes.shape[1] + c]);
          EXPECT_EQ(layout.Get(packed.data, r, c), codes.as<uint8_t>()[r * codes.shape[1] + c]) << name;
        }
      }
      EXPECT_EQ(std::memcmp(words.data(), packed.data, words.size()), 0) << name;
      // Through the reader of folders.
      std::vector<Tensor> kept;
      kept.reserve(8);
      const auto checkpoint = Checkpoint::Open(LibraryFolder(golden, bits, axis, &kept));
      ASSERT_TRUE(checkpoint) << checkpoint.error().message;
      const auto quantized = QuantizedFolder::Make(**checkpoint);
      ASSERT_TRUE(quantized) << quantized.error().message;
      const std::vector<float> dq = golden.Floats("dq");
      const int64_t rows = golden.View("dq").shape[0], columns = golden.View("dq").shape[1];
      const auto matrix = quantized->Find("m.weight", rows, columns);
      ASSERT_TRUE(matrix && *matrix != nullptr) << name << (matrix ? "" : matrix.error().message);
      EXPECT_EQ((*matrix)->type(false), axis == 1 ? DType::kQ4_1 : DType::kQ8_0);
      std::vector<float> back(dq.size());
      (*matrix)->Decode(0, rows, back.data());
      for (size_t i = 0; i < dq.size(); ++i) EXPECT_NEAR(back[i], dq[i], 1e-6 * std::fabs(dq[i])) << name << " " << i;
      const auto tensor = (*matrix)->Transcode(0, rows, false, threads_);
      ASSERT_TRUE(tensor) << tensor.error().message;
    }
  }
}

TEST_F(HqqTest, WrittenFoldersRunAndHoldWhatTheyWereMadeFrom) {
  HONE_NEED_SHARED(base, "goldens/compress/quant/foreign/base");
  double last = 1;
  for (const int bits : {2, 3, 4, 8}) {
    const LinearScheme scheme{"hqq", "hqq", bits, 64, false};
    const std::string out = TestPath("hqq_out");
    std::filesystem::remove_all(out);
    const auto checkpoint = Checkpoint::Open(base);
    const auto format = MakeLinearFormat(scheme);
    ASSERT_TRUE(checkpoint && format);
    const auto plan = PlanFolder(**checkpoint, **format);
    ASSERT_TRUE(plan) << plan.error().message;
    const auto report = QuantizeFolder(**checkpoint, **format, scheme, *plan, out, {}, runtime_);
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_LT(report->overall_error, 0.6 * last) << bits;
    last = report->overall_error;
    const auto back = Checkpoint::Open(out);
    ASSERT_TRUE(back) << back.error().message;
    const auto quantized = QuantizedFolder::Make(**back);
    ASSERT_TRUE(quantized);
    EXPECT_EQ(quantized->method(), "hqq");
    for (const FolderTensor& tensor : plan->tensors) {
      const auto matrix = quantized->Find(tensor.name, tensor.rows, tensor.columns);
      ASSERT_TRUE(matrix && *matrix != nullptr) << tensor.name;
      EXPECT_EQ((*matrix)->stored(), "hqq " + std::to_string(bits) + "-bit, groups of 64");
      EXPECT_EQ((*matrix)->type(false), bits == 8 ? DType::kQ8_0 : DType::kQ4_1);
      // What it runs as is what the file says, but for the product of scale and zero, which is rounded to F16.
      const auto packed = (*matrix)->Transcode(0, tensor.rows, false, threads_);
      ASSERT_TRUE(packed) << packed.error().message;
      std::vector<float> says(tensor.columns), runs(tensor.columns);
      double error = 0, power = 0;
      for (int64_t r = 0; r < tensor.rows; ++r) {
        (*matrix)->Decode(r, 1, says.data());
        DequantizeRow(packed->view().type, packed->view().data + r * packed->view().row_bytes(), tensor.columns, runs.data());
        for (int64_t i = 0; i < tensor.columns; ++i)
          error += std::pow(runs[i] - says[i], 2), power += std::pow(says[i], 2);
      }
      EXPECT_LT(std::sqrt(error / power), bits == 8 ? 0.008 : 1e-3) << bits << " " << tensor.name;
      EXPECT_EQ((*matrix)->tensors().size(), 19u);  // nothing is left that nobody reads
    }
    const auto model = Model::Load(*back, runtime_, {.max_rows = 8, .max_context = 32});
    ASSERT_TRUE(model) << model.error().message;
  }
}

TEST_F(HqqTest, WhatTheLayoutCannotHoldIsRefused) {
  const auto message = [](int bits, int64_t group, int64_t rows, int64_t columns) {
    const auto format = MakeLinearFormat({"hqq", "hqq", bits, group, false});
    if (!format) return format.error().message;
    const Result<void> checked = (*format)->Check(rows, columns);
    return checked ? std::string() : checked.error().message;
  };
  EXPECT_EQ(message(4, 64, 64, 128), "");
  EXPECT_NE(message(5, 64, 64, 128).find("--bits 5"), std::string::npos);
  EXPECT_NE(message(4, 256, 64, 256).find("--group 256"), std::string::npos);
  EXPECT_NE(message(4, 0, 64, 256).find("--group 0"), std::string::npos);
  EXPECT_NE(message(4, 64, 64, 96).find("whole groups"), std::string::npos);
  EXPECT_NE(message(4, 64, 3, 64).find("loses the rest"), std::string::npos);
  EXPECT_EQ(message(3, 64, 3, 64), "");
}

TEST_F(HqqTest, GroupsFarFromZeroKeepFiniteZeros) {
  std::vector<float> w(64 * 64, 30.0f);
  for (size_t i = 0; i < w.size(); i += 2) w[i] += 2e-4f;
  const auto format = MakeLinearFormat({"hqq", "hqq", 4, 64, false});
  ASSERT_TRUE(format);
  std::vector<std::vector<std::byte>> bytes;
  for (const TensorInfo& info : (*format)->Outputs("m", 64, 64, DType::kF32)) bytes.emplace_back(info.bytes());
  (*format)->Encode({w.data(), 64, 64, DType::kF32}, bytes, threads_);
  std::vector<float> back(w.size());
  const std::vector<std::span<const std::byte>> spans(bytes.begin(), bytes.end());
  (*format)->Decode(spans, 64, 64, DType::kF32, 0, 64, back.data());
  for (const float x : back) ASSERT_NEAR(x, 30, 1e-3);
}

}  // namespace
}  // namespace hone
