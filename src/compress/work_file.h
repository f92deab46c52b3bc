// WorkFile: what a long job has finished so far, kept beside its output so that a killed job can go on: PATH holds the
// pieces one after the other, or each where the finished file has it (WorkLayout), PATH.log a line a piece with its
// length and checksum. A piece counts only if both are whole. Removed when the job is done.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/memory.h"
#include "base/result.h"
#include "compress/background_sync.h"

namespace hone {

// FNV-1a, to name a job by all that decides its result; continue with the last value as `hash`.
uint64_t Fingerprint(std::string_view text, uint64_t hash = 0xcbf29ce484222325);

// Names, sizes and times of change of a model's weights: the GGUF file, or the *.safetensors of a folder. Two runs see
// the same input if they see the same text.
std::string DescribeWeights(const std::string& path);

// Whether the disk of `path` has room for `needed` bytes, the result and the work in progress, `there` of which are written
// already. The error says both.
Result<void> CheckDisk(uint64_t needed, const std::string& path, uint64_t there);

// Where the pieces lie in a file whose sizes are known before its bytes: then it is written once, in any order, and
// named when it is whole.
struct WorkLayout {
  struct Part {
    uint64_t offset = 0, bytes = 0;
  };
  std::string head;                      // what the file begins with
  std::vector<std::vector<Part>> pieces; // of each, its parts one after the other
  uint64_t bytes = 0;                    // of the file
};

class WorkFile {
 public:
  // `job`: fingerprint of all that decides the bytes. With `resume`, pieces of an earlier run of the same job are kept
  // (those up to the first that is not whole); a file of another job is an error. Without, an old file is removed.
  // With a layout the file's room is reserved, where the file system can, and its head is written.
  static Result<std::unique_ptr<WorkFile>> Open(const std::string& path, uint64_t job, bool resume, WorkLayout layout = {});
  static bool Exists(const std::string& path);
  ~WorkFile();
  WorkFile(const WorkFile&) = delete;

  // Lengths of the finished pieces, in order. Not while another thread puts.
  const std::vector<uint64_t>& pieces() const { return pieces_; }
  uint64_t bytes() const { return bytes_; }
  // Adds to the piece that is being written.
  Result<void> Append(std::span<const std::byte> bytes);
  Result<void> EndPiece();
  // The bytes of a finished piece.
  Result<std::vector<std::byte>> Read(size_t piece) const;
  // All finished pieces, one after the other. Append no more. REQUIRES: no layout.
  Result<std::shared_ptr<const MappedFile>> Map();

  // With a layout. A whole piece, its parts as the layout has them; pieces come in any order, from any thread, and count when
  // those before them do. Then back from the file: an error unless it holds the same; or into the same places.
  Result<void> Put(size_t piece, std::span<const std::vector<std::byte>> parts);
  Result<void> Holds(size_t piece, std::span<const std::vector<std::byte>> parts) const;
  Result<void> Get(size_t piece, std::span<std::vector<std::byte>> parts) const;
  // Bytes that belong to no piece: who resumes writes them again. Thread-safe.
  Result<void> PutAt(uint64_t offset, std::span<const std::byte> bytes);
  Result<void> Sync();  // all that was written is on the disk; put no more

  void Remove();

 private:
  WorkFile() = default;
  Result<void> OpenAndLock();
  // Whether the file still has its name: it may have moved to its place, and the name be another process's.
  bool HasItsName() const;
  // The file as long as it must be, with its head, and a log of what counts.
  Result<void> Begin(uint64_t job, bool resume);
  Result<void> ReadLog(uint64_t job, bool* same_job);
  // Part `part` of a piece, and whether there is one.
  bool PartOf(size_t piece, size_t part, WorkLayout::Part* out) const;
  Result<uint32_t> Checksum(size_t piece) const;
  Result<void> PutLine(uint64_t length, uint32_t crc);
  Error System(const char* verb) const;
  std::string path_;
  WorkLayout layout_;
  std::unique_ptr<BackgroundSync> sync_;  // with a layout
  std::mutex writing_;  // who waits for the file's own lock keeps a processor busy
  std::mutex mutex_;                                    // of what follows
  std::map<size_t, std::pair<uint64_t, uint32_t>> early_;  // finished before one that goes first: length, checksum
  int fd_ = -1, log_fd_ = -1;
  std::vector<uint64_t> pieces_;
  uint64_t bytes_ = 0, piece_bytes_ = 0;
  uint32_t piece_crc_ = 0;
};

}  // namespace hone
