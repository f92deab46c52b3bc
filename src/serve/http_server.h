// HttpServer: listens, parses HTTP/1.1 (and 1.0), keeps connections alive, writes answers with back-pressure.
//
// Promises: one I/O thread for all connections; a handler never waits for a socket; a request beyond HttpLimits is
// refused with its status, and never read into memory first; pipelined requests are answered in order; a client that
// goes away is noticed while its request is worked on. TLS by certificate and key. Refuses: HTTP/2, upgrades.
// Third-party code (Boost.Beast, OpenSSL) stays in http_server.cc, http_connection.*, byte_stream.h and tls.cc.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/log.h"
#include "base/result.h"
#include "serve/http.h"
#include "serve/limits.h"

namespace hone {

// Called on the I/O thread for each complete request; must not block.
using HttpHandler = std::function<void(HttpRequest request, std::shared_ptr<ResponseWriter> writer)>;

struct HttpOptions {
  std::string host = "127.0.0.1";
  int port = 8080;                          // 0: any free one
  std::string server_header;                // value of Server:
  std::string tls_cert_file, tls_key_file;  // PEM; "": plain HTTP
  HttpLimits limits;
  Log* log = nullptr;  // may be null
  // Called on the I/O thread for each request that is refused before it was whole. May be empty.
  std::function<void(int status, const std::string& code, const std::string& id, const std::string& peer)> refused;
};

class HttpServer {
 public:
  // Binds, listens, starts the I/O thread. Errors: an address that is not one, a port in use (named, with what to try).
  static Result<std::unique_ptr<HttpServer>> Start(HttpOptions options, HttpHandler handler);
  virtual ~HttpServer() = default;  // stops

  virtual int port() const = 0;
  virtual size_t connections() const = 0;  // open now; any thread
  // Closes idle connections, gives those at work `drain_s` seconds to end; new connections are taken until then, since
  // clients and probes want to hear that the server stops (the handler's business). Those that are left then are told
  // so (a 503; a stream: its stop text) and their OnGone is called; kLastWordSeconds later they are closed. Returns
  // when the I/O thread is gone. Calling it again does nothing. Not from the I/O thread.
  virtual void Stop(double drain_s) = 0;
};

}  // namespace hone
