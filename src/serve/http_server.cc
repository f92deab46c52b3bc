// See http_server.h: the listener and the I/O thread.
#include "serve/http_server.h"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/post.hpp>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <thread>

#include "serve/http_connection.h"

namespace hone {

namespace asio = boost::asio;
using asio::ip::tcp;

namespace {

class BeastServer final : public HttpServer {
 public:
  explicit BeastServer(std::shared_ptr<HttpShared> shared)
      : shared_(std::move(shared)), acceptor_(shared_->io), retry_(shared_->io), drain_(shared_->io),
        work_(asio::make_work_guard(shared_->io)) {}
  ~BeastServer() override { Stop(0); }

  Result<void> Bind() {
    const HttpOptions& options = shared_->options;
    if (!options.tls_cert_file.empty() || !options.tls_key_file.empty()) {
      HONE_TRY(tls_, TlsContext::Load(options.tls_cert_file, options.tls_key_file));
    }
    boost::system::error_code ec;
    const std::string host = options.host == "localhost" ? "127.0.0.1" : options.host;
    const asio::ip::address address = asio::ip::make_address(host, ec);
    if (ec) return UsageError("--host " + options.host + ": not an IP address (try 127.0.0.1, 0.0.0.0 or ::1)");
    if (options.port < 0 || options.port > 65535) {
      return UsageError("--port " + std::to_string(options.port) + ": not in 0..65535");
    }
    const tcp::endpoint endpoint(address, static_cast<unsigned short>(options.port));
    acceptor_.open(endpoint.protocol(), ec);
    if (!ec) acceptor_.set_option(tcp::acceptor::reuse_address(true), ec);
    if (!ec) acceptor_.bind(endpoint, ec);
    if (!ec) acceptor_.listen(asio::socket_base::max_listen_connections, ec);
    if (ec) {
      const std::string where = options.host + ":" + std::to_string(options.port);
      if (ec == boost::system::errc::address_in_use) {
        return IoError("port " + std::to_string(options.port) + " of " + options.host +
                       " is in use by another program; choose another with --port, or --port 0 for any free one");
      }
      if (ec == boost::system::errc::permission_denied) {
        return IoError("cannot listen on " + where + ": not allowed; ports below 1024 need rights, choose another with --port");
      }
      return IoError("cannot listen on " + where + ": " + ec.message());
    }
    port_ = acceptor_.local_endpoint(ec).port();
    return {};
  }

  void Run() {
    Accept();
    thread_ = std::thread([this] { shared_->io.run(); });
  }

  int port() const override { return port_; }
  size_t connections() const override { return shared_->connections; }

  void Stop(double drain_s) override {
    std::lock_guard lock(stop_mutex_);
    if (!thread_.joinable()) return;
    shared_->draining = true;
    shared_->Post([this, drain_s] { Drain(drain_s); });
    work_.reset();
    thread_.join();
    {
      std::lock_guard closing(shared_->mutex);
      shared_->closed = true;
    }
    // Tasks posted while the thread went: run them, so that nothing that they hold is kept in a loop.
    shared_->io.restart();
    shared_->io.poll();
  }

 private:
  void Accept() {
    acceptor_.async_accept([this](boost::system::error_code ec, tcp::socket socket) {
      if (!acceptor_.is_open()) return;
      if (ec) {  // out of file descriptors, mostly: later
        retry_.expires_after(std::chrono::milliseconds(100));
        retry_.async_wait([this](boost::system::error_code failed) {
          if (!failed && acceptor_.is_open()) Accept();
        });
        return;
      }
      boost::system::error_code unknown;
      const auto remote = socket.remote_endpoint(unknown);
      const std::string peer = unknown ? "" : remote.address().to_string(unknown);
      auto connection = std::make_shared<HttpConnection>(
          shared_, tls_ != nullptr ? tls_->Accept(std::move(socket)) : MakePlainStream(std::move(socket)), peer);
      // Those refused wait a moment for their answer to be read; beyond as many again there is no answer either.
      const size_t most = shared_->options.limits.connections;
      if (shared_->open.size() >= most) CloseIdle();
      const bool full = shared_->open.size() >= most;
      if (shared_->open.size() >= 2 * most) return Accept();
      shared_->open.insert(connection);
      ++shared_->connections;
      if (full) connection->Refuse(503, "too many connections", "overloaded");
      else connection->Start();
      Accept();
    });
  }

  // Clients keep connections for a next request that may never come: the one that waits longest makes room.
  void CloseIdle() {
    std::shared_ptr<HttpConnection> longest;
    for (const auto& connection : shared_->open) {
      if (connection->idle() && (longest == nullptr || connection->idle_turn() < longest->idle_turn())) longest = connection;
    }
    if (longest != nullptr) longest->Close();
  }

  void Drain(double drain_s) {
    const auto open = shared_->open;  // a copy: closing erases
    for (const auto& connection : open) connection->CloseIfIdle();
    drain_.expires_after(std::chrono::duration_cast<std::chrono::steady_clock::duration>(
        std::chrono::duration<double>(drain_s)));
    deadline_ = drain_.expiry();
    WaitForLast();
  }

  // Looks every few milliseconds whether the last connection has gone; those that are left at the
  // deadline are told, and closed when they had time to say it.
  void WaitForLast() {
    const bool busy = std::any_of(shared_->open.begin(), shared_->open.end(), [](const auto& c) { return c->busy(); });
    if (!busy) return CloseAll();
    const auto now = std::chrono::steady_clock::now();
    if (now >= deadline_ && !expired_) {
      expired_ = true;
      deadline_ = now + std::chrono::milliseconds(static_cast<int>(1000 * kLastWordSeconds));
      const auto open = shared_->open;
      for (const auto& connection : open) connection->Expire();
      if (shared_->open.empty()) return CloseAll();
    }
    if (now >= deadline_) return CloseAll();
    drain_.expires_at(std::min(deadline_, now + std::chrono::milliseconds(20)));
    drain_.async_wait([this](boost::system::error_code) { WaitForLast(); });
  }

  // The end: nothing is left that keeps the I/O thread.
  void CloseAll() {
    boost::system::error_code ignored;
    acceptor_.close(ignored);
    retry_.cancel();
    const auto open = shared_->open;
    for (const auto& connection : open) connection->Close();
  }

  std::shared_ptr<HttpShared> shared_;
  std::shared_ptr<TlsContext> tls_;
  tcp::acceptor acceptor_;
  asio::steady_timer retry_, drain_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  std::chrono::steady_clock::time_point deadline_;
  bool expired_ = false;  // the deadline has passed, last words are on their way
  std::thread thread_;
  std::mutex stop_mutex_;
  int port_ = 0;
};

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::Start(HttpOptions options, HttpHandler handler) {
  auto shared = std::make_shared<HttpShared>();
  shared->options = std::move(options);
  shared->handler = std::move(handler);
  auto server = std::make_unique<BeastServer>(std::move(shared));
  HONE_RETURN_IF_ERROR(server->Bind());
  server->Run();
  return std::unique_ptr<HttpServer>(std::move(server));
}

}  // namespace hone
