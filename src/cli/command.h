// A command of the program: its flags and what it does. One file a command, one line in commands.inc.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "cli/common_flags.h"
#include "cli/flags.h"

namespace hone {

class Command {
 public:
  virtual ~Command() = default;
  // Adds flags and positionals, bound to members of the command.
  virtual void AddFlags(Flags& flags) = 0;
  // Does the work. The result goes to stdout, everything else to stderr. Returns the exit code (cli/exit_codes.h); an error is
  // printed by the caller and mapped to its code.
  virtual Result<int> Run(const CommonFlags& flags) = 0;
};

#define HONE_COMMAND(Name, word, summary) std::unique_ptr<Command> Make##Name##Command();
#include "cli/commands.inc"
#undef HONE_COMMAND

}  // namespace hone
