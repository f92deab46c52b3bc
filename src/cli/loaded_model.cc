// See loaded_model.h.
#include "cli/loaded_model.h"

#include "cli/model_path.h"
#include "cli/progress.h"

namespace hone {

Result<LoadedModel> LoadModel(const std::string& model, const CommonFlags& flags, EngineOptions options) {
  LoadedModel loaded;
  HONE_TRY(options.kv, flags.kv_type());
  options.context = flags.ctx;
  HONE_TRY(loaded.runtime, RuntimeOwner::Create(flags));
  const Runtime& runtime = loaded.runtime->runtime();
  const double start_s = runtime.clock->Now();

  HONE_TRY(loaded.checkpoint, OpenModel(model));
  for (const std::string& warning : loaded.checkpoint->warnings()) runtime.log->Warn("{}", warning);
  loaded.name = ModelName(model, *loaded.checkpoint);
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
    sampling.top_k = static_cast<int>(top_k);
  }
  return sampling;
}

}  // namespace hone
