// step = schedule -> execute -> sample -> commit. Everything but the mailbox belongs to the thread that steps.
//
// Submit and Cancel only put mail into a box; a step opens it first, so a cancelled sequence never takes part in the
// next step. Callbacks run at the end of a step, without a lock, after blocks and places of finished sequences are
// free.
#include "engine/engine.h"

#include <fmt/core.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <random>
#include <thread>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "cache/block_pool.h"
#include "cache/free_memory.h"
#include "cache/kv_cache.h"
#include "engine/engine_options.h"
#include "engine/scheduler.h"
#include "engine/sequence.h"

namespace hone {
namespace {

class CacheLayers final : public KvLayers {
 public:
  explicit CacheLayers(const KvCache* cache) : cache_(cache) {}
  KvView View(int layer, const int32_t* blocks) const override { return cache_->View(layer, blocks); }

 private:
  const KvCache* cache_;
};

class EngineImpl final : public Engine {
 public:
  EngineImpl(std::shared_ptr<Model> model, std::shared_ptr<const Tokenizer> tokenizer, const Runtime& runtime,
             const ResolvedOptions& resolved);
  ~EngineImpl() override { Stop(); }

  Result<SequenceId> Submit(SequenceRequest request, EventCallback callback) override;
  void Cancel(SequenceId id) override;
  bool Step() override;
  void Start() override;
  void Stop() override;
  EngineStats stats() const override;
  const ModelConfig& model_config() const override { return model_->config(); }
  const Tokenizer& tokenizer() const override { return *tokenizer_; }
  const EngineOptions& options() const override { return options_; }

 private:
  struct Mail {
    std::unique_ptr<Sequence> submitted;  // or, if empty,
    SequenceId cancelled = 0;
  };
  struct Delivery {
    SequenceEvent event;
    EventCallback last;                       // a finished sequence leaves its callback here
    const EventCallback* callback = nullptr;  // of one that goes on; null: `last`
  };

  void Loop();
  bool RunStep();
  bool ReadMail();
  void Execute(const StepBatch& batch);
  void Sample();
  void Commit(const StepBatch& batch);
  void Finish(SequenceId id, SequenceEvent event);
  void CancelAll();
  void Deliver();
  double Now() const { return runtime_.clock->Now(); }
  Sequence& Get(SequenceId id) { return *sequences_.at(id); }

  const std::shared_ptr<Model> model_;
  const std::shared_ptr<const Tokenizer> tokenizer_;
  const Runtime runtime_;
  const EngineOptions options_;
  const std::vector<int32_t> end_ids_;

  BlockPool pool_;
  KvCache cache_;
  const CacheLayers layers_;
  Scheduler scheduler_;
  std::unordered_map<SequenceId, std::unique_ptr<Sequence>> sequences_;

  // The step under way; reserved for the largest one.
  std::vector<int32_t> tokens_;
  std::vector<SequenceRows> rows_;
  std::vector<int32_t> logit_rows_;
  std::vector<Sequence*> sampling_;  // one a logit row
  std::vector<TokenResult> chosen_;  // one a logit row
  Buffer logits_;                    // [max_sequences][V]
  std::vector<Candidates> scratch_;  // one a thread
  std::vector<Delivery> deliveries_, delivering_;
  EngineStats counted_;  // the sums, before they are published

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable wake_;
  std::vector<Mail> mail_;
  EngineStats published_;
  int in_flight_ = 0;  // submitted and not finished
  SequenceId last_id_ = 0;
  Rng seeds_;
  bool closed_ = false, stopping_ = false;

  std::mutex lifecycle_;  // Start and Stop, one at a time
  std::thread thread_;
};

uint64_t RandomSeed() {
  std::random_device device;
  return (uint64_t{device()} << 32) ^ device();
}

EngineImpl::EngineImpl(std::shared_ptr<Model> model, std::shared_ptr<const Tokenizer> tokenizer, const Runtime& runtime,
                       const ResolvedOptions& resolved)
    : model_(std::move(model)),
      tokenizer_(std::move(tokenizer)),
      runtime_(runtime),
      options_(resolved.options),
      end_ids_(tokenizer_->end_ids()),
      pool_(resolved.cache.blocks),
      cache_(resolved.cache),
      layers_(&cache_),
      scheduler_({.step_tokens = options_.step_tokens, .max_sequences = options_.max_sequences}, &pool_),
      logits_(sizeof(float) * options_.max_sequences * model_->config().vocab),
      scratch_(runtime.threads != nullptr ? runtime.threads->count() : 1),
      seeds_(RandomSeed()) {
  tokens_.reserve(options_.step_tokens);
  rows_.reserve(options_.max_sequences);
  logit_rows_.reserve(options_.max_sequences);
  sampling_.reserve(options_.max_sequences);
  chosen_.resize(options_.max_sequences);
  deliveries_.reserve(2 * options_.max_sequences);
  delivering_.reserve(2 * options_.max_sequences);
  for (Candidates& scratch : scratch_) scratch.Reserve(model_->config().vocab);
  published_.blocks = counted_.blocks = pool_.blocks();
}

Result<SequenceId> EngineImpl::Submit(SequenceRequest request, EventCallback callback) {
  HONE_RETURN_IF_ERROR(CheckRequest(request, model_->config().vocab, options_.context));
  HONE_CHECK(callback != nullptr);
  SequenceId id = 0;
  uint64_t seed = 0;
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return Error{ErrorCode::kCancelled, "the engine is stopped"};
    if (in_flight_ >= options_.max_sequences + options_.max_queue) {
      return Error{ErrorCode::kLimit,
                   fmt::format("the queue is full: {} sequences run or wait; try again later", in_flight_)};
    }
    ++in_flight_;
    id = ++last_id_;
    // 53 bits: every JSON reader gives such a seed back as it was.
    seed = request.sampling.seed.value_or(seeds_.Next() >> 11);
  }
  auto sequence = std::make_unique<Sequence>(id, std::move(request), std::move(callback), seed, options_.context,
                                             tokenizer_, end_ids_, Now());
  const std::lock_guard lock(mutex_);
  if (closed_) {  // stopped between the two locks: nobody would read the mail
    --in_flight_;
    return Error{ErrorCode::kCancelled, "the engine is stopped"};
  }
  mail_.push_back({std::move(sequence), 0});
  wake_.notify_one();
  return id;
}

void EngineImpl::Cancel(SequenceId id) {
  const std::lock_guard lock(mutex_);
  if (closed_ || id == 0 || id > last_id_) return;
  mail_.push_back({nullptr, id});
  wake_.notify_one();
}

EngineStats EngineImpl::stats() const {
  const std::lock_guard lock(mutex_);
  EngineStats stats = published_;
  stats.waiting = std::max(0, in_flight_ - stats.running);
  return stats;
}

bool EngineImpl::Step() {
  HONE_CHECK(!thread_.joinable(), "Step beside a started engine");
  return RunStep();
}

bool EngineImpl::RunStep() {
  bool worked = ReadMail();
  if (const StepBatch& batch = scheduler_.Schedule(); !batch.sequences.empty()) {
    Execute(batch);
    Sample();
    Commit(batch);
    worked = true;
  }
  Deliver();
  return worked;
}

bool EngineImpl::ReadMail() {
  std::vector<Mail> mail;
  {
    const std::lock_guard lock(mutex_);
    mail.swap(mail_);
  }
  for (Mail& item : mail) {
    if (item.submitted != nullptr) {
      Sequence& sequence = *item.submitted;
      // ResolveOptions gives the pool at least one context, and no sequence is longer.
      HONE_CHECK(scheduler_.Add(sequence.id(), static_cast<int>(sequence.tokens().size()), sequence.final_length()));
      sequences_[sequence.id()] = std::move(item.submitted);
    } else if (const auto it = sequences_.find(item.cancelled); it != sequences_.end()) {
      Finish(item.cancelled, it->second->End(FinishReason::kCancelled, "", Now()));
    }
  }
  return !mail.empty();
}

// One forward pass over the rows of all sequences in the batch.
void EngineImpl::Execute(const StepBatch& batch) {
  tokens_.clear();
  rows_.clear();
  logit_rows_.clear();
  sampling_.clear();
  const double now = Now();
  for (const SequenceId id : batch.admitted) Get(id).Admitted(now);
  for (const StepSequence& step : batch.sequences) {
    Sequence& sequence = Get(step.id);
    const auto ids = sequence.tokens().subspan(step.first_position, step.rows);
    rows_.push_back({.first_row = static_cast<int>(tokens_.size()),
                     .rows = step.rows,
                     .first_position = step.first_position,
                     .final_length = sequence.final_length(),
                     .blocks = scheduler_.blocks(step.id).data()});
    tokens_.insert(tokens_.end(), ids.begin(), ids.end());
    if (!step.samples) continue;
    logit_rows_.push_back(static_cast<int32_t>(tokens_.size()) - 1);
    sampling_.push_back(&sequence);
  }
  model_->Forward({.tokens = tokens_, .sequences = rows_, .logit_rows = logit_rows_}, layers_, logits_.as<float>());
}

// Each sequence chooses from its own logits with its own state, so it does not matter which thread does it.
void EngineImpl::Sample() {
  const size_t count = sampling_.size(), vocab = model_->config().vocab;
  const auto choose = [&](size_t begin, size_t end, Candidates* scratch) {
    for (size_t i = begin; i < end; ++i) {
      chosen_[i] = sampling_[i]->Choose(std::span(logits_.as<float>() + i * vocab, vocab), scratch);
    }
  };
  if (count <= 1 || runtime_.threads == nullptr) return choose(0, count, &scratch_[0]);
  runtime_.threads->Run([&](int worker) {
    const auto [begin, end] = runtime_.threads->Range(count, 1, worker);
    choose(begin, end, &scratch_[worker]);
  });
}

void EngineImpl::Commit(const StepBatch& batch) {
  const double now = Now();
  scheduler_.Commit();
  ++counted_.steps;
  for (const StepSequence& step : batch.sequences) {
    counted_.prompt_tokens += Get(step.id).CountPrompt(step.first_position + step.rows);
  }
  for (size_t i = 0; i < sampling_.size(); ++i) {
    Sequence& sequence = *sampling_[i];
    if (chosen_[i].id < 0) {
      Finish(sequence.id(),
             sequence.End(FinishReason::kError,
                          "no token is left to choose: the model's logits are not numbers, or the request's "
                          "bans exclude every token",
                          now));
      continue;
    }
    ++counted_.output_tokens;
    SequenceEvent event = sequence.Take(std::move(chosen_[i]), now);
    if (event.finish != FinishReason::kNone) {
      Finish(sequence.id(), std::move(event));
    } else {
      scheduler_.Append(sequence.id());
      deliveries_.push_back({std::move(event), nullptr, &sequence.callback});
    }
  }
}

// The sequence is gone; its last event is on its way.
void EngineImpl::Finish(SequenceId id, SequenceEvent event) {
  deliveries_.push_back({std::move(event), std::move(Get(id).callback), nullptr});
  scheduler_.Remove(id);
  sequences_.erase(id);
}

void EngineImpl::Deliver() {
  counted_.running = scheduler_.running();
  counted_.blocks_used = pool_.used_blocks();
  counted_.preemptions = scheduler_.preemptions();
  const auto is_last = [](const Delivery& delivery) { return delivery.event.finish != FinishReason::kNone; };
  {
    const std::lock_guard lock(mutex_);
    published_ = counted_;
    in_flight_ -= static_cast<int>(std::count_if(deliveries_.begin(), deliveries_.end(), is_last));
  }
  delivering_.swap(deliveries_);
  for (const Delivery& delivery : delivering_) {
    const EventCallback& callback = delivery.callback != nullptr ? *delivery.callback : delivery.last;
    callback(delivery.event);
  }
  delivering_.clear();
}

void EngineImpl::CancelAll() {
  ReadMail();
  std::vector<SequenceId> ids;
  for (const auto& [id, sequence] : sequences_) ids.push_back(id);
  std::sort(ids.begin(), ids.end());
  for (const SequenceId id : ids) Finish(id, Get(id).End(FinishReason::kCancelled, "", Now()));
  Deliver();
}

void EngineImpl::Loop() {
  for (;;) {
    const bool worked = RunStep();
    std::unique_lock lock(mutex_);
    if (!worked) wake_.wait(lock, [this] { return stopping_ || !mail_.empty(); });
    if (stopping_) break;
  }
  CancelAll();
}

void EngineImpl::Start() {
  const std::lock_guard lifecycle(lifecycle_);
  if (thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    closed_ = stopping_ = false;
  }
  thread_ = std::thread([this] { Loop(); });
}

void EngineImpl::Stop() {
  const std::lock_guard lifecycle(lifecycle_);
  {
    const std::lock_guard lock(mutex_);
    closed_ = stopping_ = true;
    wake_.notify_one();
  }
  if (thread_.joinable()) {
    thread_.join();
    thread_ = std::thread();
  } else {
    CancelAll();
  }
}

}  // namespace

Result<std::vector<SequenceId>> Engine::SubmitGroup(const SequenceRequest& request,
                                                    std::vector<EventCallback> callbacks) {
  std::vector<SequenceId> ids;
  for (size_t i = 0; i < callbacks.size(); ++i) {
    SequenceRequest one = request;
    if (one.sampling.seed) one.sampling.seed = *one.sampling.seed + i;
    Result<SequenceId> id = Submit(std::move(one), std::move(callbacks[i]));
    if (!id) {
      for (const SequenceId other : ids) Cancel(other);
      return std::move(id.error());
    }
    ids.push_back(*id);
  }
  return ids;
}

std::vector<StepRecord> Engine::StepsAfter(uint64_t) const { return {}; }

std::vector<std::string> SchedulingPolicies() { return {"fcfs"}; }

Result<std::unique_ptr<Engine>> Engine::Create(std::shared_ptr<Model> model, std::shared_ptr<const Tokenizer> tokenizer,
                                               const Runtime& runtime, const EngineOptions& options) {
  HONE_CHECK(model != nullptr && tokenizer != nullptr && runtime.clock != nullptr);
  HONE_TRY(const ResolvedOptions resolved,
           ResolveOptions(options, model->config(), model->options(), FreeMemoryBytes()));
  return std::unique_ptr<Engine>(
      std::make_unique<EngineImpl>(std::move(model), std::move(tokenizer), runtime, resolved));
}

}  // namespace hone
