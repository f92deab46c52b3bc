// ByteStream: the bytes of one connection, plain or TLS, so that http_connection.cc is written once. I/O thread only.
// Private to http_server.cc, http_connection.* and tls.cc; includes Boost.Asio.
#pragma once

#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"

namespace hone {

class ByteStream {
 public:
  using Done = std::function<void(boost::system::error_code, size_t)>;
  virtual ~ByteStream() = default;

  // One read and one write may be under way at a time. After Close their `Done` comes with an error.
  virtual void ReadSome(boost::asio::mutable_buffer buffer, Done done) = 0;
  virtual void WriteSome(const std::vector<boost::asio::const_buffer>& buffers, Done done) = 0;
  virtual void ShutdownSend() = 0;
  virtual void Close() = 0;
};

std::unique_ptr<ByteStream> MakePlainStream(boost::asio::ip::tcp::socket socket);

// A certificate chain and its key, for any number of connections.
class TlsContext {
 public:
  // PEM files. Errors name the file and say what OpenSSL found. TLS 1.2 and later.
  static Result<std::shared_ptr<TlsContext>> Load(const std::string& cert_file, const std::string& key_file);
  virtual ~TlsContext() = default;
  // The handshake is made by the first read or write.
  virtual std::unique_ptr<ByteStream> Accept(boost::asio::ip::tcp::socket socket) = 0;
};

}  // namespace hone
