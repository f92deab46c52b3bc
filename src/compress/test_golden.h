// For tests of compress/: tensors of a golden safetensors file as numbers, and small models written from them.
#pragma once

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/test_shared.h"
#include "formats/safetensors.h"
#include "tensor/float16.h"
#include "tensor/tensor.h"

namespace hone {

class Golden {
 public:
  explicit Golden(const std::string& path) {
    auto file = SafetensorsFile::Open(path);
    HONE_CHECK(file.has_value(), path);
    file_ = *file;
  }
  bool Has(const std::string& name) const { return file_->FindTensor(name) != nullptr; }
  const TensorView& View(const std::string& name) const {
    HONE_CHECK(Has(name), name);
    return file_->FindTensor(name)->view;
  }
  std::vector<double> Numbers(const std::string& name) const {
    const TensorView& v = View(name);
    std::vector<double> out(v.shape.elements());
    for (size_t i = 0; i < out.size(); ++i) {
      switch (v.type) {
        case DType::kF64:
          out[i] = v.as<double>()[i];
          break;
        case DType::kF32:
          out[i] = v.as<float>()[i];
          break;
        case DType::kBF16:
          out[i] = Bf16ToF32(v.as<uint16_t>()[i]);
          break;
        case DType::kF16:
          out[i] = F16ToF32(v.as<uint16_t>()[i]);
          break;
        case DType::kI8:
          out[i] = v.as<int8_t>()[i];
          break;
        case DType::kI32:
          out[i] = v.as<int32_t>()[i];
          break;
        default:
          out[i] = v.as<uint8_t>()[i];
          break;
      }
    }
    return out;
  }
  std::vector<float> Floats(const std::string& name) const {
    const std::vector<double> numbers = Numbers(name);
    return {numbers.begin(), numbers.end()};
  }

 private:
  std::shared_ptr<const SafetensorsFile> file_;
};

// A Hugging Face folder in the test's temporary folder, emptied first. `tensors`: what they are called there.
inline std::string WriteModelFolder(const std::string& name, const std::string& config_json,
                                    const std::vector<NamedTensor>& tensors) {
  const std::string folder = TestPath(name);
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/config.json") << config_json;
  const Result<void> written = WriteSafetensors(folder + "/model.safetensors", tensors, {{"format", "pt"}});
  HONE_CHECK(written.has_value(), written.has_value() ? "" : written.error().message);
  return folder;
}

}  // namespace hone
