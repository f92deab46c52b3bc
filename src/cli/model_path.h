// What MODEL on the command line means: builtin and builtin-draft, a path, or OWNER/NAME once it was pulled (hub.h).
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "formats/checkpoint.h"

namespace hone {

// The folder that holds builtin/ and other assets: $HONE_ASSETS, or beside the program (PREFIX/share/hone for PREFIX/bin/hone;
// the checkout's assets/ for build/hone). An error lists the places looked at.
Result<std::string> AssetsFolder();

// Opens MODEL. For builtin and builtin-draft the path is inside the assets folder.
Result<std::shared_ptr<const Checkpoint>> OpenModel(const std::string& model);
// What makes the files of a model doubtful (a shard that the index does not name, bytes after the last tensor), to stderr as
// "hone COMMAND: ...".
void PrintWarnings(const char* command, const Checkpoint& checkpoint);
// The name that users see: "builtin", or the checkpoint's own.
std::string ModelName(const std::string& model, const Checkpoint& checkpoint);

}  // namespace hone
