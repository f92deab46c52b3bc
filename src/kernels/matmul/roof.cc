// See roof.h.
#include "kernels/matmul/roof.h"

#include <atomic>

#include "base/check.h"
#include "kernels/matmul/roof_kernels.h"

namespace hone {
namespace {

struct Unit {
  ComputeUnit unit;
  std::string_view name;
  Isa isa;
  double (*chains)(int rounds);
  int rounds;  // some ten milliseconds
};
constexpr Unit kUnits[] = {
    {ComputeUnit::kFmaAvx2, "fma-avx2", Isa::kAvx2, FloatChainsAvx2, 1000000},
    {ComputeUnit::kInt8Avx2, "int8-avx2", Isa::kAvx2, CodeChainsAvx2, 1000000},
    {ComputeUnit::kFmaAvx512, "fma-avx512", Isa::kAvx512, FloatChainsAvx512, 1000000},
    {ComputeUnit::kVnni, "vnni", Isa::kVnni, CodeChainsVnni, 1000000},
    {ComputeUnit::kBf16Avx512, "bf16-avx512", Isa::kAmx, Bf16ChainsAmx, 500000},
    {ComputeUnit::kAmxBf16, "amx-bf16", Isa::kAmx, Bf16TilesAmx, 20000},
    {ComputeUnit::kAmxInt8, "amx-int8", Isa::kAmx, CodeTilesAmx, 20000},
};

const Unit& Find(ComputeUnit unit) {
  for (const Unit& u : kUnits) {
    if (u.unit == unit) return u;
  }
  HONE_CHECK(false, "a ComputeUnit has no line in kUnits");
}

}  // namespace

double ReadRoof(Isa isa, const std::vector<std::span<const std::byte>>& buffers, ThreadPool& threads) {
  double total = 0;
  for (const auto& buffer : buffers) total += static_cast<double>(buffer.size());
  threads.Run([&](int worker) {
    for (const auto& buffer : buffers) {
      const auto [begin, end] = threads.Range(buffer.size(), 4096, worker);
      const uint8_t* p = reinterpret_cast<const uint8_t*>(buffer.data()) + begin;
      isa >= Isa::kAvx512 ? ReadBytesAvx512(p, end - begin) : ReadBytesAvx2(p, end - begin);
    }
  });
  return total;
}

std::string_view ComputeUnitName(ComputeUnit unit) { return Find(unit).name; }
Isa IsaOf(ComputeUnit unit) { return Find(unit).isa; }

double ComputeRoof(ComputeUnit unit, ThreadPool& threads) {
  const Unit& u = Find(unit);
  std::atomic<double> total{0};
  threads.Run([&](int) { total.fetch_add(u.chains(u.rounds)); });
  return total.load();
}

ComputeUnit UnitOf(Isa isa, bool codes) {
  HONE_CHECK(isa != Isa::kScalar);
  if (codes) return isa >= Isa::kVnni ? ComputeUnit::kVnni : ComputeUnit::kInt8Avx2;
  return isa >= Isa::kAvx512 ? ComputeUnit::kFmaAvx512 : ComputeUnit::kFmaAvx2;
}

}  // namespace hone
