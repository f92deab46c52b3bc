// Where hone keeps files of a user, by the XDG base directory specification: relative values of its variables are ignored.
#pragma once

#include <string>

namespace hone {

enum class UserFolder {
  kCache,  // $XDG_CACHE_HOME or ~/.cache: can be made again
  kState,  // $XDG_STATE_HOME or ~/.local/state: worth keeping between runs
};

// hone/`name` there; "" if neither the variable nor HOME is an absolute path. Nothing is created.
std::string UserPath(UserFolder folder, const std::string& name);

}  // namespace hone
