// Printable Latin-1 stands for itself; the other 68 bytes take U+0100 and up, in order.
#include "text/byte_level.h"

#include "text/utf8.h"

namespace hone {
namespace {

constexpr bool StandsForItself(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<std::string, 256> characters;
  std::array<int, 0x144> bytes;  // by code point; -1: none
  Alphabet() {
    bytes.fill(-1);
    char32_t next = 0x100;
    for (unsigned byte = 0; byte < 256; ++byte) {
      const char32_t code = StandsForItself(byte) ? byte : next++;
      AppendUtf8(code, &characters[byte]);
      bytes[code] = static_cast<int>(byte);
    }
  }
};

const Alphabet& TheAlphabet() {
  static const Alphabet alphabet;
  return alphabet;
}

}  // namespace

std::string_view ByteCharacter(unsigned char byte) { return TheAlphabet().characters[byte]; }

void AppendByteMapped(std::string_view bytes, std::string* out) {
  const Alphabet& alphabet = TheAlphabet();
  for (const char c : bytes) out->append(alphabet.characters[static_cast<unsigned char>(c)]);
}

std::optional<std::string> FromByteMapped(std::string_view mapped) {
  const Alphabet& alphabet = TheAlphabet();
  std::string out;
  out.reserve(mapped.size());
  for (size_t pos = 0; pos < mapped.size();) {
    const Utf8Char c = Utf8At(mapped, pos);
    if (!c.valid || c.code >= alphabet.bytes.size() || alphabet.bytes[c.code] < 0) return std::nullopt;
    out.push_back(static_cast<char>(alphabet.bytes[c.code]));
    pos += c.bytes;
  }
  return out;
}

}  // namespace hone
