// How often the threads wait for each other in a layer: what decoding of small models spends its time on after the weights.
#include <gtest/gtest.h>

#include "models/model.h"
#include "models/test_checkpoint.h"

namespace hone {
namespace {

constexpr int kWidth = 2048, kFfn = 8192, kHeads = 32, kKvHeads = 8, kHeadWidth = 64, kVocab = 64;

class OneLayer final : public KvLayers {
 public:
  explicit OneLayer(int blocks) : block_bytes_(size_t{2} * kKvHeads * KvHeadBlockBytes(KvType::kF16, kHeadWidth)), cache_(block_bytes_ * blocks) {}
  KvView View(int, const int32_t* blocks) const override {
    KvView view;
    view.type = KvType::kF16;
    view.kv_heads = kKvHeads;
    view.head_width = kHeadWidth;
    view.keys = const_cast<std::byte*>(cache_.data());
    view.values = view.keys + block_bytes_ / 2;
    view.block_stride = block_bytes_;
    view.blocks = blocks;
    return view;
  }

 private:
  size_t block_bytes_;
  Buffer cache_;
};

// One layer of Llama-3.2-1B's shape, all weights zero.
std::shared_ptr<const Checkpoint> WriteLayer() {
  GgufMetadata metadata = {{"general.architecture", GgufText("llama")}};
  const auto add = [&](const char* key, GgufValue value) { metadata.emplace_back(std::string("llama.") + key, value); };
  add("block_count", GgufInt(1)), add("embedding_length", GgufInt(kWidth)), add("feed_forward_length", GgufInt(kFfn));
  add("attention.head_count", GgufInt(kHeads)), add("attention.head_count_kv", GgufInt(kKvHeads));
  add("context_length", GgufInt(1024)), add("vocab_size", GgufInt(kVocab));
  add("attention.layer_norm_rms_epsilon", GgufFloat(1e-5)), add("rope.freq_base", GgufFloat(10000));
  std::vector<Tensor> kept;
  std::vector<NamedTensor> named;
  kept.reserve(16);
  const auto tensor = [&](const char* name, DType type, Shape shape) {
    kept.emplace_back(type, shape);
    named.push_back({name, kept.back().view()});
  };
  tensor("token_embd.weight", DType::kQ4_0, Shape{kVocab, kWidth}), tensor("output_norm.weight", DType::kF32, Shape{kWidth});
  tensor("blk.0.attn_norm.weight", DType::kF32, Shape{kWidth}), tensor("blk.0.ffn_norm.weight", DType::kF32, Shape{kWidth});
  tensor("blk.0.attn_q.weight", DType::kQ4_0, Shape{kHeads * kHeadWidth, kWidth});
  tensor("blk.0.attn_k.weight", DType::kQ4_0, Shape{kKvHeads * kHeadWidth, kWidth});
  tensor("blk.0.attn_v.weight", DType::kQ4_0, Shape{kKvHeads * kHeadWidth, kWidth});
  tensor("blk.0.attn_output.weight", DType::kQ4_0, Shape{kWidth, kHeads * kHeadWidth});
  tensor("blk.0.ffn_gate.weight", DType::kQ4_0, Shape{kFfn, kWidth});
  tensor("blk.0.ffn_up.weight", DType::kQ4_0, Shape{kFfn, kWidth});
  tensor("blk.0.ffn_down.weight", DType::kQ4_0, Shape{kWidth, kFfn});
  return WriteGgufFile("waits", metadata, named);
}

TEST(Waits, ADecodedLayerNeedsAtMostSix) {
  CpuFacts cpu = ReadCpuFacts();
  Log log{LogLevel::kOff};
  Clock clock;
  ThreadPool threads(2);
  const auto model = Model::Load(WriteLayer(), {.cpu = &cpu, .isa = cpu.best_isa(), .threads = &threads, .log = &log, .clock = &clock},
                                 {.max_rows = 16});
  ASSERT_TRUE(model.has_value()) << model.error().message;
  constexpr int kMostRows = 8, kContext = 512, kBlocks = kContext / kKvBlockTokens;
  const OneLayer kv(kMostRows * kBlocks);
  std::vector<int32_t> blocks(kMostRows * kBlocks);
  for (size_t i = 0; i < blocks.size(); ++i) blocks[i] = static_cast<int32_t>(i);
  for (const int rows : {1, 2, 4, kMostRows}) {
    for (const int position : {0, 255, kContext - 1}) {
      const std::vector<int32_t> tokens(rows, 1);
      std::vector<SequenceRows> sequences;
      for (int i = 0; i < rows; ++i) {
        sequences.push_back({.first_row = i, .rows = 1, .first_position = position, .final_length = kContext, .blocks = &blocks[i * kBlocks]});
      }
      const uint64_t before = threads.waits();
      (*model)->Forward({.tokens = tokens, .sequences = sequences, .logit_rows = {}}, kv, nullptr);
      EXPECT_LE(threads.waits() - before, 6u) << rows << " rows at position " << position;
      EXPECT_GE(threads.waits() - before, 4u) << "the products of a layer are shared out";
    }
  }
}

}  // namespace
}  // namespace hone
