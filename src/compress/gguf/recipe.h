// Recipes: a type a tensor, other than the mixture of a named file type. From a file of patterns, or chosen under a
// budget of bytes by what each type costs each tensor, measured.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/runtime.h"
#include "compress/gguf/sensitivity.h"
#include "compress/imatrix/imatrix.h"
#include "compress/tensor_source.h"

namespace hone {

// "PATTERN TYPE" a line: PATTERN is a tensor's name in GGUF where * stands for any characters, TYPE is F16, BF16, F32 or
// one that hone quantises to. The last line that fits a name counts; # begins a comment. Errors name the line.
struct RecipeLine {
  std::string pattern;
  DType type = DType::kF32;
  int line = 0;
};
// Whether a name is the pattern's.
bool FitsPattern(std::string_view pattern, std::string_view name);
// Calls fn(line, pattern, second word) for the lines until it returns an error. Errors: other lines than of two words, or none.
Result<void> ForRecipeLines(const std::string& text, const std::string& origin,
                            const std::function<Result<void>(int line, const std::string& pattern, std::string word)>& fn);
Result<std::vector<RecipeLine>> ParseRecipe(const std::string& text, const std::string& origin);
// Types by tensor name. Errors: a line that fits no tensor, a type whose block does not divide a row (all are named).
Result<std::map<std::string, DType>> ApplyRecipe(const std::vector<RecipeLine>& lines, const TensorSource& source,
                                                 const std::string& origin);

// The type that MeasureSensitivity quantises a tensor of the file to, for all that are to be quantised: about three bits, an
// error that shows.
std::map<std::string, DType> ProbeTypes(const TensorSource& source);

// Types of all quantised tensors so that the file's tensors take at most `bytes`, with the least sum of costs. The cost
// of a type for a tensor grows with the relative error of its output, sum_j imp_j e_j^2 / sum_j imp_j w_j^2 over sampled
// rows (imp: mean squared inputs; 1 without an importance matrix):
//  with `sensitivity`: divergence of its group * its error / the group's errors under the probes' types, which is the
//    divergence that the type brings;
//  without (nullptr, or no groups): the error, times the number of layers for embedding and output, whose error reaches every
//    logit at full size.
// Solved as a knapsack on the lower hull of each tensor's (bytes, cost). Tensors in `fixed` have the type that stands there. Errors: a
// budget below what those and the smallest types of the others take.
struct MixedChoice {
  std::map<std::string, DType> types;
  uint64_t bytes = 0;         // of all tensors
  double cost = 0;            // sum of costs; with sensitivity, the divergence that is expected, in nats a token
};
Result<MixedChoice> ChooseMixed(const TensorSource& source, const Imatrix* imatrix, const Sensitivity* sensitivity,
                                uint64_t bytes, const Runtime& runtime, const std::map<std::string, DType>& fixed = {});

}  // namespace hone
