// SensitivityLog: what MeasureSensitivity has found so far, in a file that only grows, a line a group of tensors, so that a killed
// job goes on and another budget measures nothing anew. Each line has a checksum: one that is damaged or cut counts as not
// written, and its group is measured again. Several processes may append to one file.
//
// Layout: docs/formats/sensitivities.md.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace hone {

// What decides the figures, as digests. Any of them may differ between two files; the error names the first that does.
struct SensitivityKey {
  std::string model;       // its weights, all of them
  std::string text;        // tokens
  std::string importance;  // "none" without
  std::string protocol;    // which tensors go together, their types, how many tokens are run
};

class SensitivityLog {
 public:
  // Before any work: whether it is not there yet, or begins as such a file does.
  static Result<void> Check(const std::string& path);
  // Makes the file where it is not there. Errors: a file of something else, or of another key.
  static Result<std::unique_ptr<SensitivityLog>> Open(const std::string& path, const SensitivityKey& key);
  // Only looks: nothing is made or changed, Add is not to be called.
  static Result<std::unique_ptr<SensitivityLog>> Read(const std::string& path, const SensitivityKey& key);
  ~SensitivityLog();
  SensitivityLog(const SensitivityLog&) = delete;

  size_t groups() const { return found_.size(); }
  // The mean divergence of tensors that were quantised together, or nullopt.
  std::optional<double> Find(const std::vector<std::string>& tensors) const;
  // REQUIRES: names without spaces and commas, a finite divergence that is not negative.
  Result<void> Add(const std::vector<std::string>& tensors, double divergence);

 private:
  SensitivityLog(std::string path, std::string head) : path_(std::move(path)), head_(std::move(head)) {}
  Result<void> Load(const SensitivityKey& key);
  std::string Checked(const std::string& line) const;

  const std::string path_, head_;
  int fd_ = -1;
  bool begun_ = false, torn_ = false;  // the first line is whole; the file ends within a later one
  std::map<std::string, double> found_;
};

}  // namespace hone
