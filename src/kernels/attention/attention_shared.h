// What both kinds of BF16 tiles share with attention_tiles.h.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hone {
namespace {

// What to ask memory for beside products.
struct Ahead {
  const std::byte* keys = nullptr;
  const std::byte* values = nullptr;
};

// With it 2^f is made of a number whose bits are a straight line: f - 128 (2^(f/128) - 1) for f = 2i and 2i + 1, on average.
alignas(64) constexpr uint8_t kCurve[64] = {
    0,  1,  1,  2,  2,  3,  4,  4,  5,  5,  5,  6,  6,  7,  7,  8,  8,  8,  9,  9,  9,  9,  10, 10, 10, 10, 10, 11, 11, 11, 11, 11,
    11, 11, 11, 11, 11, 11, 11, 11, 11, 10, 10, 10, 10, 10, 9,  9,  9,  8,  8,  8,  7,  7,  6,  6,  5,  5,  4,  3,  3,  2,  1,  1};

}  // namespace
}  // namespace hone
