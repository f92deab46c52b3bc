// Speed of Attention: prompts (bound by multiply-adds) and decoding at 512 and 8192 tokens of context (bound by reading keys and
// values), on as many threads as cores. Each line carries its share of two roofs measured right before and after it: the peak of
// the unit that the kernel multiplies with, and the read bandwidth of a buffer far larger than the caches; and by how much those
// moved meanwhile: a line whose roof moved by more than 10 % is to be taken again.
#include "kernels/attention/attention.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/memory.h"
#include "base/random.h"
#include "kernels/matmul/roof.h"

namespace hone {
namespace {

struct Machine {
  CpuFacts facts = ReadCpuFacts();
  ThreadPool threads{std::max(1, facts.physical_cores)};
  Clock clock;
  Buffer read_buffer{size_t{384} << 20};

  Machine() { std::fill_n(read_buffer.as<uint64_t>(), read_buffer.size() / 8, 1); }

  // Operations (or bytes) per second at best of a few tries.
  template <typename Work>
  double Best(Work work) {
    double best = 0;
    for (int repeat = 0; repeat < 3; ++repeat) {
      const double begin = clock.Now(), done = work();
      best = std::max(best, done / (clock.Now() - begin));
    }
    return best;
  }
  double Compute(ComputeUnit unit) {
    return Best([&] { return ComputeRoof(unit, threads); });
  }
  double Read() {
    return Best([&] { return ReadRoof(std::max(facts.best_isa(), Isa::kAvx2), {{read_buffer.data(), read_buffer.size()}}, threads); });
  }
};

Machine& TheMachine() {
  static Machine machine;
  return machine;
}

// Before and after a benchmark.
struct Roofs {
  double compute = 0, read = 0;
};

struct Shape {
  int heads, kv_heads, width;
  KvType type;
};

Roofs MeasureRoofs(const Shape& shape, Isa isa) {
  const bool tiles = isa >= Isa::kBf16 && shape.type != KvType::kF32;
  const ComputeUnit unit = tiles && isa == Isa::kAmx ? ComputeUnit::kAmxBf16 : tiles ? ComputeUnit::kBf16Avx512 : isa >= Isa::kAvx512 ? ComputeUnit::kFmaAvx512 : ComputeUnit::kFmaAvx2;
  return {TheMachine().Compute(unit), TheMachine().Read()};
}

// Layers enough that one call's keys and values are not in a cache from the call before.
struct Cache {
  std::vector<Buffer> layers;
  std::vector<int32_t> blocks;
  Shape shape;

  Cache(const Shape& s, int tokens, size_t least_bytes) : shape(s) {
    const int count = (tokens + kKvBlockTokens - 1) / kKvBlockTokens;
    for (int i = 0; i < count; ++i) blocks.push_back((i * 7 + 3) % count);
    if (count % 7 == 0) for (int i = 0; i < count; ++i) blocks[i] = i;
    const size_t bytes = BlockStride() * count;
    do {
      layers.emplace_back(bytes);
      Rng rng(layers.size());
      uint16_t* words = layers.back().as<uint16_t>();
      for (size_t i = 0; i < bytes / 2; ++i) words[i] = 0x3000 + (rng.Next() & 0x8fff);  // small numbers in every type
    } while (layers.size() * bytes < least_bytes);
  }
  size_t BlockStride() const { return 2 * shape.kv_heads * KvHeadBlockBytes(shape.type, shape.width); }
  KvView View(size_t layer) {
    std::byte* data = layers[layer % layers.size()].data();
    return {shape.type, shape.kv_heads, shape.width, data, data + BlockStride() / 2, BlockStride(), blocks.data()};
  }
};

void Report(benchmark::State& state, const Shape& shape, const Roofs& before, const Roofs& after, double flops, double bytes) {
  using benchmark::Counter;
  const auto rate = [](double x) { return Counter(x, Counter::kIsIterationInvariantRate); };
  state.counters["GFLOP/s"] = rate(flops / 1e9);
  state.counters["of_peak_%"] = rate(200 * flops / (before.compute + after.compute));
  state.counters["GB/s"] = rate(bytes / 1e9);
  state.counters["of_read_%"] = rate(200 * bytes / (before.read + after.read));
  state.counters["peak_moved_%"] = 100 * (after.compute / before.compute - 1);
  state.counters["read_moved_%"] = 100 * (after.read / before.read - 1);
  state.SetLabel("H " + std::to_string(shape.heads) + " G " + std::to_string(shape.kv_heads));
}

// `rows` queries at the end of `tokens` tokens.
void Run(benchmark::State& state, const Shape& shape, int rows, int tokens, Isa isa) {
  Machine& machine = TheMachine();
  Cache cache(shape, tokens, rows < 8 ? size_t{400} << 20 : 0);
  const int64_t stride = int64_t{shape.heads} * shape.width;
  std::vector<float> q(rows * stride), out(rows * stride);
  Rng rng(1);
  for (float& x : q) x = static_cast<float>(rng.Uniform() * 2 - 1);
  const AttentionParams params{shape.heads, 0.1f, 0, 0, nullptr};
  size_t layer = 0;
  const Roofs before = MeasureRoofs(shape, isa);
  for (auto _ : state) {
    const AttentionJob jobs[] = {{q.data(), stride, out.data(), stride, rows, tokens - rows, cache.View(layer++)}};
    Attention(jobs, params, isa, machine.threads);
    benchmark::ClobberMemory();
  }
  double pairs = 0;
  for (int i = 0; i < rows; ++i) pairs += tokens - rows + i + 1;
  Report(state, shape, before, MeasureRoofs(shape, isa), pairs * shape.heads * shape.width * 4,
         static_cast<double>(tokens * KvTokenBytes(shape.type, shape.kv_heads, shape.width)));
}

void RegisterAll() {
  const struct { const char* name; Shape shape; } models[] = {
      {"E64_BF16", {32, 8, 64, KvType::kBF16}},   {"E64_F16", {32, 8, 64, KvType::kF16}},     {"E64_I8", {32, 8, 64, KvType::kI8}},
      {"E128_BF16", {32, 8, 128, KvType::kBF16}}, {"E128_F32", {32, 8, 128, KvType::kF32}}, {"E64_BF16_mha", {16, 16, 64, KvType::kBF16}}};
  const struct { const char* name; int rows, tokens; } loads[] = {
      {"prefill_512", 512, 512}, {"prefill_2048", 2048, 2048}, {"chunk_512_at_8k", 512, 8192}, {"decode_512", 1, 512},
      {"decode_8k", 1, 8192}};
  const Isa best = ReadCpuFacts().best_isa();
  for (const Isa isa : {Isa::kAmx, Isa::kBf16, Isa::kAvx512, Isa::kAvx2}) {
    if (isa > best) continue;
    for (const auto& load : loads) {
      for (const auto& model : models) {
        const std::string name = std::string(load.name) + "/" + model.name + "/" + std::string(IsaName(isa));
        benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
          Run(state, model.shape, load.rows, load.tokens, isa);
        })->UseRealTime()->MinTime(0.3)->Unit(benchmark::kMicrosecond);
      }
    }
  }
}

const bool kRegistered = (RegisterAll(), true);

}  // namespace
}  // namespace hone
