// See user_path.h.
#include "base/user_path.h"

#include <cstdlib>

namespace hone {

std::string UserPath(UserFolder folder, const std::string& name) {
  const bool cache = folder == UserFolder::kCache;
  const char* base = std::getenv(cache ? "XDG_CACHE_HOME" : "XDG_STATE_HOME");
  if (base != nullptr && *base == '/') return std::string(base) + "/hone/" + name;
  const char* home = std::getenv("HOME");
  if (home != nullptr && *home == '/') return std::string(home) + (cache ? "/.cache/hone/" : "/.local/state/hone/") + name;
  return "";
}

}  // namespace hone
