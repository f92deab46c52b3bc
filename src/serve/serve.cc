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

std::shared_ptr<ServedModel> FirstModel(LoadedWeights weights, bool owned, const ServeOptions& options) {
  auto model = std::make_shared<ServedModel>();
  model->engine = std::move(weights.engine);
  model->chat = std::move(weights.chat);
  model->root = options.root.empty() ? options.name : options.root;
  model->parameters = weights.parameters;
  model->owned = owned;
  model->fingerprint = WeightsFingerprint(model->number, model->engine->options().weights_digest);
  return model;
}

class HoneServer final : public Server {
 public:
  HoneServer(LoadedWeights first, bool owned, const ServeOptions& options, const Runtime& runtime)
      : context_{.models{FirstModel(std::move(first), owned, options), options.loader, runtime.log},
                 .options = options,
                 .runtime = runtime},
        workers_(kWorkerThreads, kMaxWorkerQueue) {
    HONE_CHECK(runtime.clock != nullptr);
    context_.created =
        std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  }
  ~HoneServer() override { Stop(0); }

  Result<void> Listen() {
    const ServeOptions& given = context_.options;
    if (!given.api_keys_file.empty()) {
      HONE_TRY(context_.tenants, Tenants::Read(given.api_keys_file));
    }
    if (!given.admin_key.empty()) context_.admin_key = Sha256(given.admin_key);
    if (!given.access_log.empty()) {
      HONE_TRY(context_.access_log, AccessLog::Open(given.access_log));
    }
    if (given.tls_cert_file.empty() != given.tls_key_file.empty()) {
      return UsageError("--tls-cert and --tls-key: TLS wants both");
    }
    for (const auto& [name, path] : given.adapters) {
      if (auto problem = CheckAdapterName(name, given.name)) return UsageError("--lora " + name + ": " + *problem);
      HONE_RETURN_IF_ERROR(context_.models.LoadAdapter(name, path, false).Context("--lora " + name));
    }
    if (given.warm_up) {
      HONE_TRY(context_.warm, WarmUp(*context_.models.stable()->engine));
    }
    HttpOptions options;
    options.host = given.host;
    options.port = given.port;
    options.server_header = "hone/" HONE_VERSION;
    options.tls_cert_file = given.tls_cert_file;
    options.tls_key_file = given.tls_key_file;
    options.limits = given.limits;
    options.log = context_.runtime.log;
    options.refused = [this](int status, const std::string& code, const std::string& id, const std::string& peer) {
      RequestRecord record;
      record.id = id;
      record.method = record.route = "none";
      record.peer = peer;
      record.status = status;
      record.error_code = code;
      record.arrived_s = context_.Now();
      FinishRecord(context_, record);
    };
    HONE_TRY(http_,
             HttpServer::Start(std::move(options), [this](HttpRequest request, std::shared_ptr<ResponseWriter> writer) {
               Route(context_, workers_, std::move(request), std::move(writer));
             }));
    return {};
  }

  int port() const override { return http_->port(); }

  void Stop(double drain_s) override {
    context_.stopping = true;
    if (http_ != nullptr) http_->Stop(drain_s);
    workers_.Stop();
    context_.models.Stop();
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

namespace {

Result<std::unique_ptr<Server>> StartServer(LoadedWeights first, bool owned, const ServeOptions& options,
                                            const Runtime& runtime) {
  auto server = std::make_unique<HoneServer>(std::move(first), owned, options, runtime);
  HONE_RETURN_IF_ERROR(server->Listen());
  return std::unique_ptr<Server>(std::move(server));
}

}  // namespace

Result<std::unique_ptr<Server>> Server::Start(Engine& engine, std::shared_ptr<const ChatTemplate> chat,
                                              ServeOptions options, const Runtime& runtime) {
  LoadedWeights first{std::shared_ptr<Engine>(std::shared_ptr<void>(), &engine), std::move(chat), options.root};
  return StartServer(std::move(first), false, options, runtime);
}

Result<std::unique_ptr<Server>> Server::Start(LoadedWeights first, ServeOptions options, const Runtime& runtime) {
  if (options.root.empty()) options.root = first.root;
  first.engine->Start();
  return StartServer(std::move(first), true, options, runtime);
}

}  // namespace hone
