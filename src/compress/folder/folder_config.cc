// See folder_config.h.
#include "compress/folder/folder_config.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

namespace hone {
namespace {

using nlohmann::ordered_json;

void Remove(ordered_json* object) {
  for (const char* key : {"quantization_config", "compression_config"}) object->erase(key);
}

}  // namespace

Result<std::string> EditFolderConfig(const std::string& path, const std::string& quantization, const std::string& dtype) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  ordered_json config = ordered_json::parse(text.str(), nullptr, false);
  if (!in || !config.is_object()) return InvalidInput(path + ": no JSON object that can be written anew");
  ordered_json old;
  for (const char* key : {"compression_config", "quantization_config"}) {
    if (config.contains(key)) old = config[key];
  }
  Remove(&config);
  if (config.contains("text_config") && config["text_config"].is_object()) Remove(&config["text_config"]);
  if (!quantization.empty()) {
    ordered_json made = ordered_json::parse(quantization);
    const auto method = [](const ordered_json& json) { return json.is_object() ? json.value("quant_method", std::string()) : ""; };
    if (method(made) == "gptq" && method(old) == "gptq") {
      made.erase("meta");
      old.update(made);
      made = old;
    }
    config["quantization_config"] = made;
  }
  for (const char* key : {"torch_dtype", "dtype"}) {
    if (!dtype.empty() && config.contains(key)) config[key] = dtype;
  }
  return config.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace hone
