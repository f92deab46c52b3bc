// How a load client reaches a server: one streamed request, what came back and when. An interface, so that the driver
// (load_run.h) can be tested with a server made of arithmetic; http_client.cc is the real one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace hone {

// What became of one request. Times are the clock's seconds; 0 if that never happened.
struct StreamOutcome {
  double sent_s = 0;               // the request was handed to the connection
  std::vector<double> chunk_s;     // each chunk with text, reasoning or a tool call
  double first_s = 0, last_s = 0;  // the first chunk with content (else with choices), the last chunk before the end
  int64_t prompt_tokens = -1, completion_tokens = -1, cached_tokens = -1;  // of usage; -1: the server does not say
  std::string text, finish_reason;
  // "" if all is well; else connect, timeout, http_429, stream_broken, stream_error, not_a_stream, bad_reply,
  // no_tokens, cancelled
  std::string error;
  std::string error_text;  // what was said or seen
};

class LoadTransport {
 public:
  using Done = std::function<void(int64_t id, StreamOutcome outcome)>;
  virtual ~LoadTransport() = default;
  virtual double Now() = 0;
  // Sends a request with this JSON body.
  virtual void Start(int64_t id, const std::string& body) = 0;
  // Moves bytes for at most `wait_s` (0: only what is there), and hands out the requests that ended meanwhile. Returns
  // early when one did.
  virtual void Poll(double wait_s, const Done& done) = 0;
  // Gives up what is under way; each is handed out with error "cancelled".
  virtual void CancelAll(const Done& done) = 0;
  virtual int active() const = 0;
  // Seconds of CPU that this thread used so far.
  virtual double CpuSeconds() = 0;
};

struct HttpClientOptions {
  std::string url;                   // of the server, "http://127.0.0.1:8080"; a path is kept ("https://host/api")
  std::string path;                  // "/v1/completions"
  std::string api_key;               // "" for none; sent as a bearer token
  std::vector<std::string> headers;  // "Name: value"
  double timeout_s = 600;            // of a whole request
};

class HttpTransport : public LoadTransport {
 public:
  // A GET of `path` below the server's URL: the body. `stop` (may be empty) is asked about once a second and gives it up. Errors
  // say what could not be reached, or the status.
  virtual Result<std::string> Get(const std::string& path, const std::function<bool()>& stop) = 0;
};
// Errors (usage): a URL that is none. `clock` outlives the client.
Result<std::unique_ptr<HttpTransport>> MakeHttpTransport(HttpClientOptions options, const Clock* clock);

// Why a text cannot be the URL of a server, to which paths are added; "" if it can.
std::string WrongServerUrl(const std::string& url);

// Whether a URL's host is this machine by name (localhost, 127.x, ::1).
bool IsLoopback(const std::string& url);

}  // namespace hone
