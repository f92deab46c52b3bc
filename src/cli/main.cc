// hone: argv to one call. The commands are listed in cli/commands.inc, each in a file of its own beside this one.
#include <fcntl.h>

#include <csignal>

#include "cli/command_line.h"

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // a closed pipe or socket is a write error, not the end of the program
  // A program started with a closed stdin, stdout or stderr would give that number to the next file that it opens.
  for (int fd = 0; fd <= 2; ++fd) {
    if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == 2 ? O_WRONLY : O_RDONLY) < 0) return 1;
  }
  return hone::RunCommandLine(argc, argv);
}
