// Speed of Attention: prompts of 512 and 2048 tokens (bound by multiply-adds), decoding at 512 and 8192 tokens of context (bound
// by reading keys and values), on as many threads as cores. Each line carries its share of a roof measured in the same run:
// the F32 multiply-add peak of the kernel's ISA, or the read bandwidth of a buffer far larger than the caches.
#include "kernels/attention/attention.h"

#include <benchmark/benchmark.h>
#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/memory.h"
#include "base/random.h"

namespace hone {
namespace {

struct Roof {
  double flops_avx2 = 0, flops_avx512 = 0;  // per second, all threads
  double read_bytes = 0;        // per second, all threads
};

// Ten independent chains: more than a multiply-add's latency times its ports.
__attribute__((target("avx2,fma"))) float FmaAvx2(int64_t rounds) {
  const __m256 x = _mm256_set1_ps(0.5f);
  __m256 a = x, b = x, c = x, d = x, e = x, f = x, g = x, h = x, i = x, j = x;
  for (int64_t n = 0; n < rounds; ++n) {
    a = _mm256_fmadd_ps(a, x, x), b = _mm256_fmadd_ps(b, x, x), c = _mm256_fmadd_ps(c, x, x), d = _mm256_fmadd_ps(d, x, x);
    e = _mm256_fmadd_ps(e, x, x), f = _mm256_fmadd_ps(f, x, x), g = _mm256_fmadd_ps(g, x, x), h = _mm256_fmadd_ps(h, x, x);
    i = _mm256_fmadd_ps(i, x, x), j = _mm256_fmadd_ps(j, x, x);
    asm volatile("" : "+x"(a), "+x"(b), "+x"(c), "+x"(d), "+x"(e), "+x"(f), "+x"(g), "+x"(h), "+x"(i), "+x"(j));
  }
  return _mm256_cvtss_f32(a + b + c + d + e + f + g + h + i + j);
}

__attribute__((target("avx512f"))) float FmaAvx512(int64_t rounds) {
  const __m512 x = _mm512_set1_ps(0.5f);
  __m512 a = x, b = x, c = x, d = x, e = x, f = x, g = x, h = x, i = x, j = x;
  for (int64_t n = 0; n < rounds; ++n) {
    a = _mm512_fmadd_ps(a, x, x), b = _mm512_fmadd_ps(b, x, x), c = _mm512_fmadd_ps(c, x, x), d = _mm512_fmadd_ps(d, x, x);
    e = _mm512_fmadd_ps(e, x, x), f = _mm512_fmadd_ps(f, x, x), g = _mm512_fmadd_ps(g, x, x), h = _mm512_fmadd_ps(h, x, x);
    i = _mm512_fmadd_ps(i, x, x), j = _mm512_fmadd_ps(j, x, x);
    asm volatile("" : "+v"(a), "+v"(b), "+v"(c), "+v"(d), "+v"(e), "+v"(f), "+v"(g), "+v"(h), "+v"(i), "+v"(j));
  }
  return _mm512_cvtss_f32(a + b + c + d + e + f + g + h + i + j);
}

constexpr int kChains = 10;

template <typename Work>
double BestSeconds(ThreadPool& threads, Work work) {
  const Clock clock;
  double best = 1e9;
  for (int repeat = 0; repeat < 5; ++repeat) {
    const double begin = clock.Now();
    threads.Run([&](int worker) { work(worker); });
    best = std::min(best, clock.Now() - begin);
  }
  return best;
}

struct Machine {
  CpuFacts facts = ReadCpuFacts();
  ThreadPool threads{std::max(1, facts.physical_cores)};
  Roof roof;

  Machine() {
    constexpr int64_t kRounds = 20'000'000;
    const int count = threads.count();
    if (facts.Supports(Isa::kAvx2)) {
      roof.flops_avx2 = count * kRounds * kChains * 16 / BestSeconds(threads, [](int) { benchmark::DoNotOptimize(FmaAvx2(kRounds)); });
    }
    if (facts.Supports(Isa::kAvx512)) {
      roof.flops_avx512 = count * kRounds * kChains * 32 / BestSeconds(threads, [](int) { benchmark::DoNotOptimize(FmaAvx512(kRounds)); });
    }
    constexpr size_t kBytes = size_t{512} << 20;
    Buffer buffer(kBytes);
    std::fill_n(buffer.as<uint64_t>(), kBytes / 8, 1);
    roof.read_bytes = kBytes / BestSeconds(threads, [&](int worker) {
      const auto [begin, end] = threads.Range(kBytes / 64, 1, worker);
      __m128i sum[4] = {};
      const __m128i* data = buffer.as<__m128i>();
      for (size_t i = begin * 4; i < end * 4; i += 4) {
        for (int c = 0; c < 4; ++c) sum[c] = _mm_xor_si128(sum[c], data[i + c]);
      }
      benchmark::DoNotOptimize(sum);
    });
  }
};

Machine& TheMachine() {
  static Machine machine;
  return machine;
}

struct Shape {
  int heads, kv_heads, width;
  KvType type;
};

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
  size_t BlockStride() const { return size_t{2} * shape.kv_heads * kKvBlockTokens * shape.width * KvElementBytes(shape.type); }
  KvView View(size_t layer) {
    std::byte* data = layers[layer % layers.size()].data();
    return {shape.type, shape.kv_heads, shape.width, data, data + BlockStride() / 2, BlockStride(), blocks.data()};
  }
};

void Report(benchmark::State& state, const Shape& shape, Isa isa, double flops, double bytes) {
  const Roof& roof = TheMachine().roof;
  using benchmark::Counter;
  state.counters["GFLOP/s"] = Counter(flops / 1e9, Counter::kIsIterationInvariantRate);
  const double peak = isa >= Isa::kAvx512 ? roof.flops_avx512 : roof.flops_avx2;
  state.counters["of_fma_%"] = Counter(100 * flops / peak, Counter::kIsIterationInvariantRate);
  state.counters["GB/s"] = Counter(bytes / 1e9, Counter::kIsIterationInvariantRate);
  state.counters["of_read_%"] = Counter(100 * bytes / roof.read_bytes, Counter::kIsIterationInvariantRate);
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
  for (auto _ : state) {
    const AttentionJob jobs[] = {{q.data(), stride, out.data(), stride, rows, tokens - rows, cache.View(layer++)}};
    Attention(jobs, params, isa, machine.threads);
    benchmark::ClobberMemory();
  }
  double pairs = 0;
  for (int i = 0; i < rows; ++i) pairs += tokens - rows + i + 1;
  Report(state, shape, isa, pairs * shape.heads * shape.width * 4,
         2.0 * tokens * shape.kv_heads * shape.width * KvElementBytes(shape.type));
}

void RegisterAll() {
  const struct { const char* name; Shape shape; } models[] = {
      {"E64_F16", {32, 8, 64, KvType::kF16}}, {"E128_F16", {32, 8, 128, KvType::kF16}}, {"E128_BF16", {32, 8, 128, KvType::kBF16}},
      {"E128_F32", {32, 8, 128, KvType::kF32}}, {"E64_F16_mha", {16, 16, 64, KvType::kF16}}};
  const struct { const char* name; int rows, tokens; } loads[] = {
      {"prefill_512", 512, 512}, {"prefill_2048", 2048, 2048}, {"chunk_256_at_8k", 256, 8192}, {"decode_512", 1, 512},
      {"decode_8k", 1, 8192}};
  const Isa best = ReadCpuFacts().best_isa();
  for (const Isa isa : {Isa::kAvx512, Isa::kAvx2}) {
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
