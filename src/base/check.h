// HONE_CHECK: our own bugs abort with file, line and a message. Always on. Never reachable from a file or a request.
#pragma once

#include <string_view>

namespace hone {

// Prints "file:line: check failed: condition: message" to stderr and aborts.
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition, std::string_view message = {});

}  // namespace hone

// HONE_CHECK(condition) or HONE_CHECK(condition, message); the message is evaluated only on failure.
#define HONE_CHECK(condition, ...)                                                            \
  do {                                                                                        \
    if (!(condition)) [[unlikely]]                                                            \
      ::hone::CheckFailed(__FILE__, __LINE__, #condition __VA_OPT__(, ) __VA_ARGS__);         \
  } while (0)
