// See slices.h: which table serves, and codes of a few bits, eight in one 64-bit word.
#include "compress/numbers/slices.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/cpu.h"

namespace hone {
namespace {

// Eight bytes of `bits` bits to 8 * bits bits, and back: pairs, then fours, then all eight.
template <int bits>
uint64_t Join(uint64_t x) {
  x = (x & 0x00ff00ff00ff00ff) | (x & 0xff00ff00ff00ff00) >> (8 - bits);
  x = (x & 0x0000ffff0000ffff) | (x & 0xffff0000ffff0000) >> (16 - 2 * bits);
  return (x & 0xffffffff) | (x >> 32) << (4 * bits);
}
template <int bits>
uint64_t Part(uint64_t x) {
  constexpr uint64_t four = (uint64_t{1} << (4 * bits)) - 1, two = (uint64_t{1} << (2 * bits)) - 1, one = (1u << bits) - 1;
  x = (x & four) | (x >> (4 * bits) & four) << 32;
  x = (x & (two | two << 32)) | (x & (two | two << 32) << (2 * bits)) << (16 - 2 * bits);
  constexpr uint64_t ones = one | one << 16 | one << 32 | one << 48;
  return (x & ones) | (x & ones << bits) << (8 - bits);
}

template <int bits>
void Pack(const uint8_t* codes, int64_t n, std::byte* out) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8, out += bits) {
    uint64_t eight;
    std::memcpy(&eight, codes + i, 8);
    eight = Join<bits>(eight);
    std::memcpy(out, &eight, bits);
  }
  if (i == n) return;
  uint64_t rest = 0;
  std::memcpy(&rest, codes + i, static_cast<size_t>(n - i));
  rest = Join<bits>(rest);
  std::memcpy(out, &rest, static_cast<size_t>(((n - i) * bits + 7) / 8));
}

template <int bits>
void Unpack(const std::byte* packed, int64_t n, uint8_t* codes) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8, packed += bits) {
    uint64_t eight = 0;
    std::memcpy(&eight, packed, bits);
    eight = Part<bits>(eight);
    std::memcpy(codes + i, &eight, 8);
  }
  if (i == n) return;
  uint64_t rest = 0;
  std::memcpy(&rest, packed, static_cast<size_t>(((n - i) * bits + 7) / 8));
  rest = Part<bits>(rest);
  std::memcpy(codes + i, &rest, static_cast<size_t>(n - i));
}

void ByBits(int bits, auto&& fn) {  // fn.operator()<bits>()
  switch (bits) {
    case 1: return fn.template operator()<1>();
    case 2: return fn.template operator()<2>();
    case 3: return fn.template operator()<3>();
    case 4: return fn.template operator()<4>();
    case 5: return fn.template operator()<5>();
    case 6: return fn.template operator()<6>();
    case 7: return fn.template operator()<7>();
    case 8: return fn.template operator()<8>();
    default: HONE_CHECK(false, "codes have 1 to 8 bits");
  }
}

}  // namespace

const Slices& SlicesFor(Isa isa) {
  return isa >= Isa::kAvx512 ? kSlicesAvx512 : isa >= Isa::kAvx2 ? kSlicesAvx2 : kSlicesV2;
}

void PackBits(const uint8_t* codes, int64_t n, int bits, std::byte* out) {
  ByBits(bits, [&]<int b>() { Pack<b>(codes, n, out); });
}
void UnpackBits(const std::byte* packed, int64_t n, int bits, uint8_t* codes) {
  ByBits(bits, [&]<int b>() { Unpack<b>(packed, n, codes); });
}

}  // namespace hone
