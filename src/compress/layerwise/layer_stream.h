// LayerStream: the residual streams of a calibration text on their way through a decoder, one loaded layer at a time
// (models/layer_walk.h). Each chunk is a sequence of its own; tokens that fill no chunk are left out and counted.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "cache/kv_cache.h"
#include "compress/calibrate/collect.h"
#include "models/layer_walk.h"

namespace hone {

struct StreamOptions {
  const TensorView* embedding = nullptr;  // in place of the file's
  KvType kv = KvType::kBF16;              // of the one layer's cache
  // "": streams are in memory. Else they are in a file of this name, which nobody else sees (it has no name once it is open)
  // and which takes 4 bytes a token and column of disk.
  std::string file;
};

class LayerStream {
 public:
  // Before layer 0. Errors: a text without tokens, a file that cannot be made. Borrows the walk.
  static Result<std::unique_ptr<LayerStream>> Make(LayerWalk& walk, const CalibrationText& text,
                                                   const StreamOptions& options);
  static Result<std::unique_ptr<LayerStream>> Make(LayerWalk& walk, const CalibrationText& text,
                                                   const TensorView* embedding = nullptr) {
    return Make(walk, text, StreamOptions{.embedding = embedding});
  }
  ~LayerStream();
  LayerStream(const LayerStream&) = delete;
  // Another stream that stands where this one does.
  Result<std::unique_ptr<LayerStream>> Duplicate() const;

  size_t chunks() const { return chunk_rows_.size(); }
  uint64_t tokens() const { return tokens_; }
  uint64_t dropped_tokens() const { return dropped_tokens_; }
  int rows(size_t chunk) const { return chunk_rows_[chunk]; }

  // Runs a chunk through the layer that the walk has loaded. Look only shows inputs, and leaves the stream where it is (or takes
  // it from where Copy found it); Advance moves it on.
  void Look(size_t chunk, const InputObserver& observer, const std::vector<float>* from = nullptr);
  void Advance(size_t chunk, const InputObserver& observer = nullptr);

  std::vector<float> Copy(size_t chunk) const;  // [rows][D], as it is now

  // The layer's keys and values of the last chunk that was run.
  KvView kv() const { return cache_.View(0, blocks_.data()); }
  // What a file has refused so far; runs after it mean nothing.
  Result<void> status() const;

 private:
  LayerStream(LayerWalk& walk, int chunk_tokens, const StreamOptions& options);
  Result<void> Reserve();
  void Read(size_t chunk, float* x) const;
  void Write(size_t chunk, const float* x);
  size_t first(size_t chunk) const { return static_cast<size_t>(chunk_begin_[chunk] * walk_.config().width); }
  size_t numbers(size_t chunk) const { return static_cast<size_t>(chunk_rows_[chunk]) * walk_.config().width; }

  LayerWalk& walk_;
  const StreamOptions options_;
  const KvCache cache_;
  std::vector<int32_t> blocks_;
  int fd_ = -1;
  mutable int error_ = 0;        // errno
  std::vector<float> x_, copy_;  // x: [tokens][D]
  std::vector<int> chunk_rows_;
  std::vector<int64_t> chunk_begin_;
  uint64_t tokens_ = 0, dropped_tokens_ = 0;
};

}  // namespace hone
