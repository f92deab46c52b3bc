// Plain system calls: small writes are gathered, large ones go straight to the kernel.
#include "formats/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

namespace hone {
namespace {

constexpr size_t kGatherBytes = size_t{1} << 18;
constexpr size_t kMaxWriteBytes = size_t{1} << 30;

// Distinct among the files that this process writes at once.
std::string TemporaryName(const std::string& path) {
  static std::atomic<uint64_t> count{0};
  const std::filesystem::path full(path);
  const std::string name = "." + full.filename().string().substr(0, 200) + ".partial-" + std::to_string(getpid()) +
                           "-" + std::to_string(count.fetch_add(1));
  return (full.parent_path() / name).string();
}

int WriteAll(int fd, const std::byte* data, size_t bytes) {  // 0, or errno
  while (bytes > 0) {
    const ssize_t done = write(fd, data, std::min(bytes, kMaxWriteBytes));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return errno;
    data += done;
    bytes -= static_cast<size_t>(done);
  }
  return 0;
}

}  // namespace

Error AtomicFile::System(const char* verb) const {
  const int error = errno;
  const char* advice = error == ENOSPC || error == EDQUOT ? "; free space on that disk or write elsewhere"
                       : error == EACCES || error == EROFS ? "; choose a folder that you may write to"
                       : error == ENOENT                   ? "; make its folder first"
                                                           : "";
  return IoError(path_ + ": cannot " + verb + ": " + std::strerror(error) + advice);
}

Result<std::unique_ptr<AtomicFile>> AtomicFile::Create(const std::string& path, uint64_t bytes) {
  std::error_code ignored;
  if (path.empty() || std::filesystem::is_directory(path, ignored)) {
    return InvalidInput("'" + path + "': cannot write a file there, wanted the name of a file");
  }
  // Renaming would put a file in the place of /dev/null or of a pipe.
  if (std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored)) {
    return InvalidInput("'" + path + "': a device, pipe or socket, which a file cannot replace; wanted the name of a file");
  }
  const std::string temporary = TemporaryName(path);
  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  std::unique_ptr<AtomicFile> file(new AtomicFile(path, fd < 0 ? "" : temporary, fd));
  if (fd < 0) return file->System("create");
  // File systems without reservation say so; only a full disk (or a quota) is an answer that counts.
  if (bytes > 0 && fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(bytes)) != 0 &&
      (errno == ENOSPC || errno == EDQUOT)) {
    return file->System(("reserve " + std::to_string(bytes) + " bytes").c_str());
  }
  return file;
}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) close(fd_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

Result<void> AtomicFile::Flush() {
  const int error = WriteAll(fd_, reinterpret_cast<const std::byte*>(buffer_.data()), buffer_.size());
  buffer_.clear();
  if (error == 0) return {};
  errno = error;
  return System("write");
}

Result<void> AtomicFile::Write(std::span<const std::byte> bytes) {
  HONE_CHECK(fd_ >= 0, "write after Finish");
  if (bytes.empty()) return {};
  written_ += bytes.size();
  if (buffer_.size() + bytes.size() > kGatherBytes) HONE_RETURN_IF_ERROR(Flush());
  if (bytes.size() <= kGatherBytes) {
    buffer_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return {};
  }
  const int error = WriteAll(fd_, bytes.data(), bytes.size());
  if (error == 0) return {};
  errno = error;
  return System("write");
}

Result<void> AtomicFile::Zeros(uint64_t bytes) {
  static const std::string kZeros(4096, '\0');
  for (; bytes > 0; bytes -= std::min<uint64_t>(bytes, kZeros.size())) {
    HONE_RETURN_IF_ERROR(Write(std::string_view(kZeros).substr(0, std::min<uint64_t>(bytes, kZeros.size()))));
  }
  return {};
}

Result<void> AtomicFile::Finish() {
  if (fd_ < 0) return {};
  HONE_RETURN_IF_ERROR(Flush());
  if (fsync(fd_) != 0) return System("flush to the disk");
  const int fd = fd_;
  fd_ = -1;
  if (close(fd) != 0) return System("close");
  return {};
}

Result<void> AtomicFile::Rename() {
  HONE_RETURN_IF_ERROR(Finish());
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) return System("rename into place");
  temporary_.clear();
  // The name itself must reach the disk too; a file system that cannot is no reason to fail.
  const std::filesystem::path parent = std::filesystem::path(path_).parent_path();
  const int folder = open(parent.empty() ? "." : parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder >= 0) {
    static_cast<void>(fsync(folder));
    close(folder);
  }
  return {};
}

}  // namespace hone
