// See entries_file.h.
#include "measure/entries_file.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "measure/json_text.h"

namespace hone {

using nlohmann::ordered_json;

ordered_json ReadEntries(const std::string& path) {
  constexpr uintmax_t kMostBytes = 1 << 20;
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error) || std::filesystem::file_size(path, error) > kMostBytes)
    return ordered_json::array();
  std::ifstream in(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  ordered_json json = ParseJson(text);
  return json.is_array() ? json : ordered_json::array();
}

Result<void> PutEntry(const std::string& path, const ordered_json& entry, size_t most,
                      const std::function<bool(const ordered_json&)>& keep) {
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  ordered_json entries = ordered_json::array();
  entries.push_back(entry);
  for (const ordered_json& old : ReadEntries(path)) {
    if (entries.size() < most && keep(old)) entries.push_back(old);
  }
  // Beside it, then renamed: a reader never sees half a file.
  const std::string temporary = path + "." + std::to_string(getpid());
  std::ofstream out(temporary, std::ios::binary);
  out << entries.dump(1, ' ', false, ordered_json::error_handler_t::replace) << "\n";
  out.close();
  if (!out) {
    std::filesystem::remove(temporary, error);
    return IoError(path + ": cannot be written");
  }
  std::filesystem::rename(temporary, path, error);
  if (error) return IoError(path + ": " + error.message());
  return {};
}

bool EntrySays(const ordered_json& entry, const char* key, const std::string& value) {
  if (!entry.is_object()) return false;
  const auto it = entry.find(key);
  return it != entry.end() && it->is_string() && it->get<std::string>() == value;
}

}  // namespace hone
