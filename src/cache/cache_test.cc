// BlockPool against a model that keeps owner counts in a map; KvCache's layout against kv_view.h; FreeMemoryBytes on made files.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

#include "base/random.h"
#include "cache/block_pool.h"
#include "cache/free_memory.h"
#include "cache/kv_cache.h"

namespace hone {
namespace {

TEST(BlockPool, BlocksForRoundsUp) {
  EXPECT_EQ(BlockPool::BlocksFor(0), 0);
  EXPECT_EQ(BlockPool::BlocksFor(1), 1);
  EXPECT_EQ(BlockPool::BlocksFor(kKvBlockTokens), 1);
  EXPECT_EQ(BlockPool::BlocksFor(kKvBlockTokens + 1), 2);
}

TEST(BlockPool, AllOrNothing) {
  BlockPool pool(3);
  std::vector<int32_t> a, b;
  EXPECT_TRUE(pool.Allocate(2, &a));
  EXPECT_FALSE(pool.Allocate(2, &b));
  EXPECT_TRUE(b.empty());
  EXPECT_EQ(pool.free_blocks(), 1);
  EXPECT_TRUE(pool.Allocate(0, &b));
  pool.ReleaseAll(&a);
  EXPECT_TRUE(a.empty());
  EXPECT_EQ(pool.free_blocks(), 3);
  EXPECT_EQ(pool.Audit(), "");
}

TEST(BlockPool, SharedBlocksAreReadOnlyAndLiveUntilTheLastOwner) {
  BlockPool pool(1);
  std::vector<int32_t> table;
  ASSERT_TRUE(pool.Allocate(1, &table));
  EXPECT_TRUE(pool.IsWritable(table[0]));
  pool.Share(table[0]);
  EXPECT_FALSE(pool.IsWritable(table[0]));
  pool.Release(table[0]);
  EXPECT_EQ(pool.free_blocks(), 0);
  EXPECT_TRUE(pool.IsWritable(table[0]));
  pool.Release(table[0]);
  EXPECT_EQ(pool.free_blocks(), 1);
}

TEST(BlockPool, AnEmptyPoolGivesNothing) {
  BlockPool pool(0);
  std::vector<int32_t> table;
  EXPECT_FALSE(pool.Allocate(1, &table));
  EXPECT_EQ(pool.Audit(), "");
}

TEST(BlockPoolDeathTest, MisuseIsCaught) {
  BlockPool pool(2);
  EXPECT_DEATH(pool.Release(0), "released again");
  EXPECT_DEATH(pool.Share(0), "shared");
  EXPECT_DEATH(pool.Release(2), "");
}

TEST(BlockPool, RandomUseConservesBlocks) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Rng rng(seed);
    const int blocks = static_cast<int>(rng.Below(20));
    BlockPool pool(blocks);
    std::map<int32_t, int> owners;
    for (int i = 0; i < 200; ++i) {
      const uint64_t what = rng.Below(3);
      if (what == 0) {
        std::vector<int32_t> got;
        const int count = static_cast<int>(rng.Below(4));
        ASSERT_EQ(pool.Allocate(count, &got), count <= blocks - static_cast<int>(owners.size()));
        for (const int32_t block : got) ASSERT_TRUE(owners.emplace(block, 1).second) << "a used block was given out";
      } else if (!owners.empty()) {
        auto it = std::next(owners.begin(), rng.Below(owners.size()));
        if (what == 1) {
          pool.Share(it->first);
          ++it->second;
        } else {
          pool.Release(it->first);
          if (--it->second == 0) owners.erase(it);
        }
      }
      ASSERT_EQ(pool.Audit(), "");
      ASSERT_EQ(pool.used_blocks(), static_cast<int>(owners.size()));
      for (const auto& [block, count] : owners) ASSERT_EQ(pool.references(block), count);
    }
  }
}

TEST(KvCache, ViewsOfDifferentLayersBlocksHeadsAndRowsDoNotOverlap) {
  const KvCacheShape shape{KvType::kF16, 2, 3, 4, 5};
  EXPECT_EQ(shape.block_bytes(), 2u * 3 * 4 * 32 * 2);
  EXPECT_EQ(shape.total_bytes(), shape.block_bytes() * 2 * 5);
  KvCache cache(shape);
  std::map<std::byte*, int> starts;
  for (int layer = 0; layer < 2; ++layer) {
    for (int32_t block = 0; block < 5; ++block) {
      const KvView view = cache.View(layer, &block);
      for (int head = 0; head < 3; ++head) {
        for (int row = 0; row < kKvBlockTokens; ++row) {
          for (std::byte* start : {view.KeyBlock(head, 0) + row * 8, view.ValueBlock(head, 0) + row * 8}) {
            std::memset(start, 1, 4 * 2);  // within the buffer: the address sanitizer would tell
            EXPECT_TRUE(starts.emplace(start, 0).second);
          }
        }
      }
    }
  }
  std::byte* previous = nullptr;
  for (const auto& [start, unused] : starts) {
    EXPECT_TRUE(previous == nullptr || start - previous >= 8);
    previous = start;
  }
}

// A token's share of head 0's bytes, whatever they mean (blocks are copied as bytes).
std::byte* KeyBytes(const KvView& view, int position) {
  return view.KeyBlock(0, position / kKvBlockTokens) + position % kKvBlockTokens * 8;
}
std::byte* ValueBytes(const KvView& view, int position) {
  return view.ValueBlock(0, position / kKvBlockTokens) + position % kKvBlockTokens * 8;
}

TEST(KvCache, CopyBlockCopiesAllLayersAndNothingElse) {
  KvCache cache({KvType::kF32, 2, 1, 2, 3});
  const int32_t table[] = {0, 1, 2};
  for (int layer = 0; layer < 2; ++layer) {
    const KvView view = cache.View(layer, table);
    for (int position = 0; position < 3 * kKvBlockTokens; ++position) {
      const float key[] = {static_cast<float>(position), static_cast<float>(layer)};
      std::memcpy(KeyBytes(view, position), key, sizeof key);
      std::memcpy(ValueBytes(view, position), key, sizeof key);
    }
  }
  cache.CopyBlock(0, 2);
  for (int layer = 0; layer < 2; ++layer) {
    const KvView view = cache.View(layer, table);
    for (int position = 0; position < 3 * kKvBlockTokens; ++position) {
      float key[2], value[2];
      std::memcpy(key, KeyBytes(view, position), sizeof key);
      std::memcpy(value, ValueBytes(view, position), sizeof value);
      EXPECT_EQ(key[0], position < 2 * kKvBlockTokens ? position : position - 2 * kKvBlockTokens);
      EXPECT_EQ(value[0], key[0]);
      EXPECT_EQ(key[1], layer);
    }
  }
}

TEST(FreeMemory, SmallerOfMachineAndControlGroup) {
  namespace fs = std::filesystem;
  const std::string root = testing::TempDir() + "/free_memory";
  fs::remove_all(root);
  EXPECT_EQ(FreeMemoryBytes(root), 0u);
  fs::create_directories(root + "/proc/self");
  std::ofstream(root + "/proc/meminfo") << "MemTotal:  9000 kB\nMemFree:  10 kB\nMemAvailable:   4000 kB\n";
  EXPECT_EQ(FreeMemoryBytes(root), 4000u * 1024);
  fs::create_directories(root + "/sys/fs/cgroup/a");
  std::ofstream(root + "/proc/self/cgroup") << "0::/a\n";
  std::ofstream(root + "/sys/fs/cgroup/a/memory.max") << "max\n";
  std::ofstream(root + "/sys/fs/cgroup/a/memory.current") << "1000\n";
  EXPECT_EQ(FreeMemoryBytes(root), 4000u * 1024);
  std::ofstream(root + "/sys/fs/cgroup/a/memory.max") << "3000\n";
  EXPECT_EQ(FreeMemoryBytes(root), 2000u);
  std::ofstream(root + "/sys/fs/cgroup/a/memory.stat") << "anon 5\ninactive_file 400\n";
  EXPECT_EQ(FreeMemoryBytes(root), 2400u);
  std::ofstream(root + "/sys/fs/cgroup/a/memory.current") << "9000\n";
  EXPECT_EQ(FreeMemoryBytes(root), 0u);
  EXPECT_GT(FreeMemoryBytes(), 0u);
}

}  // namespace
}  // namespace hone
