// See router.h. The table is endpoints.inc; matching walks it, since it is short.
#include "serve/router.h"

#include <algorithm>
#include <exception>
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

// Adds headers to whatever the endpoint answers.
class HeaderWriter final : public ResponseWriter {
 public:
  HeaderWriter(std::shared_ptr<ResponseWriter> writer, HttpHeaders headers)
      : writer_(std::move(writer)), headers_(std::move(headers)) {}
  void Send(HttpResponse response) override { writer_->Send(With(std::move(response))); }
  void StartStream(HttpResponse response, std::string idle_text, std::string stop_text) override {
    writer_->StartStream(With(std::move(response)), std::move(idle_text), std::move(stop_text));
  }
  void Write(std::string piece) override { writer_->Write(std::move(piece)); }
  void End() override { writer_->End(); }
  void Abort() override { writer_->Abort(); }
  void OnGone(std::function<void()> fn) override { writer_->OnGone(std::move(fn)); }
  bool gone() const override { return writer_->gone(); }
  void Post(std::function<void()> fn) override { writer_->Post(std::move(fn)); }

 private:
  HttpResponse With(HttpResponse response) {
    response.headers.insert(response.headers.end(), headers_.begin(), headers_.end());
    return response;
  }
  const std::shared_ptr<ResponseWriter> writer_;
  const HttpHeaders headers_;
};

// The headers that let a page of `origin` read the answer; none if it may not.
HttpHeaders CorsHeaders(const std::string& allowed, std::string_view origin) {
  if (allowed.empty() || origin.empty() || (allowed != "*" && allowed != origin)) return {};
  HttpHeaders headers{{"Access-Control-Allow-Origin", allowed}, {"Access-Control-Expose-Headers", "X-Request-Id"}};
  if (allowed != "*") headers.emplace_back("Vary", "Origin");
  return headers;
}

// "application/json" or "application/json; charset=utf-8", in any case. Nothing said is taken for JSON; what a browser's form
// may send without asking (text/plain, form data) is not.
bool SaysJson(std::string_view content_type) {
  content_type = content_type.substr(0, content_type.find(';'));
  while (!content_type.empty() && content_type.back() == ' ') content_type.remove_suffix(1);
  if (content_type.empty()) return true;
  std::string lower(content_type);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return lower == "application/json";
}

void AnswerOptions(const std::string& methods, const HttpRequest& request, bool cors, ResponseWriter& writer) {
  HttpResponse response;
  response.status = 204;
  response.headers.emplace_back("Allow", methods);
  if (cors && !request.header("access-control-request-method").empty()) {
    response.headers.emplace_back("Access-Control-Allow-Methods", methods);
    response.headers.emplace_back("Access-Control-Allow-Headers", "Authorization, Content-Type, X-Request-Id");
    response.headers.emplace_back("Access-Control-Max-Age", "600");
  }
  writer.Send(std::move(response));
}

}  // namespace

std::span<const Endpoint> Endpoints() { return kEndpoints; }

void Route(ServeContext& context, WorkerPool& workers, HttpRequest request, std::shared_ptr<ResponseWriter> writer) {
  const HttpHeaders cors = CorsHeaders(context.options.cors, request.header("origin"));
  if (!cors.empty()) writer = std::make_shared<HeaderWriter>(std::move(writer), cors);

  const std::string methods = request.path == "*" ? "GET, HEAD, POST, OPTIONS" : MethodsOf(request.path);
  if (methods.empty()) {
    std::string known;
    for (const Endpoint& endpoint : kEndpoints) known.append(known.empty() ? "" : ", ").append(endpoint.path);
    return writer->Send(ErrorResponse({404, "no such path: " + request.path + " (paths: " + known + ")", "", "not_found"}));
  }
  if (request.method == "OPTIONS") return AnswerOptions(methods, request, !cors.empty(), *writer);

  const std::string_view method = request.method == "HEAD" ? "GET" : std::string_view(request.method);
  const auto* endpoint = std::find_if(std::begin(kEndpoints), std::end(kEndpoints), [&](const Endpoint& e) {
    return e.method == method && Matches(e, request.path);
  });
  if (endpoint == std::end(kEndpoints)) {
    HttpResponse response = ErrorResponse(
        {405, "method " + request.method + " is not for " + request.path + "; use " + methods, "", "method_not_allowed"});
    response.headers.emplace_back("Allow", methods);
    return writer->Send(std::move(response));
  }
  if (method == "POST" && !SaysJson(request.header("content-type"))) {
    return writer->Send(ErrorResponse({415, "Content-Type is " + std::string(request.header("content-type")) +
                                               "; send application/json", "", "unsupported_media_type"}));
  }
  if (endpoint->runs_on == RunsOn::kIo) return endpoint->fn(context, std::move(request), std::move(writer));

  auto shared_request = std::make_shared<HttpRequest>(std::move(request));  // std::function wants copyable tasks
  const bool taken = workers.Submit([&context, endpoint, shared_request, writer] {
    if (writer->gone()) return writer->Abort();
    endpoint->fn(context, std::move(*shared_request), writer);
  });
  if (!taken) writer->Send(ErrorResponse({503, "too many requests wait to be read", "", "overloaded"}));
}

}  // namespace hone
