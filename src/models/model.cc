// Finding a checkpoint's family, reading its configuration, loading it; and the decoder that runs a family's layers.
#include "models/model.h"

#include <fmt/format.h>

#include <algorithm>

#include "models/adapter_loader.h"
#include "models/blocks.h"
#include "models/config_reader.h"
#include "models/family.h"
#include "models/packed_cache.h"
#include "models/quantized/quantized_folder.h"
#include "models/weights.h"

namespace hone {

#define HONE_FAMILY(Name) extern const Family k##Name##Family;
#include "models/families.inc"
#undef HONE_FAMILY

std::span<const Family* const> Families() {
  static const Family* const kFamilies[] = {
#define HONE_FAMILY(Name) &k##Name##Family,
#include "models/families.inc"
#undef HONE_FAMILY
  };
  return kFamilies;
}

namespace {

bool Names(const std::vector<std::string_view>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Error UnknownArchitecture(const std::string& where, std::string_view found) {
  std::string known;
  for (const Family* family : Families()) known += fmt::format("{}{}", known.empty() ? "" : ", ", family->name);
  return Unsupported(fmt::format("{}: architecture \"{}\" is not supported; known families: {}", where, found, known));
}

Result<const Family*> FindGgufFamily(const GgufFile& file) {
  HONE_TRY(const std::string type, file.String("general.type", "model"));
  for (const char* other : {"adapter", "mmproj", "imatrix"}) {
    if (type != other) continue;
    return InvalidInput(fmt::format("{}: general.type is \"{}\", wanted a model; give the model that it was made for",
                                    file.path(), type));
  }
  HONE_TRY(const std::string name, file.String("general.architecture"));
  HONE_TRY(const int64_t experts, file.Int(name + ".expert_count", 0));
  const Family* found = nullptr;
  for (const Family* family : Families()) {
    if (!Names(family->gguf_names, name)) continue;
    if (found == nullptr || family->gguf_experts == (experts > 0)) found = family;
  }
  if (found == nullptr) return UnknownArchitecture(file.path(), name);
  return found;
}

// The name by which config.json was recognised: the first of `architectures`, else model_type.
Result<std::string> HfArchitecture(const JsonConfig& json) {
  if (json.IsArray("architectures")) {
    HONE_TRY(const std::vector<std::string> names, json.Strings("architectures"));
    if (!names.empty()) return names[0];
  }
  return json.String("model_type");
}

Result<const Family*> FindHfFamily(const JsonConfig& json) {
  HONE_TRY(const std::string name, HfArchitecture(json));
  for (const Family* family : Families()) {
    if (Names(family->hf_names, name)) return family;
  }
  return UnknownArchitecture(json.origin(), name);
}

// Numbers of experts that no layer has would only reserve memory.
void ForgetUnusedExperts(ModelConfig& config) {
  if (std::any_of(config.layer.begin(), config.layer.end(), [](const LayerConfig& layer) { return layer.experts; }))
    return;
  config.experts = config.experts_per_token = config.expert_ffn_width = config.shared_ffn_width = 0;
}

// What every packed matrix is called, by the rules of weights.cc.
std::unordered_map<const PackedMatrix*, std::string> MatrixNames(const ModelWeights& weights, bool tied) {
  std::unordered_map<const PackedMatrix*, std::string> names;
  for (const LayerWeights& layer : weights.layers) NameMatrices(layer, names);
  names.emplace(&weights.output, tied ? "token_embd.weight" : "output.weight");
  return names;
}

class Decoder final : public Model {
 public:
  Decoder(std::shared_ptr<const Checkpoint> checkpoint, const Runtime& runtime, const LoadOptions& options,
          const Family& family, ModelConfig config)
      : checkpoint_(std::move(checkpoint)),
        runtime_(runtime),
        family_(family),
        ropes_(config),
        scratch_(config, options.max_rows) {
    config_ = std::move(config);
    options_ = options;
    if (options_.max_context <= 0) options_.max_context = config_.context;
    ropes_.Extend(std::min(options_.max_context, 1024));
  }

  Result<void> LoadFrom(const WeightMap& map) {
    WeightLoadOptions load{.pack = PackOptionsOf(), .progress = options_.progress};
    PackedCacheFile cache;
    if (!options_.packed_cache.empty()) {
      cache = FindPackedCache(*checkpoint_, options_.exact, options_.packed_cache);
      packed_ = OpenPackedCache(cache, PanelBytes(map, config_, load.pack));
      if (packed_ != nullptr) load.panels = PanelsOf(*packed_);
    }
    HONE_TRY(weights_, LoadWeights(*checkpoint_, map, config_, load, *runtime_.threads));
    if (!cache.path.empty() && packed_ == nullptr) {
      const auto kept = WritePackedCache(cache, {weights_.panels.data(), weights_.panels.size()});
      if (!kept) runtime_.log->Warn("packed weights are not kept: {}", kept.error().message);
    }
    LinkInReadingOrder(weights_);
    for (const LayerWeights& layer : weights_.layers) CollectInputOrders(layer, orders_);
    if (weights_.output_columns != nullptr) orders_.emplace(&weights_.output, weights_.output_columns.get());
    if (!orders_.empty()) scratch_.orders = &orders_;
    return {};
  }

  uint64_t weight_bytes() const override { return weights_.bytes; }

  void Forward(const ForwardBatch& batch, const KvLayers& kv, float* logits, const StateObserver* states) override {
    HONE_CHECK(batch.tokens.size() <= static_cast<size_t>(options_.max_rows), "more rows than were reserved for");
    if (batch.tokens.empty()) return;
    Step step = BeginStep(config_, runtime_, batch, kv, ropes_, scratch_);
    step.exact = options_.exact;
    step.deterministic = options_.deterministic;
    scratch_.times = op_times_;
    Embed(step, weights_.embedding);
    if (states != nullptr) (*states)(0, step.x);
    for (const LayerWeights& layer : weights_.layers) {
      family_.layer(step, layer);
      if (states != nullptr) (*states)(layer.index + 1, step.x);
    }
    if (states != nullptr) {
      Norm(step, step.x, weights_.output_norm, step.h);
      (*states)(config_.layers + 1, step.h);
    }
    Logits(step, weights_, logits);
  }

  Result<std::shared_ptr<const Adapter>> LoadAdapter(const std::string& path) const override {
    HONE_TRY(const auto file, LoraFile::Open(path));
    AdapterTarget target{.family = family_,
                         .config = config_,
                         .from_gguf = checkpoint_->gguf() != nullptr,
                         .matrices = {},
                         .pack = PackOptionsOf()};
    for (const auto& [matrix, name] : MatrixNames(weights_, false)) target.matrices.emplace(name, matrix);
    HONE_TRY(std::shared_ptr<const LowRankAdapter> adapter, MakeAdapter(*file, this, target));
    return std::shared_ptr<const Adapter>(std::move(adapter));
  }

  void ObserveInputs(InputObserver observer) override {
    watch_.observer = std::move(observer);
    if (watch_.names.empty()) watch_.names = MatrixNames(weights_, config_.tied_embeddings);
    scratch_.watch = watch_.observer ? &watch_ : nullptr;
  }

 private:
  PackOptions PackOptionsOf() const {
    return {.isa = runtime_.isa, .exact = options_.exact, .deterministic = options_.deterministic};
  }

  const std::shared_ptr<const Checkpoint> checkpoint_;  // the embedding stays in its mapping
  const Runtime runtime_;
  const Family& family_;
  RopeTables ropes_;
  StepScratch scratch_;
  std::shared_ptr<const MappedFile> packed_;  // where the weights lie, if they were packed before
  ModelWeights weights_;
  InputWatch watch_;
  InputOrders orders_;
};

}  // namespace

Result<std::shared_ptr<const Adapter>> Model::LoadAdapter(const std::string& path) const {
  return Unsupported(path + ": this model takes no adapters");
}

void Model::ObserveInputs(InputObserver) { HONE_CHECK(false, "this model has no inputs to observe"); }

Result<const Family*> FindFamily(const Checkpoint& checkpoint) {
  if (checkpoint.gguf() != nullptr) return FindGgufFamily(*checkpoint.gguf());
  if (checkpoint.config() == nullptr) {
    return InvalidInput(checkpoint.path() + ": has no config.json, which says what model this is");
  }
  return FindHfFamily(*checkpoint.config());
}

Result<ModelConfig> ReadModelConfig(const Checkpoint& checkpoint) {
  HONE_TRY(const Family* family, FindFamily(checkpoint));
  ModelConfig config;
  config.family = family->name;
  config.name = checkpoint.name();
  if (const GgufFile* file = checkpoint.gguf(); file != nullptr) {
    HONE_TRY(config.architecture, file->String("general.architecture"));
    HONE_TRY(config.name, file->String("general.name", config.name));
    HONE_RETURN_IF_ERROR(family->read_gguf(*file, config));
    ForgetUnusedExperts(config);
    HONE_RETURN_IF_ERROR(CheckConfig(config, file->path()));
    return config;
  }
  JsonConfig json = *checkpoint.config();
  HONE_TRY(config.architecture, HfArchitecture(json));
  for (const char* name : {"model.embed_tokens.weight", "language_model.model.embed_tokens.weight",
                           "model.language_model.embed_tokens.weight", "embed_tokens.weight"}) {
    const NamedTensor* embedding = checkpoint.FindTensor(name);
    if (embedding == nullptr || embedding->view.shape.rank() != 2) continue;
    config.vocab = static_cast<int>(std::clamp<int64_t>(embedding->view.shape[0], 0, kMaxVocab));
    break;
  }
  // Multimodal models keep the decoder's settings one level down.
  if (json.IsObject("text_config")) {
    HONE_TRY(json, json.Object("text_config"));
  }
  HONE_RETURN_IF_ERROR(family->read_hf(json, config));
  ForgetUnusedExperts(config);
  HONE_RETURN_IF_ERROR(CheckConfig(config, json.origin()));
  return config;
}

Result<std::vector<WeightInfo>> ListWeights(const Checkpoint& checkpoint) {
  HONE_TRY(const Family* family, FindFamily(checkpoint));
  HONE_TRY(const ModelConfig config, ReadModelConfig(checkpoint));
  HONE_TRY(const WeightMap map, WeightMap::Make(checkpoint, *family, config));
  std::vector<WeightInfo> infos;
  std::unordered_map<std::string, size_t> seen;  // parts of one tensor are one entry
  for (const Weight& weight : map.weights()) {
    if (!seen.emplace(weight.file_name, infos.size()).second) continue;
    const NamedTensor* tensor = weight.quantized == nullptr ? checkpoint.FindTensor(weight.file_name) : nullptr;
    WeightInfo info{.name = weight.file_name, .stored = {}, .type = weight.view.type, .shape = {}, .file_bytes = 0};
    if (tensor != nullptr) {
      info.stored = Info(tensor->view.type).name;
      info.shape = tensor->view.shape;
      info.file_bytes = tensor->view.bytes();
    } else {
      info.stored = weight.quantized->stored();
      info.shape = Shape{weight.quantized->rows(), weight.quantized->columns()};
      info.file_bytes = weight.quantized->file_bytes();
      info.quantized = true;
      info.width = weight.quantized->width(false);
    }
    infos.push_back(std::move(info));
  }
  return infos;
}

Result<bool> IsQuantizedFolder(const Checkpoint& checkpoint) {
  HONE_TRY(const QuantizedFolder folder, QuantizedFolder::Make(checkpoint));
  return folder.quantized();
}

Result<std::unique_ptr<Model>> Model::Load(std::shared_ptr<const Checkpoint> checkpoint, const Runtime& runtime,
                                           const LoadOptions& options) {
  HONE_CHECK(options.max_rows > 0);
  HONE_TRY(const Family* family, FindFamily(*checkpoint));
  HONE_TRY(ModelConfig config, ReadModelConfig(*checkpoint));
  HONE_TRY(const WeightMap map, WeightMap::Make(*checkpoint, *family, config));
  if (!map.unused().empty() && runtime.log != nullptr) {
    std::string names;
    for (size_t i = 0; i < std::min<size_t>(map.unused().size(), 5); ++i)
      names += (i > 0 ? ", " : "") + map.unused()[i];
    runtime.log->Warn("{}: {} tensors are not part of a {} model and are ignored: {}{}", checkpoint->path(),
                      map.unused().size(), family->name, names, map.unused().size() > 5 ? ", ..." : "");
  }
  auto decoder = std::make_unique<Decoder>(checkpoint, runtime, options, *family, std::move(config));
  HONE_RETURN_IF_ERROR(decoder->LoadFrom(map));
  return std::unique_ptr<Model>(std::move(decoder));
}

}  // namespace hone
