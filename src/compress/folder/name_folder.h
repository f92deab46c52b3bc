// The last steps of a folder in the making: a job's work file, whole and on the disk, moves to PATH.unverified beside the other
// files, and that gets the name PATH. A job that is killed between two of them goes on from the work file.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace hone {

struct FolderToName {
  std::string path;
  std::string source;        // the folder whose other files come along
  std::string quantization;  // JSON: quantization_config of config.json
  std::vector<std::pair<std::string, std::string>> files;  // further ones: name, contents
  bool overwrite = false;    // what has the name already is replaced when the new folder is complete
};

// The weights' file that a killed job has moved away is PATH.partial again.
Result<void> TakeWeightsBack(const std::string& path);

// `check` says whether the folder that it is given is right. On an error the weights' file is PATH.partial as before.
Result<void> NameFolder(const FolderToName& folder, const std::function<Result<void>(const std::string&)>& check);

}  // namespace hone
