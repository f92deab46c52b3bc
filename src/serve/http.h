// HttpRequest, HttpResponse, ResponseWriter: what an endpoint sees of HTTP. No socket and no third-party type here.
//
// Read next: http_server.h (who makes these), endpoint.h (who takes them).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hone {

struct RequestRecord;  // access_log.h

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

// Who asks, as the router found it by the API key.
struct Caller {
  std::string tenant;      // "" without keys
  std::string cache_salt;  // part of the prefix cache's keys; "" without keys
  int priority = 0;        // lower is served first
  bool admin = false;
};

struct HttpRequest {
  std::string method;      // "GET", as sent
  std::string path;        // percent-decoded, without the query
  std::string query;       // as sent, without '?'
  HttpHeaders headers;     // names in lower case
  std::string body;
  std::string id;          // X-Request-Id of the client, or one made here
  std::string peer;        // address of the client
  Caller caller;
  std::shared_ptr<RequestRecord> record;  // what the access log will say; set by the router

  // The first header of that (lower-case) name, or "".
  std::string_view header(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  HttpHeaders headers;     // beyond Content-Type, Content-Length, Connection, X-Request-Id
};

// Answers one request: one Send, or StartStream, any number of Write, then End. Every member may be called from any thread and
// returns at once: bytes are queued and written by the I/O thread in the order of the calls. Calls after the end of the
// answer, or after the client is gone, do nothing. If the last reference goes before an answer, the client gets a 500.
class ResponseWriter {
 public:
  virtual ~ResponseWriter() = default;

  virtual void Send(HttpResponse response) = 0;
  // Head of a stream; response.body is ignored. `idle_text` is written after each HttpLimits::ping_s of silence, `stop_text`
  // if the server ends before the stream does.
  virtual void StartStream(HttpResponse response, std::string idle_text, std::string stop_text) = 0;
  // Queues a piece of the stream. A reader that lets more than HttpLimits::stream_queue_bytes pile up is dropped.
  virtual void Write(std::string piece) = 0;
  virtual void End() = 0;
  // Closes the connection now: how a stream that cannot go on, or an answer that nobody waits for, ends.
  virtual void Abort() = 0;

  // Calls `fn` once, on the I/O thread, if the client goes away (or is dropped) before the answer ends; at once if it is
  // gone already (on the caller's thread if the server has stopped). One function a request. A client that only closes
  // its sending half counts as gone.
  virtual void OnGone(std::function<void()> fn) = 0;
  virtual bool gone() const = 0;

  // Runs `fn` on the I/O thread, after all that was posted before; dropped when the server has stopped. It must not block.
  virtual void Post(std::function<void()> fn) = 0;
};

}  // namespace hone
