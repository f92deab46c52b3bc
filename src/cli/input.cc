// See input.h.
#include "cli/input.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

namespace hone {

Result<std::string> ReadText(const std::string& path) {
  constexpr size_t kLongest = size_t{1} << 30;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> owned(nullptr, std::fclose);
  std::FILE* file = stdin;
  if (path != "-") {
    owned.reset(std::fopen(path.c_str(), "rb"));
    file = owned.get();
    if (file == nullptr) {
      const int error = errno;
      return Error{error == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo, path + ": cannot open: " + std::strerror(error)};
    }
  }
  std::string text;
  char buffer[65536];
  for (size_t n; (n = std::fread(buffer, 1, sizeof(buffer), file)) > 0;) {
    text.append(buffer, n);
    if (text.size() > kLongest) return InvalidInput(path + ": longer than 1 GiB");
  }
  if (std::ferror(file) && errno == EINTR) return Error{ErrorCode::kCancelled, path + ": interrupted"};
  if (std::ferror(file)) return IoError(path + ": cannot read: " + std::strerror(errno));
  return text;
}

Result<std::vector<int32_t>> ReadIds(const std::string& path, int vocab) {
  HONE_TRY(const std::string text, ReadText(path));
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_array()) return InvalidInput(path + ": wanted a JSON array of token ids like [1, 2, 3]");
  std::vector<int32_t> ids;
  ids.reserve(json.size());
  for (const auto& entry : json) {
    const bool whole = entry.is_number_integer();
    const int64_t id = whole ? entry.get<int64_t>() : -1;
    if (!whole || id < 0 || id >= vocab) {
      // Nested values are named by their kind: printing them recurses as deep as they go.
      const std::string found = entry.is_structured() ? "an " + std::string(entry.type_name()) : entry.dump().substr(0, 40);
      return InvalidInput(path + ": entry " + std::to_string(ids.size()) + " is " + found +
                          ", wanted a token id from 0 to " + std::to_string(vocab - 1));
    }
    ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

std::string FormatIds(const std::vector<int32_t>& ids) {
  std::string text = "[";
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(ids[i]);
  }
  return text + "]";
}

bool WriteOut(const std::string& text) {
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
}

}  // namespace hone
