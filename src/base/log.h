// Log: messages to stderr for people. stdout is for results only. Thread-safe.
#pragma once

#include <fmt/core.h>

#include <memory>
#include <string_view>
#include <utility>

namespace hone {

enum class LogLevel { kDebug, kInfo, kWarn, kError, kOff };

class Log {
 public:
  explicit Log(LogLevel level);
  ~Log();
  Log(const Log&) = delete;

  void Write(LogLevel level, std::string_view message);
  bool Enabled(LogLevel level) const { return level >= level_; }

  template <typename... Args>
  void Debug(fmt::format_string<Args...> format, Args&&... args) {
    if (Enabled(LogLevel::kDebug)) Write(LogLevel::kDebug, fmt::format(format, std::forward<Args>(args)...));
  }
  template <typename... Args>
  void Info(fmt::format_string<Args...> format, Args&&... args) {
    if (Enabled(LogLevel::kInfo)) Write(LogLevel::kInfo, fmt::format(format, std::forward<Args>(args)...));
  }
  template <typename... Args>
  void Warn(fmt::format_string<Args...> format, Args&&... args) {
    if (Enabled(LogLevel::kWarn)) Write(LogLevel::kWarn, fmt::format(format, std::forward<Args>(args)...));
  }
  template <typename... Args>
  void Error(fmt::format_string<Args...> format, Args&&... args) {
    if (Enabled(LogLevel::kError)) Write(LogLevel::kError, fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  struct Sink;
  LogLevel level_;
  std::unique_ptr<Sink> sink_;
};

}  // namespace hone
