// DequantizeRow against blocks of real files that another reader decoded (testdata/blocks.txt), and by hand at the edges.
#include "kernels/dequantize/dequantize.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tensor/blocks.h"
#include "tensor/float16.h"

namespace hone {
namespace {

std::vector<std::byte> FromHex(const std::string& text) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i + 2 <= text.size(); i += 2) bytes.push_back(std::byte(std::stoi(text.substr(i, 2), nullptr, 16)));
  return bytes;
}

TEST(Dequantize, BlocksOfFilesBitForBit) {
  std::ifstream file(HONE_SOURCE_DIR "/src/kernels/dequantize/testdata/blocks.txt");
  std::set<std::string> types;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    std::string name, block_hex, want_hex;
    words >> name >> block_hex >> want_hex;
    SCOPED_TRACE(name);
    const auto type = DTypeFromName(name);
    ASSERT_TRUE(type.has_value() && CanDequantize(*type));
    const std::vector<std::byte> block = FromHex(block_hex);
    ASSERT_EQ(block.size(), Info(*type).block_bytes);
    std::vector<float> got(Info(*type).block_elements);
    DequantizeRow(*type, block.data(), static_cast<int64_t>(got.size()), got.data());
    ASSERT_EQ(want_hex.size(), got.size() * 8);
    for (size_t i = 0; i < got.size(); ++i) {
      const auto want = static_cast<uint32_t>(std::stoul(want_hex.substr(8 * i, 8), nullptr, 16));
      ASSERT_EQ(got[i], std::bit_cast<float>(want)) << "element " << i;
    }
    types.insert(name);
  }
  EXPECT_EQ(types.size(), 14u);
}

TEST(Dequantize, FloatsAtAnyAlignment) {
  std::vector<std::byte> bytes(1 + 4 * 3);
  const float values[3] = {1.5f, -0.0f, 3e38f};
  std::memcpy(bytes.data() + 1, values, 12);
  float out[3];
  DequantizeRow(DType::kF32, bytes.data() + 1, 3, out);
  EXPECT_EQ(0, std::memcmp(values, out, 12));
  const uint16_t halves[3] = {0x3c00, 0x0001, 0xfc00};  // 1, 2^-24, -infinity
  std::memcpy(bytes.data() + 1, halves, 6);
  DequantizeRow(DType::kF16, bytes.data() + 1, 3, out);
  EXPECT_EQ(out[0], 1.0f);
  EXPECT_EQ(out[1], 0x1.0p-24f);
  EXPECT_EQ(out[2], -HUGE_VALF);
  const uint16_t brains[2] = {0x3f80, 0xc040};
  std::memcpy(bytes.data() + 1, brains, 4);
  DequantizeRow(DType::kBF16, bytes.data() + 1, 2, out);
  EXPECT_EQ(out[0], 1.0f);
  EXPECT_EQ(out[1], -3.0f);
}

TEST(Dequantize, ExponentsOfMxfp4) {
  for (const int e : {0, 1, 2, 127, 254}) {
    BlockMXFP4 block{static_cast<uint8_t>(e), {0x92}};  // low nibble 2: value 1; high nibble 9: value -0.5
    float out[32];
    DequantizeRow(DType::kMXFP4, reinterpret_cast<const std::byte*>(&block), 32, out);
    EXPECT_EQ(out[0], static_cast<float>(std::ldexp(1.0, e - 127))) << e;
    EXPECT_EQ(out[16], static_cast<float>(std::ldexp(-0.5, e - 127))) << e;
    EXPECT_EQ(out[1], 0.0f);
  }
}

// Against the levels that bitsandbytes writes: each within half a step.
TEST(Dequantize, LevelsOfNf4) {
  const float levels[16] = {-1.0f,         -0.69619280f,  -0.52507305f, -0.39491749f, -0.28444138f, -0.18477343f,
                            -0.091050036f, 0.0f,          0.0795803f,   0.1609302f,   0.2461123f,   0.33791524f,
                            0.44070983f,   0.562617f,     0.72295684f,  1.0f};
  BlockNF4 block{F32ToF16(1.0f), {}};
  for (int j = 0; j < 16; ++j) block.qs[j] = static_cast<uint8_t>(j | (15 - j) << 4);
  float out[32];
  DequantizeRow(DType::kNF4, reinterpret_cast<const std::byte*>(&block), 32, out);
  for (int j = 0; j < 16; ++j) {
    EXPECT_NEAR(out[j], levels[j] * kNf4Steps, 0.5) << j;
    EXPECT_EQ(out[16 + j], out[15 - j]) << j;
  }
}

TEST(Dequantize, SmallestSignedByte) {
  BlockQ8_0 block{F32ToF16(0.5f), {-128, 127}};
  float out[32];
  DequantizeRow(DType::kQ8_0, reinterpret_cast<const std::byte*>(&block), 32, out);
  EXPECT_EQ(out[0], -64.0f);
  EXPECT_EQ(out[1], 63.5f);
}

TEST(Dequantize, SaysWhatItCannotRead) {
  EXPECT_FALSE(CanDequantize(DType::kIQ2_XS));
  EXPECT_FALSE(CanDequantize(DType::kI32));
  EXPECT_TRUE(CanDequantize(DType::kBF16));
}

}  // namespace
}  // namespace hone
