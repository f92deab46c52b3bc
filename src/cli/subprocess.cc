// See subprocess.h.
#include "cli/subprocess.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "cli/interrupt.h"

namespace hone {
namespace {

constexpr size_t kMostOutput = 256u << 20;
constexpr int kLookMs = 100;       // an interrupt may be taken by another thread than the one that reads
constexpr int kEndLooks = 100;     // of 0.02 s
constexpr int kEndTries = 100;  // of 0.1 s, before a server that does not end is killed

void Sleep(double seconds) {
  const timespec time = {static_cast<time_t>(seconds),
                         static_cast<long>((seconds - static_cast<time_t>(seconds)) * 1e9)};
  nanosleep(&time, nullptr);
}

// The child: `out` becomes stdout, `err` stderr (-1: as they are).
pid_t Spawn(const std::vector<std::string>& arguments, int out, int err) {
  std::vector<std::string> words = {"hone"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t parent = getpid(), pid = fork();
  if (pid != 0) return pid;
  setpgid(0, 0);  // a Ctrl-C is the parent's, which hands it on once: a second one would end a command without its result
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(127);
  const int nothing = open("/dev/null", O_RDWR);
  dup2(nothing, STDIN_FILENO);
  if (out >= 0) dup2(out, STDOUT_FILENO);
  if (err >= 0) dup2(err, STDERR_FILENO);
  execv("/proc/self/exe", argv.data());
  _exit(127);
}

int Wait(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

Result<ChildResult> RunSelf(const std::vector<std::string>& arguments) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return IoError(std::string("no pipe: ") + std::strerror(errno));
  const pid_t pid = Spawn(arguments, ends[1], -1);
  close(ends[1]);
  if (pid < 0) {
    close(ends[0]);
    return IoError(std::string("hone cannot be started again: ") + std::strerror(errno));
  }
  ChildResult result;
  char buffer[65536];
  bool too_much = false, told = false;
  while (true) {
    pollfd one = {ends[0], POLLIN, 0};
    const int ready = poll(&one, 1, kLookMs);
    if (Interrupted() && !std::exchange(told, true)) kill(pid, SIGINT);  // it ends with what it has
    if (ready <= 0) continue;
    const ssize_t n = read(ends[0], buffer, sizeof(buffer));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    too_much |= result.out.size() + static_cast<size_t>(n) > kMostOutput;
    if (!too_much) result.out.append(buffer, static_cast<size_t>(n));
  }
  close(ends[0]);
  result.code = Wait(pid);
  if (too_much) return IoError("hone " + arguments[0] + ": more than 256 MiB of output");
  return result;
}

Result<std::unique_ptr<ServerProcess>> ServerProcess::Start(const std::string& model,
                                                            const std::vector<std::string>& flags) {
  std::unique_ptr<ServerProcess> server(new ServerProcess());
  server->log_ = memfd_create("hone-serve", MFD_CLOEXEC);
  if (server->log_ < 0) return IoError(std::string("no file in memory: ") + std::strerror(errno));
  std::vector<std::string> arguments = {"serve", model, "--port", "0"};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  const int nothing = open("/dev/null", O_WRONLY | O_CLOEXEC);
  server->pid_ = Spawn(arguments, nothing, server->log_);
  close(nothing);
  if (server->pid_ < 0) return IoError(std::string("hone serve cannot be started: ") + std::strerror(errno));
  const std::string before = "http://127.0.0.1:";
  while (true) {
    const std::string said = server->Said();
    const size_t at = said.find(before), end = said.find_first_of(" \n", at == std::string::npos ? 0 : at);
    if (at != std::string::npos && end != std::string::npos) {
      server->url_ = said.substr(at, end - at);
      return server;
    }
    int status = 0;
    if (waitpid(server->pid_, &status, WNOHANG) == server->pid_) {
      server->pid_ = -1;
      return IoError("hone serve " + model + " ended before it listened: " + said);
    }
    if (Interrupted()) return Error{ErrorCode::kCancelled, "interrupted"};
    Sleep(0.02);
  }
}

std::string ServerProcess::Said() const {
  std::string text(1 << 16, '\0');
  const ssize_t n = pread(log_, text.data(), text.size(), 0);
  text.resize(n > 0 ? static_cast<size_t>(n) : 0);
  return text;
}

std::string ServerProcess::Ended() {
  int status = 0;
  for (int i = 0; pid_ > 0 && waitpid(pid_, &status, WNOHANG) != pid_; ++i) {
    if (i == kEndLooks) return "";
    Sleep(0.02);  // connections of a process that ends are gone a little before it is
  }
  if (pid_ < 0) return end_;
  pid_ = -1;
  if (WIFSIGNALED(status)) return end_ = "hone serve was ended by signal " + std::to_string(WTERMSIG(status));
  end_ = "hone serve ended with " + std::to_string(WEXITSTATUS(status));
  std::string said = Said();
  while (said.ends_with('\n')) said.pop_back();
  if (!said.empty()) end_ += ", after saying: " + said.substr(said.rfind('\n') + 1);
  return end_;
}

ServerProcess::~ServerProcess() {
  if (pid_ > 0) {
    kill(pid_, SIGTERM);
    int status = 0;
    for (int i = 0; i < kEndTries && waitpid(pid_, &status, WNOHANG) == 0; ++i) {
      if (i + 1 == kEndTries) {
        kill(pid_, SIGKILL);
        Wait(pid_);
        break;
      }
      Sleep(0.1);
    }
  }
  if (log_ >= 0) close(log_);
}

}  // namespace hone
