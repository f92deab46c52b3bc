// PrefixIndex on cases that can be followed by hand, and against a plain list of what every block holds.
#include "cache/prefix_index.h"

#include <gtest/gtest.h>

#include <map>

#include "base/random.h"

namespace hone {
namespace {

std::vector<int32_t> Ids(int32_t first, int count) {
  std::vector<int32_t> ids(count);
  for (int i = 0; i < count; ++i) ids[i] = first + i;
  return ids;
}

std::vector<int32_t> operator+(std::vector<int32_t> a, const std::vector<int32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

PrefixMatch Find(const PrefixIndex& index, uint64_t root, const std::vector<int32_t>& tokens) {
  PrefixMatch match;
  index.Find(root, tokens, &match);
  return match;
}

TEST(PrefixIndex, FindsChainsAndParts) {
  PrefixIndex index(10, 1);
  const uint64_t root = index.OpenRoot("a");
  const std::vector<int32_t> first = Ids(0, 32), second = Ids(100, 32), third = Ids(200, 20);
  EXPECT_EQ(Find(index, root, first).tokens(), 0);
  EXPECT_EQ(index.Insert(root, -1, first, 4), 4);
  EXPECT_EQ(index.Insert(root, 4, second, 2), 2);
  EXPECT_EQ(index.Insert(root, 2, third, 7), 7);
  EXPECT_EQ(index.Audit(), "");

  PrefixMatch match = Find(index, root, first + second + third + Ids(300, 5));
  EXPECT_EQ(match.blocks, (std::vector<int32_t>{4, 2}));
  EXPECT_EQ(match.part, 7);
  EXPECT_EQ(match.part_tokens, 20);
  EXPECT_EQ(match.tokens(), 84);
  match = Find(index, root, first + second + Ids(200, 10) + Ids(900, 9));  // the part is only partly the same
  EXPECT_EQ(match.part_tokens, 10);
  match = Find(index, root, first + second + Ids(200, 5) + Ids(900, 9));  // too little to copy a block for
  EXPECT_EQ(match.part, -1);
  match = Find(index, root, first + second + Ids(200, 5));  // but it is all that is left
  EXPECT_EQ(match.part_tokens, 5);
  match = Find(index, root, first + Ids(100, 31));  // a full block can serve as a part
  EXPECT_EQ(match.blocks, std::vector<int32_t>{4});
  EXPECT_EQ(match.part, 2);
  EXPECT_EQ(match.part_tokens, 31);
  EXPECT_EQ(Find(index, root, second).tokens(), 0);  // the same tokens, but not at the beginning
  EXPECT_EQ(Find(index, root, second + first).tokens(), 0);
}

TEST(PrefixIndex, RootsAreApart) {
  PrefixIndex index(4, 1);
  const std::vector<int32_t> ids = Ids(0, 32);
  const uint64_t a = index.OpenRoot(PrefixRootText("w", "", "f16", "key-a")),
                 b = index.OpenRoot(PrefixRootText("w", "", "f16", "key-b"));
  EXPECT_NE(a, b);
  EXPECT_EQ(index.OpenRoot(PrefixRootText("w", "", "f16", "key-a")), a);
  ASSERT_EQ(index.Insert(a, -1, ids, 0), 0);
  EXPECT_EQ(Find(index, a, ids).tokens(), 32);
  EXPECT_EQ(Find(index, b, ids).tokens(), 0);
  EXPECT_EQ(index.Insert(b, -1, ids, 1), 1);  // not the block of the other tenant
  // A root lives as long as somebody uses it or a block of it is known.
  index.CloseRoot(b);
  EXPECT_EQ(index.roots(), 2);
  index.Forget(1);
  EXPECT_EQ(index.roots(), 1);
  index.CloseRoot(a);
  index.CloseRoot(a);
  EXPECT_EQ(index.OpenRoot(PrefixRootText("w", "", "f16", "key-a")), a);
  EXPECT_EQ(Find(index, a, ids).tokens(), 32);
  index.Forget(0);
  index.CloseRoot(a);
  EXPECT_EQ(index.roots(), 0);
  EXPECT_EQ(index.Audit(), "");
}

TEST(PrefixIndex, EveryPartOfARootCounts) {
  const std::string text = PrefixRootText("w", "a", "k", "s");
  EXPECT_EQ(text, PrefixRootText("w", "a", "k", "s"));
  EXPECT_NE(text, PrefixRootText("W", "a", "k", "s"));
  EXPECT_NE(text, PrefixRootText("w", "A", "k", "s"));
  EXPECT_NE(text, PrefixRootText("w", "a", "K", "s"));
  EXPECT_NE(text, PrefixRootText("w", "a", "k", "S"));
  EXPECT_NE(PrefixRootText("w", "", "1:k", ""), PrefixRootText("w", "1:k", "", ""));  // no field runs into the next
  EXPECT_NE(PrefixRootText("", "", "", "a1:b"), PrefixRootText("", "", "a", "b"));
}

TEST(PrefixIndex, WhatIsKnownIsNotKnownTwice) {
  PrefixIndex index(6, 1);
  const uint64_t root = index.OpenRoot("a");
  const std::vector<int32_t> ids = Ids(0, 32), tail = Ids(50, 12);
  EXPECT_EQ(index.Insert(root, -1, ids, 3), 3);
  EXPECT_EQ(index.Insert(root, -1, ids, 5), 3);
  EXPECT_FALSE(index.Knows(5));
  EXPECT_EQ(index.Insert(root, 3, tail, 1), 1);
  EXPECT_EQ(index.Insert(root, 3, Ids(50, 9), 2), -1);  // block 1 says more
  EXPECT_EQ(index.Insert(root, 3, Ids(50, 14), 2), 2);
  EXPECT_EQ(index.Insert(root, 3, Ids(50, 32), 2), 2);  // the part became a full block
  EXPECT_EQ(Find(index, root, ids + Ids(50, 32)).blocks, (std::vector<int32_t>{3, 2}));
  EXPECT_EQ(index.known(), 3);
  EXPECT_EQ(index.Audit(), "");
}

TEST(PrefixIndex, AForgottenBlockTakesItsChildrenOutOfReach) {
  PrefixIndex index(6, 1);
  const uint64_t root = index.OpenRoot("a");
  const std::vector<int32_t> first = Ids(0, 32), second = Ids(100, 32);
  index.Insert(root, -1, first, 0);
  index.Insert(root, 0, second, 1);
  index.Forget(0);
  EXPECT_EQ(Find(index, root, first + second).tokens(), 0);
  // The same tokens in another block are another node: the child hung on the old one, whose content is gone.
  index.Insert(root, -1, first, 2);
  EXPECT_EQ(Find(index, root, first + second).blocks, std::vector<int32_t>{2});
  index.Insert(root, 2, second, 3);  // its key is that of block 1
  EXPECT_EQ(index.Audit(), "");
  index.Forget(1);
  EXPECT_EQ(index.Audit(), "");
}

// Blocks come and go; whatever Find says must be true of what the blocks hold, and complete as far as chains go.
TEST(PrefixIndex, RandomLives) {
  struct Held {
    uint64_t root;
    std::vector<int32_t> all;  // from the beginning of the sequence to the end of the block
  };
  int found = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Rng rng(seed);
    PrefixIndex index(24, seed);
    const uint64_t roots[] = {index.OpenRoot("a"), index.OpenRoot("b")};
    std::map<int32_t, Held> held;
    const auto random_tokens = [&](int count) {  // few different blocks, so that prefixes meet
      std::vector<int32_t> ids;
      while (static_cast<int>(ids.size()) < count) ids = ids + Ids(static_cast<int32_t>(100 * rng.Below(2)), 32);
      ids.resize(count);
      return ids;
    };
    for (int i = 0; i < 150; ++i) {
      const uint64_t root = roots[rng.Below(2)];
      const std::vector<int32_t> ids = random_tokens(static_cast<int>(1 + rng.Below(140)));
      const PrefixMatch match = Find(index, root, ids);
      int covered = 0;
      for (const int32_t block : match.blocks) {
        covered += kKvBlockTokens;
        ASSERT_EQ(held.at(block).root, root);
        ASSERT_EQ(held.at(block).all, std::vector<int32_t>(ids.begin(), ids.begin() + covered));
        ++found;
      }
      if (match.part >= 0) {
        const Held& part = held.at(match.part);
        ASSERT_EQ(part.root, root);
        ASSERT_LE(match.tokens(), static_cast<int>(std::min(part.all.size(), ids.size())));
        ASSERT_TRUE(std::equal(ids.begin(), ids.begin() + match.tokens(), part.all.begin()));
      }
      const int32_t free_block = static_cast<int32_t>(rng.Below(24));
      const bool used = std::count(match.blocks.begin(), match.blocks.end(), free_block) > 0;
      if (!used && static_cast<int>(ids.size()) > covered) {  // what a scheduler does with a block it got
        index.Forget(free_block);
        held.erase(free_block);
        const int count = std::min<int>(kKvBlockTokens, static_cast<int>(ids.size()) - covered);
        const int32_t parent = match.blocks.empty() ? -1 : match.blocks.back();
        const auto next = std::span(ids).subspan(covered, count);
        const int32_t known = index.Insert(root, parent, next, free_block);
        if (known == free_block) held[free_block] = {root, {ids.begin(), ids.begin() + covered + count}};
      }
      ASSERT_EQ(index.Audit(), "");
      ASSERT_EQ(index.known(), static_cast<int>(held.size()));
    }
  }
  EXPECT_GT(found, 10000);
}

}  // namespace
}  // namespace hone
