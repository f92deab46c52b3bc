// The log's first line names the job; "LENGTH CRC" lines follow, in the order of the pieces. A log line is written after its
// piece and the lines before it, so a killed process leaves at most bytes that no line speaks of. Checksums cover what a power
// cut may lose.
#include "compress/work_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <nmmintrin.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "base/check.h"

namespace hone {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kHeader = "hone work file 1 ";
constexpr size_t kReadBackBytes = size_t{1} << 18;

// To `offset`, or where the file stands (-1).
Result<void> WriteAll(int fd, std::span<const std::byte> bytes, const std::string& path, int64_t offset = -1) {
  while (!bytes.empty()) {
    const size_t part = std::min(bytes.size(), size_t{1} << 30);
    const ssize_t done = offset < 0 ? write(fd, bytes.data(), part) : pwrite(fd, bytes.data(), part, offset);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) {
      const char* advice = errno == ENOSPC || errno == EDQUOT ? "; free space, then go on with --resume" : "";
      return IoError(fmt::format("{}: cannot write: {}{}", path, std::strerror(errno), advice));
    }
    bytes = bytes.subspan(static_cast<size_t>(done));
    if (offset >= 0) offset += done;
  }
  return {};
}

// Whether all of them are there.
bool ReadAll(int fd, uint64_t offset, std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t done = pread(fd, bytes.data(), std::min(bytes.size(), size_t{1} << 30), static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done == 0) errno = ENODATA;  // the file ends before
    if (done <= 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(done));
    offset += static_cast<uint64_t>(done);
  }
  return true;
}

// What a state of CRC-32C becomes after kStream bytes of zeros: linear, so a table a byte.
constexpr size_t kStream = 1024;
struct AfterStream {
  uint32_t of[4][256] = {};
  AfterStream() {
    for (int bit = 0; bit < 32; ++bit) {
      uint64_t state = uint64_t{1} << bit;
      for (size_t i = 0; i < kStream; i += 8) state = _mm_crc32_u64(state, 0);
      for (int byte = 0; byte < 256; ++byte) {
        if (byte >> bit % 8 & 1) of[bit / 8][byte] ^= static_cast<uint32_t>(state);
      }
    }
  }
  uint64_t operator()(uint64_t state) const {
    return of[0][state & 255] ^ of[1][state >> 8 & 255] ^ of[2][state >> 16 & 255] ^ of[3][state >> 24 & 255];
  }
};

// CRC-32C, continued from `crc`.
uint32_t Crc(std::span<const std::byte> bytes, uint32_t crc = 0) {
  static const AfterStream after;
  const auto word_at = [&](size_t at) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + at, 8);
    return word;
  };
  uint64_t state = ~crc;
  size_t i = 0;
  // Each step waits three cycles for the one before: three streams together.
  for (; i + 3 * kStream <= bytes.size(); i += 3 * kStream) {
    uint64_t second = 0, third = 0;
    for (size_t at = i; at < i + kStream; at += 8) {
      state = _mm_crc32_u64(state, word_at(at));
      second = _mm_crc32_u64(second, word_at(at + kStream));
      third = _mm_crc32_u64(third, word_at(at + 2 * kStream));
    }
    state = after(after(state) ^ second) ^ third;
  }
  for (; i + 8 <= bytes.size(); i += 8) state = _mm_crc32_u64(state, word_at(i));
  uint32_t small = static_cast<uint32_t>(state);
  for (; i < bytes.size(); ++i) small = _mm_crc32_u8(small, static_cast<uint8_t>(bytes[i]));
  return ~small;
}

}  // namespace

uint64_t Fingerprint(std::string_view text, uint64_t hash) {
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return hash;
}

std::string DescribeWeights(const std::string& path) {
  std::vector<std::string> files;
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    for (fs::directory_iterator it(path, ignored), end; !ignored && it != end; it.increment(ignored)) {
      if (it->path().extension() == ".safetensors") files.push_back(it->path().string());
    }
    std::sort(files.begin(), files.end());
  } else {
    files.push_back(path);
  }
  std::string text;
  for (const std::string& file : files) {
    struct stat status {};
    if (stat(file.c_str(), &status) != 0) continue;
    text += fmt::format("{} {} {} {};", file, status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
  }
  return text;
}

bool WorkFile::Exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path + ".log", ignored);
}

Error WorkFile::System(const char* verb) const {
  return IoError(fmt::format("{}: cannot {}: {}", path_, verb, std::strerror(errno)));
}

Result<void> WorkFile::ReadLog(uint64_t job, bool* same_job) {
  std::ifstream log(path_ + ".log");
  std::string line;
  if (!std::getline(log, line)) return {};  // killed before the first line: nothing is there yet
  if (line != fmt::format("{}{:016x}", kHeader, job)) {
    *same_job = false;
    return {};
  }
  uint64_t length = 0;
  uint32_t crc = 0;
  while (log >> std::dec >> length >> std::hex >> crc) {
    uint64_t wanted = length;
    if (layout_.bytes > 0) {
      if (pieces_.size() >= layout_.pieces.size()) break;
      wanted = 0;
      for (const WorkLayout::Part& part : layout_.pieces[pieces_.size()]) wanted += part.bytes;
    }
    if (length != wanted || length > static_cast<uint64_t>(INT64_MAX) - bytes_) break;
    pieces_.push_back(length);
    bytes_ += length;
    const Result<uint32_t> found = Checksum(pieces_.size() - 1);
    if (found && *found == crc) continue;
    pieces_.pop_back();
    bytes_ -= length;
    break;
  }
  return {};
}

bool WorkFile::PartOf(size_t piece, size_t part, WorkLayout::Part* out) const {
  if (layout_.bytes > 0) {
    if (part >= layout_.pieces[piece].size()) return false;
    *out = layout_.pieces[piece][part];
    return true;
  }
  *out = {std::accumulate(pieces_.begin(), pieces_.begin() + static_cast<int64_t>(piece), uint64_t{0}), pieces_[piece]};
  return part == 0;
}

Result<uint32_t> WorkFile::Checksum(size_t piece) const {
  std::vector<std::byte> some(size_t{1} << 20);
  uint32_t crc = 0;
  WorkLayout::Part at;
  for (size_t part = 0; PartOf(piece, part, &at); ++part) {
    while (at.bytes > 0) {
      const size_t count = std::min<uint64_t>(at.bytes, some.size());
      if (!ReadAll(fd_, at.offset, {some.data(), count})) return System("read");
      crc = Crc({some.data(), count}, crc);
      at.offset += count, at.bytes -= count;
    }
  }
  return crc;
}

Result<void> CheckDisk(uint64_t needed, const std::string& path, uint64_t there) {
  fs::path folder = fs::path(path).parent_path();
  if (folder.empty()) folder = ".";
  std::error_code error;
  const fs::space_info space = fs::space(folder, error);
  if (error) return IoError(fmt::format("{}: {}", folder.string(), error.message()));
  if (space.available + there >= needed) return {};
  return IoError(fmt::format(
      "{}: {} MiB are free, this needs {} MiB (the result and the work in progress); free space or write elsewhere",
      folder.string(), space.available >> 20, needed >> 20));
}

bool WorkFile::HasItsName() const {
  struct stat own {}, named {};
  return fstat(fd_, &own) == 0 && stat(path_.c_str(), &named) == 0 && own.st_dev == named.st_dev && own.st_ino == named.st_ino;
}

Result<void> WorkFile::OpenAndLock() {
  for (;;) {
    fd_ = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd_ < 0) return System("create");
    if (flock(fd_, LOCK_EX | LOCK_NB) != 0) return UsageError(path_ + ": another process is writing it");
    if (HasItsName()) return {};
    close(fd_);  // finished by another process meanwhile: what was opened is its result
  }
}

Result<void> WorkFile::Begin(uint64_t job, bool resume) {
  const bool placed = layout_.bytes > 0;
  const uint64_t size = placed && resume ? layout_.bytes : bytes_;
  if (ftruncate(fd_, static_cast<off_t>(size)) != 0) return System("truncate");
  if (placed) {
    // File systems without reservation say so; only a full disk (or a quota, a limit) is an answer that counts.
    if (fallocate(fd_, 0, 0, static_cast<off_t>(layout_.bytes)) != 0 && (errno == ENOSPC || errno == EDQUOT || errno == EFBIG)) {
      return IoError(fmt::format("{}: cannot reserve {} bytes: {}; free space on that disk or write elsewhere", path_,
                                 layout_.bytes, std::strerror(errno)));
    }
    if (ftruncate(fd_, static_cast<off_t>(layout_.bytes)) != 0) return System("truncate");
    const std::span<const char> head(layout_.head);
    HONE_RETURN_IF_ERROR(WriteAll(fd_, std::as_bytes(head), path_, 0));
  } else if (lseek(fd_, 0, SEEK_END) < 0) {
    return System("seek");
  }
  // The log is written anew, so that it never ends in half a line.
  std::string log = fmt::format("{}{:016x}\n", kHeader, job);
  for (size_t i = 0; i < pieces_.size(); ++i) {
    HONE_TRY(const uint32_t crc, Checksum(i));
    log += fmt::format("{} {:08x}\n", pieces_[i], crc);
  }
  const std::string fresh = path_ + ".log.new";
  log_fd_ = open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (log_fd_ < 0) return System("create the log of");
  Result<void> written = WriteAll(log_fd_, std::as_bytes(std::span<const char>(log)), path_);
  if (written && rename(fresh.c_str(), (path_ + ".log").c_str()) != 0) written = System("name the log of");
  if (!written) unlink(fresh.c_str());
  return written;
}

Result<std::unique_ptr<WorkFile>> WorkFile::Open(const std::string& path, uint64_t job, bool resume, WorkLayout layout) {
  std::unique_ptr<WorkFile> work(new WorkFile);
  work->path_ = path;
  work->layout_ = std::move(layout);
  HONE_RETURN_IF_ERROR(work->OpenAndLock());
  bool same_job = true;
  if (resume) HONE_RETURN_IF_ERROR(work->ReadLog(job, &same_job));
  if (!same_job) {
    return UsageError(
        path + " is of another job (the input, the type or the importance matrix changed); start again without --resume");
  }
  const Result<void> begun = work->Begin(job, resume);
  if (!begun && work->pieces_.empty()) work->Remove();
  if (!begun) return begun.error();
  if (work->layout_.bytes > 0) work->sync_ = std::make_unique<BackgroundSync>([fd = work->fd_] { return fdatasync(fd) == 0 ? 0 : errno; });
  return work;
}

WorkFile::~WorkFile() {
  sync_.reset();
  if (fd_ >= 0) close(fd_);
  if (log_fd_ >= 0) close(log_fd_);
}

Result<void> WorkFile::Append(std::span<const std::byte> bytes) {
  piece_crc_ = Crc(bytes, piece_crc_);
  uint64_t at = piece_bytes_;  // within the piece
  piece_bytes_ += bytes.size();
  if (layout_.bytes == 0) return WriteAll(fd_, bytes, path_);
  WorkLayout::Part to;
  for (size_t part = 0; PartOf(pieces_.size(), part, &to); ++part) {
    if (at >= to.bytes) {
      at -= to.bytes;
      continue;
    }
    const size_t count = std::min<uint64_t>(bytes.size(), to.bytes - at);
    HONE_RETURN_IF_ERROR(PutAt(to.offset + at, bytes.subspan(0, count)));
    bytes = bytes.subspan(count);
    at = 0;
  }
  HONE_CHECK(bytes.empty(), "more bytes than the piece has");
  return {};
}

Result<void> WorkFile::PutLine(uint64_t length, uint32_t crc) {
  const std::string line = fmt::format("{} {:08x}\n", length, crc);
  HONE_RETURN_IF_ERROR(WriteAll(log_fd_, std::as_bytes(std::span<const char>(line.data(), line.size())), path_));
  pieces_.push_back(length);
  bytes_ += length;
  return {};
}

Result<void> WorkFile::EndPiece() {
  HONE_RETURN_IF_ERROR(PutLine(piece_bytes_, piece_crc_));
  piece_bytes_ = 0;
  piece_crc_ = 0;
  return {};
}

Result<std::vector<std::byte>> WorkFile::Read(size_t piece) const {
  std::vector<std::byte> bytes(pieces_[piece]);
  std::span<std::byte> left(bytes);
  WorkLayout::Part from;
  for (size_t part = 0; PartOf(piece, part, &from); ++part) {
    if (!ReadAll(fd_, from.offset, left.subspan(0, from.bytes))) return System("read");
    left = left.subspan(from.bytes);
  }
  return bytes;
}

Result<void> WorkFile::Put(size_t piece, std::span<const std::vector<std::byte>> parts) {
  HONE_CHECK(parts.size() == layout_.pieces[piece].size());
  uint64_t length = 0;
  uint32_t crc = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    HONE_CHECK(parts[i].size() == layout_.pieces[piece][i].bytes);
    HONE_RETURN_IF_ERROR(PutAt(layout_.pieces[piece][i].offset, parts[i]));
    crc = Crc(parts[i], crc);
    length += parts[i].size();
  }
  const std::lock_guard lock(mutex_);
  early_[piece] = {length, crc};
  for (auto first = early_.find(pieces_.size()); first != early_.end(); first = early_.find(pieces_.size())) {
    HONE_RETURN_IF_ERROR(PutLine(first->second.first, first->second.second));
    early_.erase(first);
  }
  return {};
}

Result<void> WorkFile::Holds(size_t piece, std::span<const std::vector<std::byte>> parts) const {
  std::vector<std::byte> some(kReadBackBytes);
  for (size_t i = 0; i < parts.size(); ++i) {
    const uint64_t offset = layout_.pieces[piece][i].offset;
    for (size_t at = 0; at < parts[i].size(); at += some.size()) {
      const size_t count = std::min(some.size(), parts[i].size() - at);
      if (!ReadAll(fd_, offset + at, {some.data(), count})) return System("read back");
      if (std::memcmp(some.data(), &parts[i][at], count) != 0) {
        return IoError(fmt::format("{}: the file does not hold what was written to it (within {} bytes at {}): another process writes "
                                   "to it, or the disk or memory is faulty; start again",
                                   path_, count, offset + at));
      }
    }
  }
  return {};
}

Result<void> WorkFile::Get(size_t piece, std::span<std::vector<std::byte>> parts) const {
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!ReadAll(fd_, layout_.pieces[piece][i].offset, parts[i])) return System("read back");
  }
  return {};
}

Result<void> WorkFile::PutAt(uint64_t offset, std::span<const std::byte> bytes) {
  {
    const std::lock_guard lock(writing_);
    HONE_RETURN_IF_ERROR(WriteAll(fd_, bytes, path_, static_cast<int64_t>(offset)));
  }
  sync_->Wrote(bytes.size());
  return {};
}

Result<void> WorkFile::Sync() {
  errno = sync_ != nullptr ? sync_->Finish() : 0;
  if (errno != 0 || fsync(fd_) != 0) return System("flush to the disk");
  return {};
}

Result<std::shared_ptr<const MappedFile>> WorkFile::Map() { return MappedFile::Open(path_); }

void WorkFile::Remove() {
  if (HasItsName()) unlink(path_.c_str());
  std::error_code ignored;
  if (!fs::exists(path_, ignored)) unlink((path_ + ".log").c_str());  // else another process has begun
}

}  // namespace hone
