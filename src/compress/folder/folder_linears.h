// The linear layers of a Hugging Face folder: by its family where hone runs that, else by the names and shapes of its tensors alone,
// so that what needs no run of the model can be done to any decoder. Names then decide as other tools' names do: matrices
// [out, in] called NAME.weight inside of numbered layers, but no embeddings, outputs, norms, routers, encoders or towers for images and
// sound. Experts that lie in one tensor [experts, out, in] are matrices of their own: "experts.up.weight" holds
// "experts.0.up.weight" ....
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/checkpoint.h"

namespace hone {

inline constexpr std::string_view kWeightSuffix = ".weight";  // of the name of a linear layer's matrix

struct FolderLinear {
  std::string name;    // NAME.weight
  std::string tensor;  // that holds it; as `name` but for stacked experts
  std::string input;   // engines run those with the same one as one matrix, or may
  TensorView view;
};

struct FolderLinears {
  std::string not_run;  // why hone cannot run the model, which is then read by names; "": it can
  std::vector<FolderLinear> linears;
  // Modules that readers would take for quantised too: routers, matrices of towers.
  std::vector<std::string> kept_modules;
  // By names only: matrices that are no linear layers of the decoder, or not surely, and why.
  std::vector<std::pair<std::string, std::string>> passed_over;
};

// Errors: no configuration, or one that is damaged; tensors that a known family misses.
Result<FolderLinears> FindFolderLinears(const Checkpoint& checkpoint);

// An error, with the methods that would do, where hone cannot run the model. `what` needs it: "--method gptq".
Result<void> NeedsARun(const Checkpoint& checkpoint, const std::string& what);

}  // namespace hone
