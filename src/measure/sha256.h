// SHA-256 (FIPS 180-4), so that a result can say which text or file it was measured on.
#pragma once

#include <string>
#include <string_view>

namespace hone {

// 64 lower-case hexadecimal digits.
std::string Sha256Hex(std::string_view bytes);

}  // namespace hone
