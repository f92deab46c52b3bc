// See name_folder.h.
#include "compress/folder/name_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <system_error>

#include "compress/folder/folder_config.h"
#include "formats/json_config.h"

namespace hone {
namespace {

namespace fs = std::filesystem;

// config.json with one more key at its end, in the place of what it said of the same.
Result<std::string> ConfigWith(const std::string& path, const std::string& value) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  std::string json = text.str();
  if (!in) return IoError(path + ": cannot read: " + std::strerror(errno));
  if (json.find("\"quantization_config\"") != std::string::npos || json.find("\"compression_config\"") != std::string::npos) {
    HONE_TRY(json, EditFolderConfig(path, "", ""));
  }
  const size_t brace = json.rfind('}');
  if (brace == std::string::npos) return InvalidInput(path + ": no JSON object");
  const size_t last = json.find_last_not_of(" \t\r\n", brace - 1);
  const bool empty = last != std::string::npos && json[last] == '{';
  json = json.substr(0, last + 1) + (empty ? "\n" : ",\n") + "  \"quantization_config\": " + value + "\n}\n";
  HONE_RETURN_IF_ERROR(JsonConfig::Parse(json, path));
  return json;
}

// What says how the input's matrices are stored, beside its config.json.
bool IsAboutStorage(const std::string& name) {
  return name == "quantize_config.json" || name == "quant_config.json" || name == "hf_quant_config.json";
}

// Of a job whose result goes into the input's folder.
bool IsWork(const std::string& name) { return name.find(".partial") != std::string::npos || name.ends_with(".streams"); }

Result<void> WriteOtherFiles(const FolderToName& folder, const std::string& place) {
  HONE_TRY(const std::string config, ConfigWith(folder.source + "/config.json", folder.quantization));
  auto files = folder.files;
  files.emplace_back("config.json", config);
  std::error_code error;
  for (fs::directory_iterator it(folder.source, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename();
    std::error_code ignored;
    if (!it->is_regular_file(ignored) || name == "config.json" || name.find(".safetensors") != std::string::npos ||
        name.ends_with(".bin") || name.ends_with(".gguf") || IsWork(name) || IsAboutStorage(name))
      continue;
    fs::copy_file(it->path(), fs::path(place) / name, error);
    if (error) break;
  }
  if (error) return IoError(place + ": " + error.message());
  for (const auto& [name, text] : files) {
    std::ofstream out(fs::path(place) / name, std::ios::binary);
    out << text;
    if (!out.flush()) return IoError(place + "/" + name + ": cannot write");
  }
  return {};
}

// Names must reach the disk too; a file system that cannot is no reason to fail.
void SyncFolder(const std::string& folder) {
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  static_cast<void>(fsync(fd));
  close(fd);
}

// The folder gets its name. What had it is removed when that is done, where file systems can exchange names.
std::error_code TakePlace(const FolderToName& folder, const std::string& place) {
  std::error_code error, ignored;
  if (folder.overwrite && fs::exists(fs::symlink_status(folder.path, ignored))) {
    if (renameat2(AT_FDCWD, place.c_str(), AT_FDCWD, folder.path.c_str(), RENAME_EXCHANGE) == 0) {
      fs::remove_all(place, ignored);
      return {};
    }
    if (errno != EINVAL && errno != ENOSYS) return {errno, std::generic_category()};
    fs::remove_all(folder.path, ignored);
  }
  fs::rename(place, folder.path, error);
  return error;
}

}  // namespace

Result<void> TakeWeightsBack(const std::string& path) {
  const std::string moved = path + ".unverified/model.safetensors";
  std::error_code ignored;
  if (fs::exists(path + ".partial", ignored)) return {};
  const int fd = open(moved.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  const bool free = flock(fd, LOCK_EX | LOCK_NB) == 0;
  if (free) fs::rename(moved, path + ".partial", ignored);
  close(fd);
  if (!free) return UsageError(moved + ": another process is writing it");
  return {};
}

Result<void> NameFolder(const FolderToName& folder, const std::function<Result<void>(const std::string&)>& check) {
  const std::string& path = folder.path;
  const std::string unverified = path + ".unverified", weights = unverified + "/model.safetensors";
  std::error_code error, ignored;
  fs::remove_all(unverified, ignored);
  fs::create_directories(unverified, error);
  if (error) return IoError(unverified + ": cannot make the folder: " + error.message());
  Result<void> named = WriteOtherFiles(folder, unverified);
  if (named) fs::rename(path + ".partial", weights, error);
  if (named && !error) {
    SyncFolder(unverified);
    named = check(unverified);
  }
  if (named && !error) error = TakePlace(folder, unverified);
  if (named && !error) {
    SyncFolder(fs::path(path).has_parent_path() ? fs::path(path).parent_path().string() : ".");
    return {};
  }
  fs::rename(weights, path + ".partial", ignored);
  fs::remove_all(unverified, ignored);
  return !named ? named : IoError(path + ": " + error.message());
}

}  // namespace hone
