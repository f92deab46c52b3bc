// This program run again as a child: a command whose result is read, and a server that lives as long as its object.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"

namespace hone {

struct ChildResult {
  int code = 0;  // exit code; 128 + signal
  std::string out;
};
// Runs `hone ARGUMENTS`; its stderr is ours, and an interrupt is handed on to it. Errors: it cannot be started, more than 256 MiB of output.
Result<ChildResult> RunSelf(const std::vector<std::string>& arguments);

// hone serve MODEL on a free port of this machine. Ended (and waited for) by the destructor; ended by the system, too,
// when this process dies.
class ServerProcess {
 public:
  // Waits until the server has said its address. Errors carry what it said.
  static Result<std::unique_ptr<ServerProcess>> Start(const std::string& model, const std::vector<std::string>& flags);
  ~ServerProcess();
  ServerProcess(const ServerProcess&) = delete;
  const std::string& url() const { return url_; }
  // "" while it runs; else how it ended: by which signal, or with which exit code and last line.
  std::string Ended();

 private:
  ServerProcess() = default;
  std::string Said() const;
  std::string end_;
  pid_t pid_ = -1;
  int log_ = -1;  // a file in memory: its stderr
  std::string url_;
};

}  // namespace hone
