// The first line is "hone sensitivities 1" and the key; "DIVERGENCE NAME,NAME CHECKSUM" lines follow, each appended by one write.
#include "compress/gguf/sensitivity_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <utility>

#include "compress/work_file.h"

namespace hone {
namespace {

constexpr std::string_view kMagic = "hone sensitivities 1 ";
constexpr const char* kWanted = "name a new one, or one that hone quantize --sensitivities wrote";

std::string Printable(std::string text) {
  for (char& c : text) c = c >= ' ' && c <= '~' ? c : '?';
  return text;
}

std::string HeadOf(const SensitivityKey& key) {
  return fmt::format("{}model={} text={} importance={} protocol={}", kMagic, key.model, key.text, key.importance, key.protocol);
}

std::string NameOf(const std::vector<std::string>& tensors) { return fmt::format("{}", fmt::join(tensors, ",")); }

Error System(const std::string& path, const char* verb) {
  const char* advice = errno == ENOSPC || errno == EDQUOT ? "; free space, then start again: what is measured stays" : "";
  return IoError(fmt::format("{}: cannot {}: {}{}", path, verb, std::strerror(errno), advice));
}

Result<void> WriteWhole(int fd, const std::string& text, const std::string& path) {
  for (size_t at = 0; at < text.size();) {
    const ssize_t done = write(fd, text.data() + at, text.size() - at);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return System(path, "write");
    at += static_cast<size_t>(done);
  }
  return {};
}

}  // namespace

SensitivityLog::~SensitivityLog() {
  if (fd_ >= 0) close(fd_);
}

std::string SensitivityLog::Checked(const std::string& line) const {
  return fmt::format("{} {:016x}", line, Fingerprint(line, Fingerprint(head_)));
}

Result<void> SensitivityLog::Check(const std::string& path) {
  std::error_code ignored;
  const auto status = std::filesystem::status(path, ignored);  // a pipe would be waited for
  if (!std::filesystem::exists(status)) return {};
  if (!std::filesystem::is_regular_file(status)) return UsageError(path + " is no file that can be read and appended to; " + kWanted);
  std::ifstream file(path, std::ios::binary);
  if (!file) return System(path, "read");
  std::string first(kMagic.size(), 0);
  file.read(first.data(), std::ssize(first));
  first.resize(static_cast<size_t>(file.gcount()));
  if (kMagic.starts_with(first)) return {};
  return InvalidInput(fmt::format("{}: no file of sensitivities of this version: it begins with '{}'; {}", path, Printable(first), kWanted));
}

Result<void> SensitivityLog::Load(const SensitivityKey& key) {
  std::ifstream file(path_, std::ios::binary);
  if (!file) return System(path_, "read");
  std::string line;
  std::getline(file, line);
  if (file.eof() && head_.starts_with(line)) return {};  // killed before the first line was whole
  begun_ = true;
  if (line != head_) {
    const std::pair<std::string, const char*> parts[] = {{"model=" + key.model, "another model"},
                                                         {"text=" + key.text, "another calibration text (--calibration, --chunk, --chunks)"},
                                                         {"importance=" + key.importance, "another importance matrix (--imatrix)"}};
    const char* other = "another way of measuring";
    for (const auto& [part, what] : parts) {
      if (line.find(" " + part + " ") != std::string::npos) continue;
      other = what;
      break;
    }
    return UsageError(fmt::format("{}: measured with {}; give this job a file of its own", path_, other));
  }
  while (std::getline(file, line)) {
    torn_ = file.eof();  // no end of the line
    const size_t last = line.rfind(' '), first = line.find(' ');
    if (torn_ || first == std::string::npos || first == last || line != Checked(line.substr(0, last))) continue;
    double divergence = 0;
    const auto read = std::from_chars(line.data(), line.data() + first, divergence);
    if (read.ptr == line.data() + first && divergence >= 0 && std::isfinite(divergence))
      found_[line.substr(first + 1, last - first - 1)] = divergence;
  }
  return {};
}

Result<std::unique_ptr<SensitivityLog>> SensitivityLog::Read(const std::string& path, const SensitivityKey& key) {
  HONE_RETURN_IF_ERROR(Check(path));
  std::unique_ptr<SensitivityLog> log(new SensitivityLog(path, HeadOf(key)));
  HONE_RETURN_IF_ERROR(log->Load(key));
  return log;
}

Result<std::unique_ptr<SensitivityLog>> SensitivityLog::Open(const std::string& path, const SensitivityKey& key) {
  HONE_RETURN_IF_ERROR(Check(path));
  std::unique_ptr<SensitivityLog> log(new SensitivityLog(path, HeadOf(key)));
  log->fd_ = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (log->fd_ < 0) return System(path, "open for writing");
  flock(log->fd_, LOCK_EX);  // while it is begun
  HONE_RETURN_IF_ERROR(log->Load(key));
  if (!log->begun_ && ftruncate(log->fd_, 0) != 0) return System(path, "truncate");
  if (!log->begun_) HONE_RETURN_IF_ERROR(WriteWhole(log->fd_, log->head_ + "\n", path));
  if (log->torn_) HONE_RETURN_IF_ERROR(WriteWhole(log->fd_, "\n", path));
  flock(log->fd_, LOCK_UN);
  return log;
}

std::optional<double> SensitivityLog::Find(const std::vector<std::string>& tensors) const {
  const auto found = found_.find(NameOf(tensors));
  return found == found_.end() ? std::nullopt : std::optional(found->second);
}

Result<void> SensitivityLog::Add(const std::vector<std::string>& tensors, double divergence) {
  const std::string name = NameOf(tensors);
  HONE_RETURN_IF_ERROR(WriteWhole(fd_, Checked(fmt::format("{} {}", divergence, name)) + "\n", path_));
  found_[name] = divergence;
  return {};
}

}  // namespace hone
