// What scheduling costs a step, with the prefix cache and without, where nothing is ever found: prompts of 128 tokens that are all
// different, 64 tokens of output, 8 sequences at once. The difference is what the cache costs at a hit rate of 0.
#include <benchmark/benchmark.h>

#include <unordered_map>
#include <vector>

#include "engine/scheduler.h"

namespace hone {
namespace {

void Steps(benchmark::State& state) {
  const bool cache = state.range(0) != 0;
  BlockPool pool(2000);
  Scheduler scheduler({.step_tokens = 512, .max_sequences = 8, .keep = cache, .secret = 1}, &pool);
  std::unordered_map<uint64_t, int> left;
  std::vector<StepSequence> sequences;
  uint64_t last = 0;
  int32_t token = 0;
  int64_t tokens = 0;
  for (auto _ : state) {
    while (left.size() < 8) {
      std::vector<int32_t> prompt(128);
      for (int32_t& id : prompt) id = token++;
      scheduler.Add({.id = ++last, .tokens = prompt, .final_length = 192, .root = cache ? "root" : ""});
      left[last] = 64;
    }
    const StepBatch& batch = scheduler.Schedule();
    tokens += batch.tokens;
    sequences = batch.sequences;
    scheduler.Commit();
    for (const StepSequence& sequence : sequences) {
      if (!sequence.samples) continue;
      if (--left[sequence.id] == 0) {
        scheduler.Remove(sequence.id);
        left.erase(sequence.id);
      } else {
        scheduler.Append(sequence.id, token++);
      }
    }
  }
  state.SetItemsProcessed(tokens);
}
BENCHMARK(Steps)->ArgName("cache")->Arg(0)->Arg(1);

}  // namespace
}  // namespace hone
