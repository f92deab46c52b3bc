// A server that is not hone's, for tests of hone load: OpenAI's completions over plain sockets, written from the protocol
// alone. What it answers with is the first word of the prompt, and it keeps what it did, so that a client's counts and
// times can be held against it. It answers as other servers do: several tokens a chunk, CRLF, comments, bytes split
// anywhere, no usage, no [DONE], errors before and within a stream, HTTP/1.0; and as broken ones do: nothing, half a line, a byte
// a second, what is no HTTP, chunks that are none.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace hone::e2e {

// What the server did with one request for completions.
struct Served {
  std::string kind;                             // the first word of the prompt
  int chunks = 0, tokens = 0;                   // with content, sent
  double received_s = 0, first_s = 0, last_s = 0;  // read whole; before the first and the last chunk with content were written
};

class ForeignServer {
 public:
  ForeignServer() {
    listening_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    if (bind(listening_, reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(listening_, 128) != 0) return;
    getsockname(listening_, reinterpret_cast<sockaddr*>(&address), &size);
    url_ = "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    accepting_ = std::thread([this] { Accept(); });
  }
  ~ForeignServer() {
    Leave();
    over_ = true;
    if (accepting_.joinable()) accepting_.join();
    for (std::thread& one : connections_) one.join();
    close(listening_);
  }
  ForeignServer(const ForeignServer&) = delete;

  const std::string& url() const { return url_; }
  std::vector<Served> served() const {
    const std::lock_guard lock(mutex_);
    return served_;
  }
  // From now on nobody can connect, and connections end after the answer that is under way.
  void Leave() {
    leaving_ = true;
    shutdown(listening_, SHUT_RDWR);
  }
  // Called with the number of each request for completions (from 1) before it is answered; false: it never is.
  std::function<bool(int number)> before_answer;
  std::function<bool()> before_models;  // the same for the list of models

 private:
  static double Now() {
    timespec time = {};
    clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }

  // Whether there is something to read or the other side is gone; false once the test is over.
  bool Readable(int fd) const {
    while (!over_) {
      pollfd one = {fd, POLLIN, 0};
      if (poll(&one, 1, 20) > 0) return true;
    }
    return false;
  }

  void Accept() {
    while (!leaving_ && Readable(listening_)) {
      const int fd = accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) break;
      const int on = 1;
      setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));  // a write is a packet
      connections_.emplace_back([this, fd] {
        while (Request(fd) && !leaving_) {
        }
        close(fd);
      });
    }
  }

  static bool Send(int fd, const std::string& bytes) {
    for (size_t at = 0; at < bytes.size();) {
      const ssize_t n = send(fd, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
      if (n <= 0) return false;
      at += static_cast<size_t>(n);
    }
    return true;
  }

  static bool Reply(int fd, int status, const std::string& body, const std::string& more = "") {
    return Send(fd, "HTTP/1.1 " + std::to_string(status) + " X\r\nContent-Type: application/json\r\n" + more + "Content-Length: " +
                        std::to_string(body.size()) + "\r\n\r\n" + body);
  }

  // Reads until the client is gone.
  void Outwait(int fd) const {
    char buffer[256];
    while (Readable(fd) && recv(fd, buffer, sizeof(buffer), 0) > 0) {
    }
  }

  // One request and its answer; false if the connection is over.
  bool Request(int fd) {
    std::string text;
    size_t head = std::string::npos, wanted = 0;
    while (head == std::string::npos || text.size() < wanted) {
      char buffer[65536];
      if (!Readable(fd)) return false;
      const ssize_t n = recv(fd, buffer, sizeof(buffer), 0);
      if (n <= 0) return false;
      text.append(buffer, static_cast<size_t>(n));
      if (head == std::string::npos && (head = text.find("\r\n\r\n")) != std::string::npos) {
        const size_t length = text.find("Content-Length: ");
        wanted = head + 4 + (length < head ? std::stoul(text.substr(length + 16)) : 0);
      }
    }
    const std::string line = text.substr(0, text.find("\r\n"));
    const bool models = line.find("GET ") == 0 && line.find("/v1/models ") != std::string::npos;
    if (models && before_models && !before_models()) return Outwait(fd), false;
    if (models) return Reply(fd, 200, R"({"object":"list","data":[{"id":"foreign","object":"model"}]})");
    if (line.find("POST ") != 0 || line.find("/v1/completions ") == std::string::npos) return Reply(fd, 404, R"({"detail":"Not Found"})");
    const nlohmann::json body = nlohmann::json::parse(text.substr(head + 4), nullptr, false);
    if (line.find(" /strict/") != std::string::npos) {
      for (const char* unknown : {"ignore_eos", "stream_options"}) {
        if (body.contains(unknown)) return Reply(fd, 400, std::string(R"({"error":{"message":"Unrecognized request argument: )") + unknown + "\"}}");
      }
    }
    Served did;
    did.received_s = Now();
    const std::string prompt = body.value("prompt", "");
    did.kind = prompt.substr(0, prompt.find(' '));
    int number = 0;
    {
      const std::lock_guard lock(mutex_);
      number = ++requests_;
    }
    if (before_answer && !before_answer(number)) return Outwait(fd), false;
    const bool goes_on = Answer(fd, did.kind, body.value("max_tokens", 4), &did);
    const std::lock_guard lock(mutex_);
    served_.push_back(did);
    return goes_on;
  }

  // The body as HTTP chunks; `piece` bytes in each, so that events and characters are cut anywhere.
  static bool Stream(int fd, const std::string& bytes, size_t piece) {
    for (size_t at = 0; at < bytes.size(); at += piece) {
      const std::string part = bytes.substr(at, piece);
      char size[32];
      std::snprintf(size, sizeof(size), "%zx\r\n", part.size());
      if (!Send(fd, size + part + "\r\n")) return false;
    }
    return true;
  }

  bool Answer(int fd, const std::string& kind, int tokens, Served* did) {
    if (kind == "busy") return Reply(fd, 429, R"({"error":{"message":"too many requests","code":"rate_limit"}})", "Retry-After: 7\r\n");
    if (kind == "whole") return Reply(fd, 200, R"({"choices":[{"text":"all at once","finish_reason":"stop"}]})");
    if (kind == "down") return Reply(fd, 500, R"({"error":{"message":"the worker died"}})");
    if (kind == "silent") return Outwait(fd), false;
    if (kind == "nohttp") return Send(fd, "hello, who is there?\r\n\r\n"), false;
    if (kind == "headers") return Send(fd, "HTTP/1.1 200 OK\r\nX: " + std::string(1 << 20, 'x')), false;
    const bool crlf = kind == "crlf", split = kind == "split", old = kind == "old" || kind == "oldcut";
    const std::string end = crlf ? "\r\n" : "\n";
    const size_t piece = split ? 1 : 1 << 20;
    const auto event = [&](const std::string& data) {
      return (crlf ? ": ping\r\nevent: message\r\nid: 7\r\nretry: 10\r\n" : "") + std::string("data: ") + data + end + end;
    };
    if (old) {  // no chunks: the body ends with the connection
      std::string body = event(R"({"choices":[{"index":0,"text":" one"}]})");
      did->chunks = did->tokens = 1;
      if (kind == "old") body += event(R"({"choices":[{"index":0,"text":"","finish_reason":"length"}]})") + event("[DONE]");
      return Send(fd, "HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + body), false;
    }
    if (!Send(fd, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n")) return false;
    if (kind == "garbage") return Send(fd, "zz;\r\ndata: {}\r\n"), false;
    if (kind == "endless") return Send(fd, "ffffffffffffffffff\r\ndata: {}\r\n"), false;
    if (kind == "noise") return Stream(fd, event(std::string("\0\x01\xff\xfe{\"choices\"", 14)), piece) && Send(fd, "0\r\n\r\n");
    if (kind == "number") return Stream(fd, event("17") + event("[]"), piece) && Send(fd, "0\r\n\r\n");
    if (kind == "half") return Stream(fd, "data: {\"choices\": [{\"text\"", piece), Outwait(fd), false;
    if (kind == "drip") {  // a byte, and a second later another
      const std::string all = event(R"({"choices":[{"index":0,"text":" one"}]})");
      for (const char byte : all) {
        if (over_ || !Stream(fd, std::string(1, byte), 1)) break;
        usleep(1000000);
      }
      return false;
    }
    if (kind == "empty") return Stream(fd, event("[DONE]"), piece) && Send(fd, "0\r\n\r\n");
    if (kind == "bad") return Stream(fd, event("{\"choices\": [{\"text\": "), piece) && Send(fd, "0\r\n\r\n");
    // A first chunk that says nothing: it is no first token.
    if (kind == "role" && !Stream(fd, event(R"({"choices":[{"index":0,"text":"","delta":{"role":"assistant"}}]})"), piece)) return false;
    const int a_chunk = kind == "many" || kind == "usage" ? 3 : 1;
    for (int sent = 0; sent < tokens; sent += a_chunk) {
      if (kind == "error" && did->chunks == 2) return Stream(fd, event(R"({"error":{"message":"the worker died"}})"), piece) && Send(fd, "0\r\n\r\n");
      if (kind == "cut" && did->chunks == 2) return false;
      if (kind == "short" && did->chunks == 2) return Send(fd, "0\r\n\r\n");
      usleep(1000);
      did->last_s = Now();
      if (did->chunks == 0) did->first_s = did->last_s;
      std::string text;
      for (int i = 0; i < a_chunk; ++i) text += " caf\u00e9";
      if (!Stream(fd, event(nlohmann::json{{"choices", {{{"index", 0}, {"text", text}, {"finish_reason", nullptr}}}}}.dump()), piece)) return false;
      ++did->chunks;
      did->tokens += a_chunk;
    }
    std::string rest = event(R"({"choices":[{"index":0,"text":"","finish_reason":"length"}]})");
    if (kind == "usage") rest += event(nlohmann::json{{"choices", nlohmann::json::array()}, {"usage", {{"prompt_tokens", 5}, {"completion_tokens", did->tokens}}}}.dump());
    if (kind != "undone") rest += event("[DONE]");
    return Stream(fd, rest, piece) && kind != "noend" && Send(fd, "0\r\n\r\n");
  }

  int listening_ = -1;
  std::string url_;
  std::atomic<bool> leaving_{false}, over_{false};
  mutable std::mutex mutex_;
  int requests_ = 0;
  std::vector<Served> served_;
  std::thread accepting_;
  std::vector<std::thread> connections_;  // of the accepting thread until it has ended
};

}  // namespace hone::e2e
