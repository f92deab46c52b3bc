// Digest128: the same however bytes are cut, different for anything else.
#include "base/digest.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "base/random.h"

namespace hone {
namespace {

std::string DigestOf(std::string_view bytes) {
  Digest128 digest;
  digest.Bytes(bytes.data(), bytes.size());
  return digest.Hex();
}

TEST(Digest, CutsDoNotMatter) {
  Rng rng(1);
  for (int round = 0; round < 200; ++round) {
    std::string bytes(rng.Below(100), '\0');
    for (char& c : bytes) c = static_cast<char>(rng.Next());
    Digest128 digest;
    for (size_t at = 0; at < bytes.size();) {
      const size_t n = 1 + rng.Below(bytes.size() - at);
      digest.Bytes(bytes.data() + at, n);
      at += n;
    }
    EXPECT_EQ(digest.Hex(), DigestOf(bytes));
  }
}

TEST(Digest, EveryBitAndEveryLengthCounts) {
  std::set<std::string> seen;
  size_t made = 0;
  for (size_t size = 0; size < 40; ++size, ++made) seen.insert(DigestOf(std::string(size, '\0')));
  for (size_t size : {1u, 15u, 16u, 17u, 64u}) {
    for (size_t bit = 0; bit < 8 * size; ++bit, ++made) {
      std::string bytes(size, '\0');
      bytes[bit / 8] = static_cast<char>(1 << bit % 8);
      seen.insert(DigestOf(bytes));
    }
  }
  EXPECT_EQ(seen.size(), made);
  EXPECT_EQ(DigestOf("x").size(), 32u);
}

TEST(Digest, SwappedWordsAndSplitTextsDiffer) {
  std::string a(32, 'a'), b(32, 'a');
  a[0] = b[16] = 'b';
  EXPECT_NE(DigestOf(a), DigestOf(b));
  Digest128 one, two;
  one.Text("ab"), one.Text("c");
  two.Text("a"), two.Text("bc");
  EXPECT_NE(one.Hex(), two.Hex());
}

TEST(Digest, HalvesAreBothSpread) {  // of many similar inputs no half may repeat
  std::set<std::string> low, high;
  for (int i = 0; i < 20000; ++i) {
    const std::string hex = DigestOf(std::to_string(i));
    low.insert(hex.substr(0, 16)), high.insert(hex.substr(16));
  }
  EXPECT_EQ(low.size(), 20000u);
  EXPECT_EQ(high.size(), 20000u);
}

}  // namespace
}  // namespace hone
