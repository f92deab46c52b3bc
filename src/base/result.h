// Result<T>: a value, or an Error that says what was read, what was wanted and what to try.
//
// For the world's faults (a bad file, wrong JSON, an unknown flag) and for load (queue full, cancelled). Our own bugs are
// HONE_CHECK (base/check.h). Nothing in hone throws; exceptions of third-party code are caught where it is called.
// The member names are those of std::expected, which g++ 12 does not have.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/check.h"

namespace hone {

enum class ErrorCode {
  kInvalidInput,  // a file or request is not what it should be
  kUnsupported,   // understood, but hone cannot do it
  kNotFound,      // a file, model or name that does not exist
  kUsage,         // wrong flags or arguments
  kLimit,         // a stated limit is reached: queue full, too many tokens, no blocks
  kCancelled,     // the caller or a signal stopped it
  kIo,            // the operating system refused: read, write, map, bind
  kInternal,      // a third-party library failed where it should not
};

struct [[nodiscard]] Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;

  // The same error with "context: " before its message; each layer adds what it knows (file, tensor, field).
  Error Context(std::string_view context) && {
    message.insert(0, std::string(context) + ": ");
    return std::move(*this);
  }
};

template <typename T>
class [[nodiscard]] Result {
 public:
  using value_type = T;
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool has_value() const { return state_.index() == 0; }
  explicit operator bool() const { return has_value(); }

  // REQUIRES: has_value().
  T& value() & { return *Get(); }
  const T& value() const& { return *const_cast<Result*>(this)->Get(); }
  T&& value() && { return std::move(*Get()); }
  T& operator*() & { return *Get(); }
  const T& operator*() const& { return *const_cast<Result*>(this)->Get(); }
  T&& operator*() && { return std::move(*Get()); }
  T* operator->() { return Get(); }
  const T* operator->() const { return const_cast<Result*>(this)->Get(); }

  // REQUIRES: !has_value().
  Error& error() & { return *GetError(); }
  const Error& error() const& { return *const_cast<Result*>(this)->GetError(); }
  Error&& error() && { return std::move(*GetError()); }

  // The same result; an error gets "context: " before its message.
  Result Context(std::string_view context) && {
    if (!has_value()) return std::move(*GetError()).Context(context);
    return std::move(*this);
  }

 private:
  T* Get() {
    HONE_CHECK(has_value(), std::get<1>(state_).message);
    return &std::get<0>(state_);
  }
  Error* GetError() {
    HONE_CHECK(!has_value(), "error() of a result that holds a value");
    return &std::get<1>(state_);
  }
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  using value_type = void;
  Result() = default;
  Result(Error error) : error_(std::move(error)), failed_(true) {}

  bool has_value() const { return !failed_; }
  explicit operator bool() const { return has_value(); }
  void value() const { HONE_CHECK(has_value(), error_.message); }
  const Error& error() const& {
    HONE_CHECK(failed_, "error() of a result that holds a value");
    return error_;
  }
  Error&& error() && {
    HONE_CHECK(failed_, "error() of a result that holds a value");
    return std::move(error_);
  }
  Result Context(std::string_view context) && {
    if (failed_) return std::move(error_).Context(context);
    return std::move(*this);
  }

 private:
  Error error_;
  bool failed_ = false;
};

// HONE_TRY(auto x, Call()): x is the value of Call(), or the enclosing function returns its error.
#define HONE_TRY_CAT2(a, b) a##b
#define HONE_TRY_CAT(a, b) HONE_TRY_CAT2(a, b)
#define HONE_TRY(declaration, ...) HONE_TRY_IMPL(HONE_TRY_CAT(hone_try_, __COUNTER__), declaration, __VA_ARGS__)
#define HONE_TRY_IMPL(result, declaration, ...)          \
  auto result = (__VA_ARGS__);                           \
  if (!result.has_value()) return std::move(result).error(); \
  declaration = std::move(result).value()

// HONE_RETURN_IF_ERROR(Call()): returns the error of a Result<void> (or any result whose value is not wanted).
#define HONE_RETURN_IF_ERROR(...)                                                   \
  do {                                                                              \
    auto hone_result = (__VA_ARGS__);                                               \
    if (!hone_result.has_value()) return std::move(hone_result).error();            \
  } while (0)

inline Error InvalidInput(std::string message) { return {ErrorCode::kInvalidInput, std::move(message)}; }
inline Error Unsupported(std::string message) { return {ErrorCode::kUnsupported, std::move(message)}; }
inline Error NotFound(std::string message) { return {ErrorCode::kNotFound, std::move(message)}; }
inline Error UsageError(std::string message) { return {ErrorCode::kUsage, std::move(message)}; }
inline Error IoError(std::string message) { return {ErrorCode::kIo, std::move(message)}; }

}  // namespace hone
