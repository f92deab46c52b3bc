// The log's first line names the job; "LENGTH CRC" lines follow. A log line is written after its piece, so a killed
// process leaves at most bytes that no line speaks of. Checksums cover what a power cut may lose.
#include "compress/work_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <nmmintrin.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace hone {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kHeader = "hone work file 1 ";

Result<void> WriteAll(int fd, std::span<const std::byte> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t done = write(fd, bytes.data(), std::min(bytes.size(), size_t{1} << 30));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) {
      const char* advice = errno == ENOSPC || errno == EDQUOT ? "; free space, then go on with --resume" : "";
      return IoError(fmt::format("{}: cannot write: {}{}", path, std::strerror(errno), advice));
    }
    bytes = bytes.subspan(static_cast<size_t>(done));
  }
  return {};
}

// CRC-32C, continued from `crc`.
uint32_t Crc(std::span<const std::byte> bytes, uint32_t crc = 0) {
  uint64_t state = ~crc;
  size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + i, 8);
    state = _mm_crc32_u64(state, word);
  }
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
  std::error_code error;
  const uint64_t size = std::filesystem::file_size(path_, error);
  if (error || size == 0) return {};
  HONE_TRY(const auto file, MappedFile::Open(path_));
  uint64_t length = 0;
  uint32_t crc = 0;
  while (log >> std::dec >> length >> std::hex >> crc) {
    if (length > size - bytes_ || Crc(file->bytes().subspan(bytes_, length)) != crc) break;
    file->Release(file->bytes().data() + bytes_, length);
    pieces_.push_back(length);
    bytes_ += length;
  }
  return {};
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

Result<std::unique_ptr<WorkFile>> WorkFile::Open(const std::string& path, uint64_t job, bool resume) {
  std::unique_ptr<WorkFile> work(new WorkFile);
  work->path_ = path;
  work->fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (work->fd_ < 0) return work->System("create");
  if (flock(work->fd_, LOCK_EX | LOCK_NB) != 0) return UsageError(path + ": another process is writing it");
  bool same_job = true;
  std::vector<std::string> log_lines = {fmt::format("{}{:016x}\n", kHeader, job)};
  if (resume) {
    HONE_RETURN_IF_ERROR(work->ReadLog(job, &same_job));
    if (!same_job) {
      return UsageError(
          path +
          " is of another job (the input, the type or the importance matrix changed); start again without --resume");
    }
  }
  if (ftruncate(work->fd_, static_cast<off_t>(work->bytes_)) != 0) return work->System("truncate");
  if (lseek(work->fd_, 0, SEEK_END) < 0) return work->System("seek");
  // The log is written anew, so that it never ends in half a line.
  uint64_t at = 0;
  if (!work->pieces_.empty()) {
    HONE_TRY(const auto file, MappedFile::Open(path));
    for (const uint64_t length : work->pieces_) {
      log_lines.push_back(fmt::format("{} {:08x}\n", length, Crc(file->bytes().subspan(at, length))));
      at += length;
    }
  }
  const std::string fresh = path + ".log.new";
  work->log_fd_ = open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (work->log_fd_ < 0) return work->System("create the log of");
  for (const std::string& line : log_lines) {
    HONE_RETURN_IF_ERROR(WriteAll(work->log_fd_, std::as_bytes(std::span<const char>(line.data(), line.size())), path));
  }
  if (rename(fresh.c_str(), (path + ".log").c_str()) != 0) return work->System("name the log of");
  return work;
}

WorkFile::~WorkFile() {
  if (fd_ >= 0) close(fd_);
  if (log_fd_ >= 0) close(log_fd_);
}

Result<void> WorkFile::Append(std::span<const std::byte> bytes) {
  HONE_RETURN_IF_ERROR(WriteAll(fd_, bytes, path_));
  piece_crc_ = Crc(bytes, piece_crc_);
  piece_bytes_ += bytes.size();
  return {};
}

Result<void> WorkFile::EndPiece() {
  const std::string line = fmt::format("{} {:08x}\n", piece_bytes_, piece_crc_);
  HONE_RETURN_IF_ERROR(WriteAll(log_fd_, std::as_bytes(std::span<const char>(line.data(), line.size())), path_));
  pieces_.push_back(piece_bytes_);
  bytes_ += piece_bytes_;
  piece_bytes_ = 0;
  piece_crc_ = 0;
  return {};
}

Result<std::shared_ptr<const MappedFile>> WorkFile::Map() { return MappedFile::Open(path_); }

void WorkFile::Remove() {
  unlink(path_.c_str());
  unlink((path_ + ".log").c_str());
}

}  // namespace hone
