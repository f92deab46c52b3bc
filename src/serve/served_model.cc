// See served_model.h. The set's thread loads and destroys, both of which may take seconds; everything else is a short
// lock.
#include "serve/served_model.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <utility>

#include "serve/json_writer.h"
#include "serve/limits.h"

namespace hone {
namespace {

constexpr int kWarmUpTenths = 600;  // of a second that new weights may take to warm up before they get requests anyway
constexpr uint64_t kEarlyErrors = 5;  // errors beyond what is allowed that end a canary before its requests are through

}  // namespace

Result<std::shared_ptr<std::atomic<bool>>> WarmUp(Engine& engine) {
  auto warm = std::make_shared<std::atomic<bool>>(false);
  SequenceRequest request;
  const int tokens = std::min(64, engine.options().context - 4);
  request.prompt.assign(static_cast<size_t>(std::max(1, tokens)), engine.tokenizer().bos().value_or(0));
  request.max_tokens = 2;
  request.ignore_end = true;
  request.salt = "hone warm-up";
  HONE_RETURN_IF_ERROR(engine.Submit(std::move(request), [warm](const SequenceEvent& event) {
    if (event.finish != FinishReason::kNone) *warm = true;
  }));
  return warm;
}

std::optional<std::string> CheckAdapterName(const std::string& name, const std::string& model) {
  const auto is_control = [](unsigned char c) { return c < 0x20 || c == 0x7f; };
  if (name.empty() || name.size() > kMaxAdapterNameBytes) {
    return fmt::format("found {} bytes, wanted a name of 1 to {}", name.size(), kMaxAdapterNameBytes);
  }
  if (std::any_of(name.begin(), name.end(), is_control) || FindInvalidUtf8(name) != std::string::npos) {
    return "the name holds a control character or is not UTF-8";
  }
  if (name == model) return "\"" + name + "\" is the name of the model itself";
  return std::nullopt;
}

std::string WeightsFingerprint(int number, const std::string& digest) {
  return fmt::format("hone-{}-w{}{}{}", HONE_VERSION, number, digest.empty() ? "" : "-", digest.substr(0, 12));
}

std::string_view PhaseText(CanaryState::Phase phase) {
  switch (phase) {
    case CanaryState::Phase::kNone:
      return "none";
    case CanaryState::Phase::kLoading:
      return "loading";
    case CanaryState::Phase::kRunning:
      return "running";
    case CanaryState::Phase::kPromoted:
      return "promoted";
    case CanaryState::Phase::kRolledBack:
      return "rolled_back";
    case CanaryState::Phase::kFailed:
      return "failed";
  }
  return "none";
}

CanaryVerdict JudgeCanary(const CanaryRule& rule, const CanarySide& stable, const CanarySide& canary,
                          std::string* why) {
  const double allowed = stable.error_rate() + rule.more_errors;
  const bool through = canary.ended >= static_cast<uint64_t>(rule.requests);
  const bool early = canary.errors >= kEarlyErrors && canary.error_rate() > allowed;
  if (early || (through && canary.error_rate() > allowed)) {
    *why = fmt::format("{} of {} answers of the canary failed, {} of {} of the stable model", canary.errors,
                       canary.ended, stable.errors, stable.ended);
    return CanaryVerdict::kBad;
  }
  if (!through) return CanaryVerdict::kWait;
  const auto slower = [&](std::string_view what, double of_canary, uint64_t n, double of_stable, uint64_t stable_n) {
    if (n == 0 || stable_n == 0 || of_canary <= rule.slower * of_stable) return false;
    *why = fmt::format("{} is {:.3g} s with the canary, {:.3g} s with the stable model", what, of_canary, of_stable);
    return true;
  };
  if (slower("the mean time to the first token", canary.mean_ttft_s(), canary.ttft_count, stable.mean_ttft_s(),
             stable.ttft_count) ||
      slower("the mean time between tokens", canary.mean_tpot_s(), canary.tpot_count, stable.mean_tpot_s(),
             stable.tpot_count)) {
    return CanaryVerdict::kBad;
  }
  *why = fmt::format("{} answers of the canary ended, {} of them failed, and none of its latencies is too high",
                     canary.ended, canary.errors);
  return CanaryVerdict::kGood;
}

ModelSet::ModelSet(std::shared_ptr<ServedModel> first, WeightsLoader loader, Log* log)
    : loader_(std::move(loader)), log_(log), stable_(std::move(first)), rng_(std::random_device{}()) {
  thread_ = std::thread([this] { Loop(); });
}

ModelSet::~ModelSet() { Stop(); }

std::shared_ptr<ServedModel> ModelSet::Pick() {
  std::lock_guard lock(mutex_);
  if (canary_ != nullptr && rng_.Uniform() < state_.share) return canary_;
  return stable_;
}

std::shared_ptr<ServedModel> ModelSet::stable() const {
  std::lock_guard lock(mutex_);
  return stable_;
}

std::shared_ptr<ServedModel> ModelSet::canary() const {
  std::lock_guard lock(mutex_);
  return canary_;
}

std::vector<std::shared_ptr<ServedModel>> ModelSet::all() const {
  std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<ServedModel>> models{stable_};
  if (canary_ != nullptr) models.push_back(canary_);
  models.insert(models.end(), retired_.begin(), retired_.end());
  return models;
}

Result<void> ModelSet::BeginCanary(const std::string& model, double share, const CanaryRule& rule) {
  std::lock_guard lock(mutex_);
  if (!loader_) return UsageError("this server cannot load models");
  if (stop_) return Error{ErrorCode::kCancelled, "the server is stopping"};
  if (state_.phase == CanaryState::Phase::kLoading || state_.phase == CanaryState::Phase::kRunning) {
    return UsageError("a canary (" + state_.model + ") is there already: promote it or roll it back first");
  }
  state_ = {};
  state_.phase = CanaryState::Phase::kLoading;
  state_.model = model;
  state_.share = share;
  state_.rule = rule;
  state_.number = next_number_++;
  to_load_ = {model, state_.number};
  wake_.notify_all();
  return {};
}

Result<void> ModelSet::SetShare(double share) {
  std::lock_guard lock(mutex_);
  if (state_.phase != CanaryState::Phase::kLoading && state_.phase != CanaryState::Phase::kRunning) {
    return UsageError("there is no canary");
  }
  state_.share = share;
  return {};
}

CanarySide ModelSet::Side(const ServedModel& model, const CanarySide& start) const {
  CanarySide side;
  side.ended = model.metrics.finished() - start.ended;
  side.errors = model.metrics.errors() - start.errors;
  side.ttft_count = model.metrics.ttft_s.count() - start.ttft_count;
  side.tpot_count = model.metrics.tpot_s.count() - start.tpot_count;
  side.ttft_s = model.metrics.ttft_s.sum() - start.ttft_s;
  side.tpot_s = model.metrics.tpot_s.sum() - start.tpot_s;
  return side;
}

void ModelSet::Retire(std::shared_ptr<ServedModel> model) {
  retired_.push_back(std::move(model));
  wake_.notify_all();
}

Result<void> ModelSet::Promote(const std::string& why) {
  std::lock_guard lock(mutex_);
  if (canary_ == nullptr) return UsageError("there is no running canary to promote");
  state_.stable_side = Side(*stable_, stable_start_);
  state_.canary_side = Side(*canary_, {});
  state_.phase = CanaryState::Phase::kPromoted;
  state_.why = why;
  if (log_ != nullptr) log_->Info("weights {} ({}) promoted: {}", canary_->number, canary_->root, why);
  Retire(std::exchange(stable_, std::exchange(canary_, nullptr)));
  return {};
}

Result<void> ModelSet::RollBack(const std::string& why) {
  std::lock_guard lock(mutex_);
  if (canary_ == nullptr && state_.phase != CanaryState::Phase::kLoading) {
    return UsageError("there is no canary to roll back");
  }
  if (canary_ != nullptr) {
    state_.stable_side = Side(*stable_, stable_start_);
    state_.canary_side = Side(*canary_, {});
    if (log_ != nullptr) log_->Warn("weights {} ({}) rolled back: {}", canary_->number, canary_->root, why);
    Retire(std::exchange(canary_, nullptr));
  }
  state_.phase = CanaryState::Phase::kRolledBack;
  state_.why = why;
  to_load_.reset();
  return {};
}

void ModelSet::Judge() {
  CanaryVerdict verdict;
  CanaryRule rule;
  std::string why;
  {
    std::lock_guard lock(mutex_);
    if (canary_ == nullptr) return;
    rule = state_.rule;
    verdict = JudgeCanary(rule, Side(*stable_, stable_start_), Side(*canary_, {}), &why);
    state_.verdict = verdict;
    if (verdict != CanaryVerdict::kWait) state_.why = why;
  }
  // Between the lock above and the one below a command may have come first; then these do nothing.
  if (verdict == CanaryVerdict::kGood && rule.promote) (void)Promote("by rule: " + why);
  if (verdict == CanaryVerdict::kBad && rule.roll_back) (void)RollBack("by rule: " + why);
}

CanaryState ModelSet::state() const {
  std::lock_guard lock(mutex_);
  CanaryState state = state_;
  if (canary_ != nullptr) {
    state.stable_side = Side(*stable_, stable_start_);
    state.canary_side = Side(*canary_, {});
  }
  return state;
}

// The stable model's adapters, for other weights.
Result<void> ModelSet::LoadAdaptersFor(ServedModel& model) {
  for (const auto& [name, adapter] : *stable()->adapters.get()) {
    HONE_TRY(std::shared_ptr<const Adapter> same,
             model.engine->LoadAdapter(adapter->info().path).Context("adapter " + name));
    model.adapters.Set(name, std::move(same));
  }
  return {};
}

Result<void> ModelSet::LoadAdapter(const std::string& name, const std::string& path, bool in_place) {
  std::lock_guard adapters(adapters_);
  std::vector<std::shared_ptr<ServedModel>> models{stable()};
  if (auto beside = canary()) models.push_back(std::move(beside));
  const std::shared_ptr<const AdapterMap> there = models[0]->adapters.get();
  const bool known = there->count(name) != 0;
  if (known && !in_place) {
    return UsageError("adapter \"" + name + "\" is there already (from " + there->at(name)->info().path +
                      "): unload it first, or say load_inplace");
  }
  if (!known && there->size() >= kMaxAdapters) {
    return Error{ErrorCode::kLimit, fmt::format("{} adapters are loaded, as many as this server takes", kMaxAdapters)};
  }
  std::vector<std::shared_ptr<const Adapter>> loaded;
  for (const auto& model : models) {
    HONE_TRY(loaded.emplace_back(), model->engine->LoadAdapter(path));
  }
  for (size_t i = 0; i < models.size(); ++i) models[i]->adapters.Set(name, std::move(loaded[i]));
  if (log_ != nullptr) log_->Info("adapter {} loaded from {}", name, path);
  return {};
}

bool ModelSet::UnloadAdapter(const std::string& name) {
  std::lock_guard adapters(adapters_);
  if (stable()->adapters.get()->count(name) == 0) return false;
  stable()->adapters.Set(name, nullptr);
  if (const auto beside = canary()) beside->adapters.Set(name, nullptr);
  if (log_ != nullptr) log_->Info("adapter {} unloaded; requests that use it go on", name);
  return true;
}

void ModelSet::Load(const std::string& name, int number) {
  Result<LoadedWeights> loaded = loader_(name);
  std::shared_ptr<ServedModel> model;
  if (loaded) {
    model = std::make_shared<ServedModel>();
    model->engine = std::move(loaded->engine);
    model->chat = std::move(loaded->chat);
    model->root = std::move(loaded->root);
    model->parameters = loaded->parameters;
    model->number = number;
    model->fingerprint = WeightsFingerprint(number, model->engine->options().weights_digest);
    model->engine->Start();
    if (const auto warm = WarmUp(*model->engine)) {
      for (int i = 0; i < kWarmUpTenths && !(*warm)->load(); ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  }
  // From here on no adapter comes or goes until the canary is there.
  std::lock_guard adapters(adapters_);
  if (model != nullptr) {
    if (Result<void> result = LoadAdaptersFor(*model); !result) loaded = std::move(result).error();
  }
  std::lock_guard lock(mutex_);
  if (stop_ || state_.phase != CanaryState::Phase::kLoading || state_.number != number) {
    if (model != nullptr) Retire(std::move(model));  // rolled back while it was loaded
    return;
  }
  if (!loaded) {
    if (model != nullptr) Retire(std::move(model));
    state_.phase = CanaryState::Phase::kFailed;
    state_.why = loaded.error().message;
    if (log_ != nullptr) log_->Error("{} cannot be loaded: {}", name, state_.why);
    return;
  }
  stable_start_ = Side(*stable_, {});
  canary_ = std::move(model);
  state_.phase = CanaryState::Phase::kRunning;
  if (log_ != nullptr)
    log_->Info("weights {} ({}) loaded; they get {:g} of new requests", number, canary_->root, state_.share);
}

void ModelSet::Loop() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (to_load_) {
      const auto [name, number] = *std::exchange(to_load_, std::nullopt);
      lock.unlock();
      Load(name, number);
      lock.lock();
      continue;
    }
    std::vector<std::shared_ptr<ServedModel>> unused;
    for (auto it = retired_.begin(); it != retired_.end();) {
      if (it->use_count() > 1)
        ++it;
      else
        unused.push_back(std::move(*it)), it = retired_.erase(it);
    }
    if (!unused.empty()) {
      lock.unlock();
      for (const auto& model : unused) {
        if (log_ != nullptr)
          log_->Info("weights {} ({}) have no request left and are dropped", model->number, model->root);
        if (model->owned) model->engine->Stop();
      }
      unused.clear();
      lock.lock();
      continue;
    }
    if (retired_.empty())
      wake_.wait(lock);
    else
      wake_.wait_for(lock, std::chrono::milliseconds(20));
  }
}

void ModelSet::Stop() {
  std::vector<std::shared_ptr<ServedModel>> models;
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    wake_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
  {
    std::lock_guard lock(mutex_);
    models = std::exchange(retired_, {});
    if (canary_ != nullptr) models.push_back(std::exchange(canary_, nullptr));
    models.push_back(stable_);
  }
  for (const auto& model : models) {
    if (model->owned) model->engine->Stop();
  }
}

}  // namespace hone
