// HttpConnection: one client. A state machine on the I/O thread: read a request, hand it over, write its answer, again.
// Private to http_server.cc; includes Boost.Asio and Beast.
//
//   idle -> header -> body -> busy (a handler has it) -> idle ...          any error -> closed
//                                    `-> lingering (answered before all was read) -> closed
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_set>

#include "serve/byte_stream.h"
#include "serve/http_server.h"

namespace hone {

class HttpConnection;

// What all connections share. Alive as long as anybody holds it; tasks posted after `closed` are dropped.
struct HttpShared {
  HttpOptions options;
  HttpHandler handler;
  boost::asio::io_context io{1};
  std::atomic<size_t> connections{0};
  std::atomic<bool> draining{false};

  // I/O thread only.
  std::unordered_set<std::shared_ptr<HttpConnection>> open;
  size_t bodies_bytes = 0;
  uint64_t idle_turns = 0;  // how often a connection began to wait for a request

  std::mutex mutex;
  bool closed = false;

  // False: the server has stopped, and `fn` is destroyed.
  bool Post(std::function<void()> fn);
};

class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(std::shared_ptr<HttpShared> shared, std::unique_ptr<ByteStream> stream, std::string peer);

  // All on the I/O thread.
  void Start();
  void Refuse(int status, const std::string& message, const std::string& code);  // instead of Start
  void Close();
  void Expire();       // time is over: a request at work is answered with 503 or its stream ended by its stop text
  void CloseIfIdle();  // a draining server: idle ones go, the others answer with Connection: close
  bool busy() const { return state_ == State::kBusy; }
  bool idle() const { return state_ == State::kIdle; }
  uint64_t idle_turn() const { return idle_turn_; }  // smaller: idle for longer

  // For the writer of request number `serial`; other numbers are ignored.
  void Send(uint64_t serial, HttpResponse response);
  void StartStream(uint64_t serial, HttpResponse response, std::string idle_text, std::string stop_text);
  void Write(uint64_t serial, std::string piece);
  void End(uint64_t serial);
  void Abort(uint64_t serial);
  void OnGone(uint64_t serial, std::function<void()> fn, const std::shared_ptr<std::atomic<bool>>& gone);

 private:
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;
  using IoCode = boost::system::error_code;
  enum class State { kIdle, kHeader, kBody, kBusy, kLingering, kClosed };

  void NextRequest();
  void ReadMore();
  void OnRead(IoCode ec, size_t bytes);
  void OnReadEnd(IoCode ec);
  void Parse();
  bool CheckHeader();
  bool CountBody();
  void Dispatch();
  void ParseFailed(IoCode ec);
  void RefuseAndClose(int status, const std::string& message, const std::string& code);

  std::string Head(const HttpResponse& response, std::optional<size_t> length) const;
  void Enqueue(std::string bytes);
  void WriteMore();
  void OnWritten(IoCode ec, size_t bytes);
  void FinishAnswer();
  void Linger();
  void PeerGone();

  void ArmReadTimer(double seconds);
  void OnReadTimer();
  void ArmWriteTimer();
  void ArmPing();

  std::shared_ptr<HttpShared> shared_;
  const std::unique_ptr<ByteStream> stream_;
  const std::string peer_;
  boost::asio::steady_timer read_timer_, write_timer_, ping_timer_;
  std::array<char, 16 << 10> chunk_;   // where the socket's bytes land
  boost::beast::flat_buffer buffer_;   // received and not yet parsed
  std::optional<Parser> parser_;
  State state_ = State::kIdle;
  bool reading_ = false, writing_ = false, read_ended_ = false;
  uint64_t read_epoch_ = 0, write_epoch_ = 0, ping_epoch_ = 0;  // a timer that fires for an older epoch is ignored

  // The request at work.
  uint64_t serial_ = 0, idle_turn_ = 0;
  HttpHeaders headers_;
  bool keep_alive_ = false, http10_ = false, head_only_ = false;
  bool streaming_ = false, chunked_ = false, answered_ = false;  // answered_: the last byte is queued
  size_t header_counted_ = 0;  // of a request line and headers that were read line by line
  size_t body_counted_ = 0;
  size_t lingered_bytes_ = 0;
  std::string request_id_, idle_text_, stop_text_;
  std::function<void()> on_gone_;
  std::shared_ptr<std::atomic<bool>> gone_;

  std::deque<std::string> out_;
  size_t out_offset_ = 0;   // bytes of out_.front() that are written
  size_t out_bytes_ = 0;    // queued and not written
};

}  // namespace hone
