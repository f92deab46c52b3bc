// hone logits: what the model thinks after every token of a prompt, written as safetensors.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "cache/block_pool.h"
#include "cache/kv_cache.h"
#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/loaded_model.h"
#include "cli/model_path.h"
#include "cli/progress.h"
#include "engine/cache_layers.h"
#include "formats/safetensors.h"
#include "models/model.h"

namespace hone {
namespace {

class LogitsCommand : public Command {
 public:
  void AddFlags(Flags& flags) override {
    flags.Add("MODEL", model_, "GGUF file, Hugging Face folder, builtin or builtin-draft")->required();
    flags.Add("--ids", ids_, "the prompt, a JSON array of token ids; - is standard input")->required();
    flags.Add("-o,--output", output_, "the safetensors file to write")->required();
    flags.Add("--lora", lora_, kLoraHelp);
    flags.AddSwitch("--states", states_, "also the hidden states: state.0 (after the embedding) ... state.L, state.final");
  }

  Result<int> Run(const CommonFlags& flags) override {
    CatchInterrupts();
    HONE_TRY(const KvType kv_type, flags.kv_type(KvType::kF32));
    HONE_RETURN_IF_ERROR(CheckOutput(output_, {model_, ids_}));
    HONE_TRY(const auto runtime, RuntimeOwner::Create(flags));
    HONE_TRY(const auto checkpoint, OpenModel(model_));
    HONE_TRY(const ModelConfig config, ReadModelConfig(*checkpoint));
    HONE_TRY(const std::vector<int32_t> ids, ReadIds(ids_, config.vocab));
    const int tokens = static_cast<int>(ids.size());
    if (tokens == 0) return InvalidInput(ids_ + ": no ids; logits need at least one");
    const int context = flags.ctx > 0 ? flags.ctx : config.context;
    if (tokens > context) {
      return InvalidInput(ids_ + ": " + std::to_string(tokens) + " ids, but the context is " + std::to_string(context) +
                          "; --ctx sets it");
    }
    const uint64_t row_bytes = sizeof(float) * (config.vocab + (states_ ? uint64_t(config.layers + 2) * config.width : 0)) +
                               config.layers * KvTokenBytes(kv_type, config.kv_heads, config.head_width);
    HONE_RETURN_IF_ERROR(CheckMemory(*checkpoint, row_bytes * ids.size()).Context(std::to_string(tokens) + " ids"));
    LoadOptions load;
    load.max_rows = std::min(tokens, kChunk);
    load.exact = flags.exact;
    load.deterministic = true;  // an instrument: no row may depend on how many there are
    load.max_context = context;
    ProgressLine progress("loading", flags.progress());
    load.progress = [&](uint64_t done, uint64_t total) { progress.Update(done, total); };
    HONE_TRY(const std::unique_ptr<Model> model, Model::Load(checkpoint, runtime->runtime(), load));
    progress.Clear();
    HONE_TRY(const std::shared_ptr<const Adapter> adapter, LoadAdapterFlag(lora_, *model));
    return Compute(*model, adapter.get(), ids, kv_type);
  }

 private:
  static constexpr int kChunk = 512;  // rows of one forward pass

  Result<int> Compute(Model& model, const Adapter* adapter, const std::vector<int32_t>& ids, KvType kv_type) {
    const ModelConfig& config = model.config();
    const int tokens = static_cast<int>(ids.size());
    const int blocks = BlockPool::BlocksFor(tokens);
    const KvCache cache({kv_type, config.layers, config.kv_heads, config.head_width, blocks});
    const CacheLayers layers(cache);
    std::vector<int32_t> table(blocks);
    std::iota(table.begin(), table.end(), 0);

    Tensor logits(DType::kF32, Shape{tokens, config.vocab});
    std::vector<Tensor> states;
    if (states_) {
      for (int i = 0; i < config.layers + 2; ++i) states.emplace_back(DType::kF32, Shape{tokens, config.width});
    }
    for (int first = 0; first < tokens; first += kChunk) {
      if (Interrupted()) return kExitInterrupted;
      const int rows = std::min(kChunk, tokens - first);
      const SequenceRows sequence{.first_row = 0, .rows = rows, .first_position = first, .final_length = tokens,
                                  .blocks = table.data(), .adapter = adapter};
      std::vector<int32_t> wanted(rows);
      std::iota(wanted.begin(), wanted.end(), 0);
      const StateObserver observer = [&](int index, const float* x) {
        std::memcpy(states[index].as<float>() + size_t(first) * config.width, x, size_t(rows) * config.width * sizeof(float));
      };
      model.Forward({.tokens = {ids.data() + first, size_t(rows)}, .sequences = {&sequence, 1}, .logit_rows = wanted}, layers,
                    logits.as<float>() + size_t(first) * config.vocab, states_ ? &observer : nullptr);
    }
    std::vector<NamedTensor> tensors = {{"logits", logits.view()}};
    for (size_t i = 0; i < states.size(); ++i) {
      tensors.push_back({i + 1 == states.size() ? "state.final" : "state." + std::to_string(i), states[i].view()});
    }
    HONE_RETURN_IF_ERROR(WriteSafetensors(output_, tensors, {{"model", model_}}));
    return kExitDone;
  }

  std::string model_, ids_, output_, lora_;
  bool states_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeLogitsCommand() { return std::make_unique<LogitsCommand>(); }

}  // namespace hone
