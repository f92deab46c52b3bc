// The one place where statuses get their OpenAI type, their reason phrase and Retry-After. The rule: error.h.
#include "serve/error.h"

#include "serve/json_writer.h"

namespace hone {
namespace {

std::string_view TypeOf(int status) {
  switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 429: return "rate_limit_error";
    default: return status >= 500 ? "server_error" : "invalid_request_error";
  }
}

}  // namespace

std::string ErrorJson(const ApiError& error) {
  JsonWriter json;
  json.BeginObject().Key("error").BeginObject();
  json.Field("message", error.message).Field("type", TypeOf(error.status));
  if (error.param.empty()) json.NullField("param");
  else json.Field("param", error.param);
  if (error.code.empty()) json.NullField("code");
  else json.Field("code", error.code);
  json.EndObject().EndObject();
  return std::move(json).text();
}

HttpResponse ErrorResponse(const ApiError& error) {
  HttpResponse response;
  response.status = error.status;
  response.body = ErrorJson(error);
  if (error.status == 429 || error.status == 503) {
    response.headers.emplace_back("Retry-After", std::to_string(error.retry_after_s));
  }
  if (!error.may_retry) response.headers.emplace_back("x-should-retry", "false");  // OpenAI's SDKs obey
  return response;
}

std::string_view StatusText(int status) {
  switch (status) {
    case 200: return "OK";
    case 202: return "Accepted";
    case 204: return "No Content";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 409: return "Conflict";
    case 408: return "Request Timeout";
    case 413: return "Content Too Large";
    case 415: return "Unsupported Media Type";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 503: return "Service Unavailable";
    case 505: return "HTTP Version Not Supported";
    default: return "Status";
  }
}

ApiError FromError(const Error& error) {
  ApiError api;
  api.message = error.message;
  switch (error.code) {
    case ErrorCode::kLimit: api.status = 429; api.code = "queue_full"; break;
    case ErrorCode::kNotFound: api.status = 404; api.code = "not_found"; break;
    case ErrorCode::kCancelled: api.status = 503; api.code = "unavailable"; break;
    case ErrorCode::kIo:
    case ErrorCode::kInternal: api.status = 500; api.code = "internal_error"; break;
    case ErrorCode::kUnsupported: api.code = "unsupported"; break;
    case ErrorCode::kInvalidInput:
    case ErrorCode::kUsage: api.code = "invalid_value"; break;
  }
  return api;
}

}  // namespace hone
