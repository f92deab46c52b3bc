// A LoRA adapter for the built-in model, written as PEFT writes them.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "e2e/program.h"
#include "formats/safetensors.h"

namespace hone::e2e {

// A PEFT folder for the first q_proj of the built-in model; all of B is `value`.
inline std::string WriteAdapter(const std::string& name, float value, int64_t inputs = 256) {
  const std::string folder = TempPath(name);
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/adapter_config.json") << R"({"peft_type":"LORA","r":2,"lora_alpha":2})";
  const std::vector<float> a(static_cast<size_t>(2 * inputs), 0.02f), b(512, value);
  const auto view = [](const std::vector<float>& numbers, Shape shape) {
    return TensorView{DType::kF32, shape, reinterpret_cast<const std::byte*>(numbers.data())};
  };
  const std::string module = "base_model.model.model.layers.0.self_attn.q_proj";
  const auto written = WriteSafetensors(folder + "/adapter_model.safetensors",
                                        {{module + ".lora_A.weight", view(a, Shape{2, inputs})},
                                         {module + ".lora_B.weight", view(b, Shape{256, 2})}}, {});
  EXPECT_TRUE(written.has_value());
  return folder;
}

}  // namespace hone::e2e
