// See loaded_model.h.
#include "cli/loaded_model.h"

#include <algorithm>
#include <filesystem>
#include <limits>

#include "cache/free_memory.h"
#include "cli/model_path.h"
#include "cli/progress.h"

namespace hone {

Result<LoadedModel> LoadModel(const std::string& model, const CommonFlags& flags, EngineOptions options, const Runtime* shared) {
  LoadedModel loaded;
  HONE_TRY(options.kv, flags.kv_type());
  options.context = flags.ctx;
  options.deterministic = flags.deterministic;
  if (shared == nullptr) {
    HONE_TRY(loaded.runtime, RuntimeOwner::Create(flags));
    shared = &loaded.runtime->runtime();
  }
  const Runtime& runtime = *shared;
  const double start_s = runtime.clock->Now();

  HONE_TRY(loaded.checkpoint, OpenModel(model));
  for (const std::string& warning : loaded.checkpoint->warnings()) runtime.log->Warn("{}", warning);
  loaded.name = ModelName(model, *loaded.checkpoint);
  options.weights_digest = loaded.checkpoint->Digest();
  // What kind of file it is comes before what its tokenizer lacks.
  if (const auto config = ReadModelConfig(*loaded.checkpoint); !config) return config.error();
  HONE_RETURN_IF_ERROR(CheckMemory(*loaded.checkpoint, 0));
  HONE_TRY(loaded.tokenizer, Tokenizer::FromCheckpoint(*loaded.checkpoint, flags.pre));
  Result<ChatTemplate> chat_template = ChatTemplateFromCheckpoint(*loaded.checkpoint);
  if (chat_template) {
    loaded.chat_template = std::make_shared<const ChatTemplate>(*std::move(chat_template));
  } else if (chat_template.error().code != ErrorCode::kNotFound) {
    runtime.log->Warn("the chat template cannot be used: {}", chat_template.error().message);
  }

  ProgressLine progress("loading " + loaded.name, flags.progress());
  LoadOptions load;
  load.max_rows = options.step_tokens;
  load.exact = flags.exact;
  load.deterministic = options.deterministic;
  load.packed_cache = flags.packed_cache_folder();
  load.max_context = flags.ctx;
  load.progress = [&](uint64_t done, uint64_t total) { progress.Update(done, total); };
  HONE_TRY(std::unique_ptr<Model> packed, Model::Load(loaded.checkpoint, runtime, load));
  progress.Clear();
  loaded.model = std::move(packed);
  HONE_TRY(loaded.engine, Engine::Create(loaded.model, loaded.tokenizer, runtime, options));
  loaded.load_s = runtime.clock->Now() - start_s;
  runtime.log->Debug("{} loaded in {:.2f} s: {} of weights, context {}, {} resident", loaded.name, loaded.load_s,
                     FormatBytes(loaded.model->weight_bytes()), loaded.engine->options().context,
                     FormatBytes(ResidentBytes()));
  return loaded;
}

NamedAdapter ParseAdapter(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals != std::string::npos && equals > 0 && text.find('/') > equals) return {text.substr(0, equals), text.substr(equals + 1)};
  std::filesystem::path path(text);
  if (path.filename().empty()) path = path.parent_path();
  return {path.extension() == ".gguf" ? path.stem().string() : path.filename().string(), text};
}

Result<std::shared_ptr<const Adapter>> LoadAdapterFlag(const std::string& text, const Model& model) {
  if (text.empty()) return std::shared_ptr<const Adapter>();
  return model.LoadAdapter(ParseAdapter(text).path).Context("--lora");
}

Result<uint64_t> WeightBytes(const Checkpoint& checkpoint) {
  uint64_t weights = 0;
  HONE_TRY(const bool quantized, IsQuantizedFolder(checkpoint));
  const auto list = quantized ? ListWeights(checkpoint) : Result<std::vector<WeightInfo>>(std::vector<WeightInfo>());
  if (!list) return list.error();
  for (const WeightInfo& weight : *list) weights += weight.name.ends_with("embed_tokens.weight") ? 0 : weight.bytes();
  for (const NamedTensor& tensor : list->empty() ? checkpoint.tensors() : std::vector<NamedTensor>()) {
    const bool embedding = tensor.name == "token_embd.weight" || tensor.name.ends_with("embed_tokens.weight");
    if (!embedding) weights += tensor.view.bytes();
  }
  return weights;
}

Result<void> CheckMemory(const Checkpoint& checkpoint, uint64_t more) {
  HONE_TRY(const uint64_t weights, WeightBytes(checkpoint));
  const uint64_t free_bytes = FreeMemoryBytes();
  if (free_bytes == 0 || weights + more <= free_bytes) return {};
  return Error{ErrorCode::kLimit, checkpoint.path() + ": needs at least " + FormatBytes(weights + more) + " of memory (" +
                                      FormatBytes(weights) + " of weights), but " + FormatBytes(free_bytes) +
                                      " are free; take a smaller model or one of fewer bits a weight"};
}

Result<SamplingParams> SuggestedSampling(const Checkpoint& checkpoint) {
  SamplingParams sampling;
  sampling.temperature = 0.7f;
  sampling.top_p = 0.95f;
  if (const JsonConfig* config = checkpoint.generation_config()) {
    HONE_TRY(const bool sample, config->Bool("do_sample", true));
    HONE_TRY(const double temperature, config->Number("temperature", sampling.temperature));
    HONE_TRY(const double top_p, config->Number("top_p", sampling.top_p));
    HONE_TRY(const int64_t top_k, config->Int("top_k", 0));
    sampling.temperature = sample ? static_cast<float>(temperature) : 0;
    sampling.top_p = static_cast<float>(top_p);
    sampling.top_k = static_cast<int>(std::clamp<int64_t>(top_k, 0, std::numeric_limits<int>::max()));
    HONE_RETURN_IF_ERROR(CheckSamplingParams(sampling, 0).Context(checkpoint.path() + "/generation_config.json"));
  }
  return sampling;
}

}  // namespace hone
