// Two lanes of 64 bits; each word of 16 bytes is multiplied into 128 bits and folded (as in wyhash).
#include "base/digest.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>

namespace hone {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr uint64_t kFirst = 0xa0761d6478bd642f, kSecond = 0xe7037ed1a0b428db;

uint64_t Fold(uint64_t a, uint64_t b) {
  const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

}  // namespace

void Digest128::Word(uint64_t low, uint64_t high) {
  // The lanes are fed different mixtures, so that what cancels in one does not in the other; the old lane is added back, so that a
  // factor of 0 loses nothing.
  const uint64_t old_low = low_;
  low_ = Fold(low_ ^ low ^ kFirst, high ^ kSecond ^ high_) + (high_ << 7 | high_ >> 57) + low;
  high_ = Fold(high_ ^ high ^ kSecond, low ^ kFirst) + (old_low << 29 | old_low >> 35) + high;
}

void Digest128::Bytes(const void* data, size_t size) {
  const auto* at = static_cast<const unsigned char*>(data);
  const auto feed = [this](const unsigned char* word) {
    uint64_t low = 0, high = 0;
    std::memcpy(&low, word, 8);
    std::memcpy(&high, word + 8, 8);
    Word(low, high);
  };
  size_t held = size_ % 16;
  size_ += size;
  if (held > 0) {
    const size_t taken = std::min(size, 16 - held);
    std::memcpy(rest_ + held, at, taken);
    at += taken, size -= taken, held += taken;
    if (held < 16) return;
    feed(rest_);
  }
  for (; size >= 16; at += 16, size -= 16) feed(at);
  if (size > 0) std::memcpy(rest_, at, size);
}

void Digest128::Number(uint64_t value) { Bytes(&value, sizeof value); }

void Digest128::Text(std::string_view text) {
  Number(text.size());
  Bytes(text.data(), text.size());
}

std::string Digest128::Hex() const {
  Digest128 end = *this;
  const size_t held = size_ % 16;
  if (held > 0) {
    std::memset(end.rest_ + held, 0, 16 - held);
    uint64_t low = 0, high = 0;
    std::memcpy(&low, end.rest_, 8);
    std::memcpy(&high, end.rest_ + 8, 8);
    end.Word(low, high);
  }
  end.Word(size_, kFirst);
  end.Word(kSecond, size_);
  char digits[33];
  std::snprintf(digits, sizeof digits, "%016llx%016llx", static_cast<unsigned long long>(end.low_),
                static_cast<unsigned long long>(end.high_));
  return digits;
}

}  // namespace hone
