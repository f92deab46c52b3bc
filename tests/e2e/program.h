// The program as a shell runs it, with what it left on stdout and stderr.
#pragma once

#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "base/test_shared.h"

namespace hone::e2e {

struct Outcome {
  int code = -1;
  std::string out, err;
};

inline std::string ReadAll(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

inline std::string TempPath(const std::string& name) { return TestPath("e2e_" + name); }

inline std::string WriteTemp(const std::string& name, const std::string& text) {
  const std::string path = TempPath(name);
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

// Runs `hone ARGS` in a shell; `before` goes in front (environment, a pipe). Nothing is entered into the user's ledger unless
// `before` names one with HONE_LEDGER.
inline Outcome Hone(const std::string& args, const std::string& before = "") {
  const std::string out = TempPath("out"), err = TempPath("err");
  const std::string line = "export HONE_LEDGER=off; " + before + " '" HONE_PROGRAM "' " + args + " >'" + out + "' 2>'" + err + "' </dev/null";
  const int status = std::system(line.c_str());
  Outcome outcome{WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), ReadAll(out), ReadAll(err)};
  std::filesystem::remove(out);
  std::filesystem::remove(err);
  return outcome;
}

inline bool Contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace hone::e2e
