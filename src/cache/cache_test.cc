// BlockPool against a model that keeps owner counts in a map; KvCache's layout against kv_view.h; FreeMemoryBytes on
// made files.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <set>

#include "base/random.h"
#include "base/test_shared.h"
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

TEST(BlockPool, TimesOfBlocks) {
  BlockPool pool(2);
  std::vector<int32_t> table, other;
  pool.SetNow(10);
  ASSERT_TRUE(pool.Allocate(2, &table));
  const int32_t kept = table[0];
  pool.Keep(kept);
  pool.SetNow(10.75);
  pool.Share(kept);  // another takes it over
  pool.Release(kept);
  pool.SetNow(12);
  pool.ReleaseAll(&table);
  pool.SetNow(13);
  pool.Share(kept);  // and a third, from the cache
  pool.SetNow(14);
  pool.Release(kept);
  EXPECT_EQ(pool.times().reuse_gap.sum, 0.75 + 2.25);
  EXPECT_EQ(pool.times().lifetime.sum, 0);
  pool.SetNow(40);
  ASSERT_TRUE(pool.Allocate(1, &other));  // the free one; nothing is evicted
  EXPECT_EQ(pool.times().idle.sum, 0);
  ASSERT_TRUE(pool.Allocate(1, &other));
  EXPECT_EQ(pool.times().lifetime.sum, 30);
  EXPECT_EQ(pool.times().idle.sum, 26);
  // By the first bound that is not below: 0.75 s to 1 s, 2.25 s to 5 s, 30 s to 30 s, 26 s to 30 s.
  const auto at = [](double bound) {
    return static_cast<size_t>(std::find(kBlockTimeBounds.begin(), kBlockTimeBounds.end(), bound) - kBlockTimeBounds.begin());
  };
  EXPECT_EQ(pool.times().reuse_gap.counts[at(1)], 1u);
  EXPECT_EQ(pool.times().reuse_gap.counts[at(5)], 1u);
  EXPECT_EQ(pool.times().lifetime.counts[at(30)], 1u);
  EXPECT_EQ(pool.times().idle.counts[at(30)], 1u);
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

TEST(BlockPool, KeptBlocksStayUntilNothingElseIsFree) {
  BlockPool pool(4);
  std::vector<int32_t> a, b, c;
  ASSERT_TRUE(pool.Allocate(3, &a));
  for (const int32_t block : a) pool.Keep(block);
  const std::vector<int32_t> table = a;
  pool.ReleaseAll(&a);
  EXPECT_EQ(pool.free_blocks(), 4);
  EXPECT_EQ(pool.cached_blocks(), 3);
  EXPECT_EQ(pool.used_blocks(), 0);
  ASSERT_TRUE(pool.Allocate(1, &b));  // the one that nobody kept
  EXPECT_TRUE(pool.evicted().empty());
  EXPECT_EQ(std::count(table.begin(), table.end(), b[0]), 0);
  pool.Share(table[2]);  // a cached block is in use again
  EXPECT_EQ(pool.references(table[2]), 1);
  EXPECT_EQ(pool.cached_blocks(), 2);
  ASSERT_TRUE(pool.Allocate(1, &c));  // the end of the table went first: table[1] is older than table[0]
  EXPECT_EQ(c[0], table[1]);
  ASSERT_EQ(pool.evicted().size(), 1u);
  EXPECT_EQ(pool.evicted()[0], table[1]);
  EXPECT_FALSE(pool.is_kept(table[1]));
  pool.ClearEvicted();
  pool.Drop(table[0]);
  EXPECT_EQ(pool.cached_blocks(), 0);
  EXPECT_EQ(pool.free_blocks(), 1);
  pool.Release(table[2]);
  EXPECT_EQ(pool.cached_blocks(), 1);
  EXPECT_EQ(pool.Audit(), "");
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

TEST(BlockPool, RandomUseWithKeptBlocksEvictsTheOldest) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Rng rng(seed);
    const int blocks = static_cast<int>(1 + rng.Below(12));
    BlockPool pool(blocks);
    std::map<int32_t, int> owners;
    std::set<int32_t> kept;
    std::vector<int32_t> cached;  // oldest first
    for (int i = 0; i < 300; ++i) {
      const uint64_t what = rng.Below(6);
      const int32_t block = static_cast<int32_t>(rng.Below(static_cast<uint64_t>(blocks)));
      const auto at = std::find(cached.begin(), cached.end(), block);
      if (what == 0) {
        std::vector<int32_t> got;
        const size_t uncached = static_cast<size_t>(blocks) - owners.size() - cached.size();
        const bool fits = owners.size() < static_cast<size_t>(blocks);
        ASSERT_EQ(pool.Allocate(1, &got), fits);
        if (!fits) continue;
        ASSERT_EQ(pool.evicted().size(), uncached == 0 ? 1u : 0u);
        if (uncached == 0) {
          ASSERT_EQ(got[0], cached.front());
          cached.erase(cached.begin());
          kept.erase(got[0]);
        }
        pool.ClearEvicted();
        owners[got[0]] = 1;
      } else if (what == 1 && owners.count(block)) {
        pool.Keep(block);
        kept.insert(block);
      } else if (what == 2 && (owners.count(block) || at != cached.end())) {
        pool.Share(block);
        if (at != cached.end()) cached.erase(at);
        ++owners[block];
      } else if (what == 3) {
        pool.Drop(block);
        kept.erase(block);
        if (at != cached.end()) cached.erase(at);
      } else if (owners.count(block)) {
        pool.Release(block);
        if (--owners[block] > 0) continue;
        owners.erase(block);
        if (kept.count(block)) cached.push_back(block);
      }
      ASSERT_EQ(pool.Audit(), "");
      ASSERT_EQ(pool.cached_blocks(), static_cast<int>(cached.size()));
      ASSERT_EQ(pool.used_blocks(), static_cast<int>(owners.size()));
    }
  }
}

TEST(KvCache, ViewsOfDifferentLayersBlocksAndHeadsDoNotOverlap) {
  const KvCacheShape shape{KvType::kF16, 2, 3, 4, 5};
  const size_t head_bytes = 4 * 32 * 2;  // keys or values of one head in a block
  EXPECT_EQ(shape.block_bytes(), 2 * 3 * head_bytes);
  EXPECT_EQ(shape.total_bytes(), shape.block_bytes() * 2 * 5);
  KvCache cache(shape);
  const int32_t table[] = {3, 0, 4, 1, 2};
  std::set<std::byte*> starts;
  for (int layer = 0; layer < 2; ++layer) {
    const KvView view = cache.View(layer, table);
    for (int index = 0; index < 5; ++index) {
      for (int head = 0; head < 3; ++head) {
        for (std::byte* start : {view.KeyBlock(head, index), view.ValueBlock(head, index)}) {
          std::memset(start, 1, head_bytes);  // within the buffer: the address sanitizer would tell
          EXPECT_TRUE(starts.insert(start).second);
        }
      }
    }
  }
  std::byte* previous = nullptr;
  for (std::byte* start : starts) {
    EXPECT_TRUE(previous == nullptr || static_cast<size_t>(start - previous) >= head_bytes);
    previous = start;
  }
}

TEST(KvCache, BytesOfATokenCountScales) {
  const auto bytes = [](KvType type, int width) { return KvCacheShape{type, 2, 3, width, 5}.token_bytes(); };
  EXPECT_EQ(bytes(KvType::kF32, 64), 2u * 2 * 3 * 64 * 4);
  EXPECT_EQ(bytes(KvType::kF16, 64), 2u * 2 * 3 * 64 * 2);
  EXPECT_EQ(bytes(KvType::kBF16, 64), 2u * 2 * 3 * 64 * 2);
  EXPECT_EQ(bytes(KvType::kBF16, 7), 2u * 2 * 3 * 8 * 2);  // elements in pairs
  EXPECT_EQ(bytes(KvType::kI8, 64), 2u * 2 * 3 * (64 + 4));
  EXPECT_EQ(bytes(KvType::kI8, 64), 2 * KvTokenBytes(KvType::kI8, 3, 64));
}

TEST(KvCache, CopyBlockCopiesAllLayersAndNothingElse) {
  const KvCacheShape shape{KvType::kF32, 2, 1, 2, 3};
  KvCache cache(shape);
  const int32_t table[] = {0, 1, 2};
  const size_t head_bytes = 2 * 32 * 4;
  const auto fill = [&](int layer, int index) { return 1 + 10 * layer + index; };
  for (int layer = 0; layer < 2; ++layer) {
    const KvView view = cache.View(layer, table);
    for (int index = 0; index < 3; ++index) {
      std::memset(view.KeyBlock(0, index), fill(layer, index), head_bytes);
      std::memset(view.ValueBlock(0, index), 100 + fill(layer, index), head_bytes);
    }
  }
  cache.CopyBlock(0, 2);
  for (int layer = 0; layer < 2; ++layer) {
    const KvView view = cache.View(layer, table);
    for (int index = 0; index < 3; ++index) {
      const int wanted = fill(layer, index == 2 ? 0 : index);
      for (size_t i = 0; i < head_bytes; ++i) {
        ASSERT_EQ(static_cast<int>(view.KeyBlock(0, index)[i]), wanted);
        ASSERT_EQ(static_cast<int>(view.ValueBlock(0, index)[i]), 100 + wanted);
      }
    }
  }
}

// Which of the 2 MiB pages of a layer's blocks have memory, as the system says.
std::vector<bool> PagesWithMemory(const KvCache& cache, int layer) {
  constexpr size_t kSmall = 4096, kEach = Buffer::kHugePage / kSmall;
  const int32_t first = 0;
  const size_t bytes = cache.shape().block_bytes() * cache.shape().blocks;
  std::vector<unsigned char> small((bytes + kSmall - 1) / kSmall);
  EXPECT_EQ(mincore(cache.View(layer, &first).keys, bytes, small.data()), 0);
  std::vector<bool> pages;
  for (size_t at = 0; at < small.size(); at += kEach) {
    const size_t end = std::min(at + kEach, small.size());
    pages.push_back(std::all_of(small.begin() + at, small.begin() + end, [](unsigned char one) { return one & 1; }));
  }
  return pages;
}

// 3 layers of 100 blocks of 96 KiB, so that pages do not begin where blocks do: 4.7 pages each.
TEST(KvCache, PagesGetMemoryBeforeTheyAreUsed) {
  for (const int threads : {0, 2}) {
    const KvCacheShape shape{.type = KvType::kF32, .layers = 3, .kv_heads = 3, .head_width = 128, .blocks = 100};
    ASSERT_EQ(shape.block_bytes(), size_t{96} << 10);
    KvCache cache(shape);
    const std::unique_ptr<ThreadPool> pool = threads > 0 ? std::make_unique<ThreadPool>(threads) : nullptr;
    const auto ready = [&](size_t page) {
      std::string layers;
      for (int layer = 0; layer < shape.layers; ++layer) layers += PagesWithMemory(cache, layer)[page] ? '+' : '-';
      return layers;
    };
    // While nothing runs: one page a call, the first two of every layer, and then there is nothing to do.
    for (int call = 0; call < 6; ++call) EXPECT_TRUE(cache.TouchAhead(0, 0, pool.get()));
    EXPECT_FALSE(cache.TouchAhead(0, 0, pool.get()));
    EXPECT_EQ(ready(0) + ready(1) + ready(2), "++++++---");

    const int32_t block = 0;
    std::byte* const content = cache.View(1, &block).keys;
    *content = std::byte{77};
    // 80 blocks are handed out at once, written to one after the other. The pages of the next fresh block and of those that
    // are written to get memory, a page or two of each a call.
    for (int call = 1; call <= 3; ++call) {
      EXPECT_TRUE(cache.TouchAhead(80, 1, pool.get()));  // 80 * 96 KiB end in page 3
      const std::string layers = std::string(call, '+') + std::string(3 - call, '-');
      EXPECT_EQ(ready(2) + ready(3) + ready(4), layers + layers + "---");
    }
    // 22 tokens of 9 KiB are a tenth of a page, 300 are one and a bit.
    EXPECT_TRUE(cache.TouchAhead(80, 22, pool.get()));
    EXPECT_EQ(ready(4), "+--");
    EXPECT_TRUE(cache.TouchAhead(80, 300, pool.get()));
    EXPECT_EQ(ready(4), "+++");
    EXPECT_FALSE(cache.TouchAhead(100, 300, pool.get()));
    EXPECT_EQ(*content, std::byte{77});
  }
}

TEST(FreeMemory, SmallerOfMachineAndControlGroup) {
  namespace fs = std::filesystem;
  const std::string root = TestPath("free_memory");
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
