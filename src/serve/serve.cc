// Ties the parts together and decides the order in which they end: sockets first, then workers. The engine is the
// caller's.
#include "serve/serve.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "serve/context.h"
#include "serve/http_server.h"
#include "serve/router.h"
#include "serve/worker_pool.h"

namespace hone {
namespace {

class HoneServer final : public Server {
 public:
  HoneServer(Engine& engine, std::shared_ptr<const ChatTemplate> chat, ServeOptions options, const Runtime& runtime)
      : context_{engine, std::move(chat), std::move(options), runtime}, workers_(kWorkerThreads, kMaxWorkerQueue) {
    if (context_.options.root.empty()) context_.options.root = context_.options.name;
    context_.created = std::chrono::duration_cast<std::chrono::seconds>(
        std::chrono::system_clock::now().time_since_epoch()).count();
  }
  ~HoneServer() override { Stop(0); }

  Result<void> Listen() {
    HttpOptions options;
    options.host = context_.options.host;
    options.port = context_.options.port;
    options.server_header = "hone/" HONE_VERSION;
    options.limits = context_.options.limits;
    options.log = context_.runtime.log;
    HONE_TRY(http_, HttpServer::Start(std::move(options), [this](HttpRequest request, std::shared_ptr<ResponseWriter> writer) {
      Route(context_, workers_, std::move(request), std::move(writer));
    }));
    return {};
  }

  int port() const override { return http_->port(); }

  void Stop(double drain_s) override {
    context_.stopping = true;
    if (http_ != nullptr) http_->Stop(drain_s);
    workers_.Stop();
    std::lock_guard lock(mutex_);
    stopped_ = true;
    wake_.notify_all();
  }

  void Wait() override {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [this] { return stopped_; });
  }

 private:
  ServeContext context_;
  WorkerPool workers_;
  std::unique_ptr<HttpServer> http_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopped_ = false;
};

}  // namespace

Result<std::unique_ptr<Server>> Server::Start(Engine& engine, std::shared_ptr<const ChatTemplate> chat, ServeOptions options,
                                              const Runtime& runtime) {
  auto server = std::make_unique<HoneServer>(engine, std::move(chat), std::move(options), runtime);
  HONE_RETURN_IF_ERROR(server->Listen());
  return std::unique_ptr<Server>(std::move(server));
}

}  // namespace hone
