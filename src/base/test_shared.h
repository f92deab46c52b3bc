// For tests: paths. The folder of expected results (../shared beside the checkout, or $HONE_SHARED). Absent in a user's clone: the
// tests that need it then skip, and ctest counts them.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace hone {

// The path of `relative` in the shared folder, or "" if it is not there.
inline std::string SharedPath(const std::string& relative) {
  const char* root = std::getenv("HONE_SHARED");
  const std::filesystem::path base = root != nullptr ? std::filesystem::path(root)
                                                     : std::filesystem::path(HONE_SOURCE_DIR) / ".." / "shared";
  const std::filesystem::path path = base / relative;
  return std::filesystem::exists(path) ? path.string() : std::string();
}

// A path for a test's own files: in the temporary folder, not shared with any other process (ctest runs tests side by side).
inline std::string TestPath(const std::string& name) {
  return testing::TempDir() + "hone_" + std::to_string(::getpid()) + "_" + name;
}

}  // namespace hone

// HONE_NEED_SHARED(path, "goldens/models"): declares `path`, or skips the test.
#define HONE_NEED_SHARED(variable, relative)                                                               \
  const std::string variable = ::hone::SharedPath(relative);                                               \
  if (variable.empty()) GTEST_SKIP() << "needs " << relative << " of the shared folder (set HONE_SHARED)"
