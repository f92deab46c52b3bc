// See access_log.h.
#include "serve/access_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <ctime>
#include <utility>

#include "serve/json_writer.h"
#include "serve/limits.h"

namespace hone {
namespace {

// "2026-01-02T03:04:05.678Z"
std::string TimeText(int64_t unix_ms) {
  const time_t seconds = unix_ms / 1000;
  tm utc{};
  gmtime_r(&seconds, &utc);
  char text[40];
  const size_t n = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc);
  return std::string(text, n) + "." + std::to_string(1000 + unix_ms % 1000).substr(1) + "Z";
}

double Milliseconds(double seconds) { return std::round(seconds * 1e6) / 1e3; }

}  // namespace

std::string AccessLine(const RequestRecord& r, double now_s, int64_t unix_ms) {
  JsonWriter json;
  json.BeginObject().Field("time", TimeText(unix_ms)).Field("id", r.id);
  if (!r.peer.empty()) json.Field("peer", r.peer);
  if (!r.tenant.empty()) json.Field("tenant", r.tenant);
  json.Field("method", r.method).Field("path", r.path).Field("status", r.status);
  json.Key("ms").Double(Milliseconds(now_s - r.arrived_s));
  if (r.weights > 0) {
    json.Field("model", r.model).Field("weights", r.weights).Field("stream", r.streamed);
    if (r.prompt_tokens >= 0) json.Field("prompt_tokens", r.prompt_tokens).Field("cached_tokens", r.cached_tokens);
    json.Field("completion_tokens", r.completion_tokens);
    if (r.ttft_s >= 0) json.Key("ttft_ms").Double(Milliseconds(r.ttft_s));
    if (r.queue_s >= 0) json.Key("queue_ms").Double(Milliseconds(r.queue_s));
    if (!r.finish.empty()) json.Field("finish", r.finish);
  }
  if (!r.error_code.empty()) json.Field("error", r.error_code);
  json.EndObject();
  return std::move(json).text();
}

Result<std::unique_ptr<AccessLog>> AccessLog::Open(const std::string& path) {
  const int fd =
      path == "-" ? ::dup(STDOUT_FILENO) : ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0640);
  if (fd < 0) return IoError(path + ": cannot be opened for the access log: " + std::strerror(errno));
  return std::unique_ptr<AccessLog>(new AccessLog(fd));
}

AccessLog::AccessLog(int fd) : fd_(fd), thread_([this] { Loop(); }) {}

AccessLog::~AccessLog() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    wake_.notify_all();
  }
  thread_.join();
  ::close(fd_);
}

void AccessLog::Write(std::string line) {
  std::lock_guard lock(mutex_);
  if (lines_.size() >= kMaxAccessLines) {
    ++dropped_;
    return;
  }
  lines_.push_back(std::move(line));
  if (lines_.size() == 1) wake_.notify_all();
}

uint64_t AccessLog::dropped() const {
  std::lock_guard lock(mutex_);
  return dropped_;
}

void AccessLog::Loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stop_ || !lines_.empty(); });
    if (lines_.empty()) return;
    std::string text;
    for (std::string& line : std::exchange(lines_, {})) (text += line) += '\n';
    lock.unlock();
    for (size_t at = 0; at < text.size();) {
      const ssize_t n = ::write(fd_, text.data() + at, text.size() - at);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) break;  // a full disk, a closed pipe: these lines are lost
      at += static_cast<size_t>(n);
    }
    lock.lock();
  }
}

}  // namespace hone
