// Model: configuration and packed weights of a decoder, and its forward pass. It owns no sequence state: keys and
// values come in as views (cache/ owns them), tokens as a batch of rows (engine/ makes it).
//
// A family is one file (models/llama.cc ...) and one line in models/families.inc; its forward pass reads like the
// paper.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/runtime.h"
#include "formats/checkpoint.h"
#include "kernels/attention/kv_view.h"
#include "models/config.h"

namespace hone {

// What is known of an adapter without looking at its numbers.
struct AdapterInfo {
  std::string path;
  std::string content_id;     // equal for equal contents: part of the keys of cached prefixes
  const void* model = nullptr;  // the Model that it was loaded for, and is no use to others
  uint64_t bytes = 0;         // resident
  int rank = 0;               // the largest
  int matrices = 0;           // of the model that it changes
};

// A LoRA adapter, loaded for one model by Model::LoadAdapter. Immutable; it must not outlive the model. Sequences that use it
// share it, so it can be given up by name while they go on. docs/adapters.md.
class Adapter {
 public:
  explicit Adapter(AdapterInfo info) : info_(std::move(info)) {}
  virtual ~Adapter() = default;
  const AdapterInfo& info() const { return info_; }

 private:
  const AdapterInfo info_;
};

// The rows that one sequence has in a step: rows [first_row, first_row + rows) of the batch, at positions from
// first_position on.
struct SequenceRows {
  int first_row = 0;
  int rows = 0;
  int first_position = 0;
  // Length that the sequence is known to reach (prompt + allowed output), at least first_position + rows. longrope
  // chooses its factors by it, so that a cached key never changes its factor.
  int final_length = 0;
  // Block table that covers positions [0, first_position + rows); the same for all layers.
  const int32_t* blocks = nullptr;
  const Adapter* adapter = nullptr;  // of this very model; nullptr: the model as it is
};

// One step's work. All spans are borrowed for the call.
struct ForwardBatch {
  std::span<const int32_t> tokens;          // [T] ids, each in [0, V)
  std::span<const SequenceRows> sequences;  // cover [0, T) in order without gaps
  std::span<const int32_t> logit_rows;      // rows whose logits are wanted, rising
};

// Keys and values of all layers, as cache/ lays them out.
class KvLayers {
 public:
  virtual ~KvLayers() = default;
  virtual KvView View(int layer, const int32_t* blocks) const = 0;
};

// Called with hidden states when somebody wants them (hone logits --states, tests): index 0 is the residual stream
// before layer 0, i after layer i - 1, L + 1 after the final norm. rows: [T][D].
using StateObserver = std::function<void(int index, const float* rows)>;

// Called with the input of every matrix product, before it runs, from the thread that calls Forward: the weight's
// canonical name (weight_map.h) and x, `rows` rows of `columns` numbers, x_stride apart. What calibration collects from.
using InputObserver = std::function<void(const std::string& weight, const float* x, int64_t x_stride, int64_t rows, int64_t columns)>;

struct LoadOptions {
  int max_rows = 512;   // most rows of one Forward; all scratch memory is reserved for it
  bool exact = false;   // F32 activations everywhere, also for quantised weights
  bool deterministic = false;  // a row's result does not depend on how many rows a step has; slower
  int max_context = 0;  // rope tables reach this far; 0: config().context
  // Folder where packed weights are kept (packed_cache.h): mapped from there on the next start, written after packing else; that it
  // cannot be written is a warning. Empty: none.
  std::string packed_cache = {};
  std::function<void(uint64_t done_bytes, uint64_t total_bytes)>
      progress;  // called from the loading thread; may be empty
};

struct OpTimes;  // op_times.h

class Model {
 public:
  virtual ~Model() = default;

  // Reads the configuration, checks every tensor's name, type and shape, then packs the weights in parallel, giving the
  // file's pages back as it goes. Never a partial load: any problem is one error that names file, tensor, found and
  // wanted.
  static Result<std::unique_ptr<Model>> Load(std::shared_ptr<const Checkpoint> checkpoint, const Runtime& runtime,
                                             const LoadOptions& options);

  const ModelConfig& config() const { return config_; }
  const LoadOptions& options() const { return options_; }
  virtual uint64_t weight_bytes() const = 0;  // resident bytes of packed weights

  // Runs the layers over the batch, appends its keys and values to the cache, and writes logits [logit_rows.size()][V].
  // Not thread-safe: one step at a time. REQUIRES: tokens.size() <= options().max_rows, positions < max_context.
  virtual void Forward(const ForwardBatch& batch, const KvLayers& kv, float* logits,
                       const StateObserver* states = nullptr) = 0;

  // An adapter from a GGUF file or a PEFT folder, for sequences of this model. Safe beside Forward, on any thread. Errors: a file
  // that is no LoRA adapter, or not one of this model; they name what does not fit. Models without matrices of their own (fakes)
  // refuse.
  virtual Result<std::shared_ptr<const Adapter>> LoadAdapter(const std::string& path) const;

  // From now on `observer` sees all inputs; an empty one ends that. Costs nothing while nobody watches. Not supported by
  // models that run no matrix products of their own (fakes): those abort.
  virtual void ObserveInputs(InputObserver observer);

  // From now on steps add to `times` (op_times.h), until nullptr is given. Not while a step runs.
  void TimeOps(OpTimes* times) { op_times_ = times; }
  OpTimes* op_times() const { return op_times_; }

 protected:
  ModelConfig config_;
  LoadOptions options_;
  OpTimes* op_times_ = nullptr;
};

// Only the configuration: what hone inspect needs, without loading weights. Also finds the family, or lists the known
// ones.
Result<ModelConfig> ReadModelConfig(const Checkpoint& checkpoint);

// A weight of a file as it is counted: for a matrix of a quantised folder, one entry for all tensors that say it.
struct WeightInfo {
  std::string name;    // "model.layers.0.mlp.down_proj.weight", whether or not a tensor is called so
  std::string stored;  // "BF16", "gptq 4-bit, groups of 128"
  DType type = DType::kF32;  // it runs as
  Shape shape;
  uint64_t file_bytes = 0;
  bool quantized = false;  // stored by a format of models/quantized
  int64_t width = 0;       // elements of a row as it runs: blocks are filled up; 0: as the shape says
  uint64_t bytes() const {  // packed
    return width > 0 ? static_cast<uint64_t>(shape[0]) * BytesFor(type, width) : BytesFor(type, shape.elements());
  }
};
// Every weight that the model reads. Errors as Load's, where they can be known without reading the weights.
Result<std::vector<WeightInfo>> ListWeights(const Checkpoint& checkpoint);
// Whether config.json says that matrices are stored by a quantisation method. An error: by one that hone does not know.
Result<bool> IsQuantizedFolder(const Checkpoint& checkpoint);

}  // namespace hone
