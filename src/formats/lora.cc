// See lora.h. Both forms end in AddPair; what is left without its partner is an error.
#include "formats/lora.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <string_view>

#include "base/digest.h"
#include "formats/json_config.h"

namespace hone {
namespace {

bool TakeSuffix(std::string_view suffix, std::string* text) {
  if (!text->ends_with(suffix)) return false;
  text->resize(text->size() - suffix.size());
  return true;
}

// What adapter_config.json says of the pairs. Keys that mean more than pairs are refused.
class PeftConfig {
 public:
  static Result<PeftConfig> Read(const std::string& path) {
    HONE_TRY(JsonConfig json, JsonConfig::Read(path));
    PeftConfig config;
    HONE_TRY(const std::string type, json.String("peft_type", "LORA"));
    if (type != "LORA") return Unsupported(fmt::format("{}: peft_type is \"{}\"; wanted \"LORA\"", path, type));
    HONE_RETURN_IF_ERROR(RefuseMore(json));
    HONE_TRY(config.rslora_, json.Bool("use_rslora", false));
    HONE_TRY(config.rank_, json.Int("r"));
    HONE_TRY(config.alpha_, json.Number("lora_alpha"));
    HONE_RETURN_IF_ERROR(config.ReadPattern(json, "rank_pattern", &config.rank_pattern_));
    HONE_RETURN_IF_ERROR(config.ReadPattern(json, "alpha_pattern", &config.alpha_pattern_));
    config.path_ = path;
    return config;
  }

  // The scale of a module whose A has `rank` rows.
  Result<float> Scale(const std::string& module, int64_t rank) const {
    HONE_TRY(const double wanted, Value(rank_pattern_, "rank_pattern", module, static_cast<double>(rank_)));
    if (wanted != static_cast<double>(rank)) {
      return InvalidInput(fmt::format("{}: the rank of {} is {:g}, but its lora_A has {} rows", path_, module, wanted, rank));
    }
    HONE_TRY(const double alpha, Value(alpha_pattern_, "alpha_pattern", module, alpha_));
    const double scale = alpha / (rslora_ ? std::sqrt(static_cast<double>(rank)) : static_cast<double>(rank));
    if (!std::isfinite(static_cast<float>(scale))) return InvalidInput(fmt::format("{}: the scale of {} is not a number", path_, module));
    return static_cast<float>(scale);
  }

 private:
  using Pattern = std::map<std::string, double>;

  static bool IsSet(const JsonConfig& json, const std::string& key) {
    if (!json.Has(key)) return false;
    if (json.IsObject(key)) {
      const auto object = json.Object(key);
      return !object || !object->Keys().empty();
    }
    if (json.IsArray(key)) {
      const auto words = json.Strings(key);
      return !words || !words->empty();
    }
    const auto flag = json.Bool(key, true);
    return !flag || *flag;
  }

  static Result<void> RefuseMore(const JsonConfig& json) {
    static constexpr std::pair<const char*, const char*> kRefused[] = {
        {"use_dora", "DoRA adapters scale whole rows of the weights"},
        {"use_qalora", "QALoRA adapters pool their input"},
        {"use_bdlora", "block-diagonal adapters are not plain pairs"},
        {"modules_to_save", "whole modules are saved beside the pairs"},
        {"lora_bias", "the pairs have biases"},
        {"fan_in_fan_out", "the weights are stored the other way round"},
        {"layer_replication", "layers are repeated"},
        {"trainable_token_indices", "rows of the embedding are trained"},
        {"target_parameters", "parameters that are no modules are adapted"},
        {"alora_invocation_tokens", "the adapter begins within the prompt (activated LoRA)"},
        {"megatron_config", "the weights are Megatron's"},
        {"arrow_config", "several adapters are mixed by a router"},
    };
    const auto refuse = [&](const std::string& key, const char* why) {
      return Unsupported(fmt::format("{}: {} is set: {}; hone takes plain LoRA pairs. Merge the adapter into its base with PEFT, "
                                     "or train one without it", json.origin(), key, why));
    };
    for (const auto& [key, why] : kRefused) {
      if (IsSet(json, key)) return refuse(key, why);
    }
    HONE_TRY(const std::string bias, json.String("bias", "none"));
    if (bias != "none") return refuse("bias", "biases of the base are changed");
    // Kinds that are newer than this list: better none than a wrong one.
    static constexpr std::string_view kHarmless[] = {"use_rslora", "loftq_config", "eva_config", "corda_config", "lora_ga_config"};
    for (const std::string& key : json.Keys()) {
      const bool harmless = std::find(std::begin(kHarmless), std::end(kHarmless), key) != std::end(kHarmless);
      if (harmless || !(key.starts_with("use_") || key.ends_with("_config")) || !IsSet(json, key)) continue;
      return refuse(key, "hone does not know what it means");
    }
    return {};
  }

  Result<void> ReadPattern(const JsonConfig& json, const char* key, Pattern* pattern) const {
    if (!json.Has(key)) return {};
    HONE_TRY(const JsonConfig object, json.Object(key));
    for (const std::string& name : object.Keys()) {
      HONE_TRY((*pattern)[name], object.Number(name));
      // PEFT takes keys for regular expressions; those that are names are all that is seen.
      const std::string_view plain = std::string_view(name).substr(name.starts_with('^') ? 1 : 0);
      const bool is_name = !plain.empty() && std::all_of(plain.begin(), plain.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '-';
      });
      if (!is_name) {
        return Unsupported(fmt::format("{}: {} has the key \"{}\", a regular expression; wanted names of modules", json.origin(), key, name));
      }
    }
    return {};
  }

  // Of the key that is the module's name or its end; "^" stands for the beginning.
  Result<double> Value(const Pattern& pattern, const char* what, const std::string& module, double otherwise) const {
    std::set<double> found;
    for (const auto& [key, value] : pattern) {
      const bool whole = key.starts_with('^');
      const bool matches = whole ? module == key.substr(1) : module == key || module.ends_with("." + key);
      if (matches) found.insert(value);
    }
    if (found.size() > 1) {
      return InvalidInput(fmt::format("{}: several keys of {} fit {} and say different numbers", path_, what, module));
    }
    return found.empty() ? otherwise : *found.begin();
  }

  std::string path_;
  int64_t rank_ = 0;
  double alpha_ = 0;
  bool rslora_ = false;
  Pattern rank_pattern_, alpha_pattern_;
};

}  // namespace

class LoraReader {
 public:
  explicit LoraReader(const std::string& path) { file_->path_ = path; }

  Result<std::shared_ptr<const LoraFile>> Read() {
    std::error_code ignored;
    if (std::filesystem::is_directory(file_->path_, ignored)) {
      HONE_RETURN_IF_ERROR(ReadPeft());
    } else {
      HONE_RETURN_IF_ERROR(ReadGguf());
    }
    std::sort(file_->pairs_.begin(), file_->pairs_.end(), [](const auto& x, const auto& y) { return x.target < y.target; });
    return std::shared_ptr<const LoraFile>(std::move(file_));
  }

 private:
  struct Half {
    const NamedTensor* a = nullptr;
    const NamedTensor* b = nullptr;
  };

  Result<void> ReadGguf() {
    const std::string& path = file_->path_;
    if (path.ends_with(".safetensors")) {
      return InvalidInput(path + ": give the folder that holds this file and its adapter_config.json");
    }
    HONE_TRY(file_->gguf_, GgufFile::Open(path));
    const GgufFile& gguf = *file_->gguf_;
    HONE_TRY(const std::string kind, gguf.String("general.type", "model"));
    if (kind != "adapter") {
      return InvalidInput(fmt::format("{}: general.type is \"{}\"; wanted an adapter", path, kind));
    }
    HONE_TRY(const std::string type, gguf.String("adapter.type"));
    if (type != "lora") return Unsupported(fmt::format("{}: adapter.type is \"{}\"; wanted \"lora\"", path, type));
    if (gguf.Has("adapter.alora.invocation_tokens")) {
      return Unsupported(path + ": adapter.alora.invocation_tokens is set: the adapter begins within the prompt (activated LoRA); "
                                "hone takes plain LoRA pairs");
    }
    HONE_TRY(file_->architecture_, gguf.String("general.architecture"));
    HONE_TRY(const double alpha, gguf.Number("adapter.lora.alpha"));
    std::map<std::string, Half> halves;
    for (const NamedTensor& tensor : gguf.tensors()) {
      std::string target = tensor.name;
      if (TakeSuffix(".lora_a", &target)) {
        halves[target].a = &tensor;
      } else if (TakeSuffix(".lora_b", &target)) {
        halves[target].b = &tensor;
      } else {
        return Unsupported(fmt::format("{}: tensor {} is no part of a LoRA pair (.lora_a, .lora_b)", path, tensor.name));
      }
    }
    for (const auto& [target, half] : halves) {
      HONE_TRY(LoraPair pair, MakePair(target, half));
      // 0 is what converters write where nothing is said: the pair as it is.
      pair.scale = alpha == 0 ? 1.0f : static_cast<float>(alpha / static_cast<double>(pair.rank()));
      if (!std::isfinite(pair.scale)) return InvalidInput(path + ": adapter.lora.alpha is not a finite number");
      file_->pairs_.push_back(std::move(pair));
    }
    return CheckSome();
  }

  Result<void> ReadPeft() {
    const std::string& path = file_->path_;
    HONE_TRY(const PeftConfig config, PeftConfig::Read(path + "/adapter_config.json"));
    const std::string weights = path + "/adapter_model.safetensors";
    std::error_code ignored;
    if (!std::filesystem::exists(weights, ignored) && std::filesystem::exists(path + "/adapter_model.bin", ignored)) {
      return Unsupported(path + ": has adapter_model.bin, a Python pickle; save the adapter as safetensors");
    }
    HONE_TRY(file_->safetensors_, SafetensorsFile::Open(weights));
    std::map<std::string, Half> halves;
    for (const NamedTensor& tensor : file_->safetensors_->tensors()) {
      std::string module = tensor.name;
      if (constexpr std::string_view kPrefix = "base_model.model."; module.starts_with(kPrefix)) module.erase(0, kPrefix.size());
      // Some tools keep the adapter's name.
      for (const char* name : {"", ".default"}) {
        if (TakeSuffix(std::string(".lora_A") + name + ".weight", &module)) {
          halves[module].a = &tensor;
          module.clear();
        } else if (TakeSuffix(std::string(".lora_B") + name + ".weight", &module)) {
          halves[module].b = &tensor;
          module.clear();
        }
        if (module.empty()) break;
      }
      if (!module.empty()) return RefuseTensor(weights, tensor.name);
    }
    for (const auto& [module, half] : halves) {
      HONE_TRY(LoraPair pair, MakePair(module, half));
      HONE_TRY(pair.scale, config.Scale(module, pair.rank()));
      pair.target += ".weight";
      file_->pairs_.push_back(std::move(pair));
    }
    return CheckSome();
  }

  static Error RefuseTensor(const std::string& path, const std::string& name) {
    const char* what = "is no part of a LoRA pair (lora_A, lora_B)";
    if (name.find("lora_magnitude_vector") != std::string::npos) what = "belongs to a DoRA adapter, which hone does not take";
    if (name.find("lora_embedding_") != std::string::npos) what = "adapts an embedding, which hone does not take";
    return Unsupported(fmt::format("{}: tensor {} {}", path, name, what));
  }

  Result<LoraPair> MakePair(const std::string& target, const Half& half) const {
    const std::string& path = file_->path_;
    if (half.a == nullptr || half.b == nullptr) {
      return InvalidInput(fmt::format("{}: {} has only one of the two matrices of a LoRA pair", path, target));
    }
    const TensorView &a = half.a->view, &b = half.b->view;
    const auto wrong = [&](const NamedTensor& tensor, const std::string& wanted) {
      return InvalidInput(fmt::format("{}: tensor {} is {} {}; wanted {}", path, tensor.name, Info(tensor.view.type).name,
                                      tensor.view.shape.ToString(), wanted));
    };
    if (a.shape.rank() == 3 || b.shape.rank() == 3) {
      return Unsupported(fmt::format("{}: {} has a pair for each expert, which hone does not take", path, target));
    }
    if (a.shape.rank() != 2 || a.shape[0] < 1 || a.shape[0] > kMaxLoraRank || a.shape[1] < 1) {
      return wrong(*half.a, fmt::format("a matrix [rank, inputs] of rank 1 to {}", kMaxLoraRank));
    }
    if (b.shape.rank() != 2 || b.shape[1] != a.shape[0] || b.shape[0] < 1) {
      return wrong(*half.b, fmt::format("a matrix [outputs, {}], as {} has that rank", a.shape[0], half.a->name));
    }
    return LoraPair{target, a, b, 1};
  }

  Result<void> CheckSome() const {
    if (file_->pairs_.empty()) return InvalidInput(file_->path_ + ": the adapter has no tensors");
    return {};
  }

  std::shared_ptr<LoraFile> file_{new LoraFile};
};

Result<std::shared_ptr<const LoraFile>> LoraFile::Open(const std::string& path) { return LoraReader(path).Read(); }

std::string LoraFile::ContentId() const {
  Digest128 digest;
  digest.Text(architecture_);
  for (const LoraPair& pair : pairs_) {
    digest.Text(pair.target);
    digest.Bytes(&pair.scale, sizeof pair.scale);
    for (const TensorView& view : {pair.a, pair.b}) {
      digest.Text(Info(view.type).name);
      digest.Number(static_cast<uint64_t>(view.shape[0]));
      digest.Number(static_cast<uint64_t>(view.shape[1]));
      digest.Bytes(view.data, view.bytes());
    }
  }
  return digest.Hex();
}

}  // namespace hone
