// The whole engine under random loads: arrivals, prompts, samplers, stops, cancels, tiny caches, small steps. Whatever
// happens around it, every sequence must say what it says alone, where "alone" is computed here without the engine: the
// fake model's logits after the whole history, one sampler state, and a search for stop strings in the finished text.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "cache/kv_cache.h"
#include "engine/engine.h"
#include "engine/fake_model.h"
#include "engine/samplers/sampler.h"

namespace hone {
namespace {

struct Expected {
  std::vector<int32_t> ids;
  std::string text;
  FinishReason finish = FinishReason::kLength;
};

// Where the first stop string to end ends, and the longest of those; npos if none is in the text.
size_t FirstStop(const std::string& text, const std::vector<std::string>& stops, size_t* stop_bytes) {
  for (size_t end = 1; end <= text.size(); ++end) {
    *stop_bytes = 0;
    for (const std::string& stop : stops) {
      if (stop.size() <= end && text.compare(end - stop.size(), stop.size(), stop) == 0) {
        *stop_bytes = std::max(*stop_bytes, stop.size());
      }
    }
    if (*stop_bytes > 0) return end;
  }
  return std::string::npos;
}

Expected Alone(const SequenceRequest& request, int context) {
  Expected expected;
  const FakeTokenizer tokenizer;
  SamplerState state{TokenHistory(request.prompt), Rng(*request.sampling.seed), {}, 2 * request.sampling.mirostat_tau};
  std::vector<int32_t> ending = request.stop_ids;
  if (!request.ignore_end) ending.push_back(kFakeEnd);
  Candidates scratch;
  const int room = context - static_cast<int>(request.prompt.size());
  const int most = request.max_tokens > 0 ? std::min(request.max_tokens, room) : room;
  std::vector<int32_t> text_ids;
  while (static_cast<int>(expected.ids.size()) < most) {
    state.banned = {};
    if (static_cast<int>(expected.ids.size()) < request.min_tokens) state.banned = ending;
    const int32_t id = SampleToken(DefaultSamplerOrder(), FakeModel::LogitsAfter(state.history.tokens()),
                                   request.sampling, &state, &scratch);
    EXPECT_GE(id, 0);
    state.history.Append(id);
    expected.ids.push_back(id);
    const bool ends = std::find(ending.begin(), ending.end(), id) != ending.end();
    if (!ends || request.include_stop) text_ids.push_back(id);
    size_t stop_bytes = 0;
    expected.text = tokenizer.Decode(text_ids, true);
    const size_t stop_end = FirstStop(expected.text, request.stop, &stop_bytes);
    if (stop_end != std::string::npos) {
      // An unfinished character at the end counts only when nothing can complete it any more.
      expected.text.resize(request.include_stop ? stop_end : stop_end - stop_bytes);
      expected.finish = FinishReason::kStop;
      return expected;
    }
    if (ends) {
      expected.finish = FinishReason::kStop;
      return expected;
    }
  }
  return expected;
}

// Steps seem to take random times, so that prompts are cut at random places.
class RandomClock final : public Clock {
 public:
  explicit RandomClock(uint64_t seed) : rng_(seed) {}
  double Now() const override { return now_ += 0.06 * rng_.Uniform(); }

 private:
  mutable Rng rng_;
  mutable double now_ = 0;
};

class EngineSimulation {
 public:
  EngineSimulation(uint64_t seed, ThreadPool* threads)
      : rng_(seed), clock_(seed), runtime_{.threads = threads, .clock = &clock_} {
    context_ = 40 + Below(200);
    EngineOptions options;
    options.context = context_;
    options.max_sequences = 1 + Below(8);
    options.max_queue = Below(30);
    options.step_tokens = options.max_sequences + Below(40);
    options.step_ms = Below(3) == 0 ? 0 : 1 + Below(100);
    options.policy = SchedulingPolicies()[rng_.Below(SchedulingPolicies().size())];
    options.prefix_cache = Below(4) != 0;
    options.kv = Below(2) == 0 ? KvType::kF32 : KvType::kF16;
    const KvCacheShape block{options.kv, 2, 2, 3, 1};
    options.kv_bytes = block.total_bytes() * ((context_ + kKvBlockTokens - 1) / kKvBlockTokens + Below(4));
    Result<std::unique_ptr<Engine>> engine =
        Engine::Create(std::make_shared<FakeModel>(256, 64), std::make_shared<FakeTokenizer>(), runtime_, options);
    EXPECT_TRUE(engine) << engine.error().message;
    engine_ = std::move(*engine);
  }

  void Run() {
    int left = 5 + Below(20), idle = 0, steps = 0;
    while (left > 0 || engine_->stats().running + engine_->stats().waiting > 0) {
      ASSERT_LT(++steps, 50000);
      while (left > 0 && (Below(4) == 0 || idle > 0)) {
        if (!Submit()) break;
        --left;
        idle = 0;
      }
      if (Below(30) == 0 && !lives_.empty()) Cancel();
      if (!engine_->Step()) ++idle;
      const EngineStats stats = engine_->stats();
      ASSERT_TRUE(engine_->options().policy != "fcfs" || stats.running <= engine_->options().max_sequences);
      ASSERT_LE(stats.blocks_used + stats.blocks_cached, stats.blocks);
      ASSERT_LE(stats.blocks_used, stats.blocks);
      for (auto& [id, life] : lives_) {
        if (life.cancelled) {
          ASSERT_NE(life.last.finish, FinishReason::kNone) << "a cancelled sequence went on after a step";
        }
      }
    }
    ASSERT_EQ(engine_->stats().blocks_used, 0);
    for (const auto& [id, life] : lives_) Check(id, life);
    preemptions = engine_->stats().preemptions;
    cached = engine_->stats().prefix_hit_tokens;
  }

  uint64_t preemptions = 0, cached = 0;

 private:
  struct Life {
    SequenceRequest request;
    std::vector<int32_t> ids;
    std::string text;
    SequenceEvent last;
    bool cancelled = false;
  };

  int Below(int n) { return static_cast<int>(rng_.Below(n)); }
  int32_t Id() { return 2 + Below(kFakeVocab - 2); }
  float Float(float from, float to) { return from + (to - from) * static_cast<float>(rng_.Uniform()); }

  SequenceRequest Request() {
    SequenceRequest request;
    const int length = 1 + Below(Below(3) == 0 ? context_ - 1 : 20);
    // Few different beginnings, so that prompts share them.
    const int same = Below(2) == 0 ? Below(length + 1) : Below(3) == 0 ? length : 0;
    for (int i = 0; i < length; ++i) request.prompt.push_back(i < same ? 2 + i % 20 : Id());
    request.salt = Below(3) == 0 ? "other" : "";
    request.priority = Below(3);
    if (Below(8) == 0) request.prompt_logprobs = Below(3);
    request.max_tokens = Below(3) == 0 ? 0 : 1 + Below(150);
    request.min_tokens = request.max_tokens > 0 && Below(3) == 0 ? Below(request.max_tokens + 1) : 0;
    request.ignore_end = Below(4) != 0;
    request.include_stop = Below(3) == 0;
    if (Below(4) == 0) request.stop_ids.push_back(Id());
    static const char* kStops[] = {"ab", "ba", "\xC3\xA9", "ca", "\n", "zz", "xyx", "\xE4\xBD\xA0", " b", "aab"};
    for (int i = Below(4) / 2; i > 0; --i) request.stop.push_back(kStops[Below(10)]);
    SamplingParams& sampling = request.sampling;
    sampling.seed = rng_.Next();
    sampling.temperature = Below(3) == 0 ? 0 : Float(0.3f, 2);
    if (Below(3) == 0) sampling.top_k = Below(20);
    if (Below(3) == 0) sampling.top_p = Float(0, 1);
    if (Below(4) == 0) sampling.min_p = Float(0, 0.2f);
    if (Below(4) == 0) sampling.typical = Float(0.2f, 1);
    if (Below(4) == 0) sampling.repetition_penalty = Float(0.8f, 1.4f);
    if (Below(4) == 0) sampling.frequency_penalty = Float(-1, 1);
    if (Below(4) == 0) sampling.presence_penalty = Float(-1, 1);
    if (Below(5) == 0) sampling.logit_bias[Id()] = Float(-5, 5);
    if (Below(6) == 0) sampling.mirostat = true;
    if (Below(6) == 0) sampling.xtc_probability = Float(0, 1);
    if (Below(6) == 0) sampling.dry_multiplier = Float(0, 1);
    return request;
  }

  // One sequence, or several with one prompt.
  bool Submit() {
    SequenceRequest request = Request();
    const int count = Below(5) == 0 ? 1 + Below(4) : 1;
    // The ids are known only afterwards, but no event comes before the next step.
    auto ids = std::make_shared<std::vector<SequenceId>>();
    std::vector<EventCallback> callbacks;
    for (int i = 0; i < count; ++i) {
      callbacks.push_back([this, ids, i](const SequenceEvent& event) { Take((*ids)[i], event); });
    }
    const auto result = engine_->SubmitGroup(request, std::move(callbacks));
    if (!result) {
      EXPECT_EQ(result.error().code, ErrorCode::kLimit) << result.error().message;
      return engine_->stats().running + engine_->stats().waiting == 0;  // a group larger than the queue: never mind
    }
    *ids = *result;
    for (const SequenceId id : *ids) {
      lives_[id].request = request;
      ++*request.sampling.seed;
    }
    return true;
  }

  void Take(SequenceId id, const SequenceEvent& event) {
    ASSERT_EQ(event.id, id);
    Life& life = lives_.at(id);
    ASSERT_EQ(life.last.finish, FinishReason::kNone) << "an event after the last";
    ASSERT_TRUE(IsValidUtf8(event.text));
    life.text += event.text;
    for (const TokenResult& token : event.tokens) life.ids.push_back(token.id);
    ASSERT_EQ(event.output_tokens, static_cast<int>(life.ids.size()));
    const bool wants = life.request.prompt_logprobs >= 0 && life.ids.size() == 1 && event.tokens.size() == 1;
    if (wants) {
      ASSERT_EQ(event.prompt_logprobs.size(), life.request.prompt.size() - 1);
    }
    life.last = event;
  }

  void Cancel() {
    const auto it = std::next(lives_.begin(), rng_.Below(lives_.size()));
    it->second.cancelled = true;
    engine_->Cancel(it->first);
  }

  void Check(SequenceId id, const Life& life) {
    SCOPED_TRACE(testing::Message() << "sequence " << id);
    const Expected expected = Alone(life.request, context_);
    if (life.last.finish == FinishReason::kCancelled) {
      ASSERT_TRUE(life.cancelled);
      ASSERT_LE(life.ids.size(), expected.ids.size());
      ASSERT_TRUE(std::equal(life.ids.begin(), life.ids.end(), expected.ids.begin()));
      return;
    }
    ASSERT_EQ(life.ids, expected.ids);
    ASSERT_EQ(life.text, expected.text);
    ASSERT_EQ(life.last.finish, expected.finish);
  }

  Rng rng_;
  RandomClock clock_;
  Runtime runtime_;
  int context_ = 0;
  std::unique_ptr<Engine> engine_;
  std::map<SequenceId, Life> lives_;
};

TEST(EngineSimulation, EverySequenceSaysWhatItSaysAlone) {
  ThreadPool threads(2);
  uint64_t preemptions = 0, cached = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    EngineSimulation simulation(seed, &threads);
    simulation.Run();
    preemptions += simulation.preemptions;
    cached += simulation.cached;
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(preemptions, 40u) << "the caches are too large to test anything";
  EXPECT_GT(cached, 1000u) << "nothing was shared";
}

// Twice as much at once as the cache holds, all of it wanted to the end.
TEST(EngineSimulation, TwiceTheCacheFailsNobody) {
  Clock clock;
  for (const std::string& policy : SchedulingPolicies()) {
    const KvCacheShape block{EngineOptions().kv, 2, 2, 3, 1};
    EngineOptions options;
    options.context = 128;
    options.max_sequences = 16;
    options.policy = policy;
    options.kv_bytes = 16 * 4 / 2 * block.total_bytes();
    Result<std::unique_ptr<Engine>> engine = Engine::Create(
        std::make_shared<FakeModel>(), std::make_shared<FakeTokenizer>(), {.clock = &clock}, options);
    ASSERT_TRUE(engine) << engine.error().message;
    int done = 0;
    for (int i = 0; i < 32; ++i) {
      SequenceRequest request;
      for (int k = 0; k < 30; ++k) request.prompt.push_back(2 + (i * 7 + k * k) % 40);
      request.ignore_end = true;
      request.priority = i % 2;
      ASSERT_TRUE((*engine)->Submit(request, [&](const SequenceEvent& event) {
        if (event.finish == FinishReason::kNone) return;
        EXPECT_EQ(event.finish, FinishReason::kLength) << event.error;
        EXPECT_EQ(event.output_tokens, 98);
        ++done;
      }));
    }
    while ((*engine)->Step()) {}
    EXPECT_EQ(done, 32);
    EXPECT_GT((*engine)->stats().preemptions, 0u) << policy;
    EXPECT_EQ((*engine)->stats().blocks_used, 0);
  }
}

TEST(EngineSimulation, AThousandCancelsAtRandomMoments) {
  Clock clock;
  Rng rng(11);
  EngineOptions options;
  options.context = 128;
  options.max_sequences = 8;
  options.max_queue = 24;
  const KvCacheShape block{EngineOptions().kv, 2, 2, 3, 1};
  options.kv_bytes = 16 * block.total_bytes();
  Result<std::unique_ptr<Engine>> engine = Engine::Create(std::make_shared<FakeModel>(),
                                                          std::make_shared<FakeTokenizer>(), {.clock = &clock}, options);
  ASSERT_TRUE(engine) << engine.error().message;
  std::set<SequenceId> alive;
  int cancelled = 0, ended = 0;
  while (cancelled < 1000) {
    while (alive.size() < 24) {
      SequenceRequest request;
      for (uint64_t n = 1 + rng.Below(60); n > 0; --n) request.prompt.push_back(2 + static_cast<int32_t>(n % 7));
      request.max_tokens = static_cast<int>(1 + rng.Below(60));
      const Result<SequenceId> id = (*engine)->Submit(request, [&](const SequenceEvent& event) {
        if (event.finish != FinishReason::kNone) ended += static_cast<int>(alive.erase(event.id));
      });
      ASSERT_TRUE(id);
      alive.insert(*id);
    }
    const SequenceId victim = *std::next(alive.begin(), static_cast<std::ptrdiff_t>(rng.Below(alive.size())));
    (*engine)->Cancel(victim);
    ++cancelled;
    (*engine)->Step();
    ASSERT_EQ(alive.count(victim), 0u) << "a cancelled sequence was there after a step";
    for (uint64_t n = rng.Below(6); n > 0; --n) (*engine)->Step();
  }
  EXPECT_GE(ended, 1000);
  for (const SequenceId id : std::set<SequenceId>(alive)) (*engine)->Cancel(id);
  (*engine)->Step();
  EXPECT_TRUE(alive.empty());
  EXPECT_EQ((*engine)->stats().blocks_used, 0);
  EXPECT_EQ((*engine)->stats().running + (*engine)->stats().waiting, 0);
}

}  // namespace
}  // namespace hone
