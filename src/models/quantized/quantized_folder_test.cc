// What is said of quantised folders that are damaged or of a kind that is not read, and the types that layouts become. Values
// and logits against folders of other tools: tests/golden/quantized_golden_test.cc.
#include "models/quantized/quantized_folder.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>

#include "base/random.h"
#include "kernels/dequantize/dequantize.h"
#include "models/test_checkpoint.h"
#include "tensor/float16.h"

namespace hone {
namespace {

constexpr int64_t kRows = 32, kColumns = 64;

struct Stored {
  DType type;
  Shape shape;
  std::function<uint32_t(int64_t)> element = [](int64_t) { return 0u; };  // its bits, for types of up to 4 bytes
};
using Folder = std::map<std::string, Stored>;

// A folder of one module "m" with these tensors.
std::shared_ptr<const Checkpoint> Write(const std::string& config, const Folder& tensors) {
  const std::string folder = FreshFolder("quantized");
  std::ofstream(folder + "/config.json") << "{\"quantization_config\": " + config + "}";
  std::vector<Tensor> kept;
  std::vector<NamedTensor> named;
  for (const auto& [name, stored] : tensors) {
    kept.emplace_back(stored.type, stored.shape);
    const size_t size = Info(stored.type).block_bytes;
    for (int64_t i = 0; i < stored.shape.elements(); ++i) {
      const uint64_t bits = stored.element(i);
      std::memcpy(kept.back().data() + i * size, &bits, size);
    }
    named.push_back({name, kept.back().view()});
  }
  HONE_CHECK(WriteSafetensors(folder + "/model.safetensors", named, {{"format", "pt"}}).has_value());
  auto checkpoint = Checkpoint::Open(folder);
  HONE_CHECK(checkpoint.has_value(), checkpoint.has_value() ? "" : checkpoint.error().message);
  return *checkpoint;
}

const char kGptq[] = R"({"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": true, "checkpoint_format": "gptq_v2"})";

uint32_t Half(float x) { return F32ToF16(x); }

Folder Gptq(int64_t bits = 4, int64_t group = 32) {
  const int64_t groups = kColumns / group;
  return {{"m.qweight", {DType::kI32, Shape{kColumns * bits / 32, kRows}, [](int64_t i) { return 0x9e3779b9u * static_cast<uint32_t>(i + 1); }}},
          {"m.qzeros", {DType::kI32, Shape{groups, kRows * bits / 32}, [bits](int64_t) { return bits == 8 ? 0x80808080u : 0x88888888u; }}},
          {"m.scales", {DType::kF16, Shape{groups, kRows}, [](int64_t i) { return Half(0.01f * static_cast<float>(i % 5 + 1)); }}},
          {"m.g_idx", {DType::kI32, Shape{kColumns}, [group](int64_t i) { return static_cast<uint32_t>(i / group); }}}};
}

class QuantizedFolderTest : public testing::Test {
 protected:
  Result<std::shared_ptr<const QuantizedMatrix>> Open(const std::string& config, const Folder& tensors) {
    kept_.push_back(Write(config, tensors));
    HONE_TRY(folder_, QuantizedFolder::Make(*kept_.back()));
    return folder_.Find("m.weight", kRows, kColumns);
  }
  std::string ErrorOf(const std::string& config, const Folder& tensors) {
    const auto matrix = Open(config, tensors);
    if (!matrix) return matrix.error().message;
    if (*matrix == nullptr) return "no matrix";
    const auto tensor = (*matrix)->Transcode(0, kRows, false, threads_);
    return tensor ? "read" : tensor.error().message;
  }
  // The largest difference between what a matrix means and what it runs as, over the largest weight.
  double ErrorOfType(const QuantizedMatrix& matrix, bool exact) {
    const int64_t width = matrix.width(exact);
    std::vector<float> wanted(kRows * kColumns), got(kRows * width);
    matrix.Decode(0, kRows, wanted.data());
    const auto tensor = matrix.Transcode(0, kRows, exact, threads_);
    EXPECT_TRUE(tensor.has_value());
    DequantizeRow(tensor->view().type, tensor->view().data, kRows * width, got.data());
    const std::vector<int32_t>& order = matrix.order(exact);
    double error = 0, largest = 0;
    for (int64_t i = 0; i < kRows * width; ++i) {
      const int64_t column = order.empty() ? i % width : order[i % width];
      if (column == QuantizedMatrix::kNoColumn) continue;
      error = std::max(error, std::abs(double{got[i]} - double{wanted[i / width * kColumns + column]}));
    }
    for (const float x : wanted) largest = std::max(largest, std::abs(double{x}));
    return error / largest;
  }

  ThreadPool threads_{2};
  std::vector<std::shared_ptr<const Checkpoint>> kept_;
  QuantizedFolder folder_;
};

#define EXPECT_SAYS(message, part)                                                 \
  do {                                                                             \
    const std::string said = (message);                                           \
    EXPECT_NE(said.find(part), std::string::npos) << said;                         \
  } while (false)

TEST_F(QuantizedFolderTest, MethodsThatAreNotReadAreNamed) {
  EXPECT_SAYS(ErrorOf(R"({"quant_method": "quark"})", Gptq()), "quant_method \"quark\" are not supported; known: gptq, awq");
  EXPECT_SAYS(ErrorOf(R"({"bits": 4})", Gptq()), "\"unknown\"");
  EXPECT_SAYS(ErrorOf(R"({"quant_method": "gptq", "checkpoint_format": "marlin"})", Gptq()), "\"marlin\"; known: gptq, gptq_v2");
  EXPECT_SAYS(ErrorOf(R"({"quant_method": "gptq", "pack_dtype": "int64"})", Gptq()), "pack_dtype is \"int64\"");
  EXPECT_SAYS(ErrorOf(R"({"quant_method": "awq", "version": "gemv"})", Gptq()), "\"gemv\"; known: gemm");
  EXPECT_SAYS(ErrorOf(R"({"quant_method": "compressed-tensors", "transform_config": {"config_groups": {"R1": {}}}})", Gptq()), "transform_config");
  EXPECT_SAYS(ErrorOf(R"({"quant_method": "compressed-tensors", "sparsity_config": {"format": "sparse-24-bitmask"}})", Gptq()), "sparsity_config");
  EXPECT_SAYS(ErrorOf(R"({"quant_method": "bitsandbytes", "bnb_4bit_quant_storage": "bfloat16"})", Gptq()), "bnb_4bit_quant_storage");
  EXPECT_SAYS(ErrorOf(R"({"quant_method": "fp8", "fmt": "ue8m0"})", Gptq()), "fmt is \"ue8m0\"; known: e4m3, e5m2");
  EXPECT_SAYS(ErrorOf(R"({"quant_method": 4})", Gptq()), "quant_method");
}

TEST_F(QuantizedFolderTest, DamagedGptqIsNamed) {
  EXPECT_EQ(ErrorOf(kGptq, Gptq()), "read");
  for (const char* name : {"m.qzeros", "m.scales"}) {
    Folder folder = Gptq();
    folder.erase(name);
    EXPECT_SAYS(ErrorOf(kGptq, folder), std::string("tensor ") + name + " is missing; wanted");
  }
  Folder folder = Gptq();
  folder["m.qweight"].shape = Shape{7, kRows};
  EXPECT_SAYS(ErrorOf(kGptq, folder), "m.qweight is I32 [7, 32]; wanted I32 [8, 32]");
  folder = Gptq();
  folder["m.qzeros"].shape = Shape{2, 5};
  EXPECT_SAYS(ErrorOf(kGptq, folder), "m.qzeros is I32 [2, 5]; wanted I32 [2, 4]");
  folder = Gptq();
  folder["m.scales"].type = DType::kI16;
  EXPECT_SAYS(ErrorOf(kGptq, folder), "m.scales is I16 [2, 32]; wanted F16 or BF16 or F32");
  folder = Gptq();
  folder["m.scales"].shape = Shape{3, kRows};
  folder["m.qzeros"].shape = Shape{3, 4};
  EXPECT_SAYS(ErrorOf(kGptq, folder), "3 groups of scales for 64 columns with group_size 32; wanted 2");
  folder = Gptq();
  folder["m.g_idx"].element = [](int64_t i) { return i == 5 ? 2u : 0u; };
  EXPECT_SAYS(ErrorOf(kGptq, folder), "m.g_idx: column 5 is of group 2; wanted 0 to 1");
  folder["m.g_idx"].element = [](int64_t i) { return i == 6 ? 0xffffffffu : 0u; };
  EXPECT_SAYS(ErrorOf(kGptq, folder), "column 6 is of group -1");
  folder = Gptq();
  folder["m.scales"].element = [](int64_t i) { return i == 40 ? 0x7e00u : Half(0.1f); };
  EXPECT_SAYS(ErrorOf(kGptq, folder), "the scale of row 8, group 1 is nan");
  folder = Gptq();
  folder.erase("m.g_idx");
  EXPECT_EQ(ErrorOf(kGptq, folder), "read");
  EXPECT_SAYS(ErrorOf(R"({"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": true})", folder), "no tensor g_idx");
  EXPECT_EQ(ErrorOf(kGptq, {{"m.weight", {DType::kF16, Shape{kRows, kColumns}}}}), "no matrix");  // left as it was
}

TEST_F(QuantizedFolderTest, GroupsOverARowArePutInOrderAndFilledUp) {
  Folder folder = Gptq();
  folder["m.g_idx"].element = [](int64_t i) { return static_cast<uint32_t>((i * 7 + 3) % 64 / 32); };
  auto matrix = Open(kGptq, folder);
  ASSERT_TRUE(matrix.has_value()) << matrix.error().message;
  EXPECT_EQ((*matrix)->type(false), DType::kQ4_0);
  EXPECT_EQ((*matrix)->order(false).size(), static_cast<size_t>(kColumns));
  EXPECT_EQ(ErrorOfType(**matrix, false), 0);
  // 33 and 31 columns: two blocks of 32 and one.
  folder["m.g_idx"].element = [](int64_t i) { return i < 33 ? 0u : 1u; };
  matrix = Open(kGptq, folder);
  ASSERT_TRUE(matrix.has_value());
  EXPECT_EQ((*matrix)->type(false), DType::kQ4_0);
  EXPECT_EQ((*matrix)->width(false), 96);
  EXPECT_EQ(ErrorOfType(**matrix, false), 0);
  EXPECT_EQ(ErrorOfType(**matrix, true), 0);
  // 17 and 47 of 8 bits: filled up they would take more than rounding to 8 bits does.
  folder = Gptq(8);
  folder["m.g_idx"].element = [](int64_t i) { return i < 17 ? 0u : 1u; };
  matrix = Open(kGptq, folder);
  ASSERT_TRUE(matrix.has_value());
  EXPECT_EQ((*matrix)->type(false), DType::kQ8_0);
  EXPECT_TRUE((*matrix)->order(false).empty());
  EXPECT_LT(ErrorOfType(**matrix, false), 0.005);
  EXPECT_EQ((*matrix)->type(true), DType::kF32);
  EXPECT_EQ(ErrorOfType(**matrix, true), 0);
}

TEST_F(QuantizedFolderTest, TypesFollowTheCodes) {
  const auto type_of = [&](const Folder& folder, bool exact) {
    const auto matrix = Open(kGptq, folder);
    EXPECT_TRUE(matrix.has_value()) << matrix.error().message;
    EXPECT_LE(ErrorOfType(**matrix, true), 0);
    EXPECT_LE(ErrorOfType(**matrix, false), 0.01);
    return (*matrix)->type(exact);
  };
  EXPECT_EQ(type_of(Gptq(), false), DType::kQ4_0);
  EXPECT_EQ(type_of(Gptq(8), false), DType::kQ8_0);
  EXPECT_EQ(type_of(Gptq(4, 16), false), DType::kQ8_0);  // half a block
  Folder asymmetric = Gptq();
  asymmetric["m.qzeros"].element = [](int64_t i) { return 0x12345678u + static_cast<uint32_t>(i); };
  EXPECT_EQ(type_of(asymmetric, false), DType::kQ4_1);
  EXPECT_EQ(type_of(asymmetric, true), DType::kQ5_0);
  asymmetric = Gptq(8);
  asymmetric["m.qzeros"].element = [](int64_t i) { return 0x12345678u + static_cast<uint32_t>(i); };
  EXPECT_EQ(type_of(asymmetric, false), DType::kQ8_0);
  EXPECT_EQ(type_of(asymmetric, true), DType::kF32);
}

TEST_F(QuantizedFolderTest, VersionOneWrapsAndMislabelledFilesAreSeen) {
  Folder folder = Gptq();
  const auto first_of = [&](const char* version, uint32_t zeros, bool symmetric) {
    folder["m.qzeros"].element = [zeros](int64_t) { return zeros; };
    folder["m.qweight"].element = [](int64_t) { return 0u; };
    folder["m.scales"].element = [](int64_t) { return Half(1); };
    const auto matrix = Open(std::string(R"({"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": )") +
                                 (symmetric ? "true" : "false") + R"(, "checkpoint_format": ")" + version + "\"}",
                             folder);
    EXPECT_TRUE(matrix.has_value());
    std::vector<float> row(kColumns);
    (*matrix)->Decode(0, 1, row.data());
    return row[0];
  };
  EXPECT_EQ(first_of("gptq", 0x77777777, true), -8);
  EXPECT_EQ(first_of("gptq_v2", 0x88888888, true), -8);
  EXPECT_EQ(first_of("gptq", 0x88888888, true), -8);     // calls itself version 1
  EXPECT_EQ(first_of("gptq_v2", 0x77777777, true), -8);  // calls itself version 2
  EXPECT_EQ(first_of("gptq", 0xffffffff, false), 0);     // a zero of 0, one less
  EXPECT_EQ(first_of("gptq", 0x88888888, false), -9);
}

const char kPacked[] =
    R"({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": BITS, "type": "int"}}}})";
std::string Packed(int bits) {
  std::string text = kPacked;
  return text.replace(text.find("BITS"), 4, std::to_string(bits));
}

TEST_F(QuantizedFolderTest, DenseAndPaddedWordsMeanTheSame) {
  for (const int bits : {2, 3, 4, 5, 6, 7, 8}) {
    const auto code = [bits](int64_t i) { return static_cast<uint32_t>(i * 5 + i / 9) & ((1u << bits) - 1); };
    const auto folder = [&](bool dense) {
      const int per_word = 32 / bits;
      const int64_t words = dense ? (kColumns * bits + 31) / 32 : (kColumns + per_word - 1) / per_word;
      std::vector<uint32_t> packed(kRows * words);
      for (int64_t i = 0; i < kRows * kColumns; ++i) {
        const int64_t column = i % kColumns;
        const int64_t bit = dense ? column * bits : column / per_word * 32 + column % per_word * bits;
        uint32_t* row = packed.data() + i / kColumns * words;
        row[bit / 32] |= code(i) << (bit % 32);
        if (bit % 32 + bits > 32) row[bit / 32 + 1] |= code(i) >> (32 - bit % 32);
      }
      return Folder{{"m.weight_packed", {DType::kI32, Shape{kRows, words}, [packed](int64_t i) { return packed[i]; }}},
                    {"m.weight_scale", {DType::kF16, Shape{kRows, 2}, [](int64_t) { return Half(0.25f); }}}};
    };
    for (const bool dense : {true, false}) {
      const auto matrix = Open(Packed(bits), folder(dense));
      ASSERT_TRUE(matrix.has_value()) << matrix.error().message;
      std::vector<float> w(kRows * kColumns);
      (*matrix)->Decode(0, kRows, w.data());
      for (int64_t i = 0; i < kRows * kColumns; ++i) {
        ASSERT_EQ(w[i], (static_cast<float>(code(i)) - static_cast<float>(1 << (bits - 1))) * 0.25f) << bits << " bits, " << i;
      }
      EXPECT_EQ(ErrorOfType(**matrix, false), 0) << bits;
      EXPECT_EQ((*matrix)->type(false), bits <= 4 ? DType::kQ4_0 : bits == 5 ? DType::kQ5_0 : DType::kQ8_0);
    }
  }
}

TEST_F(QuantizedFolderTest, DamagedCompressedTensorsIsNamed) {
  Folder folder{{"m.weight_packed", {DType::kI32, Shape{kRows, 8}}}, {"m.weight_scale", {DType::kBF16, Shape{kRows, 2}}}};
  EXPECT_EQ(ErrorOf(Packed(4), folder), "read");
  EXPECT_SAYS(ErrorOf(Packed(8), folder), "m.weight_packed is [32, 8]; wanted [32, words of 64 columns of 8 bits]");
  EXPECT_SAYS(ErrorOf(Packed(9), folder), "num_bits of group_0 is 9");
  folder["m.weight_zero_point"] = {DType::kI32, Shape{3, 2}};
  EXPECT_SAYS(ErrorOf(Packed(4), folder), "m.weight_zero_point is I32 [3, 2]; wanted I32 [4, 2]");
  folder.erase("m.weight_zero_point");
  folder["m.weight_g_idx"] = {DType::kI32, Shape{kColumns}, [](int64_t) { return 9u; }};
  EXPECT_SAYS(ErrorOf(Packed(4), folder), "column 0 is of group 9");
  folder["m.weight_g_idx"].element = [](int64_t) { return 0xffffffffu; };  // never filled in
  EXPECT_EQ(ErrorOf(Packed(4), folder), "read");
  for (const int64_t filled : {1, 40, 63}) {  // filled in somewhere: an order, and a damaged one
    folder["m.weight_g_idx"].element = [filled](int64_t i) { return i == filled ? 0u : 0xffffffffu; };
    EXPECT_SAYS(ErrorOf(Packed(4), folder), "column 0 is of group -1");
  }
  folder["m.weight_g_idx"] = {DType::kI32, Shape{kColumns - 1}, [](int64_t) { return 0xffffffffu; }};
  EXPECT_SAYS(ErrorOf(Packed(4), folder), "wanted I32 [64]");
  folder.erase("m.weight_g_idx");
  folder["m.weight_scale"].shape = Shape{kRows, 3};
  EXPECT_SAYS(ErrorOf(Packed(4), folder), "its groups do not divide 64 columns");
  folder.erase("m.weight_scale");
  EXPECT_SAYS(ErrorOf(Packed(4), folder), "m.weight_scale is missing");

  Folder fp8{{"m.weight", {DType::kF8_E4M3, Shape{kRows, kColumns}}}, {"m.weight_scale", {DType::kF32, Shape{2, 2}}}};
  EXPECT_SAYS(ErrorOf(Packed(8), fp8), "m.weight_scale is F32 [2, 2]; wanted");
  fp8["m.weight_scale"] = {DType::kF16, Shape{1}, [](int64_t) { return Half(2); }};
  EXPECT_EQ(ErrorOf(Packed(8), fp8), "read");
  fp8["m.weight"].element = [](int64_t i) { return i == 70 ? 0x7fu : 0x38u; };
  EXPECT_SAYS(ErrorOf(Packed(8), fp8), "row 1 holds a weight that is not finite");

  // MXFP8: a power of two for 32 columns. E5M2, which has infinities.
  fp8["m.weight"].element = [](int64_t) { return 0x38u; };
  fp8["m.weight_scale"] = {DType::kU8, Shape{kRows, 2}, [](int64_t i) { return i == 3 ? 128u : 127u; }};
  const auto mx = Open(Packed(8), fp8);
  ASSERT_TRUE(mx.has_value() && *mx != nullptr) << mx.error().message;
  EXPECT_EQ((*mx)->stored(), "MXFP8 E4M3, scales of 1 x 32");
  std::vector<float> row(2 * kColumns);
  (*mx)->Decode(0, 2, row.data());
  for (int64_t i = 0; i < 2 * kColumns; ++i) EXPECT_EQ(row[i], i / 32 == 3 ? 2 : 1) << i;
  fp8["m.weight_scale"].element = [](int64_t i) { return i == 3 ? 255u : 127u; };
  EXPECT_SAYS(ErrorOf(Packed(8), fp8), "row 1 holds a weight that is not finite");
  fp8["m.weight_scale"].shape = Shape{kRows, 3};
  EXPECT_SAYS(ErrorOf(Packed(8), fp8), "m.weight_scale is U8 [32, 3]; wanted");
  Folder e5m2{{"m.weight", {DType::kF8_E5M2, Shape{kRows, kColumns}, [](int64_t i) { return static_cast<uint32_t>(i % 0x7c); }}},
              {"m.weight_scale_inv", {DType::kF32, Shape{1, 1}, [](int64_t) { return 0x3f000000u; }}}};  // 0.5
  const char kE5m2[] = R"({"quant_method": "fp8", "fmt": "e5m2"})";
  const auto matrix = Open(kE5m2, e5m2);
  ASSERT_TRUE(matrix.has_value() && *matrix != nullptr) << matrix.error().message;
  EXPECT_EQ((*matrix)->stored(), "FP8 E5M2, one scale");
  (*matrix)->Decode(0, 2, row.data());
  EXPECT_EQ(row[0x3c], 0.5f);   // 1
  EXPECT_EQ(row[0x7b], 28672);  // the largest
  EXPECT_EQ(ErrorOf(kE5m2, e5m2), "read");
  e5m2["m.weight"].element = [](int64_t i) { return i == 70 ? 0x7cu : 0x38u; };
  EXPECT_SAYS(ErrorOf(kE5m2, e5m2), "row 1 holds a weight that is not finite");

  Folder fp4{{"m.weight_packed", {DType::kU8, Shape{kRows, kColumns / 2}}}, {"m.weight_scale", {DType::kF8_E4M3, Shape{kRows, 4}}}};
  EXPECT_SAYS(ErrorOf(Packed(4), fp4), "m.weight_global_scale is missing");
  fp4["m.weight_global_scale"] = {DType::kF32, Shape{1}};
  EXPECT_SAYS(ErrorOf(Packed(4), fp4), "m.weight_global_scale is 0; wanted a number above 0");
  fp4.erase("m.weight_global_scale");
  fp4["m.weight_scale"] = {DType::kU8, Shape{kRows, 2}, [](int64_t i) { return i == 3 ? 255u : 127u; }};
  EXPECT_SAYS(ErrorOf(Packed(4), fp4), "the scale of row 1, block 1 is NaN");
}

TEST_F(QuantizedFolderTest, Nvfp4KeepsItsValuesInBlocksOf256) {
  constexpr int64_t kWide = 512;
  // Scales within a factor of 8 of each other (codes 0x40 .. 0x57), a global one that F16 holds.
  Folder folder{{"m.weight_packed", {DType::kU8, Shape{kRows, kWide / 2}, [](int64_t i) { return static_cast<uint32_t>(i * 37 + i / 256) & 255; }}},
                {"m.weight_scale", {DType::kF8_E4M3, Shape{kRows, kWide / 16}, [](int64_t i) { return 0x40u + static_cast<uint32_t>(i * 7 % 24); }}},
                {"m.weight_global_scale", {DType::kF32, Shape{1}, [](int64_t) { return 0x45000000u; }}}};  // 2048
  kept_.push_back(Write(Packed(4), folder));
  auto opened = QuantizedFolder::Make(*kept_.back());
  ASSERT_TRUE(opened.has_value());
  const auto matrix = opened->Find("m.weight", kRows, kWide);
  ASSERT_TRUE(matrix.has_value() && *matrix != nullptr);
  EXPECT_EQ((*matrix)->type(false), DType::kQ6_K);
  std::vector<float> wanted(kRows * kWide), got(kRows * kWide);
  (*matrix)->Decode(0, kRows, wanted.data());
  const auto tensor = (*matrix)->Transcode(0, kRows, false, threads_);
  ASSERT_TRUE(tensor.has_value());
  DequantizeRow(DType::kQ6_K, tensor->view().data, kRows * kWide, got.data());
  EXPECT_EQ(got, wanted);  // 0 and -0 are equal
}

TEST_F(QuantizedFolderTest, DamagedBitsandbytesIsNamed) {
  const char config[] = R"({"quant_method": "bitsandbytes"})";
  Folder int8{{"m.weight", {DType::kI8, Shape{kRows, kColumns}, [](int64_t i) { return static_cast<uint32_t>(i % 251) & 255; }}},
              {"m.SCB", {DType::kF32, Shape{kRows}}}};
  EXPECT_EQ(ErrorOf(config, int8), "read");
  int8["m.weight_format"] = {DType::kU8, Shape{}, [](int64_t) { return 2u; }};
  EXPECT_SAYS(ErrorOf(config, int8), "m.weight_format is 2; wanted 0");
  int8.erase("m.SCB");
  EXPECT_SAYS(ErrorOf(config, int8), "m.SCB is missing");

  const auto state = [](const std::string& text) {
    return Stored{DType::kU8, Shape{static_cast<int64_t>(text.size())}, [text](int64_t i) { return static_cast<uint8_t>(text[i]); }};
  };
  const std::string good = R"({"quant_type": "fp4", "blocksize": 64, "shape": [32, 64]})";
  Folder fp4{{"m.weight", {DType::kU8, Shape{kRows * kColumns / 2, 1}, [](int64_t i) { return static_cast<uint32_t>(i) & 255; }}},
             {"m.weight.absmax", {DType::kF32, Shape{kRows * kColumns / 64}, [](int64_t) { return 0x3f800000u; }}},
             {"m.weight.quant_map", {DType::kF32, Shape{16}}}};
  EXPECT_SAYS(ErrorOf(config, fp4), "no m.weight.quant_state.bitsandbytes__nf4");
  const std::string name = "m.weight.quant_state.bitsandbytes__fp4";
  fp4[name] = state(good);
  EXPECT_EQ(ErrorOf(config, fp4), "read");
  fp4[name] = state("{");
  EXPECT_SAYS(ErrorOf(config, fp4), name);
  fp4[name] = state(R"({"blocksize": 0, "shape": [32, 64]})");
  EXPECT_SAYS(ErrorOf(config, fp4), "blocksize is 0");
  fp4[name] = state(R"({"blocksize": 64, "shape": [64, 32]})");
  EXPECT_SAYS(ErrorOf(config, fp4), "another shape than [32, 64]");
  fp4[name] = state(good);
  fp4["m.weight.absmax"].type = DType::kU8;
  EXPECT_SAYS(ErrorOf(config, fp4), "nested_blocksize");
  fp4.erase("m.weight.absmax");
  EXPECT_SAYS(ErrorOf(config, fp4), "m.weight.absmax is missing");
}

// NF4 runs as the type of that name wherever it can: its levels, whatever wrote them, in blocks of whole 32s.
TEST_F(QuantizedFolderTest, Nf4KeepsItsCodes) {
  const float levels[16] = {-1.0f,         -0.69619280f,  -0.52507305f, -0.39491749f, -0.28444138f, -0.18477343f,
                            -0.091050036f, 0.0f,          0.0795803f,   0.1609302f,   0.2461123f,   0.33791524f,
                            0.44070983f,   0.562617f,     0.72295684f,  1.0f};
  const auto folder = [&](int64_t block, float last) {
    const std::string text = R"({"blocksize": )" + std::to_string(block) + R"(, "shape": [32, 64]})";
    return Folder{{"m.weight", {DType::kU8, Shape{kRows * kColumns / 2, 1}, [](int64_t i) { return static_cast<uint32_t>(i * 37) & 255; }}},
                  {"m.weight.absmax", {DType::kF32, Shape{kRows * kColumns / block}, [](int64_t i) { return std::bit_cast<uint32_t>(0.5f + 0.125f * static_cast<float>(i % 5)); }}},
                  {"m.weight.quant_map", {DType::kF32, Shape{16}, [=](int64_t i) { return std::bit_cast<uint32_t>(i == 15 ? last : levels[i]); }}},
                  {"m.weight.quant_state.bitsandbytes__nf4",
                   {DType::kU8, Shape{static_cast<int64_t>(text.size())}, [text](int64_t i) { return static_cast<uint8_t>(text[i]); }}}};
  };
  const struct {
    int64_t block;
    float last;
    DType type;
  } cases[] = {{64, 1, DType::kNF4}, {32, 1, DType::kNF4}, {128, 1, DType::kNF4}, {16, 1, DType::kQ8_0}, {64, 0.98f, DType::kQ8_0}};
  for (const auto& one : cases) {
    SCOPED_TRACE(one.block);
    const auto matrix = Open(R"({"quant_method": "bitsandbytes"})", folder(one.block, one.last));
    ASSERT_TRUE(matrix.has_value() && *matrix != nullptr);
    EXPECT_EQ((*matrix)->type(false), one.type);
    EXPECT_EQ((*matrix)->type(true), DType::kF32);
    // Half a step of 124.12 to 1, and the scale as F16; Q8_0 has 127.
    EXPECT_LE(ErrorOfType(**matrix, false), 0.5 / 124.12 + 0x1.0p-11);
  }
}

// Folders of every format with tensors taken away, of other types and shapes, of random numbers, and odd settings: an error or a
// matrix, never anything else.
TEST_F(QuantizedFolderTest, RandomDamageIsAnErrorOrAMatrix) {
  const auto noise = [](uint64_t seed) {
    return [seed](int64_t i) { return static_cast<uint32_t>((seed + static_cast<uint64_t>(i)) * 0x9e3779b97f4a7c15u >> 29); };
  };
  const std::string state = R"({"blocksize": 64, "shape": [32, 64], "nested_blocksize": 256, "nested_offset": 0.25})";
  const Stored text{DType::kU8, Shape{static_cast<int64_t>(state.size())}, [state](int64_t i) { return static_cast<uint8_t>(state[i]); }};
  const int64_t n = kRows * kColumns;
  const std::vector<std::pair<std::string, Folder>> wholes = {
      {kGptq, Gptq(4)},
      {kGptq, Gptq(3)},
      {kGptq, Gptq(8)},
      {R"({"quant_method": "awq"})",
       {{"m.qweight", {DType::kI32, Shape{kColumns, kRows / 8}}},
        {"m.qzeros", {DType::kI32, Shape{2, kRows / 8}}},
        {"m.scales", {DType::kF16, Shape{2, kRows}}}}},
      {Packed(3),
       {{"m.weight_packed", {DType::kI32, Shape{kRows, 6}}},
        {"m.weight_scale", {DType::kF16, Shape{kRows, 2}}},
        {"m.weight_zero_point", {DType::kI32, Shape{3, 2}}},
        {"m.weight_g_idx", {DType::kI32, Shape{kColumns}}}}},
      {Packed(8),
       {{"m.weight", {DType::kI8, Shape{kRows, kColumns}}},
        {"m.weight_scale", {DType::kBF16, Shape{kRows, 1}}},
        {"m.weight_zero_point", {DType::kI8, Shape{kRows, 1}}}}},
      {R"({"quant_method": "fp8", "weight_block_size": [9223372036854775807, 16]})",
       {{"m.weight", {DType::kF8_E4M3, Shape{kRows, kColumns}}}, {"m.weight_scale_inv", {DType::kF32, Shape{1, 4}}}}},
      {R"({"quant_method": "fp8", "fmt": "e5m2", "weight_block_size": [16, 16]})",
       {{"m.weight", {DType::kF8_E5M2, Shape{kRows, kColumns}}}, {"m.weight_scale_inv", {DType::kF32, Shape{2, 4}}}}},
      {Packed(8), {{"m.weight", {DType::kF8_E4M3, Shape{kRows, kColumns}}}, {"m.weight_scale", {DType::kU8, Shape{kRows, 2}}}}},
      {Packed(4),
       {{"m.weight_packed", {DType::kU8, Shape{kRows, kColumns / 2}}},
        {"m.weight_scale", {DType::kF8_E4M3, Shape{kRows, 4}}},
        {"m.weight_global_scale", {DType::kF32, Shape{1}}}}},
      {R"({"quant_method": "bitsandbytes"})",
       {{"m.weight", {DType::kU8, Shape{n / 2, 1}}},
        {"m.weight.absmax", {DType::kU8, Shape{n / 64}}},
        {"m.weight.nested_absmax", {DType::kF32, Shape{1}}},
        {"m.weight.nested_quant_map", {DType::kF32, Shape{256}}},
        {"m.weight.quant_map", {DType::kF32, Shape{16}}},
        {"m.weight.quant_state.bitsandbytes__nf4", text}}}};
  const DType types[] = {DType::kI32, DType::kU8, DType::kI8, DType::kF16, DType::kF32, DType::kF8_E4M3, DType::kI64};
  Rng rng(7);
  int matrices = 0, errors = 0;
  for (int round = 0; round < 400; ++round) {
    auto [config, folder] = wholes[round % wholes.size()];
    const bool damaged = round >= static_cast<int>(wholes.size());
    for (auto it = folder.begin(); it != folder.end();) {
      Stored& stored = it->second;
      const bool numbers = stored.type == DType::kF16 || stored.type == DType::kF32;
      if (rng.Below(2) == 0 && !numbers && it->first.find("state") == std::string::npos) stored.element = noise(rng.Below(1u << 30));
      if (damaged && rng.Below(8) == 0) stored.type = types[rng.Below(7)];
      if (damaged && rng.Below(8) == 0 && stored.shape.rank() > 0) {
        Shape shape;
        for (int d = 0; d < stored.shape.rank(); ++d) shape.Append(std::max<int64_t>(0, stored.shape[d] + static_cast<int64_t>(rng.Below(3)) - 1));
        stored.shape = shape;
      }
      if (damaged && rng.Below(12) == 0) stored.element = noise(rng.Below(1u << 30));
      it = damaged && rng.Below(16) == 0 ? folder.erase(it) : std::next(it);
    }
    if (folder.empty()) continue;
    kept_.clear();
    const auto matrix = Open(config, folder);
    if (!matrix) {
      EXPECT_NE(matrix.error().message, "");
      ++errors;
      continue;
    }
    if (*matrix == nullptr) continue;
    ++matrices;
    for (const bool exact : {false, true}) {
      const auto tensor = (*matrix)->Transcode(0, kRows, exact, threads_);
      if (tensor) continue;
      EXPECT_NE(tensor.error().message.find(": m: "), std::string::npos) << tensor.error().message;
    }
  }
  EXPECT_GT(matrices, 40);
  EXPECT_GT(errors, 80);
}

}  // namespace
}  // namespace hone
