// Runs a model over calibration text and sums up what goes into each matrix.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "compress/imatrix/imatrix.h"
#include "formats/checkpoint.h"
#include "models/model.h"

namespace hone {

struct CalibrationText {
  std::vector<int32_t> tokens;
  int chunk_tokens = 512;  // each chunk is a sequence of its own
  int32_t bos = -1;        // replaces the first token of every chunk after the first; -1: none
};

struct CalibrationReport {
  uint64_t tokens = 0, chunks = 0, dropped_tokens = 0;  // dropped: the end that fills no chunk
  std::vector<std::string> warnings;  // matrices with fewer tokens than columns, experts that saw few or none
};

// Sums of squares of the inputs of every matrix in a layer, under the names of a GGUF file of the model (stacked
// experts as one entry). A text shorter than a chunk is one short chunk. `progress` gets tokens done and to do; false
// stops with kCancelled. Errors: an input that is NaN or infinite, named. REQUIRES: the model was loaded from
// `checkpoint` with max_rows >= chunk_tokens; ids are in the vocabulary.
Result<Imatrix> CollectImatrix(Model& model, const Checkpoint& checkpoint, const CalibrationText& text,
                               const std::function<bool(uint64_t, uint64_t)>& progress, CalibrationReport* report);

// The same layer by layer: one layer's weights are in memory, and the streams of the text (or a file of them).
class LayerWalk;
struct StreamOptions;
// Where the streams of `text` lie for a job that may take `memory_bytes`: in memory if they take a quarter of it at most, else
// in a file (`path`).
StreamOptions StreamsWithin(const LayerWalk& walk, const CalibrationText& text, uint64_t memory_bytes, const std::string& path);
// Peak memory of a walk over the text that only looks, with these streams.
uint64_t WalkMemory(const LayerWalk& walk, const CalibrationText& text, const StreamOptions& stream);
Result<Imatrix> CollectImatrix(LayerWalk& walk, const CalibrationText& text, const StreamOptions& stream,
                               const std::function<bool(uint64_t, uint64_t)>& progress, CalibrationReport* report);

// One pass of a chunk through the model with a cache of its own. `tokens`: at most max_rows. Whoever observes the
// model's inputs sees them.
class ChunkRunner {
 public:
  ChunkRunner(Model& model, int chunk_tokens);
  ~ChunkRunner();
  void Run(std::span<const int32_t> tokens);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hone
