// Against files that the real tools wrote from the same base model (goldens/compress/quant/foreign), and packed words
// (goldens/compress/quant/packing).
#include "compress/folder/linear_format.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>

#include "base/random.h"
#include "base/test_shared.h"
#include "compress/numbers/small_floats.h"
#include "formats/safetensors.h"
#include "tensor/float16.h"

namespace hone {
namespace {

struct Encoded {
  std::vector<TensorInfo> infos;
  std::vector<std::vector<std::byte>> bytes;
  std::vector<std::span<const std::byte>> spans() const { return {bytes.begin(), bytes.end()}; }
};

Encoded Encode(const LinearFormat& format, const std::string& module, const LinearWeight& weight, std::byte before = std::byte{0xa5}) {
  ThreadPool threads(2);
  Encoded out{format.Outputs(module, weight.rows, weight.columns, weight.dtype), {}};
  for (const TensorInfo& info : out.infos) out.bytes.emplace_back(info.bytes(), format.wants_zeros() ? std::byte{0} : before);
  format.Encode(weight, out.bytes, threads);
  return out;
}

std::vector<float> Halves(const TensorView& view) {
  std::vector<float> out(view.shape.elements());
  for (size_t i = 0; i < out.size(); ++i) out[i] = F16ToF32(view.as<uint16_t>()[i]);
  return out;
}

float Amax(const std::vector<float>& w) {
  float amax = 0;
  for (const float x : w) amax = std::max(amax, std::fabs(x));
  return amax;
}

// What was in the outputs before does not matter, also where the last word of a row is not full.
TEST(LinearFormat, OutputsAreWrittenWhole) {
  std::vector<float> w(64 * 128);
  for (size_t i = 0; i < w.size(); ++i) w[i] = std::sin(static_cast<float>(i));
  const struct {
    LinearScheme scheme;
    int64_t rows, columns;
  } cases[] = {{{"rtn", "compressed-tensors", 3, 0, false}, 33, 45}, {{"rtn", "compressed-tensors", 4, 0, true}, 3, 7},
               {{"rtn", "compressed-tensors", 8, 32, false}, 5, 96}, {{"rtn", "gptq", 3, 32, false}, 64, 64},
               {{"rtn", "gptq", 4, 128, true}, 64, 128},             {{"rtn", "awq", 4, 32, false}, 24, 96},
               {{"w8a8", "compressed-tensors"}, 3, 7},               {{"fp8", "compressed-tensors"}, 3, 7},
               {{"mxfp8", "compressed-tensors"}, 3, 96},             {{"fp8", "fp8"}, 33, 45},
               {{"mxfp4", "compressed-tensors"}, 3, 96},             {{"nvfp4", "compressed-tensors"}, 3, 48},
               {{"nf4", "bitsandbytes"}, 6, 35},                     {{"fp4", "bitsandbytes"}, 3, 128},
               {{"llm-int8", "bitsandbytes"}, 3, 7}};
  for (const auto& c : cases) {
    const auto format = MakeLinearFormat(c.scheme);
    ASSERT_TRUE(format) << format.error().message;
    const LinearWeight weight{w.data(), c.rows, c.columns, DType::kBF16, 1};
    ASSERT_TRUE((*format)->Check(c.rows, c.columns)) << c.scheme.method << " " << c.scheme.format;
    EXPECT_EQ(Encode(**format, "m", weight).bytes, Encode(**format, "m", weight, std::byte{0}).bytes)
        << c.scheme.method << " " << c.scheme.format << " " << c.scheme.bits;
  }
}

TEST(LinearFormat, SameTensorsAsTheRealTools) {
  HONE_NEED_SHARED(folder, "goldens/compress/quant/foreign");
  const auto base = SafetensorsFile::OpenFolder(folder + "/base");
  ASSERT_TRUE(base);
  const struct {
    const char* golden;
    LinearScheme scheme;
  } cases[] = {{"ct-pack-w4a16-asym", {"rtn", "compressed-tensors", 4, 32, false}},
               {"ct-pack-w3a16-sym", {"rtn", "compressed-tensors", 3, 32, true}},
               {"ct-fp8-channel-token", {"fp8", "compressed-tensors"}},
               {"ct-mxfp4a16", {"mxfp4", "compressed-tensors"}},
               {"ct-nvfp4a16", {"nvfp4", "compressed-tensors"}},
               {"bnb-nf4-dq", {"nf4", "bitsandbytes"}},
               {"bnb-int8", {"llm-int8", "bitsandbytes"}}};
  for (const auto& c : cases) {
    const auto golden = SafetensorsFile::OpenFolder(folder + "/" + c.golden);
    ASSERT_TRUE(golden) << c.golden;
    const auto format = MakeLinearFormat(c.scheme);
    ASSERT_TRUE(format) << format.error().message;
    int compared = 0;
    for (const NamedTensor& tensor : (*base)->tensors()) {
      if (!tensor.name.ends_with("_proj.weight")) continue;
      const std::string module = tensor.name.substr(0, tensor.name.size() - 7);
      const std::vector<float> w = Halves(tensor.view);
      LinearWeight weight{w.data(), tensor.view.shape[0], tensor.view.shape[1], DType::kF16, Amax(w)};
      for (const char* part :
           {"q_proj", "k_proj", "v_proj", "gate_proj", "up_proj"}) {  // what engines fuse shares a scale
        const bool attention = module.find("self_attn") != std::string::npos,
                   fused_ffn = module.find("down") == std::string::npos;
        if (module.find("o_proj") != std::string::npos || (!attention && !fused_ffn)) continue;
        const NamedTensor* other = (*base)->FindTensor(module.substr(0, module.rfind('.') + 1) + part + ".weight");
        if (other != nullptr) weight.shared_amax = std::max(weight.shared_amax, Amax(Halves(other->view)));
      }
      const Encoded got = Encode(**format, module, weight);
      for (size_t i = 0; i < got.infos.size(); ++i) {
        const NamedTensor* wanted = (*golden)->FindTensor(got.infos[i].name);
        ASSERT_NE(wanted, nullptr) << c.golden << " " << got.infos[i].name;
        EXPECT_EQ(Info(wanted->view.type).name, Info(got.infos[i].type).name) << c.golden << " " << got.infos[i].name;
        if (got.infos[i].name.find("quant_state") != std::string::npos) continue;  // the same JSON, padded
        ASSERT_TRUE(wanted->view.shape == got.infos[i].shape)
            << c.golden << " " << got.infos[i].name << wanted->view.shape.ToString();
        int64_t differ = 0;
        for (size_t b = 0; b < got.bytes[i].size(); ++b) differ += got.bytes[i][b] != wanted->view.data[b];
        // bitsandbytes searches its map of scales only approximately, and sums their mean in another order.
        const bool nested = got.infos[i].name.find("absmax") != std::string::npos;
        EXPECT_LE(differ, nested ? 6 : 0) << c.golden << " " << got.infos[i].name << " of " << got.bytes[i].size();
      }
      // What a reader makes of our tensors is near the original.
      std::vector<float> back(w.size());
      (*format)->Decode(got.spans(), weight.rows, weight.columns, DType::kF16, 0, weight.rows, back.data());
      double error = 0, power = 0;
      for (size_t i = 0; i < w.size(); ++i) error += std::pow(back[i] - w[i], 2), power += std::pow(w[i], 2);
      EXPECT_LT(std::sqrt(error / power), c.scheme.bits == 3 ? 0.3 : 0.2) << c.golden << " " << module;
      ++compared;
    }
    EXPECT_EQ(compared, 14) << c.golden;
  }
}

// Shapes that no band, vector or byte divides, at every instruction set.
TEST(LinearFormat, TheSameBytesWithAllVectors) {
  Rng rng(11);
  std::vector<float> w(48 * 224);
  for (float& x : w) x = Bf16ToF32(F32ToBf16(0.02f * (static_cast<float>(rng.Below(1u << 20)) / (1 << 19) - 1)));
  std::vector<LinearScheme> schemes;
  for (const int bits : {2, 3, 4, 8}) {
    for (const bool symmetric : {true, false}) {
      schemes.push_back({"rtn", "gptq", bits, 56, symmetric});
      for (const int64_t group : {7, 32, 0}) schemes.push_back({"rtn", "compressed-tensors", bits - bits / 8, group, symmetric});
    }
  }
  schemes.push_back({"rtn", "awq", 4, 28, false});
  for (const char* method : {"w8a8", "fp8", "mxfp8", "mxfp4", "nvfp4"}) schemes.push_back({method, "compressed-tensors"});
  for (const bool e5m2 : {false, true}) schemes.push_back({.method = "fp8", .format = "fp8", .e5m2 = e5m2});
  for (const char* method : {"nf4", "fp4", "llm-int8"}) schemes.push_back({method, "bitsandbytes"});
  const CpuFacts facts = ReadCpuFacts();
  for (const LinearScheme& scheme : schemes) {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      const int64_t rows = scheme.format == "gptq" && scheme.bits == 3 ? 32 : 48;
      const LinearWeight weight{w.data(), rows, 224, dtype, Amax(w)};
      Encoded wanted;
      std::vector<float> wanted_back(rows * 224), back(rows * 224);
      for (const Isa isa : AllIsas()) {
        if (!facts.Supports(isa)) continue;
        const auto format = MakeLinearFormat(scheme, isa);
        ASSERT_TRUE(format && (*format)->Check(rows, 224)) << scheme.method << " " << scheme.format << " " << scheme.bits;
        const Encoded got = Encode(**format, "m", weight);
        (*format)->Decode(got.spans(), rows, 224, dtype, 0, rows, back.data());
        if (isa == Isa::kScalar) wanted = got, wanted_back = back;
        EXPECT_EQ(got.bytes, wanted.bytes) << scheme.method << " " << scheme.format << " " << scheme.bits << " " << IsaName(isa);
        EXPECT_EQ(back, wanted_back) << scheme.method << " " << scheme.format << " " << scheme.bits << " " << IsaName(isa);
        // Some rows alone are the same rows.
        std::vector<float> some(5 * 224);
        (*format)->Decode(got.spans(), rows, 224, dtype, 13, 5, some.data());
        EXPECT_EQ(std::memcmp(some.data(), &back[13 * 224], some.size() * sizeof(float)), 0) << scheme.method << " " << scheme.format;
      }
    }
  }
}

// Rows that a format says are made: each once, and as they will be when all are; a row at a time they are the same.
TEST(LinearFormat, RowsThatAreMadeCanBeRead) {
  constexpr int64_t kRows = 264, kColumns = 96;  // two of AWQ's bands and a word
  Rng rng(5);
  std::vector<float> w(kRows * kColumns);
  for (float& x : w) x = 0.02f * (static_cast<float>(rng.Below(1u << 20)) / (1 << 19) - 1);
  std::vector<LinearScheme> schemes = {{"rtn", "awq", 4, 32, false}, {"rtn", "compressed-tensors", 4, 32, true},
                                       {"rtn", "compressed-tensors", 4, 32, false}, {"rtn", "compressed-tensors", 3, 0, false},
                                       {"rtn", "gptq", 4, 48, true}};
  for (const int bits : {4, 8}) schemes.push_back({"rtn", "gptq", bits, 32, false});
  for (const char* method : {"w8a8", "fp8", "mxfp8", "mxfp4", "nvfp4"}) schemes.push_back({method, "compressed-tensors"});
  for (const bool e5m2 : {false, true}) schemes.push_back({.method = "fp8", .format = "fp8", .e5m2 = e5m2});
  for (const char* method : {"w8a8", "fp8"}) schemes.push_back({.method = method, .format = "compressed-tensors", .per_tensor = true});
  for (const char* method : {"nf4", "llm-int8"}) schemes.push_back({method, "bitsandbytes"});
  int told_by = 0;
  for (const LinearScheme& scheme : schemes) {
    const std::string name = scheme.method + " " + scheme.format + " " + std::to_string(scheme.bits);
    const auto format = MakeLinearFormat(scheme, Isa::kScalar);
    ASSERT_TRUE(format) << name;
    std::vector<float> told(w.size()), back(w.size());
    std::vector<std::atomic<int>> times(kRows);
    std::vector<std::vector<std::byte>> outputs;
    const auto spans = [&] { return std::vector<std::span<const std::byte>>(outputs.begin(), outputs.end()); };
    LinearWeight weight{w.data(), kRows, kColumns, DType::kBF16, Amax(w)};
    for (const TensorInfo& info : (*format)->Outputs("m", kRows, kColumns, weight.dtype)) outputs.emplace_back(info.bytes(), std::byte{0xa5});
    weight.made = [&](int64_t first, int64_t count, const float* read) {
      for (int64_t i = 0; read != nullptr && i < count * kColumns; ++i) ASSERT_EQ(read[i], w[first * kColumns + i]) << name;
      (*format)->DecodeRows(spans(), kRows, kColumns, weight.dtype, first, count, [&](int64_t row, const float* x) {
        ++times[row];
        std::copy_n(x, kColumns, &told[row * kColumns]);
      });
    };
    ThreadPool threads(2);
    (*format)->Encode(weight, outputs, threads);
    (*format)->Decode(spans(), kRows, kColumns, weight.dtype, 0, kRows, back.data());
    for (int64_t r = 0; r < kRows; ++r) ASSERT_EQ(times[r], (*format)->tells_rows() ? 1 : 0) << name << " row " << r;
    if ((*format)->tells_rows()) {
      ++told_by;
      EXPECT_EQ(told, back) << name;
    }
    // Any stretch of rows.
    for (const auto& [first, count] : {std::pair<int64_t, int64_t>{0, kRows}, {3, 130}, {127, 2}, {263, 1}}) {
      int64_t next = first;
      (*format)->DecodeRows(spans(), kRows, kColumns, weight.dtype, first, count, [&](int64_t row, const float* x) {
        ASSERT_EQ(row, next++) << name;
        ASSERT_EQ(std::memcmp(x, &back[row * kColumns], kColumns * sizeof(float)), 0) << name << " row " << row;
      });
      EXPECT_EQ(next, first + count) << name;
    }
  }
  EXPECT_EQ(told_by, 17);
}

// What a format says of itself, found before its scales are stored, against a plain decoding of what it wrote: hostile tensors.
TEST(LinearFormat, WhatIsToldOfCodesIsWhatTheyDecodeTo) {
  Rng rng(17);
  const auto draw = [&] { return static_cast<float>(rng.Below(1u << 20)) / (1 << 19) - 1; };
  struct Case {
    const char* name;
    int64_t rows, columns;
    std::function<float(int64_t i)> weight;
  };
  const auto even = [&](float scale) { return [&, scale](int64_t) { return scale * draw(); }; };
  const Case cases[] = {
      {"plain", 64, 256, even(0.02f)},
      {"two weights", 1, 2, even(1)},
      {"two weights, a column", 2, 1, even(1)},
      {"less than a block", 3, 14, even(0.5f)},
      {"odd rows", 34, 35, even(0.5f)},
      {"odd rows, many", 130, 77, even(3)},
      {"a last block of two", 33, 130, even(0.1f)},
      {"zeros", 16, 128, [](int64_t) { return 0.0f; }},
      {"zeros of both signs", 16, 128, [](int64_t i) { return i % 2 == 0 ? 0.0f : -0.0f; }},
      {"zero blocks", 40, 192, [&](int64_t i) { return i / 64 % 3 == 0 ? 0.0f : draw(); }},
      {"one weight of many", 40, 192, [](int64_t i) { return i == 777 ? -3.0f : 0.0f; }},
      {"all alike", 16, 128, [](int64_t) { return 0.7f; }},
      {"codes exactly", 16, 128, [](int64_t i) { return i % 64 == 0 ? 1.0f : i % 2 == 0 ? 0.0f : -1.0f; }},
      {"one block a million times the others", 32, 256, [&](int64_t i) { return (i / 64 == 50 ? 1e6f : 1.0f) * draw(); }},
      {"one block a million times less", 32, 256, [&](int64_t i) { return (i / 64 == 50 ? 1e-6f : 1.0f) * draw(); }},
      {"huge", 32, 256, even(1e37f)},
      {"squares beyond floats", 32, 256, even(1e25f)},
      {"tiny", 32, 256, even(1e-25f)},
      {"subnormal", 32, 256, even(1e-39f)},
      {"the least there is", 32, 64, [&](int64_t i) { return i % 7 == 0 ? 1e-45f : 0.0f; }},
      {"all magnitudes", 64, 256, [&](int64_t i) { return std::ldexp(draw(), static_cast<int>(i / 64 % 250) - 125); }},
      {"tails", 64, 256, [&](int64_t) { return std::pow(draw(), 9.0f); }}};
  const CpuFacts facts = ReadCpuFacts();
  for (const Case& c : cases) {
    std::vector<float> w(static_cast<size_t>(c.rows * c.columns));
    for (size_t i = 0; i < w.size(); ++i) w[i] = c.weight(static_cast<int64_t>(i));
    for (const char* method : {"nf4", "fp4"}) {
      Deviation first;
      for (const Isa isa : AllIsas()) {
        if (!facts.Supports(isa)) continue;
        const std::string name = std::string(c.name) + ", " + method + ", " + std::string(IsaName(isa));
        const auto format = MakeLinearFormat({method, "bitsandbytes"}, isa);
        ASSERT_TRUE(format && (*format)->compares() && (*format)->Check(c.rows, c.columns)) << name;
        LinearWeight weight{w.data(), c.rows, c.columns, DType::kF32};
        const Encoded alone = Encode(**format, "m", weight);
        Deviation told;
        weight.deviation = &told;
        const Encoded got = Encode(**format, "m", weight);
        EXPECT_EQ(got.bytes, alone.bytes) << name;
        std::vector<float> back(w.size());
        (*format)->Decode(got.spans(), c.rows, c.columns, DType::kF32, 0, c.rows, back.data());
        Deviation plain;
        for (size_t i = 0; i < w.size(); ++i) {
          const double e = double{back[i]} - w[i];
          plain.error += e * e, plain.power += double{w[i]} * w[i], plain.largest = std::max(plain.largest, std::fabs(e));
        }
        EXPECT_EQ(told.largest, plain.largest) << name;
        EXPECT_NEAR(told.power, plain.power, 2e-6 * plain.power) << name;
        // Sums of floats, of weights that decoding rounds to floats.
        EXPECT_NEAR(told.error, plain.error, 2e-6 * (plain.error + std::sqrt(plain.error * plain.power)) + 1e-14 * plain.power) << name;
        if (isa == Isa::kScalar) first = told;
        EXPECT_EQ(told.error, first.error) << name;
        EXPECT_EQ(told.power, first.power) << name;
      }
    }
  }
}

TEST(LinearFormat, PackedWords) {
  HONE_NEED_SHARED(folder, "goldens/compress/quant/packing");
  for (const int bits : {1, 2, 3, 4, 5, 6, 7, 8}) {
    const auto file = SafetensorsFile::Open(folder + "/ct-b" + std::to_string(bits) + ".safetensors");
    ASSERT_TRUE(file);
    const TensorView &codes = (*file)->FindTensor("codes")->view, &packed = (*file)->FindTensor("packed")->view;
    const int64_t rows = codes.shape[0], columns = codes.shape[1];
    std::vector<uint8_t> unsigned_codes(static_cast<size_t>(rows * columns)), down_codes(rows), back(columns);
    for (size_t i = 0; i < unsigned_codes.size(); ++i)
      unsigned_codes[i] = static_cast<uint8_t>(codes.as<int8_t>()[i] + (1 << (bits - 1)));
    std::vector<std::byte> row(packed.row_bytes());
    // Down the columns, as zero points lie; and as libraries before 2026 padded words.
    const TensorView &down = (*file)->FindTensor("packed_dim0")->view, &padded = (*file)->FindTensor("packed_old_padded")->view;
    std::vector<std::byte> column(4 * down.shape[0]);
    for (int64_t i = 0; i < columns; ++i) {
      std::fill(column.begin(), column.end(), std::byte{0});
      for (int64_t r = 0; r < rows; ++r) down_codes[r] = unsigned_codes[r * columns + i];
      PackBits(down_codes.data(), rows, bits, column.data());
      for (int64_t word = 0; word < down.shape[0]; ++word)
        EXPECT_EQ(std::memcmp(column.data() + 4 * word, down.data + 4 * (word * down.shape[1] + i), 4), 0) << bits;
    }
    const int per_word = 32 / bits;
    for (int64_t r = 0; r < rows; ++r) {
      const std::vector<uint8_t> wanted(&unsigned_codes[r * columns], &unsigned_codes[r * columns] + columns);
      for (int64_t i = 0; i < columns; i += per_word)
        UnpackBits(padded.data + r * padded.row_bytes() + i / per_word * 4, std::min<int64_t>(per_word, columns - i), bits, &back[i]);
      EXPECT_EQ(back, wanted) << bits << " padded, row " << r;
      std::fill(row.begin(), row.end(), std::byte{0});
      PackBits(wanted.data(), columns, bits, row.data());
      EXPECT_EQ(std::memcmp(row.data(), packed.data + r * row.size(), row.size()), 0) << bits << " row " << r;
      UnpackBits(row.data(), columns, bits, back.data());
      EXPECT_EQ(back, wanted) << bits << " row " << r;
    }
  }
  // GPTQ and AWQ: weights that are the codes minus the zeros of a golden file, so that its words must come out where
  // the grid is the same (scale 1, a group that reaches both ends of the range).
  for (const char* name : {"gptq-b2", "gptq-b3", "gptq-b4", "gptq-b8", "awq-gemm"}) {
    const auto file = SafetensorsFile::Open(folder + "/" + name + ".safetensors");
    ASSERT_TRUE(file);
    const bool awq = std::string(name).starts_with("awq");
    const int bits = awq ? 4 : name[6] - '0';
    const auto view = [&](const char* tensor) -> const TensorView& { return (*file)->FindTensor(tensor)->view; };
    std::vector<float> w(32 * 128);
    bool whole = true;
    for (int64_t r = 0; r < 32; ++r) {
      for (int64_t g = 0; g < 2; ++g) {
        int low = 255, high = 0;
        for (int64_t i = 64 * g; i < 64 * (g + 1); ++i) {
          const int code = view("codes").as<uint8_t>()[i * 32 + r], zero = view("zeros").as<uint8_t>()[g * 32 + r];
          low = std::min(low, code), high = std::max(high, code);
          w[r * 128 + i] = static_cast<float>(code - zero);
        }
        whole &= low == 0 && high == (1 << bits) - 1;
      }
    }
    const auto format = MakeLinearFormat({"rtn", awq ? "awq" : "gptq", bits, 64, false});
    ASSERT_TRUE(format);
    const Encoded got = Encode(**format, "m", {w.data(), 32, 128, DType::kF32, 0});
    std::vector<float> back(w.size());
    (*format)->Decode(got.spans(), 32, 128, DType::kF32, 0, 32, back.data());
    if (whole) {
      EXPECT_EQ(std::memcmp(got.bytes[0].data(), view("qweight").data, got.bytes[0].size()), 0) << name;
      EXPECT_EQ(std::memcmp(got.bytes[1].data(), view(awq ? "qzeros" : "qzeros_v2").data, got.bytes[1].size()), 0)
          << name;
      EXPECT_EQ(back, w) << name;
    }
    if (!awq) {  // version 1 of the zeros: one less, wrapping
      std::vector<std::byte> words(view("qzeros_v1").bytes());
      for (int64_t g = 0; g < 2; ++g) {
        uint8_t less[32];
        for (int64_t r = 0; r < 32; ++r)
          less[r] = static_cast<uint8_t>((view("zeros").as<uint8_t>()[g * 32 + r] + (1u << bits) - 1) & ((1u << bits) - 1));
        PackBits(less, 32, bits, words.data() + g * 32 * bits / 8);
      }
      EXPECT_EQ(std::memcmp(words.data(), view("qzeros_v1").data, words.size()), 0) << name;
    }
    // The golden's own words, read.
    std::vector<std::byte> ones(2 * 2 * 32);
    for (int i = 0; i < 64; ++i) StoreAs(DType::kF16, 1.0f, ones.data() + 2 * i);
    const TensorView &qweight = view("qweight"), &qzeros = view(awq ? "qzeros" : "qzeros_v2");
    std::vector<int32_t> group_of(128);
    for (int i = 0; i < 128; ++i) group_of[i] = i / 64;
    const std::span<const std::byte> words[] = {
        {qweight.data, qweight.bytes()}, {qzeros.data, qzeros.bytes()}, ones, std::as_bytes(std::span(group_of))};
    (*format)->Decode(words, 32, 128, DType::kF32, 0, 32, back.data());
    EXPECT_EQ(back, w) << name;
  }
}

// One scale a matrix, from the largest magnitude of all that an engine fuses, and each weight the nearest code of that scale.
TEST(LinearFormat, OneScaleAMatrix) {
  constexpr int64_t kRows = 5, kColumns = 48;
  Rng rng(6);
  std::vector<float> w(kRows * kColumns);
  for (float& x : w) x = Bf16ToF32(F32ToBf16(static_cast<float>(rng.Below(1u << 20)) / (1 << 19) - 1));
  for (float& x : std::span(w).first(kColumns)) x /= 64;  // a row that would have a scale of its own
  const float shared = 3;  // of another matrix
  for (const char* method : {"w8a8", "fp8"}) {
    SCOPED_TRACE(method);
    const auto format = MakeLinearFormat({.method = method, .format = "compressed-tensors", .per_tensor = true});
    ASSERT_TRUE(format);
    EXPECT_TRUE((*format)->needs_shared_amax());
    const Encoded got = Encode(**format, "m", {w.data(), kRows, kColumns, DType::kBF16, shared});
    ASSERT_EQ(got.infos[1].shape, Shape{1});
    const bool whole = method[0] == 'w';
    const float scale = Bf16ToF32(F32ToBf16(shared / (whole ? 127.5f : 448.0f)));
    EXPECT_EQ(Bf16ToF32(*reinterpret_cast<const uint16_t*>(got.bytes[1].data())), scale);
    std::vector<float> back(w.size());
    (*format)->Decode(got.spans(), kRows, kColumns, DType::kBF16, 0, kRows, back.data());
    for (size_t i = 0; i < w.size(); ++i) {
      // Half a step: of whole numbers, or of E4M3 (3 bits after the point, 2^-9 at least); and BF16's rounding of the quotient.
      const float q = std::fabs(w[i]) / scale, step = whole ? 1.0f : std::max(std::exp2(std::floor(std::log2(q)) - 3), std::exp2(-9.0f));
      EXPECT_LE(std::fabs(back[i] - w[i]), scale * (step / 2 + q / 256)) << i;
    }
    EXPECT_NE((*format)->ConfigJson(DType::kBF16).find("\"strategy\": \"tensor\""), std::string::npos);
  }
}

// The golden's scales take the power of two at or below the largest magnitude, compressed-tensors' the next one from 1.75 on, where
// E4M3 ends: else the codes are the same, and nothing is beyond the largest number.
TEST(LinearFormat, Mxfp8AgainstTheGolden) {
  HONE_NEED_SHARED(folder, "goldens/compress/quant/floats");
  const auto file = SafetensorsFile::Open(folder + "/mx-e4m3.safetensors");
  ASSERT_TRUE(file);
  const TensorView &x = (*file)->FindTensor("weight")->view, &codes = (*file)->FindTensor("codes")->view, &scales = (*file)->FindTensor("scale_e8m0")->view;
  const auto format = MakeLinearFormat({"mxfp8", "compressed-tensors"});
  ASSERT_TRUE(format);
  const Encoded got = Encode(**format, "m", {x.as<float>(), x.shape[0], x.shape[1], DType::kF32});
  ASSERT_EQ(got.bytes[0].size(), codes.bytes());
  ASSERT_EQ(got.bytes[1].size(), scales.bytes());
  std::vector<float> back(static_cast<size_t>(x.shape.elements()));
  (*format)->Decode(got.spans(), x.shape[0], x.shape[1], DType::kF32, 0, x.shape[0], back.data());
  int64_t same = 0, above = 0;
  for (size_t b = 0; b < got.bytes[1].size(); ++b) {
    float amax = 0, most = 0;
    for (size_t i = 32 * b; i < 32 * (b + 1); ++i) amax = std::max(amax, std::fabs(x.as<float>()[i])), most = std::max(most, std::fabs(back[i]));
    const int theirs = scales.as<uint8_t>()[b], mine = static_cast<int>(got.bytes[1][b]);
    const bool next = amax > 0 && std::isnormal(amax) && amax / std::exp2(std::floor(std::log2(amax))) >= 1.75f;
    EXPECT_EQ(mine, std::min(254, theirs + next)) << b << " of " << amax;
    EXPECT_LE(std::fabs(most - amax), amax / 16 + 0x1.0p-136f) << b;
    if (mine == theirs) {
      ++same;
      EXPECT_EQ(std::memcmp(&got.bytes[0][32 * b], codes.data + 32 * b, 32), 0) << b << " of " << amax;
    } else {
      ++above;
    }
  }
  EXPECT_GT(same, 20);
  EXPECT_GT(above, 2);
}

// Blocks of 128 rows and columns, whole ones and the last of each side: the scale brings the largest magnitude to the largest number.
TEST(LinearFormat, BlocksOfFp8) {
  constexpr int64_t kRows = 131, kColumns = 200;
  Rng rng(8);
  std::vector<float> w(kRows * kColumns);
  for (float& x : w) x = static_cast<float>(rng.Below(1u << 20)) / (1 << 19) - 1;
  for (int64_t i = 128; i < kColumns; ++i) w[129 * kColumns + i] *= 1000;
  w[0] = -1e-20f;
  for (const bool e5m2 : {false, true}) {
    const SmallFloat& number = e5m2 ? kE5M2 : kE4M3;
    const float top = e5m2 ? 57344.0f : 448.0f;
    const auto format = MakeLinearFormat({.method = "fp8", .format = "fp8", .e5m2 = e5m2});
    ASSERT_TRUE(format);
    const Encoded got = Encode(**format, "m", {w.data(), kRows, kColumns, DType::kBF16});
    EXPECT_EQ(got.infos[0].type, e5m2 ? DType::kF8_E5M2 : DType::kF8_E4M3);
    ASSERT_EQ(got.infos[1].name, "m.weight_scale_inv");
    ASSERT_EQ(got.infos[1].shape, (Shape{2, 2}));
    std::vector<float> back(w.size());
    (*format)->Decode(got.spans(), kRows, kColumns, DType::kBF16, 0, kRows, back.data());
    for (int64_t i = 0; i < kRows * kColumns; ++i) {
      const int64_t r = i / kColumns / 128 * 128, c = i % kColumns / 128 * 128;
      float amax = 0;
      for (int64_t j = r; j < std::min(r + 128, kRows); ++j) {
        for (int64_t k = c; k < std::min(c + 128, kColumns); ++k) amax = std::max(amax, std::fabs(w[j * kColumns + k]));
      }
      const float scale = amax / top;
      const uint8_t code = EncodeSmallFloat(number, w[i] / scale);
      ASSERT_EQ(static_cast<uint8_t>(got.bytes[0][i]), code) << e5m2 << " " << i;
      ASSERT_EQ(back[i], DecodeSmallFloat(number, code) * scale) << e5m2 << " " << i;
      i += i % kColumns < kColumns - 8 ? 6 : 0;  // some are enough
    }
  }
}

TEST(LinearFormat, ShapesAndSchemesThatCannotWorkAreRefused) {
  const auto message = [](const LinearScheme& scheme, int64_t rows, int64_t columns) {
    const auto format = MakeLinearFormat(scheme);
    if (!format) return format.error().message;
    const Result<void> checked = (*format)->Check(rows, columns);
    return checked ? std::string() : checked.error().message;
  };
  EXPECT_EQ(message({"rtn", "compressed-tensors", 4, 128}, 64, 256), "");
  EXPECT_NE(message({"rtn", "compressed-tensors", 4, 128}, 64, 192).find("no whole groups of 128"), std::string::npos);
  EXPECT_NE(message({"rtn", "compressed-tensors", 9, 128}, 64, 256).find("--bits 9"), std::string::npos);
  EXPECT_NE(message({"rtn", "gptq", 5, 128}, 64, 256).find("--bits 5"), std::string::npos);
  EXPECT_NE(message({"rtn", "gptq", 3, 128}, 40, 256).find("whole 32-bit words"), std::string::npos);
  EXPECT_NE(message({"rtn", "awq", 4, 128, true}, 64, 256).find("--asym"), std::string::npos);
  EXPECT_NE(message({"rtn", "awq", 4, 128, false}, 63, 256).find("eight a word"), std::string::npos);
  EXPECT_NE(message({"nvfp4", "compressed-tensors"}, 64, 40).find("NVFP4"), std::string::npos);
  EXPECT_NE(message({"mxfp8", "compressed-tensors"}, 64, 40).find("MXFP8"), std::string::npos);
  EXPECT_NE(message({.method = "fp8", .format = "compressed-tensors", .e5m2 = true}, 64, 64).find("--format fp8"), std::string::npos);
  EXPECT_NE(message({.method = "fp8", .format = "fp8", .per_tensor = true}, 64, 64).find("--per-tensor"), std::string::npos);
  EXPECT_NE(message({"hqq", "gptq"}, 64, 64).find("rtn in compressed-tensors"), std::string::npos);
}

TEST(LinearFormat, TinyWeightsKeepFiniteScales) {
  std::vector<float> w(64 * 64, 1e-30f);
  for (const LinearScheme& scheme :
       {LinearScheme{"rtn", "compressed-tensors", 4, 32, true}, LinearScheme{"rtn", "compressed-tensors", 4, 32, false},
        LinearScheme{"rtn", "gptq", 4, 32, true}, LinearScheme{"rtn", "awq", 4, 32, false},
        LinearScheme{"fp8", "compressed-tensors"}, LinearScheme{"nvfp4", "compressed-tensors"},
        LinearScheme{"mxfp8", "compressed-tensors"}, LinearScheme{"fp8", "fp8"},
        LinearScheme{.method = "fp8", .format = "fp8", .e5m2 = true}, LinearScheme{"mxfp4", "compressed-tensors"},
        LinearScheme{"nf4", "bitsandbytes"}}) {
    for (const DType dtype : {DType::kF16, DType::kBF16}) {
      const auto format = MakeLinearFormat(scheme);
      ASSERT_TRUE(format);
      const Encoded got = Encode(**format, "m", {w.data(), 64, 64, dtype, 1e-30f});
      std::vector<float> back(w.size());
      (*format)->Decode(got.spans(), 64, 64, dtype, 0, 64, back.data());
      for (const float x : back)
        ASSERT_TRUE(std::isfinite(x) && std::fabs(x) < 1e-4f) << scheme.method << " " << scheme.format << " " << x;
    }
  }
}

}  // namespace
}  // namespace hone
