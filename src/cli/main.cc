// hone: argv to one call. The commands are listed in cli/commands.inc, each in a file of its own beside this one.
#include <fcntl.h>
#include <unistd.h>

#include <csignal>

#include "cli/command_line.h"
#include "cli/exit_codes.h"

namespace {

// Models are mapped. Where such a file has been cut since, or its disk fails, reading it is this signal.
void OnBusError(int) {
  constexpr char kText[] =
      "hone: a file ended before its end while it was read: it was cut since it was opened, or its disk fails; "
      "start again with the whole file\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kText, sizeof(kText) - 1);
  _exit(hone::kExitBadInput);
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGBUS, OnBusError);
  std::signal(SIGPIPE, SIG_IGN);  // a closed pipe or socket is a write error, not the end of the program
  std::signal(SIGXFSZ, SIG_IGN);  // so is a file that would become longer than the user's limit
  // A program started with a closed stdin, stdout or stderr would give that number to the next file that it opens.
  for (int fd = 0; fd <= 2; ++fd) {
    if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == 2 ? O_WRONLY : O_RDONLY) < 0) return 1;
  }
  return hone::RunCommandLine(argc, argv);
}
