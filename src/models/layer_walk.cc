// See layer_walk.h.
#include "models/layer_walk.h"

#include <cstring>
#include <numeric>

#include "base/check.h"

namespace hone {

LayerWalk::LayerWalk(std::shared_ptr<const Checkpoint> checkpoint, const Runtime& runtime, const Family& family,
                     ModelConfig config, int max_rows)
    : checkpoint_(std::move(checkpoint)),
      runtime_(runtime),
      family_(family),
      config_(std::move(config)),
      max_rows_(max_rows),
      ropes_(config_),
      scratch_(config_, max_rows) {}

Result<std::unique_ptr<LayerWalk>> LayerWalk::Open(std::shared_ptr<const Checkpoint> checkpoint,
                                                   const Runtime& runtime, int max_rows) {
  HONE_TRY(const Family* family, FindFamily(*checkpoint));
  HONE_TRY(ModelConfig config, ReadModelConfig(*checkpoint));
  std::unique_ptr<LayerWalk> walk(new LayerWalk(checkpoint, runtime, *family, std::move(config), max_rows));
  HONE_TRY(walk->map_, WeightMap::Make(*checkpoint, *family, walk->config_));
  return walk;
}

namespace {

// A step needs some KvLayers, also where nothing is attended to.
class NoLayers final : public KvLayers {
 public:
  KvView View(int, const int32_t*) const override { return {}; }
};

}  // namespace

void LayerWalk::Embed(std::span<const int32_t> tokens, const TensorView* table, float* x) {
  HONE_CHECK(std::ssize(tokens) <= max_rows_);
  const SequenceRows sequence{.rows = static_cast<int>(tokens.size()), .final_length = static_cast<int>(tokens.size())};
  const ForwardBatch batch{.tokens = tokens, .sequences = {&sequence, 1}, .logit_rows = {}};
  const NoLayers none;
  Step step = BeginStep(config_, runtime_, batch, none, ropes_, scratch_);
  hone::Embed(step, table != nullptr ? *table : map_.Find("token_embd.weight")->view);
  std::memcpy(x, step.x, tokens.size() * config_.width * sizeof(float));
}

Result<void> LayerWalk::Load(int layer, const std::function<TensorView(const Weight&)>& replace) {
  WeightLoadOptions options{.pack = {.isa = runtime_.isa}};
  options.replace = replace;
  layer_ = LayerWeights();
  HONE_TRY(layer_, LoadLayerWeights(*checkpoint_, map_, config_, layer, options, *runtime_.threads));
  watch_.names.clear();
  NameMatrices(layer_, watch_.names);
  orders_.clear();
  CollectInputOrders(layer_, orders_);
  scratch_.orders = orders_.empty() ? nullptr : &orders_;
  return {};
}

void LayerWalk::Run(float* x, int rows, const KvLayers& kv, const int32_t* blocks, const InputObserver& observer,
                    bool only_inputs) {
  HONE_CHECK(layer_.config != nullptr && rows > 0 && rows <= max_rows_);
  const SequenceRows sequence{.rows = rows, .final_length = rows, .blocks = blocks};
  const std::vector<int32_t> unread(rows);  // a layer does not look at tokens
  const ForwardBatch batch{.tokens = unread, .sequences = {&sequence, 1}, .logit_rows = {}};
  watch_.observer = observer;
  watch_.only_inputs = only_inputs;
  scratch_.watch = observer ? &watch_ : nullptr;
  Step step = BeginStep(config_, runtime_, batch, kv, ropes_, scratch_);
  std::memcpy(step.x, x, static_cast<size_t>(rows) * config_.width * sizeof(float));
  family_.layer(step, layer_);
  std::memcpy(x, step.x, static_cast<size_t>(rows) * config_.width * sizeof(float));
  scratch_.watch = nullptr;
}

void LayerWalk::FinalNorm(const float* x, int rows, float* out) {
  HONE_CHECK(rows <= max_rows_);
  const std::vector<float> weight = ReadVector(*map_.Find("output_norm.weight"));
  const SequenceRows sequence{.rows = rows, .final_length = rows};
  const std::vector<int32_t> unread(rows);
  const ForwardBatch batch{.tokens = unread, .sequences = {&sequence, 1}, .logit_rows = {}};
  const NoLayers none;
  Step step = BeginStep(config_, runtime_, batch, none, ropes_, scratch_);
  Norm(step, x, weight, out);
}

Result<OutputHead> LayerWalk::LoadOutput(const TensorView& output) const {
  const Weight* weight = map_.Find(config_.tied_embeddings ? "token_embd.weight" : "output.weight");
  HONE_CHECK(weight != nullptr);
  if (!output && weight->quantized != nullptr) return Unsupported(checkpoint_->path() + ": its output is quantised");
  OutputHead head;
  HONE_TRY(head.weights.output, PackedMatrix::Pack(output ? output : weight->view, {.isa = runtime_.isa}, *runtime_.threads)
                                    .Context(checkpoint_->path() + ": tensor " + weight->file_name));
  weight->Release(*checkpoint_);
  head.weights.output_norm = ReadVector(*map_.Find("output_norm.weight"));
  return head;
}

void LayerWalk::Logits(const OutputHead& head, const float* x, int rows, float* logits) {
  HONE_CHECK(rows <= max_rows_);
  const SequenceRows sequence{.rows = rows, .final_length = rows};
  std::vector<int32_t> all(rows);
  std::iota(all.begin(), all.end(), 0);
  const ForwardBatch batch{.tokens = all, .sequences = {&sequence, 1}, .logit_rows = all};
  const NoLayers none;
  Step step = BeginStep(config_, runtime_, batch, none, ropes_, scratch_);
  std::memcpy(step.x, x, static_cast<size_t>(rows) * config_.width * sizeof(float));
  hone::Logits(step, head.weights, logits);
}

}  // namespace hone
