// The load client's connections: libcurl's multi interface on one thread, connections kept and reused, HTTP/1.1. Times
// are taken when bytes are handed over by libcurl, before they are parsed. Nothing that a server sends ends the
// program.
#include <curl/curl.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "measure/load/sse.h"
#include "measure/load/transport.h"

namespace hone {
namespace {

constexpr long kConnectMs = 30000;
constexpr size_t kMostErrorBody = 64u << 10;
constexpr size_t kMostText = 4u << 20;
constexpr size_t kMostGet = 4u << 20;

struct EasyCleanup {
  void operator()(CURL* curl) const { curl_easy_cleanup(curl); }
};
using Easy = std::unique_ptr<CURL, EasyCleanup>;
struct ListFree {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};
using Headers = std::unique_ptr<curl_slist, ListFree>;

Headers MakeHeaders(const std::vector<std::string>& lines) {
  curl_slist* list = nullptr;
  for (const std::string& line : lines) {
    curl_slist* longer = curl_slist_append(list, line.c_str());
    if (longer != nullptr) list = longer;
  }
  return Headers(list);
}

// One request under way.
struct Exchange {
  int64_t id = 0;
  Easy curl;
  const Clock* clock = nullptr;
  std::string body;        // of the request; libcurl reads it in place
  std::string other_body;  // of an answer that is no stream
  SseParser parser;
  StreamOutcome outcome;
  bool began = false, stream = false, done = false;
  int64_t chunks = 0;
  char problem[CURL_ERROR_SIZE] = "";

  void Fail(const std::string& kind, const std::string& text) {
    if (!outcome.error.empty()) return;
    outcome.error = kind;
    outcome.error_text = text;
  }

  void Take(std::string_view data, double now_s) {
    if (done) return;
    StreamEvent event = ParseStreamEvent(data);
    switch (event.kind) {
      case StreamEvent::Kind::kDone:
        done = true;
        return;
      case StreamEvent::Kind::kError:
        Fail("stream_error", event.text);
        return;
      case StreamEvent::Kind::kBad:
        Fail("bad_reply", "not a JSON object: " + event.text);
        return;
      case StreamEvent::Kind::kContent:
        outcome.chunk_s.push_back(now_s);
        break;
      case StreamEvent::Kind::kOther:
        break;
    }
    if (event.has_choices) {
      if (outcome.first_s == 0) outcome.first_s = now_s;
      outcome.last_s = now_s;
    }
    if (outcome.text.size() < kMostText) outcome.text += event.text;
    if (!event.finish_reason.empty()) outcome.finish_reason = event.finish_reason;
    if (event.prompt_tokens >= 0) outcome.prompt_tokens = event.prompt_tokens;
    if (event.completion_tokens >= 0) outcome.completion_tokens = event.completion_tokens;
    if (event.cached_tokens >= 0) outcome.cached_tokens = event.cached_tokens;
  }

  static size_t Write(char* data, size_t size, size_t count, void* self) {
    auto* exchange = static_cast<Exchange*>(self);
    const double now_s = exchange->clock->Now();
    const std::string_view bytes(data, size * count);
    if (!std::exchange(exchange->began, true)) {
      long status = 0;
      const char* type = nullptr;
      curl_easy_getinfo(exchange->curl.get(), CURLINFO_RESPONSE_CODE, &status);
      curl_easy_getinfo(exchange->curl.get(), CURLINFO_CONTENT_TYPE, &type);
      exchange->stream = status == 200 && type != nullptr && std::strncmp(type, "text/event-stream", 17) == 0;
    }
    if (!exchange->stream) {
      const size_t room = kMostErrorBody - std::min(kMostErrorBody, exchange->other_body.size());
      exchange->other_body += bytes.substr(0, room);
      return bytes.size();
    }
    if (!exchange->parser.Add(bytes, [&](std::string_view event) { exchange->Take(event, now_s); })) {
      exchange->Fail("bad_reply", "a line of the stream is longer than 16 MiB");
      return 0;
    }
    return bytes.size();
  }

  void Finish(CURLcode code) {
    long status = 0;
    curl_easy_getinfo(curl.get(), CURLINFO_RESPONSE_CODE, &status);
    const std::string what = *problem != 0 ? problem : curl_easy_strerror(code);
    if (stream && (done || !outcome.finish_reason.empty())) {
      // The answer is whole, however the connection ended.
    } else if (code == CURLE_COULDNT_CONNECT || code == CURLE_COULDNT_RESOLVE_HOST ||
               code == CURLE_COULDNT_RESOLVE_PROXY || code == CURLE_SSL_CONNECT_ERROR ||
               code == CURLE_PEER_FAILED_VERIFICATION) {
      Fail("connect", what);
    } else if (code == CURLE_OPERATION_TIMEDOUT) {
      Fail("timeout", what);
    } else if (status != 0 && status != 200) {
      Fail("http_" + std::to_string(status), ErrorText(other_body));
    } else if (code != CURLE_OK) {
      Fail("stream_broken", what);
    } else if (!stream) {
      Fail("not_a_stream", "the answer is no text/event-stream: " + ErrorText(other_body));
    } else {
      Fail("stream_broken", "the stream ended without data: [DONE] and without a finish reason");
    }
    if (outcome.first_s == 0) Fail("no_tokens", "the stream ended without a chunk that has choices");
    if (!outcome.chunk_s.empty()) outcome.first_s = outcome.chunk_s.front();
  }
};

class CurlTransport : public HttpTransport {
 public:
  CurlTransport(HttpClientOptions options, const Clock* clock) : options_(std::move(options)), clock_(clock) {
    std::vector<std::string> lines = {"Expect:", "Accept: text/event-stream"};
    lines.insert(lines.end(), options_.headers.begin(), options_.headers.end());
    get_headers_ = MakeHeaders(options_.headers);
    lines.push_back("Content-Type: application/json");
    headers_ = MakeHeaders(lines);
  }
  ~CurlTransport() override {
    CancelAll([](int64_t, const StreamOutcome&) {});
    if (multi_ != nullptr) curl_multi_cleanup(multi_);
  }

  Result<void> Open() {
    static const CURLcode global = curl_global_init(CURL_GLOBAL_DEFAULT);
    multi_ = global == CURLE_OK ? curl_multi_init() : nullptr;
    if (multi_ == nullptr) return Error{ErrorCode::kInternal, "libcurl cannot be set up"};
    curl_multi_setopt(multi_, CURLMOPT_MAXCONNECTS, 4096L);
    curl_multi_setopt(multi_, CURLMOPT_PIPELINING, static_cast<long>(CURLPIPE_NOTHING));
    return {};
  }

  double Now() override { return clock_->Now(); }
  int active() const override { return static_cast<int>(exchanges_.size() + failed_.size()); }

  double CpuSeconds() override {
    timespec time = {};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }

  void Start(int64_t id, const std::string& body) override {
    auto exchange = std::make_unique<Exchange>();
    exchange->id = id;
    exchange->clock = clock_;
    exchange->body = body;
    exchange->curl.reset(curl_easy_init());
    CURL* curl = exchange->curl.get();
    if (curl == nullptr) {
      exchange->Fail("connect", "libcurl has no memory for another connection");
      failed_.push_back(std::move(exchange));
      return;
    }
    Common(curl, options_.path, exchange->problem);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers_.get());
    curl_easy_setopt(curl, CURLOPT_POST, 1L);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, exchange->body.data());
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(exchange->body.size()));
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, static_cast<long>(options_.timeout_s * 1e3));
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, &Exchange::Write);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, exchange.get());
    exchange->outcome.sent_s = clock_->Now();
    if (curl_multi_add_handle(multi_, curl) != CURLM_OK) {
      exchange->Fail("connect", "libcurl takes no further connection");
      failed_.push_back(std::move(exchange));
      return;
    }
    exchanges_[curl] = std::move(exchange);
  }

  void Poll(double wait_s, const Done& done) override {
    if (Collect(done) || wait_s <= 0) return;
    const double until_s = clock_->Now() + wait_s;
    // Milliseconds are libcurl's unit of waiting; what is left below one is slept, so that a request starts in time.
    const int wait_ms = static_cast<int>(std::min(wait_s * 1e3, 1e6));
    if (wait_ms > 0) {
      curl_multi_poll(multi_, nullptr, 0, wait_ms, nullptr);
    } else {
      const double left_s = std::min(until_s - clock_->Now(), 1e-4);
      if (left_s > 0) {
        const timespec nap = {0, static_cast<long>(left_s * 1e9)};
        nanosleep(&nap, nullptr);
      }
    }
    Collect(done);
  }

  void CancelAll(const Done& done) override {
    for (std::unique_ptr<Exchange>& exchange : std::exchange(failed_, {})) {
      done(exchange->id, std::move(exchange->outcome));
    }
    while (!exchanges_.empty()) {
      std::unique_ptr<Exchange> exchange = std::move(exchanges_.begin()->second);
      exchanges_.erase(exchanges_.begin());
      curl_multi_remove_handle(multi_, exchange->curl.get());
      exchange->Fail("cancelled", "the client gave up");
      done(exchange->id, std::move(exchange->outcome));
    }
  }

  Result<std::string> Get(const std::string& path, const std::function<bool()>& stop) override {
    Easy curl(curl_easy_init());
    if (curl == nullptr) return Error{ErrorCode::kInternal, "libcurl cannot be set up"};
    std::string body;
    char problem[CURL_ERROR_SIZE] = "";
    Common(curl.get(), path, problem);
    curl_easy_setopt(curl.get(), CURLOPT_HTTPHEADER, get_headers_.get());
    curl_easy_setopt(curl.get(), CURLOPT_TIMEOUT_MS, static_cast<long>(options_.timeout_s * 1e3));
    curl_easy_setopt(curl.get(), CURLOPT_WRITEFUNCTION, &TakeText);
    curl_easy_setopt(curl.get(), CURLOPT_WRITEDATA, &body);
    curl_easy_setopt(curl.get(), CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl.get(), CURLOPT_XFERINFOFUNCTION, &AskStop);
    curl_easy_setopt(curl.get(), CURLOPT_XFERINFODATA, &stop);
    const CURLcode code = curl_easy_perform(curl.get());
    if (code == CURLE_ABORTED_BY_CALLBACK) return Error{ErrorCode::kCancelled, "stopped before " + options_.url + path + " was answered"};
    if (code != CURLE_OK) {
      return IoError(options_.url + path +
                     ": cannot be reached: " + (*problem != 0 ? problem : curl_easy_strerror(code)));
    }
    long status = 0;
    curl_easy_getinfo(curl.get(), CURLINFO_RESPONSE_CODE, &status);
    if (status != 200) {
      return IoError(options_.url + path + ": the server answered " + std::to_string(status) + ": " + ErrorText(body));
    }
    return body;
  }

 private:
  static size_t TakeText(char* data, size_t size, size_t count, void* out) {
    auto* text = static_cast<std::string*>(out);
    if (text->size() + size * count > kMostGet) return 0;
    text->append(data, size * count);
    return size * count;
  }

  static int AskStop(void* stop, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
    const auto& ask = *static_cast<const std::function<bool()>*>(stop);
    return ask && ask() ? 1 : 0;
  }

  void Common(CURL* curl, const std::string& path, char* problem) const {
    curl_easy_setopt(curl, CURLOPT_URL, (options_.url + path).c_str());
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "hone/" HONE_VERSION);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
    // On this machine a connection is there or refused; that it takes long only says that this process was held up.
    if (!IsLoopback(options_.url)) curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, kConnectMs);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, problem);
    if (IsLoopback(options_.url)) curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
    if (!options_.api_key.empty()) {
      curl_easy_setopt(curl, CURLOPT_HTTPAUTH, CURLAUTH_BEARER);
      curl_easy_setopt(curl, CURLOPT_XOAUTH2_BEARER, options_.api_key.c_str());
    }
  }

  // Moves what can be moved and hands out what ended; whether any did.
  bool Collect(const Done& done) {
    bool any = false;
    for (std::unique_ptr<Exchange>& exchange : std::exchange(failed_, {})) {
      done(exchange->id, std::move(exchange->outcome));
      any = true;
    }
    int running = 0, left = 0;
    curl_multi_perform(multi_, &running);
    while (const CURLMsg* message = curl_multi_info_read(multi_, &left)) {
      if (message->msg != CURLMSG_DONE) continue;
      CURL* curl = message->easy_handle;
      const CURLcode code = message->data.result;  // before the handle, which owns the message, is removed
      const auto it = exchanges_.find(curl);
      if (it == exchanges_.end()) continue;
      std::unique_ptr<Exchange> exchange = std::move(it->second);
      exchanges_.erase(it);
      exchange->Finish(code);
      curl_multi_remove_handle(multi_, curl);
      done(exchange->id, std::move(exchange->outcome));
      any = true;
    }
    return any;
  }

  const HttpClientOptions options_;
  const Clock* clock_;
  Headers headers_, get_headers_;
  CURLM* multi_ = nullptr;
  std::map<CURL*, std::unique_ptr<Exchange>> exchanges_;
  std::vector<std::unique_ptr<Exchange>> failed_;  // before they were sent
};

// "host" of "http://user@host:80/path".
std::string HostOf(const std::string& url) {
  const size_t scheme = url.find("://");
  if (scheme == std::string::npos) return "";
  std::string host = url.substr(scheme + 3);
  host = host.substr(0, host.find_first_of("/?#"));
  if (const size_t at = host.rfind('@'); at != std::string::npos) host = host.substr(at + 1);
  if (!host.empty() && host.front() == '[') return host.substr(1, host.find(']') - 1);
  return host.substr(0, host.find(':'));
}

}  // namespace

bool IsLoopback(const std::string& url) {
  const std::string host = HostOf(url);
  return host == "localhost" || host == "::1" || host.rfind("127.", 0) == 0;
}

std::string WrongServerUrl(const std::string& url) {
  if (url.rfind("http://", 0) != 0 && url.rfind("https://", 0) != 0) return "it begins with neither http:// nor https://";
  if (HostOf(url).empty()) return "it names no host";
  const std::unique_ptr<CURLU, decltype(&curl_url_cleanup)> parts(curl_url(), &curl_url_cleanup);
  if (parts == nullptr) return "libcurl has no memory for it";
  if (const CURLUcode code = curl_url_set(parts.get(), CURLUPART_URL, url.c_str(), 0); code != CURLUE_OK) return curl_url_strerror(code);
  if (url.find_first_of("?#") != std::string::npos) return "paths are added to it, so it cannot have a query or a fragment";
  return "";
}

Result<std::unique_ptr<HttpTransport>> MakeHttpTransport(HttpClientOptions options, const Clock* clock) {
  while (!options.url.empty() && options.url.back() == '/') options.url.pop_back();
  if (const std::string wrong = WrongServerUrl(options.url); !wrong.empty()) {
    return UsageError("'" + options.url + "' is no URL of a server: " + wrong + "; wanted http://HOST:PORT");
  }
  auto transport = std::make_unique<CurlTransport>(std::move(options), clock);
  HONE_RETURN_IF_ERROR(transport->Open());
  return std::unique_ptr<HttpTransport>(std::move(transport));
}

}  // namespace hone
