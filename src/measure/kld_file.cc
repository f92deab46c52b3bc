// See kld_file.h.
#include "measure/kld_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

namespace hone {
namespace {

constexpr char kMagic[8] = {'_', 'l', 'o', 'g', 'i', 't', 's', '_'};
constexpr int kMostContext = 1 << 20, kMostVocab = 1 << 24;
constexpr float kRange = 16;  // logits further below the highest are all stored as the lowest

}  // namespace

bool KldFile::IsKld(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  char magic[8] = {};
  return in.read(magic, 8) && std::memcmp(magic, kMagic, 8) == 0;
}

Result<std::unique_ptr<KldFile>> KldFile::Open(const std::string& path) {
  std::unique_ptr<KldFile> kld(new KldFile);
  HONE_TRY(kld->file_, MappedFile::Open(path));
  const auto bytes = kld->file_->bytes();
  int32_t header[3];
  if (bytes.size() < 20 || std::memcmp(bytes.data(), kMagic, 8) != 0) {
    return InvalidInput(path +
                        ": does not begin with \"_logits_\"; wanted a file of llama-perplexity --kl-divergence-base or "
                        "hone eval kld --save");
  }
  std::memcpy(header, bytes.data() + 8, sizeof(header));
  KldShape& shape = kld->shape_;
  shape = {header[0], header[1], header[2]};
  if (shape.context < 4 || shape.context > kMostContext || shape.vocab < 1 || shape.vocab > kMostVocab ||
      shape.chunks < 1) {
    return InvalidInput(fmt::format("{}: n_ctx {}, n_vocab {}, n_chunk {} make no sense", path, shape.context,
                                    shape.vocab, shape.chunks));
  }
  if (bytes.size() != shape.file_bytes()) {
    return InvalidInput(
        fmt::format("{}: has {} bytes, but {} chunks of {} tokens and {} entries need {}; was it written to its end?",
                    path, bytes.size(), shape.chunks, shape.context, shape.vocab, shape.file_bytes()));
  }
  kld->tokens_.resize(static_cast<size_t>(shape.chunks) * static_cast<size_t>(shape.context));
  std::memcpy(kld->tokens_.data(), bytes.data() + 20, kld->tokens_.size() * sizeof(int32_t));
  for (size_t i = 0; i < kld->tokens_.size(); ++i) {
    if (kld->tokens_[i] < 0 || kld->tokens_[i] >= shape.vocab) {
      return InvalidInput(
          fmt::format("{}: token {} is {}, outside of the vocabulary of {}", path, i, kld->tokens_[i], shape.vocab));
    }
  }
  return kld;
}

bool KldFile::Row(int chunk, int row, std::span<float> log_probs) const {
  const uint64_t index =
      static_cast<uint64_t>(chunk) * static_cast<uint64_t>(shape_.rows_per_chunk()) + static_cast<uint64_t>(row);
  const std::byte* at = file_->bytes().data() + shape_.header_bytes() + index * shape_.row_u16() * 2;
  float head[2];
  std::memcpy(head, at, sizeof(head));
  if (!std::isfinite(head[0]) || !std::isfinite(head[1])) return false;
  for (size_t i = 0; i < log_probs.size(); ++i) {
    uint16_t q;
    std::memcpy(&q, at + 8 + 2 * i, 2);
    log_probs[i] = head[0] * q + head[1];
  }
  return true;
}

void EncodeKldRow(std::span<const float> logits, std::span<uint16_t> out) {
  const auto [low, high] = std::minmax_element(logits.begin(), logits.end());
  const float max = *high, min = std::max(*low, max - kRange);
  double sum = 0;
  for (const float l : logits) sum += std::exp(l - max);
  const float scale = (max - min) / 65535.0f;
  const float head[2] = {scale, static_cast<float>(static_cast<double>(min) - max - std::log(sum))};
  std::fill(out.begin(), out.end(), uint16_t{0});
  std::memcpy(out.data(), head, sizeof(head));
  if (!(scale > 0)) return;
  const float inverse = 1 / scale;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] > min) out[4 + i] = static_cast<uint16_t>(std::min(65535L, std::lrint(inverse * (logits[i] - min))));
  }
}

Result<std::unique_ptr<KldWriter>> KldWriter::Create(const std::string& path, const KldShape& shape,
                                                     std::span<const int32_t> tokens) {
  std::unique_ptr<KldWriter> writer(new KldWriter);
  writer->path_ = path, writer->shape_ = shape;
  writer->temporary_ = path + "." + std::to_string(getpid()) + ".part";
  writer->out_.open(writer->temporary_, std::ios::binary | std::ios::trunc);
  const int32_t header[3] = {shape.context, shape.vocab, shape.chunks};
  writer->out_.write(kMagic, sizeof(kMagic));
  writer->out_.write(reinterpret_cast<const char*>(header), sizeof(header));
  writer->out_.write(reinterpret_cast<const char*>(tokens.data()),
                     static_cast<std::streamsize>(sizeof(int32_t) * static_cast<size_t>(shape.chunks) *
                                                  static_cast<size_t>(shape.context)));
  if (!writer->out_) return IoError(path + ": cannot write");
  return writer;
}

KldWriter::~KldWriter() {
  if (finished_) return;
  out_.close();
  std::remove(temporary_.c_str());
}

Result<void> KldWriter::WriteRows(std::span<const uint16_t> rows) {
  out_.write(reinterpret_cast<const char*>(rows.data()), static_cast<std::streamsize>(rows.size_bytes()));
  written_ += rows.size_bytes();
  if (!out_) return IoError(path_ + ": cannot write (is the disk full?)");
  return {};
}

Result<void> KldWriter::Finish() {
  HONE_CHECK(written_ == shape_.file_bytes() - shape_.header_bytes(), "rows are missing");
  out_.close();
  if (!out_ || std::rename(temporary_.c_str(), path_.c_str()) != 0)
    return IoError(path_ + ": cannot write (is the disk full?)");
  finished_ = true;
  return {};
}

}  // namespace hone
