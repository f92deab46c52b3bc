// Many threads at the engine's door while its own thread steps: made for the thread sanitizer (the tsan preset), but
// what it counts must hold in every build: each accepted sequence ends exactly once, nothing leaks, Stop ends all.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "cache/kv_cache.h"
#include "engine/engine.h"
#include "engine/fake_model.h"

namespace hone {
namespace {

TEST(EngineConcurrency, SubmitCancelAndStatsFromManyThreads) {
  Clock clock;
  ThreadPool threads(2);
  const Runtime runtime{.threads = &threads, .clock = &clock};
  const KvCacheShape block{KvType::kF16, 2, 2, 3, 1};
  EngineOptions options;
  options.context = 96;
  options.max_sequences = 4;
  options.max_queue = 8;
  options.kv_bytes = 5 * block.total_bytes();
  Result<std::unique_ptr<Engine>> engine =
      Engine::Create(std::make_shared<FakeModel>(), std::make_shared<FakeTokenizer>(), runtime, options);
  ASSERT_TRUE(engine) << engine.error().message;
  for (int round = 0; round < 3; ++round) {
    (*engine)->Start();
    std::atomic<int> accepted{0}, refused{0}, finished{0}, running_clients{4};
    std::vector<std::thread> clients;
    for (int client = 0; client < 4; ++client) {
      clients.emplace_back([&, client] {
        Rng rng(round * 10 + client);
        for (int i = 0; i < 40; ++i) {
          SequenceRequest request;
          for (uint64_t n = 1 + rng.Below(40); n > 0; --n)
            request.prompt.push_back(static_cast<int32_t>(2 + rng.Below(40)));
          request.max_tokens = static_cast<int>(1 + rng.Below(20));
          request.stop = {"ab"};
          const Result<SequenceId> id = (*engine)->Submit(std::move(request), [&](const SequenceEvent& event) {
            if (event.finish != FinishReason::kNone) ++finished;
          });
          if (!id) {
            EXPECT_TRUE(id.error().code == ErrorCode::kLimit || id.error().code == ErrorCode::kCancelled);
            ++refused;
            std::this_thread::yield();
            continue;
          }
          ++accepted;
          if (rng.Below(3) == 0) (*engine)->Cancel(*id - rng.Below(3));
        }
        --running_clients;
      });
    }
    std::thread watcher([&] {
      while (running_clients > 0) {
        const EngineStats stats = (*engine)->stats();
        EXPECT_LE(stats.blocks_used, stats.blocks);
        EXPECT_LE(stats.running + stats.waiting, options.max_sequences + options.max_queue);
        EXPECT_LE((*engine)->StepsAfter(stats.steps).size(), size_t{kStepRecords});
        std::this_thread::yield();
      }
    });
    if (round == 1) (*engine)->Stop();  // while the clients are busy
    for (std::thread& client : clients) client.join();
    watcher.join();
    (*engine)->Stop();
    EXPECT_EQ(finished, accepted);
    EXPECT_EQ(accepted + refused, 160);
    EXPECT_EQ((*engine)->stats().blocks_used, 0);
    EXPECT_EQ((*engine)->stats().running + (*engine)->stats().waiting, 0);
  }
}

}  // namespace
}  // namespace hone
