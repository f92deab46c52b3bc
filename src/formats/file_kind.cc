// Recognises files by their first bytes. One line a kind in kKinds; what needs more than a prefix follows it.
#include "formats/file_kind.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>

namespace hone {
namespace {

struct Kind {
  std::string_view prefix;
  std::string_view text;
};

constexpr Kind kKinds[] = {
    {"GGUF", "this is a GGUF file; give its path as the model"},
    {"FUGG", "this is a big-endian GGUF file, which hone does not read; convert the model on a little-endian machine"},
    {"version https://git-lfs", "this is a Git LFS pointer, not the file itself; run `git lfs pull` in its repository"},
    {"tjgg", "this is a GGJT file, older than GGUF; convert the original model to GGUF again"},
    {"lmgg", "this is a GGML file, older than GGUF; convert the original model to GGUF again"},
    {"fmgg", "this is a GGMF file, older than GGUF; convert the original model to GGUF again"},
    {"algg", "this is an old GGLA adapter; convert the original adapter to GGUF again"},
    {"PK\x03\x04", "this is a zip archive, probably a PyTorch checkpoint (pickle); convert it to safetensors first"},
    {"\x1f\x8b", "this is gzip-compressed; unpack it first"},
    {"\xfd" "7zXZ", "this is xz-compressed; unpack it first"},
    {"\x28\xb5\x2f\xfd", "this is zstd-compressed; unpack it first"},
    {"\x89HDF", "this is an HDF5 file; convert the model to safetensors or GGUF first"},
    {"_logits_", "this is a file of base logits for KL divergence, not a model"},
};

// Case-insensitive search of the first bytes; needle in lower case.
bool HeadContains(std::string_view head, std::string_view needle) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  return std::search(head.begin(), head.end(), needle.begin(), needle.end(),
                     [&](char a, char b) { return lower(a) == b; }) != head.end();
}

}  // namespace

std::string DescribeContents(std::span<const std::byte> bytes) {
  const std::string_view head(reinterpret_cast<const char*>(bytes.data()), std::min<size_t>(bytes.size(), 512));
  if (head.empty()) return "the file is empty";
  for (const Kind& kind : kKinds) {
    if (head.starts_with(kind.prefix)) return std::string(kind.text);
  }
  const size_t start = std::min(head.find_first_not_of(" \t\r\n"), head.size());
  const std::string_view text = head.substr(start);
  if (text.starts_with('<') &&
      (HeadContains(text, "<html") || HeadContains(text, "<!doctype") || HeadContains(text, "<?xml"))) {
    return "this is a web page (HTML), not the file itself; the download went wrong, fetch it again (and check access "
           "rights)";
  }
  if (head.size() > 8 && head[8] == '{') {
    uint64_t header_bytes;
    std::memcpy(&header_bytes, head.data(), 8);
    if (header_bytes < bytes.size())
      return "this looks like a safetensors file; give the folder that holds it and its config.json";
  }
  if (head.size() >= 2 && head[0] == '\x80' && head[1] >= 2 && head[1] <= 5) {
    return "this is a Python pickle (a PyTorch checkpoint); convert it to safetensors first";
  }
  if (text.starts_with('{') || text.starts_with('[')) return "this looks like JSON text";
  if (head.find_first_not_of('\0') == std::string_view::npos) {
    return "its first bytes are all zero; the download was probably not finished, fetch it again";
  }
  std::string hex;
  for (size_t i = 0; i < std::min<size_t>(head.size(), 8); ++i) {
    char digits[4];
    std::snprintf(digits, sizeof(digits), " %02x", static_cast<unsigned>(static_cast<unsigned char>(head[i])));
    hex += digits;
  }
  return "its first bytes are" + hex;
}

std::string Printable(std::string_view bytes) {
  std::string text;
  for (const char c : bytes.substr(0, 80)) {
    if (c >= 0x20 && c < 0x7f) {
      text += c;
      continue;
    }
    char escaped[8];
    std::snprintf(escaped, sizeof(escaped), "\\x%02x", static_cast<unsigned>(static_cast<unsigned char>(c)));
    text += escaped;
  }
  return bytes.size() > 80 ? text + "..." : text;
}

}  // namespace hone
