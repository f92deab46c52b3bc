// WorkFile: what a long job has finished so far, kept beside its output so that a killed job can go on: PATH holds the
// pieces one after the other, PATH.log a line a piece with its length and checksum. A piece counts only if both are
// whole. Removed when the job is done.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/memory.h"
#include "base/result.h"

namespace hone {

// FNV-1a, to name a job by all that decides its result; continue with the last value as `hash`.
uint64_t Fingerprint(std::string_view text, uint64_t hash = 0xcbf29ce484222325);

// Names, sizes and times of change of a model's weights: the GGUF file, or the *.safetensors of a folder. Two runs see
// the same input if they see the same text.
std::string DescribeWeights(const std::string& path);

// Whether the disk of `path` has room for `needed` bytes, the result and the work in progress, `there` of which are written
// already. The error says both.
Result<void> CheckDisk(uint64_t needed, const std::string& path, uint64_t there);

class WorkFile {
 public:
  // `job`: fingerprint of all that decides the bytes. With `resume`, pieces of an earlier run of the same job are kept
  // (those up to the first that is not whole); a file of another job is an error. Without, an old file is removed.
  static Result<std::unique_ptr<WorkFile>> Open(const std::string& path, uint64_t job, bool resume);
  static bool Exists(const std::string& path);
  ~WorkFile();
  WorkFile(const WorkFile&) = delete;

  // Lengths of the finished pieces, in order.
  const std::vector<uint64_t>& pieces() const { return pieces_; }
  uint64_t bytes() const { return bytes_; }
  // Adds to the piece that is being written.
  Result<void> Append(std::span<const std::byte> bytes);
  Result<void> EndPiece();
  // All finished pieces, one after the other. Append no more.
  Result<std::shared_ptr<const MappedFile>> Map();
  void Remove();

 private:
  WorkFile() = default;
  Result<void> ReadLog(uint64_t job, bool* same_job);
  Error System(const char* verb) const;
  std::string path_;
  int fd_ = -1, log_fd_ = -1;
  std::vector<uint64_t> pieces_;
  uint64_t bytes_ = 0, piece_bytes_ = 0;
  uint32_t piece_crc_ = 0;
};

}  // namespace hone
