// AccessLog: one JSON line a request, for machines. Lines are written by a thread of its own: a disk or pipe that
// stands still cannot hold up the server; lines beyond a bound are dropped and counted.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/result.h"

namespace hone {

// What is known of a request. Filled by the router, then by the generation; whoever ends the answer reads it.
struct RequestRecord {
  std::string id, method, path, route, peer, tenant, model;
  double arrived_s = 0;  // of the monotonic clock
  int status = 0;        // 499: the client went away first
  bool streamed = false;
  int weights = 0;  // ServedModel::number, 0: no generation
  int64_t prompt_tokens = -1, cached_tokens = 0, completion_tokens = 0;
  double ttft_s = -1, queue_s = -1;
  std::string finish, error_code;
};

std::string AccessLine(const RequestRecord& record, double now_s, int64_t unix_ms);

class AccessLog {
 public:
  // Appends to the file; "-" is stdout.
  static Result<std::unique_ptr<AccessLog>> Open(const std::string& path);
  ~AccessLog();  // writes what waits
  AccessLog(const AccessLog&) = delete;

  void Write(std::string line);  // any thread; never waits
  uint64_t dropped() const;

 private:
  explicit AccessLog(int fd);
  void Loop();

  const int fd_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::string> lines_;
  uint64_t dropped_ = 0;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace hone
