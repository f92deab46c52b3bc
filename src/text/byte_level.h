// The byte alphabet of GPT-2: each byte as one printable character, so that a vocabulary of texts can hold any bytes.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace hone {

// The character that stands for `byte`, as UTF-8.
std::string_view ByteCharacter(unsigned char byte);
void AppendByteMapped(std::string_view bytes, std::string* out);
// The bytes that `mapped` stands for; nothing if it holds a character outside the alphabet.
std::optional<std::string> FromByteMapped(std::string_view mapped);

}  // namespace hone
