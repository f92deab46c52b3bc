// ReferenceModel: the executable definition of every family, in plain loops and double precision. It reads a
// checkpoint's configuration and tensor map as models/ does, and nothing else of the program: no kernels, no packing,
// no cache, no threads.
//
// It does not ask which family a model is. What a layer has is what it has weights for: a norm before attention or
// after it, norms on q and k (a head at a time, or the whole projection), biases, experts, a shared expert. The rest is
// numbers of the configuration. So it also stands against the families' own lists of ops. Slow: for models of a few
// hundred thousand weights.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "formats/checkpoint.h"
#include "models/config.h"

namespace hone::reference {

using Row = std::vector<double>;  // one token's numbers
using Rows = std::vector<Row>;    // [T]

struct Pass {
  std::vector<Rows> states;  // [L + 2][T][D]: input of layer 0, after each layer, after the final norm
  Rows logits;               // [T][V]
};

class ReferenceModel {
 public:
  static Result<ReferenceModel> Load(const Checkpoint& checkpoint);
  const ModelConfig& config() const { return config_; }

  // One full pass over tokens at positions 0, 1, ... `final_length`: the length by which longrope chooses its factors.
  Pass Run(std::span<const int32_t> tokens, int final_length) const;

 private:
  struct Matrix {
    int64_t rows = 0, columns = 0;
    std::vector<float> values;  // stored weights are float values exactly
  };
  bool Has(const std::string& name) const { return weights_.count(name) != 0; }
  const Matrix& Get(const std::string& name) const { return weights_.at(name); }
  Row Apply(const std::string& name, const Row& x) const;  // name.weight x + name.bias
  Row Norm(const Row& x, const std::string& name) const;   // RMSNorm in groups of the weight's length
  Row Ffn(const std::string& gate, const std::string& up, const std::string& down, const Row& x) const;
  Row Experts(const std::string& below, const Row& x) const;
  void AddAttention(int layer, int final_length, Rows& x) const;
  void AddFeedForward(int layer, Rows& x) const;

  ModelConfig config_;
  std::unordered_map<std::string, Matrix> weights_;
};

}  // namespace hone::reference
