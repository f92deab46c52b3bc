// hone inspect: what a model is, before it is loaded.
#include <fmt/core.h>

#include <map>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/input.h"
#include "cli/model_path.h"
#include "cli/progress.h"
#include "models/model.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace hone {
namespace {

using nlohmann::ordered_json;

struct Weights {
  uint64_t parameters = 0, bytes = 0;
  std::map<std::string, std::pair<uint64_t, uint64_t>> by_type;  // type: tensors, bytes
  uint64_t packed_bytes = 0;        // as the model runs
  std::vector<WeightInfo> list;     // of a quantised folder: what its tensors mean
  double bits_per_weight() const { return parameters > 0 ? 8.0 * static_cast<double>(bytes) / static_cast<double>(parameters) : 0; }
};

Weights Count(const Checkpoint& checkpoint) {
  Weights weights;
  const Result<bool> quantized = IsQuantizedFolder(checkpoint);
  auto list = quantized && *quantized ? ListWeights(checkpoint) : Result<std::vector<WeightInfo>>(std::vector<WeightInfo>());
  if (list && !list->empty()) {
    weights.list = std::move(*list);
    for (const WeightInfo& weight : weights.list) {
      weights.parameters += weight.shape.elements();
      weights.bytes += weight.file_bytes;
      weights.packed_bytes += weight.bytes();
      auto& [tensors, bytes] = weights.by_type[weight.quantized ? weight.stored + ", runs as " + std::string(Info(weight.type).name)
                                                                : weight.stored];
      ++tensors;
      bytes += weight.file_bytes;
    }
    return weights;
  }
  for (const NamedTensor& tensor : checkpoint.tensors()) {
    weights.parameters += tensor.view.shape.elements();
    weights.bytes += tensor.view.bytes();
    weights.packed_bytes += tensor.view.bytes();
    auto& [tensors, bytes] = weights.by_type[std::string(Info(tensor.view.type).name)];
    ++tensors;
    bytes += tensor.view.bytes();
  }
  return weights;
}

class InspectCommand : public Command {
 public:
  void AddFlags(Flags& flags) override {
    flags.Add("MODEL", model_, "GGUF file, Hugging Face folder, builtin or builtin-draft")->required();
    flags.AddSwitch("--tensors", tensors_, "list every tensor (--json always does)");
  }

  Result<int> Run(const CommonFlags& flags) override {
    HONE_TRY(const KvType kv, flags.kv_type());
    HONE_TRY(const auto checkpoint, OpenModel(model_));
    PrintWarnings("inspect", *checkpoint);
    const Weights weights = Count(*checkpoint);
    // A file without weights, or of an architecture that hone cannot run, still has tensors and a tokenizer to show.
    const Result<ModelConfig> config = ReadModelConfig(*checkpoint);
    const auto tokenizer = Tokenizer::FromCheckpoint(*checkpoint, flags.pre);
    const auto chat_template = ChatTemplateFromCheckpoint(*checkpoint);
    if (!config && checkpoint->tensors().empty() && !tokenizer) return config.error();
    if (flags.json) {
      WriteJson(*checkpoint, weights, config, tokenizer, chat_template, kv);
    } else {
      WriteTable(*checkpoint, weights, config, tokenizer, chat_template, kv, flags.ctx);
    }
    return kExitDone;
  }

 private:
  using TokenizerResult = Result<std::shared_ptr<const Tokenizer>>;

  static const char* Format(const Checkpoint& checkpoint) { return checkpoint.is_folder() ? "safetensors" : "gguf"; }

  // What the file itself calls its architecture, also where hone has no family for it.
  static std::string Architecture(const Checkpoint& checkpoint, const Result<ModelConfig>& config) {
    if (config) return config->architecture;
    if (checkpoint.gguf() != nullptr) {
      const Result<std::string> name = checkpoint.gguf()->String("general.architecture", "");
      return name ? *name : "";  // of another type: `reason` says so
    }
    if (checkpoint.config() == nullptr) return "";
    const auto names = checkpoint.config()->Strings("architectures");
    return names && !names->empty() ? names->front() : "";
  }

  void WriteJson(const Checkpoint& checkpoint, const Weights& weights, const Result<ModelConfig>& config,
                 const TokenizerResult& tokenizer, const Result<ChatTemplate>& chat_template, KvType kv) const {
    ordered_json json = {{"format", Format(checkpoint)},
                         {"architecture", Architecture(checkpoint, config)},
                         {"name", config && !config->name.empty() ? config->name : ModelName(model_, checkpoint)},
                         {"parameters", weights.parameters},
                         {"file_bytes", checkpoint.file_bytes()},
                         {"weight_bytes", weights.bytes},
                         {"bits_per_weight", weights.bits_per_weight()}};
    if (config) {
      json.update(ordered_json{{"family", config->family}, {"layers", config->layers}, {"width", config->width},
                               {"heads", config->heads}, {"kv_heads", config->kv_heads}, {"head_width", config->head_width},
                               {"ffn_width", config->ffn_width}, {"vocab", config->vocab}, {"context", config->context},
                               {"experts", config->experts}, {"experts_per_token", config->experts_per_token},
                               {"kv_bytes_per_token", config->layers * KvTokenBytes(kv, config->kv_heads, config->head_width)}});
    } else {
      json["runs"] = false;
      json["reason"] = config.error().message;
    }
    if (tokenizer) {
      json["tokenizer"] = {{"kind", (*tokenizer)->kind()}, {"vocab", (*tokenizer)->vocab_size()}};
      if ((*tokenizer)->bos()) json["tokenizer"]["bos"] = *(*tokenizer)->bos();
      json["tokenizer"]["end"] = (*tokenizer)->end_ids();
    } else {
      json["tokenizer"] = {{"error", tokenizer.error().message}};
    }
    json["chat_template"] = chat_template.has_value();
    json["tensors"] = ordered_json::array();
    for (const NamedTensor& tensor : checkpoint.tensors()) {
      ordered_json shape = ordered_json::array();
      for (int i = 0; i < tensor.view.shape.rank(); ++i) shape.push_back(tensor.view.shape[i]);
      json["tensors"].push_back({{"name", tensor.name}, {"shape", shape}, {"type", Info(tensor.view.type).name},
                                 {"bytes", tensor.view.bytes()}});
    }
    if (!weights.list.empty()) {
      json["packed_bytes"] = weights.packed_bytes;
      json["weights"] = ordered_json::array();
      for (const WeightInfo& weight : weights.list) {
        ordered_json shape = ordered_json::array();
        for (int i = 0; i < weight.shape.rank(); ++i) shape.push_back(weight.shape[i]);
        json["weights"].push_back({{"name", weight.name}, {"shape", shape}, {"stored", weight.stored},
                                   {"runs_as", Info(weight.type).name}, {"file_bytes", weight.file_bytes},
                                   {"packed_bytes", weight.bytes()}});
      }
    }
    WriteOut(json.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n");
  }

  void WriteTable(const Checkpoint& checkpoint, const Weights& weights, const Result<ModelConfig>& config,
                  const TokenizerResult& tokenizer, const Result<ChatTemplate>& chat_template, KvType kv, int ctx) const {
    std::string out;
    const auto row = [&](std::string_view key, const std::string& value) { out += fmt::format("{:<18} {}\n", key, value); };
    row("path", checkpoint.path());
    row("format", fmt::format("{}, {} on disk", Format(checkpoint), FormatBytes(checkpoint.file_bytes())));
    row("architecture", Architecture(checkpoint, config));
    row("parameters", fmt::format("{:.1f} M in {} tensors, {:.2f} bits per weight",
                                  static_cast<double>(weights.parameters) / 1e6, checkpoint.tensors().size(),
                                  weights.bits_per_weight()));
    for (const auto& [type, count] : weights.by_type) {
      row("", fmt::format("{:<8} {:>5} tensors  {}", type, count.first, FormatBytes(count.second)));
    }
    if (config) {
      row("layers", fmt::format("{}, width {}, FFN {}", config->layers, config->width, config->ffn_width));
      row("attention", fmt::format("{} heads, {} KV heads of {}", config->heads, config->kv_heads, config->head_width));
      if (config->experts > 0) row("experts", fmt::format("{}, {} a token", config->experts, config->experts_per_token));
      row("vocabulary", std::to_string(config->vocab));
      const int context = ctx > 0 ? ctx : std::min(config->context, kMaxDefaultContext);
      const uint64_t kv_bytes = config->layers * KvTokenBytes(kv, config->kv_heads, config->head_width);
      row("context", fmt::format("{} (made for {})", context, config->context));
      row("KV cache", fmt::format("{} a token, {} at context {}", FormatBytes(kv_bytes), FormatBytes(kv_bytes * context), context));
      row("memory", fmt::format("about {} for one sequence of {} tokens", FormatBytes(weights.packed_bytes + kv_bytes * context), context));
    } else {
      row("runs", "no: " + config.error().message);
    }
    row("tokenizer", tokenizer ? fmt::format("{}, {} tokens", (*tokenizer)->kind(), (*tokenizer)->vocab_size())
                               : "cannot be used: " + tokenizer.error().message);
    row("chat template", chat_template ? fmt::format("yes, {} bytes", chat_template->source().size()) : "none");
    if (tensors_) {
      out += "\n";
      for (const WeightInfo& weight : weights.list) {
        out += fmt::format("{:<44} {:<8} {:<20} {}  {}\n", weight.name, Info(weight.type).name, weight.shape.ToString(),
                           FormatBytes(weight.file_bytes), weight.quantized ? weight.stored : "");
      }
      for (const NamedTensor& tensor : weights.list.empty() ? checkpoint.tensors() : std::vector<NamedTensor>()) {
        out += fmt::format("{:<44} {:<8} {:<20} {}\n", tensor.name, Info(tensor.view.type).name, tensor.view.shape.ToString(),
                           FormatBytes(tensor.view.bytes()));
      }
    }
    WriteOut(out);
  }

  std::string model_;
  bool tensors_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeInspectCommand() { return std::make_unique<InspectCommand>(); }

}  // namespace hone
