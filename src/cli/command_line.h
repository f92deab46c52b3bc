// argv to one call of one command.
#pragma once

namespace hone {

// Parses, runs, prints errors to stderr, returns the exit code. Flags come from the command line, then HONE_FLAG_NAME in the
// environment, then --config FILE (TOML: flag-name = value).
int RunCommandLine(int argc, char** argv);

}  // namespace hone
