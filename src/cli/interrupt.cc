// A signal handler may only set a flag and write to a pipe; the pipe wakes WaitForInterrupt.
#include "cli/interrupt.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>

#include "base/check.h"
#include "cli/exit_codes.h"

namespace hone {
namespace {

// The one exception to "no mutable globals": a signal handler has no other way to reach the program.
std::atomic<bool> g_interrupted{false};
int g_wake[2] = {-1, -1};

void OnSignal(int) {
  if (g_interrupted.exchange(true)) _exit(kExitInterrupted);
  const char byte = 0;
  [[maybe_unused]] const ssize_t written = write(g_wake[1], &byte, 1);
}

}  // namespace

void CatchInterrupts() {
  if (g_wake[0] < 0) HONE_CHECK(pipe(g_wake) == 0);
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool Interrupted() { return g_interrupted.load(); }
bool TakeInterrupt() { return g_interrupted.exchange(false); }

void WaitForInterrupt() {
  while (!Interrupted()) {
    struct pollfd wake = {g_wake[0], POLLIN, 0};
    poll(&wake, 1, -1);
  }
}

}  // namespace hone
