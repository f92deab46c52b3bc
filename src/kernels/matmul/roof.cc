// See roof.h.
#include "kernels/matmul/roof.h"

#include <atomic>

#include "base/check.h"
#include "kernels/matmul/roof_kernels.h"

namespace hone {

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

double ComputeRoof(Isa isa, bool codes, ThreadPool& threads) {
  HONE_CHECK(isa != Isa::kScalar);
  constexpr int kRounds = 1000000;  // some ten milliseconds
  double (*const chains)(int) = codes ? (isa >= Isa::kVnni ? CodeChainsVnni : CodeChainsAvx2)
                                      : (isa >= Isa::kAvx512 ? FloatChainsAvx512 : FloatChainsAvx2);
  std::atomic<double> total{0};
  threads.Run([&](int) { total.fetch_add(chains(kRounds)); });
  return total.load();
}

}  // namespace hone
