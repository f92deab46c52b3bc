// Random small models of every family, written as a Hugging Face folder and as a GGUF file of the same weights in
// llama.cpp's conventions (q and k rows permuted, norms with 1 added, experts stacked). Sizes, head counts, windows,
// biases, rope scalings and storage types are drawn; a seed gives the same model on every machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/random.h"
#include "models/config.h"

namespace hone::golden {

struct RandomModel {
  std::string what;         // for messages: family, sizes
  std::string folder;       // Hugging Face form
  std::string gguf;         // the same weights
  std::string blocks_gguf;  // other weights: matrices of random Q8_0 or Q4_1 blocks; "" where sizes do not allow them
};

// Families that a RandomModel can be of.
const std::vector<std::string>& RandomFamilies();
// Writes into the folder `where`, which must exist.
RandomModel WriteRandomModel(const std::string& family, Rng& rng, const std::string& where);

}  // namespace hone::golden
