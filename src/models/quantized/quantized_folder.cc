// See quantized_folder.h.
#include "models/quantized/quantized_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

namespace hone {

#define HONE_QUANTIZED(method, open, check)                                             \
  Result<std::shared_ptr<const QuantizedMatrix>> open(const QuantizedSource& source);   \
  Result<void> check(const JsonConfig& config);
#include "models/quantized/formats.inc"
#undef HONE_QUANTIZED

namespace {

struct Method {
  std::string_view name;
  OpenQuantized open;
  Result<void> (*check)(const JsonConfig& config);
};

constexpr Method kMethods[] = {
#define HONE_QUANTIZED(method, open, check) {method, &open, &check},
#include "models/quantized/formats.inc"
#undef HONE_QUANTIZED
};

Result<const Method*> FindMethod(const JsonConfig& config) {
  HONE_TRY(std::string name, config.String("quant_method", ""));
  if (name.empty()) {  // older files of one tool leave it out
    HONE_TRY(const bool four, config.Bool("load_in_4bit", false));
    HONE_TRY(const bool eight, config.Bool("load_in_8bit", false));
    name = four || eight ? "bitsandbytes" : "unknown";
  }
  std::string known;
  for (const Method& method : kMethods) {
    if (method.name == name) return &method;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", method.name);
  }
  return Unsupported(fmt::format(
      "{}: weights stored by quant_method \"{}\" are not supported; known: {}. Use the unquantised model, or a GGUF of it",
      config.origin(), name, known));
}

// quantization_config, also one level down, or what older tools write beside config.json. nullptr: none.
Result<std::shared_ptr<const JsonConfig>> FindConfig(const JsonConfig& json) {
  for (const std::string_view key : {"quantization_config", "compression_config"}) {
    if (!json.IsObject(key)) continue;
    HONE_TRY(JsonConfig config, json.Object(key));
    return std::make_shared<const JsonConfig>(std::move(config));
  }
  if (json.IsObject("text_config")) {
    HONE_TRY(const JsonConfig text, json.Object("text_config"));
    return FindConfig(text);
  }
  return std::shared_ptr<const JsonConfig>();
}

Result<std::shared_ptr<const JsonConfig>> FindBesideConfig(const Checkpoint& checkpoint) {
  const std::string path = checkpoint.path() + "/quantize_config.json";
  std::error_code ignored;
  const bool packed = std::any_of(checkpoint.tensors().begin(), checkpoint.tensors().end(),
                                  [](const NamedTensor& tensor) { return tensor.name.ends_with(".qweight"); });
  if (!packed || !std::filesystem::exists(path, ignored)) return std::shared_ptr<const JsonConfig>();
  HONE_TRY(JsonConfig config, JsonConfig::Read(path));
  if (!config.Has("quant_method")) {
    std::string text = config.Dump();
    text.insert(1, config.Keys().empty() ? R"("quant_method":"gptq")" : R"("quant_method":"gptq",)");
    HONE_TRY(config, JsonConfig::Parse(text, path));
  }
  return std::make_shared<const JsonConfig>(std::move(config));
}

}  // namespace

const NamedTensor* QuantizedSource::Find(std::string_view suffix) const {
  return checkpoint.FindTensor(module + std::string(suffix));
}

Error QuantizedSource::Bad(const std::string& what) const { return InvalidInput(where() + ": " + what); }

Result<const NamedTensor*> QuantizedSource::Need(std::string_view suffix, std::initializer_list<DType> types,
                                                 const Shape& shape) const {
  std::string wanted;
  for (const DType type : types) wanted += fmt::format("{}{}", wanted.empty() ? "" : " or ", Info(type).name);
  const NamedTensor* tensor = Find(suffix);
  if (tensor == nullptr) {
    return Bad(fmt::format("tensor {}{} is missing; wanted {} {}. Download the folder again, or use another file of the model",
                           module, suffix, wanted, shape.ToString()));
  }
  if (std::find(types.begin(), types.end(), tensor->view.type) == types.end() || tensor->view.shape != shape) {
    return Bad(fmt::format("tensor {} is {} {}; wanted {} {} for a matrix [{}, {}]", tensor->name,
                           Info(tensor->view.type).name, tensor->view.shape.ToString(), wanted, shape.ToString(), rows, columns));
  }
  return tensor;
}

Result<void> CheckQuantization(const JsonConfig& json) {
  HONE_TRY(const auto config, FindConfig(json));
  if (config == nullptr) return {};
  HONE_TRY(const Method* method, FindMethod(*config));
  return method->check(*config);
}

Result<QuantizedFolder> QuantizedFolder::Make(const Checkpoint& checkpoint) {
  QuantizedFolder folder;
  folder.checkpoint_ = &checkpoint;
  if (!checkpoint.is_folder() || checkpoint.config() == nullptr) return folder;
  HONE_TRY(folder.config_, FindConfig(*checkpoint.config()));
  if (folder.config_ == nullptr) {
    HONE_TRY(folder.config_, FindBesideConfig(checkpoint));
  }
  if (folder.config_ == nullptr) return folder;
  HONE_TRY(const Method* method, FindMethod(*folder.config_));
  HONE_RETURN_IF_ERROR(method->check(*folder.config_));
  folder.method_ = method->name;
  folder.open_ = method->open;
  return folder;
}

Result<std::shared_ptr<const QuantizedMatrix>> QuantizedFolder::Find(std::string_view name, int64_t rows,
                                                                     int64_t columns) const {
  constexpr std::string_view kWeight = ".weight";
  if (open_ == nullptr || !name.ends_with(kWeight) || rows <= 0 || columns <= 0) return std::shared_ptr<const QuantizedMatrix>();
  name.remove_suffix(kWeight.size());
  return open_({*checkpoint_, *config_, std::string(name), rows, columns});
}

}  // namespace hone
