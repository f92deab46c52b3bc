// See kept_modules.h.
#include "compress/folder/kept_modules.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/check.h"
#include "compress/folder/folder_linears.h"
#include "compress/gguf/recipe.h"

namespace hone {
namespace {

// In quotes. Names of tensors are whatever a file says.
std::string JsonText(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// As a regular expression that fits nothing else.
std::string Literally(const std::string& text) {
  std::string pattern;
  for (const char c : text) {
    if (std::string_view(R"(.^$|()[]{}*+?\)").find(c) != std::string_view::npos) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

}  // namespace

Result<std::set<std::string>> ReadKeptMatrices(const std::string& text, const std::string& origin, const Checkpoint& checkpoint) {
  HONE_TRY(const FolderLinears found, FindFolderLinears(checkpoint));
  const std::vector<FolderLinear>& units = found.linears;
  std::set<std::string> kept;
  HONE_RETURN_IF_ERROR(ForRecipeLines(text, origin, [&](int number, const std::string& pattern, std::string word) -> Result<void> {
    std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return std::tolower(c); });
    if (word != "keep") {
      return InvalidInput(fmt::format("{}: line {}: '{:.60}'; matrices of a folder have one form, wanted keep (--type writes GGUF "
                                      "files of several types)", origin, number, word));
    }
    bool any = false;
    for (const FolderLinear& unit : units) {
      if (!FitsPattern(pattern, unit.name)) continue;
      any = true;
      kept.insert(unit.name);
    }
    if (any) return {};
    return InvalidInput(fmt::format("{}: line {}: no matrix of a layer is called '{:.60}'; hone inspect --json lists the names", origin,
                                    number, pattern));
  }));
  if (kept.size() == units.size()) return InvalidInput(origin + ": all matrices are kept, nothing would be quantised");
  std::map<std::string, const FolderLinear*> first;  // of those that engines run as one, or that lie in one tensor
  for (const FolderLinear& unit : units) {
    for (const std::string& whole : {unit.input, unit.tensor}) {
      const FolderLinear& other = *first.emplace(whole, &unit).first->second;
      if (kept.count(unit.name) == kept.count(other.name)) continue;
      return InvalidInput(fmt::format("{}: one of {} and {} is kept and the other is not; {}, so keep both", origin, other.name, unit.name,
                                      unit.tensor == other.tensor ? "they lie in one tensor" : "engines run them as one matrix"));
    }
  }
  return kept;
}

std::string NameKeptModules(std::string quantization, std::string_view format, const std::vector<std::string>& modules,
                            bool output_quantized) {
  const auto replace = [&](std::string_view from, const std::string& to) {
    const size_t at = quantization.find(from);
    HONE_CHECK(at != std::string::npos);
    quantization.replace(at, from.size(), to);
  };
  std::string list, negative;
  for (const std::string& module : modules) {
    list += (list.empty() ? "" : ", ") + JsonText(module);
    if (module.ends_with("lm_head")) continue;
    negative += fmt::format("{}{}: {{}}", negative.empty() ? "" : ", ", JsonText("-:^" + Literally(module) + "$"));
  }
  // With tied embeddings there is no such module, and other tools name it all the same.
  const bool names_output = !output_quantized && list.find("lm_head") == std::string::npos;
  const std::string with_output = list + (!names_output ? "" : list.empty() ? "\"lm_head\"" : ", \"lm_head\"");
  if (format == "compressed-tensors") {
    replace("[\"lm_head\"]", "[" + with_output + "]");
  } else if (format == "gptq" || format == "gptq-v2") {
    if (output_quantized) replace("\"lm_head\": false", "\"lm_head\": true");
    if (!negative.empty()) replace("\"group_size\"", "\"dynamic\": {" + negative + "}, \"group_size\"");
  } else if (!negative.empty() && format == "awq") {
    replace("\"modules_to_not_convert\": null", "\"modules_to_not_convert\": [" + list + "]");
  } else if (!negative.empty() && format == "bitsandbytes") {
    replace("\"llm_int8_skip_modules\": null", "\"llm_int8_skip_modules\": [" + with_output + "]");
  } else if (!negative.empty() && format == "fp8") {
    replace("\"modules_to_not_convert\": [\"lm_head\"]", "\"modules_to_not_convert\": [" + with_output + "]");
  } else if (!negative.empty() && format == "hqq") {
    replace("\"skip_modules\": [\"lm_head\"]", "\"skip_modules\": [" + with_output + "]");
  }
  return quantization;
}

}  // namespace hone
