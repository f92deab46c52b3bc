// What a file seems to hold, for the error that says it is not what was wanted: a web page, a Git LFS pointer ...
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace hone {

// One clause that names what the bytes look like and what to do about it; for unknown bytes, the first eight in hex.
std::string DescribeContents(std::span<const std::byte> bytes);
inline std::string DescribeContents(std::string_view text) {
  return DescribeContents(std::as_bytes(std::span<const char>(text.data(), text.size())));
}

// Bytes from a file, fit to stand in a one-line message: at most 80, others than printable ASCII escaped.
std::string Printable(std::string_view bytes);

}  // namespace hone
