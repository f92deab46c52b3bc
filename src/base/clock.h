// Clock: monotonic time as a value that can be faked in tests. Seconds since an arbitrary start.
#pragma once

#include <chrono>

namespace hone {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual double Now() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
};

}  // namespace hone
