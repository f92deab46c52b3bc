// A model with everything that is needed to talk to it: tokenizer, template, engine. What run, chat and serve start from.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "cli/common_flags.h"
#include "engine/engine.h"
#include "formats/checkpoint.h"
#include "models/model.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace hone {

// Members are destroyed in reverse order: the engine before the threads it uses.
struct LoadedModel {
  std::unique_ptr<RuntimeOwner> runtime;
  std::shared_ptr<const Checkpoint> checkpoint;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const ChatTemplate> chat_template;  // nullptr: a base model
  std::shared_ptr<Model> model;
  std::unique_ptr<Engine> engine;
  std::string name;
  double load_s = 0;
};

// What --lora says: NAME=PATH, or PATH, whose last part without its ending is then the name.
struct NamedAdapter {
  std::string name, path;
};
NamedAdapter ParseAdapter(const std::string& text);
// The adapter of a command that uses one: null for "". Errors name the flag.
Result<std::shared_ptr<const Adapter>> LoadAdapterFlag(const std::string& text, const Model& model);
inline constexpr char kLoraHelp[] = "LoRA adapter: a GGUF file or a PEFT folder (NAME=PATH is taken too)";

// Opens and loads MODEL with progress on stderr. `options`: what the command knows (max_sequences ...); context and KV type
// come from the flags. `runtime`: of a command that loads several models, which outlives them; else each has its own.
Result<LoadedModel> LoadModel(const std::string& model, const CommonFlags& flags, EngineOptions options,
                              const Runtime* runtime = nullptr);

// Bytes that the weights take once loaded, about: the embedding, which stays in the file, is not counted.
Result<uint64_t> WeightBytes(const Checkpoint& checkpoint);

// An error where the weights alone, and `more` bytes, exceed the memory that is free: before they are read, in place of being
// killed. A lower bound: the embedding, which stays in the file, is not counted.
Result<void> CheckMemory(const Checkpoint& checkpoint, uint64_t more);

// Sampling as the model's generation_config.json suggests: temperature, top_p, top_k, 0.7 and 0.95 where it says nothing.
// Errors name that file: values that no sampler takes.
Result<SamplingParams> SuggestedSampling(const Checkpoint& checkpoint);

}  // namespace hone
