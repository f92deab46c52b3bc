// See layer_stream.h.
#include "compress/layerwise/layer_stream.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "cache/block_pool.h"

namespace hone {
namespace {

// One layer's cache, whatever the layer's index.
class OneLayer final : public KvLayers {
 public:
  explicit OneLayer(const KvCache& cache) : cache_(cache) {}
  KvView View(int, const int32_t* blocks) const override { return cache_.View(0, blocks); }

 private:
  const KvCache& cache_;
};

}  // namespace

LayerStream::LayerStream(LayerWalk& walk, int chunk_tokens, const StreamOptions& options)
    : walk_(walk),
      options_(options),
      cache_({options.kv, 1, walk.config().kv_heads, walk.config().head_width, BlockPool::BlocksFor(chunk_tokens)}),
      blocks_(cache_.shape().blocks) {
  std::iota(blocks_.begin(), blocks_.end(), 0);
}

LayerStream::~LayerStream() {
  if (fd_ >= 0) close(fd_);
}

// Room for tokens_.
Result<void> LayerStream::Reserve() {
  const size_t numbers = tokens_ * static_cast<size_t>(walk_.config().width);
  if (options_.file.empty()) {
    x_.resize(numbers);
    return {};
  }
  std::string path = options_.file + ".XXXXXX";
  fd_ = mkostemp(path.data(), O_CLOEXEC);
  if (fd_ < 0) return IoError(options_.file + ": cannot make: " + std::strerror(errno));
  unlink(path.c_str());
  // Taken now, so that a full disk is known before work.
  if (const int refused = posix_fallocate(fd_, 0, static_cast<off_t>(numbers * sizeof(float))); refused != 0)
    return IoError(options_.file + ": " + std::strerror(refused));
  return {};
}

Result<std::unique_ptr<LayerStream>> LayerStream::Make(LayerWalk& walk, const CalibrationText& text,
                                                       const StreamOptions& options) {
  const uint64_t size = static_cast<uint64_t>(text.chunk_tokens), total = text.tokens.size();
  if (total == 0) return InvalidInput("the calibration text holds no tokens");
  const uint64_t chunks = std::max<uint64_t>(1, total / size);
  std::unique_ptr<LayerStream> stream(new LayerStream(walk, text.chunk_tokens, options));
  for (uint64_t c = 0; c < chunks; ++c) {
    stream->chunk_begin_.push_back(static_cast<int64_t>(c * size));
    stream->chunk_rows_.push_back(static_cast<int>(std::min(size, total - c * size)));
    stream->tokens_ += static_cast<uint64_t>(stream->chunk_rows_.back());
  }
  HONE_RETURN_IF_ERROR(stream->Reserve());
  std::vector<float> x(static_cast<size_t>(stream->chunk_rows_.front()) * walk.config().width);
  for (uint64_t c = 0; c < chunks; ++c) {
    const auto from = text.tokens.begin() + stream->chunk_begin_[c];
    std::vector<int32_t> chunk(from, from + stream->chunk_rows_[c]);
    if (c > 0 && text.bos >= 0) chunk[0] = text.bos;
    walk.Embed(chunk, options.embedding, x.data());
    stream->Write(c, x.data());
  }
  HONE_RETURN_IF_ERROR(stream->status());
  stream->dropped_tokens_ = total - stream->tokens_;
  return stream;
}

Result<std::unique_ptr<LayerStream>> LayerStream::Duplicate() const {
  const int chunk_tokens = *std::max_element(chunk_rows_.begin(), chunk_rows_.end());
  std::unique_ptr<LayerStream> copy(new LayerStream(walk_, chunk_tokens, options_));
  copy->chunk_rows_ = chunk_rows_;
  copy->chunk_begin_ = chunk_begin_;
  copy->tokens_ = tokens_;
  copy->dropped_tokens_ = dropped_tokens_;
  HONE_RETURN_IF_ERROR(copy->Reserve());
  std::vector<float> x;
  for (size_t c = 0; c < chunks(); ++c) {
    x.resize(numbers(c));
    Read(c, x.data());
    copy->Write(c, x.data());
  }
  HONE_RETURN_IF_ERROR(status());
  HONE_RETURN_IF_ERROR(copy->status());
  return copy;
}

void LayerStream::Read(size_t chunk, float* x) const {
  const size_t bytes = numbers(chunk) * sizeof(float);
  if (fd_ < 0) return void(std::memcpy(x, x_.data() + first(chunk), bytes));
  for (size_t done = 0; done < bytes;) {
    const ssize_t n = pread(fd_, reinterpret_cast<char*>(x) + done, bytes - done,
                            static_cast<off_t>(first(chunk) * sizeof(float) + done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      error_ = n < 0 ? errno : EIO;
      std::memset(reinterpret_cast<char*>(x) + done, 0, bytes - done);
      return;
    }
    done += static_cast<size_t>(n);
  }
}

void LayerStream::Write(size_t chunk, const float* x) {
  const size_t bytes = numbers(chunk) * sizeof(float);
  if (fd_ < 0) return void(std::memcpy(x_.data() + first(chunk), x, bytes));
  for (size_t done = 0; done < bytes;) {
    const ssize_t n = pwrite(fd_, reinterpret_cast<const char*>(x) + done, bytes - done,
                             static_cast<off_t>(first(chunk) * sizeof(float) + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return void(error_ = errno);
    done += static_cast<size_t>(n);
  }
}

Result<void> LayerStream::status() const {
  if (error_ == 0) return {};
  return IoError(options_.file + ": " + std::strerror(error_));
}

std::vector<float> LayerStream::Copy(size_t chunk) const {
  std::vector<float> x(numbers(chunk));
  Read(chunk, x.data());
  return x;
}

void LayerStream::Look(size_t chunk, const InputObserver& observer, const std::vector<float>* from) {
  copy_.resize(numbers(chunk));
  if (from != nullptr) {
    copy_ = *from;
  } else {
    Read(chunk, copy_.data());
  }
  walk_.Run(copy_.data(), chunk_rows_[chunk], OneLayer(cache_), blocks_.data(), observer, true);
}

void LayerStream::Advance(size_t chunk, const InputObserver& observer) {
  if (fd_ < 0)
    return walk_.Run(x_.data() + first(chunk), chunk_rows_[chunk], OneLayer(cache_), blocks_.data(), observer);
  copy_.resize(numbers(chunk));
  Read(chunk, copy_.data());
  walk_.Run(copy_.data(), chunk_rows_[chunk], OneLayer(cache_), blocks_.data(), observer);
  Write(chunk, copy_.data());
}

}  // namespace hone
