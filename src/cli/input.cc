// See input.h.
#include "cli/input.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
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
  if (std::ferror(file) && errno == EISDIR) return InvalidInput(path + ": is a folder, wanted a file");
  if (std::ferror(file)) return IoError(path + ": cannot read: " + std::strerror(errno));
  return text;
}

Result<void> CheckOutput(const std::string& output, std::initializer_list<std::string> inputs) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (fs::is_directory(output, ignored)) return UsageError(output + ": is a folder, wanted the name of a file");
  const fs::path folder = fs::path(output).has_parent_path() ? fs::path(output).parent_path() : fs::path(".");
  for (const std::string& input : inputs) {
    if (input.empty() || !fs::exists(output, ignored)) continue;
    if (fs::equivalent(input, output, ignored)) return UsageError(output + ": is read and would be overwritten");
    if (fs::is_directory(input, ignored) && fs::equivalent(input, folder, ignored))
      return UsageError(output + ": is a file of " + input + " and would be overwritten");
  }
  if (!fs::is_directory(folder, ignored))
    return IoError(output + ": cannot write: there is no folder " + folder.string());
  if (access(folder.c_str(), W_OK) != 0 && access(output.c_str(), W_OK) != 0)
    return IoError(output + ": cannot write: " + std::strerror(errno));
  return {};
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

Result<void> WriteFile(const std::string& path, const std::string& text) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) return IoError(path + ": cannot write: " + std::strerror(errno));
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (std::fclose(file) != 0 || !written) return IoError(path + ": cannot write (is the disk full?)");
  return {};
}

bool WriteOut(const std::string& text) {
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
}

}  // namespace hone
