// Files of a base model's log-probabilities, as llama-perplexity writes them with --kl-divergence-base, read and
// written.
//
//   "_logits_" | i32 n_ctx | i32 n_vocab | i32 n_chunk | i32 tokens[n_chunk * n_ctx]
//   then per chunk n_ctx - 1 - n_ctx / 2 rows: f32 scale | f32 min_log_prob | u16 q[n_vocab] | u16 0 if n_vocab is odd
//
// Row r of a chunk belongs to position n_ctx / 2 + r and speaks of the token after it: log p = scale * q +
// min_log_prob. Logits more than 16 below the highest are stored as q = 0. Little-endian, as is every machine that hone
// runs on.
#pragma once

#include <cstdint>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/memory.h"
#include "base/result.h"

namespace hone {

struct KldShape {
  int context = 0, vocab = 0, chunks = 0;
  int rows_per_chunk() const { return context - 1 - context / 2; }
  size_t row_u16() const { return 2 * ((static_cast<size_t>(vocab) + 1) / 2) + 4; }
  uint64_t header_bytes() const {
    return 8 + 12 + uint64_t{4} * static_cast<uint64_t>(chunks) * static_cast<uint64_t>(context);
  }
  uint64_t file_bytes() const {
    return header_bytes() +
           uint64_t{2} * row_u16() * static_cast<uint64_t>(rows_per_chunk()) * static_cast<uint64_t>(chunks);
  }
};

class KldFile {
 public:
  // Checks the magic, the sizes against the file's and every token. Errors name the path, what was found and wanted.
  static Result<std::unique_ptr<KldFile>> Open(const std::string& path);
  static bool IsKld(const std::string& path);  // begins with the magic

  const KldShape& shape() const { return shape_; }
  std::span<const int32_t> tokens() const { return tokens_; }
  // The log-probabilities of a row, [vocab]; false if scale or minimum are not finite. Any thread.
  bool Row(int chunk, int row, std::span<float> log_probs) const;

 private:
  KldFile() = default;
  std::shared_ptr<const MappedFile> file_;
  KldShape shape_;
  std::vector<int32_t> tokens_;
};

// One row as stored; `out`: [row_u16]. `logits` must be finite.
void EncodeKldRow(std::span<const float> logits, std::span<uint16_t> out);

class KldWriter {
 public:
  static Result<std::unique_ptr<KldWriter>> Create(const std::string& path, const KldShape& shape,
                                                   std::span<const int32_t> tokens);
  ~KldWriter();                                            // removes the file unless Finish was called
  Result<void> WriteRows(std::span<const uint16_t> rows);  // in order
  Result<void> Finish();                                   // checks that every row came; the file appears whole

 private:
  KldWriter() = default;
  std::string path_, temporary_;
  KldShape shape_;
  uint64_t written_ = 0;
  bool finished_ = false;
  std::ofstream out_;
};

}  // namespace hone
