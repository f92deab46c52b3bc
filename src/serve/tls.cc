// TLS of the server, by OpenSSL through Asio, and the plain stream beside it. The only file that sees their heavy
// headers.
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <boost/asio/post.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <fstream>
#include <optional>
#include <utility>

#include "serve/byte_stream.h"

namespace hone {

namespace asio = boost::asio;
using asio::ip::tcp;

namespace {

using Code = boost::system::error_code;

constexpr auto kGoodbye = std::chrono::milliseconds(500);  // for the client to take the close of the TLS layer

class PlainStream final : public ByteStream {
 public:
  explicit PlainStream(tcp::socket socket) : socket_(std::move(socket)) {
    Code ignored;
    socket_.set_option(tcp::no_delay(true), ignored);
  }
  void ReadSome(asio::mutable_buffer buffer, Done done) override { socket_.async_read_some(buffer, std::move(done)); }
  void WriteSome(const std::vector<asio::const_buffer>& buffers, Done done) override {
    socket_.async_write_some(buffers, std::move(done));
  }
  void ShutdownSend() override {
    Code ignored;
    socket_.shutdown(tcp::socket::shutdown_send, ignored);
  }
  void Close() override {
    Code ignored;
    socket_.close(ignored);
  }

 private:
  tcp::socket socket_;
};

// What one TLS connection is made of. Handlers that are under way hold it, so it outlives the TlsStream by as much.
struct TlsState : std::enable_shared_from_this<TlsState> {
  using Then = std::function<void(Code)>;
  TlsState(tcp::socket socket, std::shared_ptr<asio::ssl::context> c)
      : context(std::move(c)), stream(std::move(socket), *context), timer(stream.get_executor()) {
    Code ignored;
    stream.next_layer().set_option(tcp::no_delay(true), ignored);
  }

  // Calls `then` once the handshake is made, or with its error.
  void WhenOpen(Then then) {
    if (result) return then(*result);
    waiting.push_back(std::move(then));
    if (waiting.size() > 1) return;
    stream.async_handshake(asio::ssl::stream_base::server, [self = shared_from_this()](Code ec) {
      self->result = ec;
      for (Then& next : std::exchange(self->waiting, {})) next(ec);
    });
  }

  void Close() {
    if (std::exchange(closed, true)) return;
    Code ignored;
    stream.next_layer().cancel(ignored);
    if (!result || *result) {
      stream.next_layer().close(ignored);
      return;
    }
    // What was under way ends with an error first; then the client is told that the end is the end.
    asio::post(stream.get_executor(), [self = shared_from_this()] {
      self->stream.async_shutdown([self](Code) {
        Code unused;
        self->timer.cancel();
        self->stream.next_layer().close(unused);
      });
      self->timer.expires_after(kGoodbye);
      self->timer.async_wait([self](Code) {
        Code unused;
        self->stream.next_layer().close(unused);
      });
    });
  }

  std::shared_ptr<asio::ssl::context> context;
  asio::ssl::stream<tcp::socket> stream;
  asio::steady_timer timer;
  std::optional<Code> result;  // of the handshake
  std::vector<Then> waiting;
  bool closed = false;
};

class TlsStream final : public ByteStream {
 public:
  explicit TlsStream(std::shared_ptr<TlsState> state) : state_(std::move(state)) {}
  ~TlsStream() override { state_->Close(); }

  void ReadSome(asio::mutable_buffer buffer, Done done) override {
    state_->WhenOpen([state = state_, buffer, done = std::move(done)](Code ec) mutable {
      if (ec) return done(ec, 0);
      state->stream.async_read_some(buffer, [state, done = std::move(done)](Code e, size_t n) { done(e, n); });
    });
  }
  void WriteSome(const std::vector<asio::const_buffer>& buffers, Done done) override {
    state_->WhenOpen([state = state_, buffers, done = std::move(done)](Code ec) mutable {
      if (ec) return done(ec, 0);
      state->stream.async_write_some(buffers, [state, done = std::move(done)](Code e, size_t n) { done(e, n); });
    });
  }
  void ShutdownSend() override {}  // the close of the TLS layer says it
  void Close() override { state_->Close(); }

 private:
  const std::shared_ptr<TlsState> state_;
};

class OpenSslContext final : public TlsContext {
 public:
  explicit OpenSslContext(std::shared_ptr<asio::ssl::context> context) : context_(std::move(context)) {}
  std::unique_ptr<ByteStream> Accept(tcp::socket socket) override {
    return std::make_unique<TlsStream>(std::make_shared<TlsState>(std::move(socket), context_));
  }

 private:
  std::shared_ptr<asio::ssl::context> context_;
};

}  // namespace

std::unique_ptr<ByteStream> MakePlainStream(tcp::socket socket) {
  return std::make_unique<PlainStream>(std::move(socket));
}

Result<std::shared_ptr<TlsContext>> TlsContext::Load(const std::string& cert_file, const std::string& key_file) {
  for (const std::string& file : {cert_file, key_file}) {
    if (!std::ifstream(file).good())
      return NotFound(file + ": cannot be read; --tls-cert and --tls-key want PEM files");
  }
  try {
    auto context = std::make_shared<asio::ssl::context>(asio::ssl::context::tls_server);
    Code ec;
    context->set_options(asio::ssl::context::default_workarounds | asio::ssl::context::no_sslv2 |
                             asio::ssl::context::no_sslv3 | asio::ssl::context::no_tlsv1 |
                             asio::ssl::context::no_tlsv1_1,
                         ec);
    SSL_CTX_set_mode(context->native_handle(), SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    // OpenSSL would ask the terminal for a pass phrase, which a server mostly lacks.
    bool encrypted = false;
    context->set_password_callback(
        [&encrypted](size_t, asio::ssl::context::password_purpose) {
          encrypted = true;
          return std::string();
        },
        ec);
    context->use_certificate_chain_file(cert_file, ec);
    if (ec) return InvalidInput(cert_file + ": is not a certificate chain in PEM: " + ec.message());
    context->use_private_key_file(key_file, asio::ssl::context::pem, ec);
    // The callback is never called again, and what it captured ends here.
    SSL_CTX_set_default_passwd_cb(context->native_handle(), nullptr);
    if (encrypted) {
      return InvalidInput(key_file + ": is encrypted with a pass phrase; wanted a plain key, made by openssl pkey -in " +
                          key_file + " -out PLAIN.pem");
    }
    if (ec) return InvalidInput(key_file + ": is not the private key (PEM) of " + cert_file + ": " + ec.message());
    if (SSL_CTX_check_private_key(context->native_handle()) != 1) {
      ERR_clear_error();
      return InvalidInput(key_file + ": is not the private key of " + cert_file);
    }
    return std::shared_ptr<TlsContext>(std::make_shared<OpenSslContext>(std::move(context)));
  } catch (const std::exception& e) {
    return Error{ErrorCode::kInternal, std::string("TLS cannot be set up: ") + e.what()};
  }
}

}  // namespace hone
