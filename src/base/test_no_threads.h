// For tests of what happens where no thread can be started: a process of its own, which may not have any.
#pragma once

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <system_error>
#include <thread>

#include "base/function_ref.h"

namespace hone {

enum class WithoutThreads { kHeld, kFailed, kCannotTry };

// Whether fn(), in a child process, is true. A limit of processes does not bind root, so the child becomes nobody.
inline WithoutThreads TryWithoutThreads(FunctionRef<bool()> fn) {
  constexpr int kHeld = 0, kFailed = 1, kCannotTry = 2;
  const pid_t child = fork();
  if (child == 0) {
    const rlimit none{0, 0};
    if (setrlimit(RLIMIT_NPROC, &none) != 0 || (geteuid() == 0 && setuid(65534) != 0)) _exit(kCannotTry);
    try {
      std::thread([] {}).join();
      _exit(kCannotTry);
    } catch (const std::system_error&) {
    }
    _exit(fn() ? kHeld : kFailed);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return WithoutThreads::kCannotTry;
  if (!WIFEXITED(status)) return WithoutThreads::kFailed;
  return WEXITSTATUS(status) == kHeld ? WithoutThreads::kHeld
         : WEXITSTATUS(status) == kCannotTry ? WithoutThreads::kCannotTry : WithoutThreads::kFailed;
}

}  // namespace hone
