// Ranges against the largest of what the cache holds after a whole run of the model; scales against their definition.
#include "compress/calibrate/kv_ranges.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>

#include "base/test_shared.h"
#include "cache/block_pool.h"
#include "engine/cache_layers.h"
#include "models/model.h"

namespace hone {
namespace {

TEST(KvRanges, AreTheLargestThatAWholeRunCaches) {
  CpuFacts cpu = ReadCpuFacts();
  ThreadPool threads(2);
  Clock clock;
  const Runtime runtime{&cpu, cpu.best_isa(), &threads, nullptr, &clock};
  const auto checkpoint = Checkpoint::Open(HONE_SOURCE_DIR "/assets/builtin/main");
  ASSERT_TRUE(checkpoint);
  constexpr int kTokens = 96;
  CalibrationText text{.chunk_tokens = kTokens};
  const auto walk = LayerWalk::Open(*checkpoint, runtime, kTokens);
  ASSERT_TRUE(walk);
  const ModelConfig& config = (*walk)->config();
  for (int i = 0; i < kTokens; ++i) text.tokens.push_back(i * 131 % config.vocab);
  const auto ranges = CollectKvRanges(**walk, text, {}, nullptr);
  ASSERT_TRUE(ranges) << ranges.error().message;
  ASSERT_EQ(ranges->keys.size(), static_cast<size_t>(config.layers));

  const auto model = Model::Load(*checkpoint, runtime, {.max_rows = kTokens, .max_context = kTokens});
  ASSERT_TRUE(model);
  const int blocks = BlockPool::BlocksFor(kTokens);
  const KvCache cache({KvType::kF32, config.layers, config.kv_heads, config.head_width, blocks});
  const CacheLayers layers(cache);
  std::vector<int32_t> table(blocks);
  std::iota(table.begin(), table.end(), 0);
  const SequenceRows sequence{.rows = kTokens, .final_length = kTokens, .blocks = table.data()};
  float unused = 0;
  (*model)->Forward({.tokens = text.tokens, .sequences = {&sequence, 1}, .logit_rows = {}}, layers, &unused);
  for (int layer = 0; layer < config.layers; ++layer) {
    const KvView kv = cache.View(layer, table.data());
    for (int h = 0; h < config.kv_heads; ++h) {
      float key = 0, value = 0;
      for (int p = 0; p < kTokens; ++p) {
        for (int e = 0; e < config.head_width; ++e) {
          const int block = p / kKvBlockTokens, place = p % kKvBlockTokens;
          key = std::max(key, std::fabs(*reinterpret_cast<const float*>(
                                  kv.KeyBlock(h, block) + KvKeyOffset(KvType::kF32, place, e))));
          value = std::max(value, std::fabs(*reinterpret_cast<const float*>(
                                      kv.ValueBlock(h, block) + KvValueOffset(KvType::kF32, kv.head_width, place, e))));
        }
      }
      EXPECT_NEAR(ranges->keys[layer][h], key, 0.02f * key) << layer << " " << h;
      EXPECT_NEAR(ranges->values[layer][h], value, 0.02f * value) << layer << " " << h;
    }
  }
}

TEST(KvRanges, GoThroughAFileAndBecomeScales) {
  const KvRanges ranges{{{448, 44.8f}, {0, 0}}, {{1, 2}, {3, 4}}};
  const std::string path = TestPath("ranges.safetensors");
  ASSERT_TRUE(WriteKvRanges(path, ranges));
  const auto back = ReadKvRanges(path, 2, 2);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(back->keys, ranges.keys);
  EXPECT_EQ(back->values, ranges.values);
  EXPECT_FALSE(ReadKvRanges(path, 3, 2));
  EXPECT_FALSE(ReadKvRanges(path, 1, 2));
  EXPECT_FALSE(ReadKvRanges(path, 2, 3));
  EXPECT_FALSE(ReadKvRanges(TestPath("none"), 2, 2));

  const KvCacheScales whole = MakeKvCacheScales(ranges, KvScheme::kFp8, false);
  ASSERT_EQ(whole.tensors.size(), 4u);
  EXPECT_EQ(whole.tensors[0].name, "model.layers.0.self_attn.k_scale");
  EXPECT_EQ(whole.tensors[0].values, std::vector<float>{1});
  EXPECT_EQ(whole.tensors[2].values, std::vector<float>{1});  // nothing but zeros
  const KvCacheScales heads = MakeKvCacheScales(ranges, KvScheme::kInt8, true);
  EXPECT_EQ(heads.tensors[3].shape, (Shape{2, 1, 1}));
  EXPECT_FLOAT_EQ(heads.tensors[3].values[1], 4 / 127.5f);
  const KvRanges bad{{{NAN}}, {{1}}};
  ASSERT_TRUE(WriteKvRanges(path, bad));
  EXPECT_FALSE(ReadKvRanges(path, 1, 1));
}

}  // namespace
}  // namespace hone
