// ApiError: an OpenAI error object with its HTTP status. Result<T>'s errors become one through FromError.
//
// Rule for statuses: what will fail again is 4xx; load is 429 or 503 with Retry-After; 500 is our bug (clients retry 5xx).
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "serve/http.h"

namespace hone {

struct ApiError {
  int status = 400;
  std::string message;
  std::string param;  // "": null
  std::string code;   // "": null
  int retry_after_s = 1;   // of 429 and 503
  bool may_retry = true;   // false: clients are told not to try again, whatever the status
};

// {"error": {"message", "type", "param", "code"}}; the type follows from the status.
std::string ErrorJson(const ApiError& error);
HttpResponse ErrorResponse(const ApiError& error);
std::string_view StatusText(int status);

// kLimit: 429; kNotFound: 404; kCancelled: 503; kIo, kInternal: 500; others 400.
ApiError FromError(const Error& error);

}  // namespace hone
