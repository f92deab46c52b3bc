// Linear layers that a folder keeps as they are: which ones a recipe names, and how each format's configuration says so.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/checkpoint.h"

namespace hone {

// Names of the matrices that a recipe keeps: lines 'PATTERN keep', PATTERN as in gguf/recipe.h with names of the folder;
// # begins a comment. Errors name the line: another word than keep, a pattern that fits no matrix of a layer, matrices that engines
// run as one (q, k, v; gate, up) of which it keeps only some; and a recipe that keeps all.
Result<std::set<std::string>> ReadKeptMatrices(const std::string& text, const std::string& origin, const Checkpoint& checkpoint);

// `quantization` (LinearFormat::ConfigJson of `format`) where these modules are not quantised, beside an output matrix that is not
// either unless `output_quantized`.
std::string NameKeptModules(std::string quantization, std::string_view format, const std::vector<std::string>& modules,
                            bool output_quantized);

}  // namespace hone
