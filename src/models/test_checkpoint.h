// For tests of models/: small checkpoints written to a temporary folder.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/test_shared.h"
#include "formats/checkpoint.h"

namespace hone {

// A fresh folder under the test's temporary folder.
inline std::string FreshFolder(const std::string& name) {
  const std::string path = TestPath("models_" + name);
  std::filesystem::remove_all(path);
  std::filesystem::create_directories(path);
  return path;
}

// A Hugging Face folder with this config.json and these F32 tensors (filled with small numbers).
inline std::shared_ptr<const Checkpoint> WriteFolder(const std::string& name, const std::string& config_json,
                                                     const std::map<std::string, Shape>& tensors = {},
                                                     const std::map<std::string, DType>& types = {}) {
  const std::string folder = FreshFolder(name);
  std::ofstream(folder + "/config.json") << config_json;
  std::vector<Tensor> kept;
  std::vector<NamedTensor> named;
  for (const auto& [tensor_name, shape] : tensors) {
    const auto type = types.find(tensor_name);
    kept.emplace_back(type == types.end() ? DType::kF32 : type->second, shape);
    if (kept.back().type() == DType::kF32) {
      for (int64_t i = 0; i < shape.elements(); ++i) kept.back().as<float>()[i] = static_cast<float>(i % 7 - 3) * 0.1f;
    }
    named.push_back({tensor_name, kept.back().view()});
  }
  if (!named.empty()) {
    const Result<void> written = WriteSafetensors(folder + "/model.safetensors", named, {{"format", "pt"}});
    HONE_CHECK(written.has_value(), written.has_value() ? "" : written.error().message);
  }
  auto checkpoint = Checkpoint::Open(folder);
  HONE_CHECK(checkpoint.has_value(), checkpoint.has_value() ? "" : checkpoint.error().message);
  return *checkpoint;
}

// config.json and tensors of a whole Llama of two layers, for WriteFolder.
inline constexpr char kLlamaConfig[] = R"({"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2, "hidden_size": 16,
  "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 24, "vocab_size": 10,
  "max_position_embeddings": 64})";

inline std::map<std::string, Shape> LlamaTensors() {
  std::map<std::string, Shape> tensors = {{"model.embed_tokens.weight", Shape{10, 16}},
                                          {"model.norm.weight", Shape{16}},
                                          {"lm_head.weight", Shape{10, 16}}};
  for (const char* layer : {"model.layers.0.", "model.layers.1."}) {
    const auto add = [&](const char* name, Shape shape) { tensors[std::string(layer) + name + ".weight"] = shape; };
    add("input_layernorm", Shape{16});
    add("post_attention_layernorm", Shape{16});
    add("self_attn.q_proj", Shape{16, 16});
    add("self_attn.k_proj", Shape{8, 16});
    add("self_attn.v_proj", Shape{8, 16});
    add("self_attn.o_proj", Shape{16, 16});
    add("mlp.gate_proj", Shape{24, 16});
    add("mlp.up_proj", Shape{24, 16});
    add("mlp.down_proj", Shape{16, 24});
  }
  return tensors;
}

using GgufMetadata = std::vector<std::pair<std::string, GgufValue>>;
inline GgufValue GgufInt(uint64_t value) { return {.type = GgufType::kU32, .value = value}; }
inline GgufValue GgufFloat(double value) { return {.type = GgufType::kF32, .value = value}; }
inline GgufValue GgufText(const std::string& value) { return {.type = GgufType::kString, .value = value}; }

inline std::shared_ptr<const Checkpoint> WriteGgufFile(const std::string& name, const GgufMetadata& metadata,
                                                       const std::vector<NamedTensor>& tensors = {}) {
  const std::string path = FreshFolder(name) + "/model.gguf";
  const Result<void> written = WriteGguf(path, {.metadata = metadata, .tensors = tensors});
  HONE_CHECK(written.has_value(), written.has_value() ? "" : written.error().message);
  auto checkpoint = Checkpoint::Open(path);
  HONE_CHECK(checkpoint.has_value(), checkpoint.has_value() ? "" : checkpoint.error().message);
  return *checkpoint;
}

}  // namespace hone
