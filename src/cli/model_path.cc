// See model_path.h.
#include "cli/model_path.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <vector>

#include "cli/hub.h"

namespace hone {
namespace {

namespace fs = std::filesystem;

const char* BuiltinFolder(const std::string& model) {
  if (model == "builtin") return "builtin/main";
  if (model == "builtin-draft") return "builtin/draft";
  return nullptr;
}

}  // namespace

Result<std::string> AssetsFolder() {
  std::vector<fs::path> places;
  if (const char* given = std::getenv("HONE_ASSETS")) places.emplace_back(given);
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error).parent_path();
  if (!error) {
    places.push_back(program / ".." / "share" / "hone");
    places.push_back(program / ".." / "assets");
  }
  std::string looked;
  for (const fs::path& place : places) {
    if (fs::is_directory(place / "builtin", error)) return fs::weakly_canonical(place, error).string();
    looked += (looked.empty() ? "" : ", ") + place.lexically_normal().string();
  }
  return NotFound("the built-in models are not installed; looked in " + looked +
                  " (set HONE_ASSETS to the folder that holds builtin/)");
}

Result<std::shared_ptr<const Checkpoint>> OpenModel(const std::string& model) {
  std::error_code error;
  if (const char* folder = BuiltinFolder(model); folder != nullptr && !fs::exists(model, error)) {
    HONE_TRY(const std::string assets, AssetsFolder());
    return Checkpoint::Open(assets + "/" + folder);
  }
  // A path that is there is what it is; otherwise it may be the name of a model that was pulled.
  if (const std::optional<HubName> name = ParseHubName(model); name && !fs::exists(model, error)) {
    HONE_TRY(const HubOptions options, HubOptionsFromEnvironment());
    HONE_TRY(const std::string path, LocalHubCopy(options, *name));
    return Checkpoint::Open(path);
  }
  return Checkpoint::Open(model);
}

void PrintWarnings(const char* command, const Checkpoint& checkpoint) {
  for (const std::string& warning : checkpoint.warnings()) std::fprintf(stderr, "hone %s: %s\n", command, warning.c_str());
}

std::string ModelName(const std::string& model, const Checkpoint& checkpoint) {
  std::error_code error;
  const bool pulled = ParseHubName(model).has_value() && !fs::exists(model, error);
  return BuiltinFolder(model) != nullptr || pulled ? model : checkpoint.name();
}

}  // namespace hone
