// See router.h. The table is endpoints.inc; matching walks it, since it is short.
#include "serve/router.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "serve/error.h"

namespace hone {
namespace {

constexpr Endpoint kEndpoints[] = {
#define HONE_ENDPOINT(method, path, name, runs_on) {method, path, &name, runs_on},
#include "serve/endpoints.inc"
#undef HONE_ENDPOINT
};

bool Matches(const Endpoint& endpoint, std::string_view path) {
  if (endpoint.path.back() != '*') return endpoint.path == path;
  const std::string_view prefix = endpoint.path.substr(0, endpoint.path.size() - 1);
  return path.size() > prefix.size() && path.substr(0, prefix.size()) == prefix;
}

// "GET, HEAD, OPTIONS" for the path; "" if no endpoint has it.
std::string MethodsOf(std::string_view path) {
  std::string methods;
  for (const Endpoint& endpoint : kEndpoints) {
    if (!Matches(endpoint, path)) continue;
    methods.append(endpoint.method).append(endpoint.method == "GET" ? ", HEAD, " : ", ");
  }
  if (!methods.empty()) methods.append("OPTIONS");
  return methods;
}

bool IsAdmin(std::string_view path) {
  return path.starts_with("/admin/") || path == "/v1/load_lora_adapter" || path == "/v1/unload_lora_adapter";
}

// What a server that stops still answers.
bool AnswersWhileStopping(std::string_view path) { return path == "/health" || path == "/ready" || path == "/metrics"; }

// Between an endpoint and the connection: adds headers to the answer, and at its end counts and logs it.
class RoutedWriter final : public ResponseWriter {
 public:
  RoutedWriter(ServeContext& context, std::shared_ptr<ResponseWriter> writer, std::shared_ptr<RequestRecord> record,
               HttpHeaders headers)
      : context_(context), writer_(std::move(writer)), record_(std::move(record)), headers_(std::move(headers)) {}

  void Send(HttpResponse response) override {
    Done(response.status);
    writer_->Send(With(std::move(response)));
  }
  void StartStream(HttpResponse response, std::string idle_text, std::string stop_text) override {
    status_ = response.status;
    writer_->StartStream(With(std::move(response)), std::move(idle_text), std::move(stop_text));
  }
  void Write(std::string piece) override { writer_->Write(std::move(piece)); }
  void End() override {
    Done(status_);
    writer_->End();
  }
  void Abort() override {
    Done(context_.stopping ? 503 : 499);
    writer_->Abort();
  }
  void OnGone(std::function<void()> fn) override { writer_->OnGone(std::move(fn)); }
  bool gone() const override { return writer_->gone(); }
  void Post(std::function<void()> fn) override { writer_->Post(std::move(fn)); }

 private:
  HttpResponse With(HttpResponse response) {
    response.headers.insert(response.headers.end(), headers_.begin(), headers_.end());
    return response;
  }
  void Done(int status) {
    if (done_.exchange(true)) return;
    record_->status = status;
    FinishRecord(context_, *record_);
  }

  ServeContext& context_;
  const std::shared_ptr<ResponseWriter> writer_;
  const std::shared_ptr<RequestRecord> record_;
  const HttpHeaders headers_;
  std::atomic<int> status_{200};
  std::atomic<bool> done_{false};
};

// "Authorization: Bearer KEY", or "X-Api-Key: KEY".
std::string_view KeyOf(const HttpRequest& request) {
  const std::string_view authorization = request.header("authorization");
  constexpr std::string_view kBearer = "bearer ";
  const auto same = [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a + 32 : a) == b; };
  if (authorization.size() > kBearer.size() &&
      std::equal(kBearer.begin(), kBearer.end(), authorization.begin(), [&](char b, char a) { return same(a, b); })) {
    std::string_view key = authorization.substr(kBearer.size());
    while (!key.empty() && key.front() == ' ') key.remove_prefix(1);
    return key;
  }
  return request.header("x-api-key");
}

// "name" of "name:80" and "[::1]:80", in lower case.
std::string HostName(std::string_view host) {
  if (host.starts_with('[')) host = host.substr(0, host.find(']') + 1);
  else host = host.substr(0, host.find(':'));
  while (host.ends_with('.')) host.remove_suffix(1);
  std::string name(host);
  std::transform(name.begin(), name.end(), name.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return name;
}

bool IsAddress(std::string_view name) {
  return name.starts_with('[') || name.find_first_not_of("0123456789.") == std::string_view::npos;
}

// A server of this machine only, without keys, answers to no other name: else a web page could have its own name resolve to 127.0.0.1
// and read what it likes as its own origin (DNS rebinding). Pages cannot choose addresses or localhost.
std::optional<ApiError> CheckHost(const ServeContext& context, const HttpRequest& request) {
  const ServeOptions& options = context.options;
  if (context.tenants || !(options.host == "localhost" || options.host == "::1" || options.host.starts_with("127."))) return std::nullopt;
  const std::string_view sent = request.header("host");
  const std::string name = HostName(sent);
  if (sent.empty() || name == "localhost" || name.ends_with(".localhost") || IsAddress(name)) return std::nullopt;
  for (const std::string& host : options.hosts) {
    if (host == "*" || HostName(host) == name) return std::nullopt;
  }
  return ApiError{403, "this server has no keys and answers only to localhost and addresses; found Host: " + std::string(sent) +
                  ". If it is to have that name, start it with --allow-host", "", "host_not_allowed"};
}

// Who asks, and whether the route is open to them. With keys every route but /health (and those that the operator
// opened) is closed; admin routes need the admin key, which opens all others too.
std::optional<ApiError> Authorise(ServeContext& context, HttpRequest* request) {
  const std::string_view key = KeyOf(*request);
  const bool admin_path = IsAdmin(request->path);
  if (context.admin_key && !key.empty()) request->caller.admin = SameDigest(*context.admin_key, Sha256(key));
  if (admin_path) {
    if (!context.admin_key)
      return ApiError{403, "admin routes are closed: the server was started without --admin-key", "", "admin_closed"};
    if (request->caller.admin) return std::nullopt;
    if (key.empty())
      return ApiError{401, "this route wants the admin key as \"Authorization: Bearer KEY\"", "", "missing_api_key"};
    const bool known = context.tenants && context.tenants->Find(key) != nullptr;
    return ApiError{known ? 403 : 401, known ? "this key does not open admin routes" : "the API key is not known", "",
                    known ? "not_admin" : "invalid_api_key"};
  }
  if (!context.tenants) return std::nullopt;
  Tenant* tenant = key.empty() ? nullptr : context.tenants->Find(key);
  if (tenant != nullptr) {
    request->caller.tenant = tenant->name;
    request->caller.cache_salt = tenant->salt;
    request->caller.priority = tenant->priority;
  } else if (request->caller.admin) {
    request->caller.tenant = "admin";
  } else {
    const auto& open = context.options.open_routes;
    if (request->path == "/health" || std::find(open.begin(), open.end(), request->path) != open.end())
      return std::nullopt;
    if (key.empty()) {
      return ApiError{401, "this server wants an API key as \"Authorization: Bearer KEY\"", "", "missing_api_key"};
    }
    return ApiError{401, "the API key is not known", "", "invalid_api_key"};
  }
  if (tenant == nullptr || request->method != "POST") return std::nullopt;
  if (const double wait = tenant->Wait(context.Now()); wait > 0) {
    const int seconds = static_cast<int>(std::clamp(std::ceil(wait), 1.0, 3600.0));
    return ApiError{
        429, "the rate limit of this key is reached; the next request may come in " + std::to_string(seconds) + " s",
        "", "rate_limited", seconds};
  }
  return std::nullopt;
}

std::string_view MethodLabel(std::string_view method) {
  constexpr std::string_view kKnown[] = {"GET", "HEAD", "POST", "OPTIONS", "PUT", "DELETE", "PATCH"};
  return std::find(std::begin(kKnown), std::end(kKnown), method) == std::end(kKnown) ? "other" : method;
}

// The headers that let a page of `origin` read the answer; none if it may not.
HttpHeaders CorsHeaders(const std::string& allowed, std::string_view origin) {
  if (allowed.empty() || origin.empty() || (allowed != "*" && allowed != origin)) return {};
  HttpHeaders headers{{"Access-Control-Allow-Origin", allowed}, {"Access-Control-Expose-Headers", "X-Request-Id, Retry-After, X-Should-Retry"}};
  if (allowed != "*") headers.emplace_back("Vary", "Origin");
  return headers;
}

// "application/json" or "application/json; charset=utf-8", in any case. Nothing said is taken for JSON; what a
// browser's form may send without asking (text/plain, form data) is not, nor what says nothing and comes from a page.
bool SaysJson(const HttpRequest& request) {
  std::string_view content_type = request.header("content-type");
  content_type = content_type.substr(0, content_type.find(';'));
  while (!content_type.empty() && content_type.back() == ' ') content_type.remove_suffix(1);
  if (content_type.empty()) return request.header("origin").empty();
  std::string lower(content_type);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return lower == "application/json";
}

void AnswerOptions(const std::string& methods, const HttpRequest& request, bool cors, ResponseWriter& writer) {
  HttpResponse response;
  response.status = 204;
  response.headers.emplace_back("Allow", methods);
  if (cors && !request.header("access-control-request-method").empty()) {
    response.headers.emplace_back("Access-Control-Allow-Methods", methods);
    // Clients' libraries send headers of their own (the official one tells its version so); a header that is not read does no harm.
    const std::string_view asked = request.header("access-control-request-headers");
    response.headers.emplace_back("Access-Control-Allow-Headers",
                                  asked.empty() ? "Authorization, Content-Type, X-Api-Key, X-Request-Id" : std::string(asked));
    response.headers.emplace_back("Access-Control-Max-Age", "600");
  }
  writer.Send(std::move(response));
}

}  // namespace

std::span<const Endpoint> Endpoints() { return kEndpoints; }

void FinishRecord(ServeContext& context, const RequestRecord& record) {
  const double now = context.Now();
  context.http.Count(MethodLabel(record.method), record.route, record.status, now - record.arrived_s);
  if (context.access_log == nullptr) return;
  const int64_t unix_ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch())
          .count();
  context.access_log->Write(AccessLine(record, now, unix_ms));
}

void Route(ServeContext& context, WorkerPool& workers, HttpRequest request,
           std::shared_ptr<ResponseWriter> connection) {
  auto record = std::make_shared<RequestRecord>();
  record->id = request.id;
  record->method = request.method;
  record->path = request.path;
  record->peer = request.peer;
  record->route = "none";
  record->arrived_s = context.Now();
  request.record = record;
  const HttpHeaders cors = CorsHeaders(context.options.cors, request.header("origin"));
  auto writer = std::make_shared<RoutedWriter>(context, std::move(connection), record, cors);
  const auto refuse = [&](const ApiError& error) {
    record->error_code = error.code;
    HttpResponse response = ErrorResponse(error);
    if (error.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
    writer->Send(std::move(response));
  };

  const std::string methods = request.path == "*" ? "GET, HEAD, POST, OPTIONS" : MethodsOf(request.path);
  const bool preflight =
      request.method == "OPTIONS" && !cors.empty() && !request.header("access-control-request-method").empty();
  const std::string_view method = request.method == "HEAD" ? "GET" : std::string_view(request.method);
  const auto* endpoint = std::find_if(std::begin(kEndpoints), std::end(kEndpoints), [&](const Endpoint& e) {
    return e.method == method && Matches(e, request.path);
  });
  if (endpoint != std::end(kEndpoints)) record->route = endpoint->path;
  if (auto error = CheckHost(context, request)) return refuse(*error);
  if (!preflight) {
    if (auto error = Authorise(context, &request)) return refuse(*error);
  }
  record->tenant = request.caller.tenant;
  if (context.stopping && !AnswersWhileStopping(request.path))
    return refuse({503, "the server is stopping", "", "unavailable"});
  if (methods.empty()) {
    std::string known;
    for (const Endpoint& e : kEndpoints) {
      if (!IsAdmin(e.path)) known.append(known.empty() ? "" : ", ").append(e.path);
    }
    return refuse({404, "no such path: " + request.path + " (paths: " + known + ")", "", "not_found"});
  }
  if (request.method == "OPTIONS") return AnswerOptions(methods, request, !cors.empty(), *writer);
  if (endpoint == std::end(kEndpoints)) {
    const ApiError error{405, "method " + request.method + " is not for " + request.path + "; use " + methods, "",
                         "method_not_allowed"};
    record->error_code = error.code;
    HttpResponse response = ErrorResponse(error);
    response.headers.emplace_back("Allow", methods);
    return writer->Send(std::move(response));
  }
  if (method == "POST" && !SaysJson(request)) {
    const std::string_view sent = request.header("content-type");
    return refuse({415, "Content-Type is " + std::string(sent.empty() ? "missing" : sent) + "; send application/json",
                   "", "unsupported_media_type"});
  }
  if (endpoint->runs_on == RunsOn::kIo) return endpoint->fn(context, std::move(request), std::move(writer));

  auto shared_request = std::make_shared<HttpRequest>(std::move(request));  // std::function wants copyable tasks
  const bool taken = workers.Submit([&context, endpoint, shared_request, writer] {
    if (writer->gone()) return writer->Abort();
    endpoint->fn(context, std::move(*shared_request), writer);
  });
  if (!taken) refuse({503, "too many requests wait to be read", "", "overloaded"});
}

}  // namespace hone
