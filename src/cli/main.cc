// hone: argv to one call. The commands are listed in cli/commands.inc, each in a file of its own beside this one.
#include <csignal>

#include "cli/command_line.h"

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // a closed pipe or socket is a write error, not the end of the program
  return hone::RunCommandLine(argc, argv);
}
