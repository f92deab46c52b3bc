// One CLI11 App for the one command that is asked for; the list of commands is commands.inc.
#include "cli/command_line.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "base/nearest_name.h"
#include "cli/command.h"
#include "cli/exit_codes.h"

namespace hone {
namespace {

struct CommandEntry {
  const char* word;
  const char* summary;
  std::unique_ptr<Command> (*make)();
};

constexpr CommandEntry kCommands[] = {
#define HONE_COMMAND(Name, word, summary) {word, summary, Make##Name##Command},
#include "cli/commands.inc"
#undef HONE_COMMAND
};

void PrintHelp(std::FILE* out) {
  std::fprintf(out,
               "hone %s: makes a language model fast and small on the hardware at hand, proves what each change gained\n"
               "and cost, and serves the result.\n\n"
               "Usage: hone COMMAND [MODEL] [FLAGS]     hone COMMAND --help     hone --version\n\nCommands:\n",
               HONE_VERSION);
  for (const CommandEntry& entry : kCommands) std::fprintf(out, "  %-10s %s\n", entry.word, entry.summary);
  std::fprintf(out,
               "\nMODEL is a GGUF file (first part of a split), a Hugging Face folder, builtin or builtin-draft.\n"
               "stdout is the result, stderr everything else. Every flag can be given as HONE_FLAG_NAME in the environment\n"
               "(--top-k as HONE_TOP_K) or in a file with --config.\n"
               "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 bad input, 10 gate failed, 11 gate without evidence,\n"
               "130 interrupted.\n\n"
               "Try: hone run builtin -p \"What is a KV cache?\"\n");
}

int FailUsage(const std::string& message) {
  std::fprintf(stderr, "hone: %s\n", message.c_str());
  return kExitUsage;
}

std::string Environment(const std::string& flag) {  // "--top-k" is HONE_TOP_K
  std::string name = "HONE_";
  for (const char c : flag) name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

std::vector<std::string> FlagNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

// What was wrong with the flags, with the near one for an unknown flag.
int FailParse(const CLI::App& app, const CLI::ParseError& error, const std::string& word) {
  std::string message = error.what();
  const std::vector<std::string> extras = app.remaining();
  for (const std::string& extra : extras) {
    if (extra.size() < 2 || extra[0] != '-') continue;
    const std::string flag = extra.substr(0, extra.find('='));
    const std::string near = NearestName(flag, FlagNames(app));
    message = "unknown flag " + flag + (near.empty() ? "" : "; did you mean " + near + "?");
    break;
  }
  return FailUsage(word + ": " + message + "\nSee hone " + word + " --help");
}

// A key of the --config file that is no flag of the command.
int FailConfig(const CLI::App& app, const CLI::ConfigError& error, const std::string& word) {
  const std::string message = error.what();
  const std::string key = message.substr(message.rfind(' ') + 1);  // the library says it last
  if (key.ends_with(".++") || key.ends_with(".--")) {  // how the library writes the begin and end of [table]
    return FailUsage(word + ": --config: the table [" + key.substr(0, key.size() - 3) +
                     "]; wanted flag-name = value without tables\nSee hone " + word + " --help");
  }
  std::string near = NearestName("--" + key, FlagNames(app));
  if (!near.empty()) near = "; did you mean " + near.substr(2) + "?";
  return FailUsage(word + ": --config: no flag is named '" + key + "'" + near + "\nSee hone " + word + " --help");
}

// Output that did not reach its place is a failure, except that a reader of a pipe may leave when it has seen enough.
bool OutputLost() {
  const bool failed = std::fflush(stdout) != 0 || std::ferror(stdout) != 0;
  struct stat info = {};
  return failed && (fstat(STDOUT_FILENO, &info) != 0 || !(S_ISFIFO(info.st_mode) || S_ISSOCK(info.st_mode)));
}

int DoneUnlessLost(const std::string& program) {
  if (!OutputLost()) return kExitDone;
  std::fprintf(stderr, "%s: cannot write the result to stdout\n", program.c_str());
  return kExitFailed;
}

int RunEntry(const CommandEntry& entry, int argc, char** argv) {
  CLI::App app(entry.summary, std::string("hone ") + entry.word);
  std::unique_ptr<Command> command = entry.make();
  CommonFlags flags;
  Flags all(app);
  command->AddFlags(all);
  AddCommonFlags(all, &flags);
  app.set_config("--config", "", "read flags from this TOML file (flag-name = value)")->group("Common");
  app.allow_config_extras(CLI::config_extras_mode::error);
  app.get_formatter()->column_width(34);
  for (CLI::Option* option : app.get_options()) {
    const auto& names = option->get_lnames();
    if (!names.empty() && names[0] != "help" && names[0] != "config") option->envname(Environment(names[0]));
  }
  try {
    app.parse(argc - 1, argv + 1);
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    return DoneUnlessLost(std::string("hone ") + entry.word);
  } catch (const CLI::FileError& error) {
    return FailUsage(std::string(entry.word) + ": --config: " + error.what());
  } catch (const CLI::ConfigError& error) {
    return FailConfig(app, error, entry.word);
  } catch (const CLI::ParseError& error) {
    return FailParse(app, error, entry.word);
  }
  if (flags.deterministic && !flags.seed) flags.seed = 0;
  const Result<int> result = command->Run(flags);
  if (result && *result == kExitDone) return DoneUnlessLost(std::string("hone ") + entry.word);
  if (result) return *result;
  std::fprintf(stderr, "hone %s: %s\n", entry.word, result.error().message.c_str());
  return ExitCodeFor(result.error().code);
}

}  // namespace

int RunCommandLine(int argc, char** argv) {
  const std::string word = argc > 1 ? argv[1] : "";
  if (word == "help" && argc > 2) {  // of one command
    char help[] = "--help";
    char* asked[] = {argv[0], argv[2], help, nullptr};
    return RunCommandLine(3, asked);
  }
  if (word.empty() || word == "--help" || word == "-h" || word == "help") {
    PrintHelp(word.empty() ? stderr : stdout);
    return word.empty() ? kExitUsage : DoneUnlessLost("hone");
  }
  if (word == "--version") {
    std::printf("hone %s\n", HONE_VERSION);
    return DoneUnlessLost("hone");
  }
  std::vector<std::string> words;
  for (const CommandEntry& entry : kCommands) {
    if (word == entry.word) return RunEntry(entry, argc, argv);
    words.push_back(entry.word);
  }
  const std::string near = NearestName(word, words);
  return FailUsage("unknown command '" + word + "'" + (near.empty() ? "" : "; did you mean " + near + "?") +
                   "\nSee hone --help");
}

}  // namespace hone
