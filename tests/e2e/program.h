// The program as a shell runs it, with what it left on stdout and stderr.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

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

// A shell with `line`, side by side with the test; "exec ..." makes the process the program itself. The caller waits for it.
inline pid_t Spawn(const std::string& line) {
  const pid_t child = fork();
  if (child == 0) {
    execl("/bin/sh", "sh", "-c", line.c_str(), nullptr);
    _exit(127);
  }
  return child;
}

inline bool Contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// Tests of a command that works in a folder of its own: Hone returns the exit code, Out and Err give what it printed.
class InFolder : public testing::Test {
 protected:
  explicit InFolder(const std::string& name) : folder_(TestPath(name + "/")) { std::filesystem::create_directories(folder_); }
  ~InFolder() override { std::filesystem::remove_all(folder_); }

  int Hone(const std::string& args) { return (last_ = e2e::Hone(args)).code; }
  const std::string& Out() const { return last_.out; }
  const std::string& Err() const { return last_.err; }
  static std::string Bytes(const std::string& path) { return ReadAll(path); }
  static std::string Quoted(const std::string& text) { return " '" + text + "' "; }

  std::string folder_;  // ends with a slash; removed with what is in it

 private:
  Outcome last_;
};

}  // namespace hone::e2e
