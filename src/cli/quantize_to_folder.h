// hone quantize --method: a Hugging Face folder into another with quantised linear layers. The other half of
// cli/quantize.cc, which writes GGUF.
#pragma once

#include <string>

#include "base/result.h"
#include "cli/common_flags.h"
#include "compress/folder/linear_format.h"

namespace hone {

struct FolderRequest {
  std::string in, out;
  LinearScheme scheme;
  bool plan_only = false, resume = false, force = false;
};

// Returns the exit code. Paths and flags of their own kind are checked here.
Result<int> QuantizeToFolder(const FolderRequest& request, const CommonFlags& flags);

}  // namespace hone
