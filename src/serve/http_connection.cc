// See http_connection.h. Reading, parsing and writing of one connection.
#include "serve/http_connection.h"

#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>
#include <boost/beast/http/error.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <utility>

#include "base/check.h"
#include "serve/error.h"
#include "serve/http_text.h"

namespace hone {

namespace asio = boost::asio;
namespace http = boost::beast::http;

namespace {

constexpr size_t kMaxLingerBytes = 64u << 20;  // thrown away after an early refusal, so that the client sees the answer
constexpr double kLingerSeconds = 5;
constexpr size_t kMaxWriteBuffers = 16;

std::chrono::steady_clock::duration Seconds(double s) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(s));
}

// The writer that a handler holds: every call becomes a task of the I/O thread for request `serial` of the connection.
class ConnectionWriter final : public ResponseWriter {
 public:
  ConnectionWriter(std::shared_ptr<HttpShared> shared, std::shared_ptr<HttpConnection> connection, uint64_t serial)
      : shared_(std::move(shared)), connection_(std::move(connection)), serial_(serial),
        gone_(std::make_shared<std::atomic<bool>>(false)), queued_(std::make_shared<std::atomic<size_t>>(0)) {}

  ~ConnectionWriter() override {
    if (ended_.load()) return;
    // A handler lost the request: the client must not wait for ever. Send does nothing if the stream had begun; Abort then.
    shared_->Post([connection = connection_, serial = serial_] {
      connection->Send(serial, ErrorResponse({500, "the request was dropped without an answer", "", "internal_error"}));
      connection->Abort(serial);
    });
  }

  void Send(HttpResponse response) override {
    if (ended_.exchange(true)) return;
    shared_->Post([connection = connection_, serial = serial_, response = std::move(response)]() mutable {
      connection->Send(serial, std::move(response));
    });
  }
  void StartStream(HttpResponse response, std::string idle_text, std::string stop_text) override {
    if (ended_.load()) return;
    shared_->Post([connection = connection_, serial = serial_, response = std::move(response),
                   idle_text = std::move(idle_text), stop_text = std::move(stop_text)]() mutable {
      connection->StartStream(serial, std::move(response), std::move(idle_text), std::move(stop_text));
    });
  }
  void Write(std::string piece) override {
    if (ended_.load() || piece.empty()) return;
    // Pieces that wait for the I/O thread count too; what waits for the socket is counted by the connection.
    if (queued_->fetch_add(piece.size()) + piece.size() > shared_->options.limits.stream_queue_bytes) return Abort();
    shared_->Post([connection = connection_, serial = serial_, queued = queued_, piece = std::move(piece)]() mutable {
      queued->fetch_sub(piece.size());
      connection->Write(serial, std::move(piece));
    });
  }
  void End() override {
    if (ended_.exchange(true)) return;
    shared_->Post([connection = connection_, serial = serial_] { connection->End(serial); });
  }
  void Abort() override {
    if (ended_.exchange(true)) return;
    shared_->Post([connection = connection_, serial = serial_] { connection->Abort(serial); });
  }
  void OnGone(std::function<void()> fn) override {
    const bool posted = shared_->Post([connection = connection_, serial = serial_, gone = gone_, fn]() mutable {
      connection->OnGone(serial, std::move(fn), gone);
    });
    if (posted) return;
    gone_->store(true);
    fn();
  }
  bool gone() const override { return gone_->load(); }
  void Post(std::function<void()> fn) override { shared_->Post(std::move(fn)); }

  const std::shared_ptr<std::atomic<bool>>& gone_flag() const { return gone_; }

 private:
  const std::shared_ptr<HttpShared> shared_;
  const std::shared_ptr<HttpConnection> connection_;
  const uint64_t serial_;
  std::atomic<bool> ended_{false};
  std::shared_ptr<std::atomic<bool>> gone_;
  std::shared_ptr<std::atomic<size_t>> queued_;
};

}  // namespace

bool HttpShared::Post(std::function<void()> fn) {
  std::lock_guard lock(mutex);
  if (closed) return false;
  asio::post(io, std::move(fn));
  return true;
}

HttpConnection::HttpConnection(std::shared_ptr<HttpShared> shared, std::unique_ptr<ByteStream> stream, std::string peer)
    : shared_(std::move(shared)), stream_(std::move(stream)), peer_(std::move(peer)), read_timer_(shared_->io), write_timer_(shared_->io),
      ping_timer_(shared_->io) {}

void HttpConnection::Start() { NextRequest(); }

void HttpConnection::Refuse(int status, const std::string& message, const std::string& code) {
  RefuseAndClose(status, message, code);
}

void HttpConnection::NextRequest() {
  parser_.emplace();
  parser_->header_limit(static_cast<uint32_t>(shared_->options.limits.header_bytes));
  parser_->body_limit(shared_->options.limits.body_bytes);
  header_counted_ = 0;
  ++serial_;
  state_ = State::kIdle;
  idle_turn_ = ++shared_->idle_turns;
  keep_alive_ = http10_ = head_only_ = streaming_ = chunked_ = answered_ = false;
  request_id_.clear();
  on_gone_ = nullptr;
  gone_.reset();
  // A draining server still says so to a new client; a client that has an answer already is let go.
  if (buffer_.size() == 0 && (read_ended_ || (shared_->draining && serial_ > 1))) return Close();
  ArmReadTimer(shared_->options.limits.idle_s);
  if (buffer_.size() > 0) return Parse();
  ReadMore();
}

void HttpConnection::ReadMore() {
  if (reading_ || read_ended_ || state_ == State::kClosed) return;
  reading_ = true;
  stream_->ReadSome(asio::buffer(chunk_), [self = shared_from_this()](IoCode ec, size_t bytes) {
    self->OnRead(ec, bytes);
  });
}

void HttpConnection::OnRead(IoCode ec, size_t bytes) {
  reading_ = false;
  if (state_ == State::kClosed) return;
  if (ec) return OnReadEnd(ec);
  if (state_ == State::kLingering) {
    lingered_bytes_ += bytes;
    return lingered_bytes_ > kMaxLingerBytes ? Close() : ReadMore();
  }
  // Reads go through chunk_: a read may be under way while Parse moves buffer_ about.
  buffer_.commit(asio::buffer_copy(buffer_.prepare(bytes), asio::buffer(chunk_, bytes)));
  switch (state_) {
    case State::kIdle:
    case State::kHeader:
    case State::kBody: return Parse();
    case State::kBusy:
      if (buffer_.size() < kMaxPipelinedBytes) ReadMore();
      return;
    case State::kLingering:
    case State::kClosed: return;
  }
}

void HttpConnection::OnReadEnd(IoCode ec) {
  read_ended_ = true;
  // The end of the client's half while its request is worked on: it is told to the handler, which may still answer.
  if (state_ == State::kBusy && ec == asio::error::eof) return PeerGone();
  Close();
}

void HttpConnection::Parse() {
  for (;;) {
    if (parser_->is_done()) return Dispatch();
    if (buffer_.size() == 0) break;
    if (state_ == State::kIdle) {
      state_ = State::kHeader;
      ArmReadTimer(shared_->options.limits.header_s);
    }
    IoCode ec;
    size_t used = 0;
    try {
      used = parser_->put(buffer_.data(), ec);
    } catch (const std::exception&) {  // no memory for a body
      return RefuseAndClose(503, "no memory for the request body", "overloaded");
    }
    buffer_.consume(used);
    if (state_ == State::kHeader) {
      header_counted_ += used;  // the parser's own limit is for a single line; it stops where the headers end
      if (header_counted_ > shared_->options.limits.header_bytes) return ParseFailed(http::error::header_limit);
    }
    if (ec == http::error::need_more) {
      // The parser waits for the end of a line around a chunk, or of the trailers, however much of it there is.
      if (state_ == State::kBody && buffer_.size() > shared_->options.limits.header_bytes) return ParseFailed(http::error::header_limit);
      break;
    }
    if (ec) return ParseFailed(ec);
    if (state_ == State::kHeader && parser_->is_header_done()) {
      if (!CheckHeader()) return;
      state_ = State::kBody;
      ArmReadTimer(shared_->options.limits.body_s);
    }
    if (state_ == State::kBody && !CountBody()) return;
  }
  ReadMore();
}

void HttpConnection::ParseFailed(IoCode ec) {
  const HttpLimits& limits = shared_->options.limits;
  if (ec == http::error::header_limit) {
    return RefuseAndClose(431, "the request's headers are larger than " + std::to_string(limits.header_bytes) + " bytes",
                          "headers_too_large");
  }
  if (ec == http::error::body_limit) {
    return RefuseAndClose(413, "the request body is larger than " + std::to_string(limits.body_bytes) + " bytes",
                          "request_too_large");
  }
  if (ec == http::error::bad_version) return RefuseAndClose(505, "this server speaks HTTP/1.1 and HTTP/1.0", "bad_http");
  RefuseAndClose(400, "the bytes received are not an HTTP/1.1 request: " + ec.message(), "bad_http");
}

bool HttpConnection::CheckHeader() {
  const auto& head = parser_->get();
  http10_ = head.version() == 10;
  if (head.version() != 10 && head.version() != 11) {
    RefuseAndClose(505, "this server speaks HTTP/1.1 and HTTP/1.0", "bad_http");
    return false;
  }
  if (!http10_ && head.count(http::field::host) != 1) {
    RefuseAndClose(400, "a request needs one Host header", "bad_http");
    return false;
  }
  // Whatever else stands there, a proxy may see the end of the body elsewhere; and a coding before it would be ignored. HTTP/1.0 has none.
  const size_t codings = head.count(http::field::transfer_encoding);
  if (codings > 0 && (codings > 1 || http10_ || !boost::beast::iequals(head[http::field::transfer_encoding], "chunked"))) {
    RefuseAndClose(400, "unknown Transfer-Encoding of the request; known: chunked, in HTTP/1.1", "bad_http");
    return false;
  }
  const auto expect = head[http::field::expect];
  if (!expect.empty() && !http10_ && !parser_->is_done()) {
    if (!boost::beast::iequals(expect, "100-continue")) {
      RefuseAndClose(400, "unknown value of the Expect header; known: 100-continue", "bad_http");
      return false;
    }
    if (buffer_.size() == 0) Enqueue("HTTP/1.1 100 Continue\r\n\r\n");
  }
  // Now, not when the body is there: the parser adds trailers to them, which nobody in front has looked at as headers.
  headers_.clear();
  for (const auto& field : head) {
    std::string name(field.name_string());
    std::transform(name.begin(), name.end(), name.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
    headers_.emplace_back(std::move(name), std::string(field.value()));
  }
  return true;
}

bool HttpConnection::CountBody() {
  // What the parser reserved for a body of known length, or has received of one that is chunked.
  const size_t bytes = std::max<size_t>(parser_->get().body().size(), parser_->content_length().value_or(0));
  if (bytes <= body_counted_) return true;
  if (shared_->bodies_bytes + bytes - body_counted_ > shared_->options.limits.all_bodies_bytes) {
    RefuseAndClose(503, "too many large requests at once", "overloaded");
    return false;
  }
  shared_->bodies_bytes += bytes - body_counted_;
  body_counted_ = bytes;
  return true;
}

void HttpConnection::Dispatch() {
  state_ = State::kBusy;
  ++read_epoch_;
  read_timer_.cancel();
  auto message = parser_->release();
  keep_alive_ = message.keep_alive() && !shared_->draining;
  HttpRequest request;
  request.method = std::string(message.method_string());
  request.headers = std::move(headers_);
  request.body = std::move(message.body());
  head_only_ = request.method == "HEAD";
  request_id_ = request.id = RequestIdOf(request.header("x-request-id"));
  request.peer = peer_;
  SplitTarget(std::string_view(message.target().data(), message.target().size()), &request.path, &request.query);
  auto writer = std::make_shared<ConnectionWriter>(shared_, shared_from_this(), serial_);
  gone_ = writer->gone_flag();
  if (buffer_.size() < kMaxPipelinedBytes) ReadMore();  // to notice a client that goes away
  shared_->handler(std::move(request), std::move(writer));
}

void HttpConnection::RefuseAndClose(int status, const std::string& message, const std::string& code) {
  ++read_epoch_;
  read_timer_.cancel();
  state_ = State::kBusy;
  keep_alive_ = false;
  if (request_id_.empty()) request_id_ = RequestIdOf("");
  if (shared_->options.refused) shared_->options.refused(status, code, request_id_, peer_);
  HttpResponse response = ErrorResponse({status, message, "", code});
  Enqueue(Head(response, response.body.size()) + response.body);
  answered_ = true;
  lingered_bytes_ = 1;  // there may be unread bytes: linger instead of a reset
}

std::string HttpConnection::Head(const HttpResponse& response, std::optional<size_t> length) const {
  std::string head = "HTTP/1.1 " + std::to_string(response.status) + " " + std::string(StatusText(response.status)) + "\r\n";
  const auto add = [&](std::string_view name, std::string_view value) {
    head.append(name).append(": ").append(value).append("\r\n");
  };
  if (!shared_->options.server_header.empty()) add("Server", shared_->options.server_header);
  if (response.status != 204) add("Content-Type", response.content_type);
  if (length && response.status != 204) add("Content-Length", std::to_string(*length));
  if (chunked_) add("Transfer-Encoding", "chunked");
  add("X-Request-Id", request_id_);
  if (!keep_alive_) add("Connection", "close");
  else if (http10_) add("Connection", "keep-alive");
  for (const auto& [name, value] : response.headers) add(name, value);
  head.append("\r\n");
  return head;
}

void HttpConnection::Send(uint64_t serial, HttpResponse response) {
  if (serial != serial_ || state_ != State::kBusy || answered_ || streaming_) return;
  keep_alive_ = keep_alive_ && !shared_->draining;
  std::string bytes = Head(response, response.body.size());
  if (!head_only_) bytes += response.body;
  answered_ = true;
  Enqueue(std::move(bytes));
}

void HttpConnection::StartStream(uint64_t serial, HttpResponse response, std::string idle_text, std::string stop_text) {
  if (serial != serial_ || state_ != State::kBusy || answered_ || streaming_) return;
  keep_alive_ = keep_alive_ && !shared_->draining && !http10_;
  streaming_ = true;
  chunked_ = !http10_;
  idle_text_ = std::move(idle_text);
  stop_text_ = std::move(stop_text);
  Enqueue(Head(response, std::nullopt));
  ArmPing();
}

void HttpConnection::Write(uint64_t serial, std::string piece) {
  if (serial != serial_ || state_ != State::kBusy || answered_ || !streaming_ || head_only_) return;
  if (out_bytes_ + piece.size() > shared_->options.limits.stream_queue_bytes) {
    if (shared_->options.log != nullptr) shared_->options.log->Info("{}: dropped, the client does not read", request_id_);
    return Close();
  }
  if (chunked_) {
    char size[32];
    std::snprintf(size, sizeof size, "%zx\r\n", piece.size());
    piece.insert(0, size);
    piece.append("\r\n");
  }
  Enqueue(std::move(piece));
  ArmPing();
}

void HttpConnection::End(uint64_t serial) {
  if (serial != serial_ || state_ != State::kBusy || answered_ || !streaming_) return;
  answered_ = true;
  ++ping_epoch_;
  ping_timer_.cancel();
  if (chunked_) Enqueue("0\r\n\r\n");
  else if (!writing_) FinishAnswer();
}

void HttpConnection::Abort(uint64_t serial) {
  if (serial == serial_ && state_ == State::kBusy && !answered_) Close();
}

void HttpConnection::OnGone(uint64_t serial, std::function<void()> fn, const std::shared_ptr<std::atomic<bool>>& gone) {
  if (gone->load()) return fn();  // it went, or was told to go, before anyone listened
  if (serial == serial_ && state_ == State::kBusy && !read_ended_) {
    if (!answered_) on_gone_ = std::move(fn);
    return;
  }
  if (serial == serial_ && answered_) return;
  if (serial != serial_) return;  // answered in full, a later request is at work
  gone->store(true);
  fn();
}

void HttpConnection::Enqueue(std::string bytes) {
  if (bytes.empty() || state_ == State::kClosed) return;
  out_bytes_ += bytes.size();
  out_.push_back(std::move(bytes));
  WriteMore();
}

void HttpConnection::WriteMore() {
  if (writing_ || out_.empty() || state_ == State::kClosed) return;
  writing_ = true;
  std::vector<asio::const_buffer> buffers;
  size_t skip = out_offset_;
  for (const std::string& bytes : out_) {
    buffers.emplace_back(bytes.data() + skip, bytes.size() - skip);
    skip = 0;
    if (buffers.size() == kMaxWriteBuffers) break;
  }
  ArmWriteTimer();
  stream_->WriteSome(buffers, [self = shared_from_this()](IoCode ec, size_t bytes) { self->OnWritten(ec, bytes); });
}

void HttpConnection::OnWritten(IoCode ec, size_t bytes) {
  writing_ = false;
  if (state_ == State::kClosed) return;
  ++write_epoch_;
  if (ec) return Close();
  out_bytes_ -= bytes;
  out_offset_ += bytes;
  while (!out_.empty() && out_offset_ >= out_.front().size()) {
    out_offset_ -= out_.front().size();
    out_.pop_front();
  }
  if (!out_.empty()) return WriteMore();
  write_timer_.cancel();
  if (answered_ && state_ == State::kBusy) FinishAnswer();
}

void HttpConnection::FinishAnswer() {
  on_gone_ = nullptr;
  shared_->bodies_bytes -= body_counted_;
  body_counted_ = 0;
  if (keep_alive_ && !shared_->draining && !read_ended_) return NextRequest();
  if ((lingered_bytes_ > 0 || buffer_.size() > 0) && !read_ended_) return Linger();
  // All of the request was read; the close cannot overtake the answer.
  Close();
}

void HttpConnection::Linger() {
  state_ = State::kLingering;
  stream_->ShutdownSend();
  buffer_.clear();
  ArmReadTimer(kLingerSeconds);
  ReadMore();
}

void HttpConnection::PeerGone() {
  if (gone_) gone_->store(true);
  if (auto fn = std::exchange(on_gone_, nullptr)) fn();
}

void HttpConnection::Close() {
  if (state_ == State::kClosed) return;
  const bool unanswered = state_ == State::kBusy && !(answered_ && out_.empty());
  state_ = State::kClosed;
  ++read_epoch_, ++write_epoch_, ++ping_epoch_;
  read_timer_.cancel();
  write_timer_.cancel();
  ping_timer_.cancel();
  stream_->Close();
  shared_->bodies_bytes -= body_counted_;
  body_counted_ = 0;
  if (unanswered) PeerGone();
  on_gone_ = nullptr;
  const auto self = shared_from_this();
  if (shared_->open.erase(self) > 0) --shared_->connections;
}

void HttpConnection::CloseIfIdle() {
  if (state_ == State::kIdle || state_ == State::kHeader || state_ == State::kLingering) Close();
}

void HttpConnection::Expire() {
  if (state_ != State::kBusy) return Close();
  if (answered_) return;  // it is on its way
  const auto self = shared_from_this();
  const uint64_t serial = serial_;
  const auto on_gone = std::exchange(on_gone_, nullptr);
  if (gone_) gone_->store(true);
  if (streaming_) {
    Write(serial, stop_text_);
    End(serial);
  } else {
    Send(serial, ErrorResponse({503, "the server is stopping", "", "unavailable"}));
  }
  if (on_gone) on_gone();
}

void HttpConnection::ArmReadTimer(double seconds) {
  const uint64_t epoch = ++read_epoch_;
  read_timer_.expires_after(Seconds(seconds));
  read_timer_.async_wait([self = shared_from_this(), epoch](IoCode ec) {
    if (!ec && epoch == self->read_epoch_) self->OnReadTimer();
  });
}

void HttpConnection::OnReadTimer() {
  switch (state_) {
    case State::kHeader: return RefuseAndClose(408, "the request's headers did not arrive in time", "timeout");
    case State::kBody: return RefuseAndClose(408, "the request's body did not arrive in time", "timeout");
    case State::kIdle:
    case State::kLingering: return Close();
    case State::kBusy:
    case State::kClosed: return;
  }
}

void HttpConnection::ArmWriteTimer() {
  const uint64_t epoch = ++write_epoch_;
  write_timer_.expires_after(Seconds(shared_->options.limits.write_s));
  write_timer_.async_wait([self = shared_from_this(), epoch](IoCode ec) {
    if (!ec && epoch == self->write_epoch_) self->Close();
  });
}

void HttpConnection::ArmPing() {
  if (idle_text_.empty() || answered_ || state_ != State::kBusy) return;
  const uint64_t epoch = ++ping_epoch_;
  ping_timer_.expires_after(Seconds(shared_->options.limits.ping_s));
  ping_timer_.async_wait([self = shared_from_this(), epoch](IoCode ec) {
    if (!ec && epoch == self->ping_epoch_) self->Write(self->serial_, self->idle_text_);
  });
}

}  // namespace hone
