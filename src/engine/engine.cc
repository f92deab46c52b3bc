// step = schedule -> execute -> sample -> commit. Everything but the mailbox belongs to the thread that steps.
//
// Submit and Cancel only put mail into a box; a step opens it first, so a cancelled sequence never takes part in the
// next step. Callbacks run at the end of a step, without a lock, after blocks and places of finished sequences are
// free.
#include "engine/engine.h"

#include <fmt/core.h>

#include <algorithm>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <random>
#include <thread>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "cache/block_pool.h"
#include "cache/free_memory.h"
#include "cache/kv_cache.h"
#include "engine/cache_layers.h"
#include "engine/engine_options.h"
#include "engine/scheduler.h"
#include "engine/sequence.h"
#include "engine/step_controller.h"
#include "engine/step_work.h"

namespace hone {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

uint64_t RandomSeed() {
  std::random_device device;
  return (uint64_t{device()} << 32) ^ device();
}

class EngineImpl final : public Engine {
 public:
  EngineImpl(std::shared_ptr<Model> model, std::shared_ptr<const Tokenizer> tokenizer, const Runtime& runtime,
             const ResolvedOptions& resolved);
  ~EngineImpl() override { Stop(); }

  Result<SequenceId> Submit(SequenceRequest request, EventCallback callback) override;
  Result<std::vector<SequenceId>> SubmitGroup(const SequenceRequest& request,
                                              std::vector<EventCallback> callbacks) override;
  void Cancel(SequenceId id) override;
  bool Step() override;
  void Start() override;
  void Stop() override;
  EngineStats stats() const override;
  std::vector<StepRecord> StepsAfter(uint64_t after) const override;
  Result<std::shared_ptr<const Adapter>> LoadAdapter(const std::string& path) const override {
    return model_->LoadAdapter(path);
  }
  const ModelConfig& model_config() const override { return model_->config(); }
  uint64_t weight_bytes() const override { return model_->weight_bytes(); }
  const Tokenizer& tokenizer() const override { return *tokenizer_; }
  const EngineOptions& options() const override { return options_; }

 private:
  struct Mail {
    std::unique_ptr<Sequence> submitted;  // or, if empty,
    SequenceId cancelled = 0;
    std::string root;  // of the submitted sequence: with whom it shares blocks
  };
  struct Delivery {
    SequenceEvent event;
    EventCallback last;                       // a finished sequence leaves its callback here
    const EventCallback* callback = nullptr;  // of one that goes on; null: `last`
  };

  void Loop();
  bool RunStep();
  bool ReadMail();
  void Admit(Mail* mail);
  void EndLate();
  void BeginSequences(const StepBatch& batch);
  void CommitTokens(double now);
  void CommitPrompts(const StepBatch& batch, double now);
  void Record(double ms);
  void CountAdapters();
  void Finish(SequenceId id, SequenceEvent event);
  void CancelAll();
  void Deliver();
  std::string RootOf(const Sequence& sequence, SequenceId group) const;
  std::shared_ptr<TokenGrammar> TokensOf(const std::shared_ptr<const Grammar>& grammar);
  double EndOfQueueing(const Sequence& sequence) const;
  double EndOfTime(const Sequence& sequence) const;
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

  StepWork work_;
  StepController controller_;
  double next_late_ = kNever;  // nobody is late before
  std::vector<Delivery> deliveries_, delivering_;
  StepRecord record_;    // of the last step; number 0: there was none
  EngineStats counted_;  // the sums, before they are published

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable wake_;
  std::vector<Mail> mail_;
  EngineStats published_;
  std::vector<StepRecord> records_;  // a ring of kStepRecords, by number
  int in_flight_ = 0;  // submitted and not finished
  SequenceId last_id_ = 0;
  Rng seeds_;
  bool closed_ = false, stopping_ = false;

  std::mutex grammars_mutex_;  // guards the two that follow
  std::shared_ptr<const TokenBytesTable> token_bytes_;    // made for the first grammar
  std::vector<std::shared_ptr<TokenGrammar>> grammars_;  // the latest, at most kMaxGrammars

  std::mutex lifecycle_;  // Start and Stop, one at a time
  std::thread thread_;
};

// Which of the two sets of factors of longrope a sequence of this length has, for all kinds of layers.
int LongFactors(const ModelConfig& config, int length) {
  return static_cast<int>(std::count_if(config.ropes.begin(), config.ropes.end(), [length](const RopeConfig& rope) {
    return rope.scaling == RopeScaling::kLongRope && length > rope.original_context;
  }));
}

void CountAdapter(const Sequence& sequence, bool runs, std::vector<AdapterSequences>* counts) {
  if (sequence.request().adapter == nullptr) return;
  const std::string& name = sequence.request().adapter_name;
  auto it = std::lower_bound(counts->begin(), counts->end(), name, [](const auto& one, const std::string& key) { return one.name < key; });
  if (it == counts->end() || it->name != name) it = counts->insert(it, {.name = name});
  ++(runs ? it->running : it->waiting);
}

SchedulerLimits LimitsOf(const EngineOptions& options) {
  return {.step_tokens = options.step_tokens,
          .max_sequences = options.max_sequences,
          .prompt_logit_rows = std::min(kPromptLogitRows, options.step_tokens),
          .policy = FindPolicy(options.policy),
          .keep = options.prefix_cache,
          .secret = RandomSeed()};
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
      layers_(cache_),
      scheduler_(LimitsOf(options_), &pool_),
      work_(options_.step_tokens, options_.max_sequences, options_.max_sequences + kPromptLogitRows,
            model_->config().vocab, runtime.threads != nullptr ? runtime.threads->count() : 1),
      controller_(options_.step_ms, options_.step_tokens),
      seeds_(RandomSeed()) {
  deliveries_.reserve(2 * options_.max_sequences);
  delivering_.reserve(2 * options_.max_sequences);
  records_.resize(kStepRecords);
  published_.blocks = counted_.blocks = pool_.blocks();
}

Result<SequenceId> EngineImpl::Submit(SequenceRequest request, EventCallback callback) {
  std::vector<EventCallback> callbacks;
  callbacks.push_back(std::move(callback));
  HONE_TRY(const std::vector<SequenceId> ids, SubmitGroup(request, std::move(callbacks)));
  return ids[0];
}

Result<std::vector<SequenceId>> EngineImpl::SubmitGroup(const SequenceRequest& request,
                                                        std::vector<EventCallback> callbacks) {
  HONE_RETURN_IF_ERROR(CheckRequest(request, model_->config().vocab, options_.context));
  if (request.adapter != nullptr && request.adapter->info().model != model_.get()) {
    return InvalidInput(request.adapter->info().path + ": the adapter was loaded for other weights");
  }
  const int count = static_cast<int>(callbacks.size());
  SequenceId first = 0;
  std::vector<uint64_t> seeds;
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return Error{ErrorCode::kCancelled, "the engine is stopped"};
    if (in_flight_ + count > options_.max_sequences + options_.max_queue) {
      return Error{ErrorCode::kLimit, fmt::format("the queue is full: {} sequences run or wait and {} more are asked "
                                                  "for, of {} at most; try again later",
                                                  in_flight_, count, options_.max_sequences + options_.max_queue)};
    }
    in_flight_ += count;
    first = last_id_ + 1;
    last_id_ += static_cast<SequenceId>(count);
    for (int i = 0; i < count; ++i) {
      // 53 bits: every JSON reader gives such a seed back as it was.
      seeds.push_back(request.sampling.seed ? *request.sampling.seed + static_cast<uint64_t>(i) : seeds_.Next() >> 11);
    }
  }
  const std::shared_ptr<TokenGrammar> grammar = request.grammar != nullptr ? TokensOf(request.grammar) : nullptr;
  std::vector<Mail> mail;
  std::vector<SequenceId> ids;
  for (int i = 0; i < count; ++i) {
    HONE_CHECK(callbacks[i] != nullptr);
    ids.push_back(first + static_cast<SequenceId>(i));
    mail.push_back({std::make_unique<Sequence>(ids.back(), request, std::move(callbacks[i]), seeds[i],
                                               options_.context, tokenizer_, end_ids_,
                                               grammar != nullptr ? GrammarCursor(grammar) : GrammarCursor(), Now()),
                    0, ""});
    mail.back().root = RootOf(*mail.back().submitted, count > 1 ? first : 0);
  }
  const std::lock_guard lock(mutex_);
  if (closed_) {  // stopped between the two locks: nobody would read the mail
    in_flight_ -= count;
    return Error{ErrorCode::kCancelled, "the engine is stopped"};
  }
  for (Mail& item : mail) mail_.push_back(std::move(item));
  wake_.notify_one();
  return ids;
}

// Requests with one grammar share what is learned of it.
std::shared_ptr<TokenGrammar> EngineImpl::TokensOf(const std::shared_ptr<const Grammar>& grammar) {
  const std::lock_guard lock(grammars_mutex_);
  if (token_bytes_ == nullptr) token_bytes_ = std::make_shared<TokenBytesTable>(*tokenizer_);
  const auto known = std::find_if(grammars_.begin(), grammars_.end(), [&](const auto& one) { return one->grammar() == grammar; });
  std::shared_ptr<TokenGrammar> found = known != grammars_.end() ? *known : std::make_shared<TokenGrammar>(grammar, token_bytes_);
  if (known != grammars_.end()) grammars_.erase(known);
  else if (grammars_.size() >= static_cast<size_t>(kMaxGrammars)) grammars_.erase(grammars_.begin());
  grammars_.push_back(found);
  return found;
}

// Everything but tokens that the keys and values of a prompt depend on, and the tenant. Without a prefix cache only the
// sequences of a group share their prompt.
std::string EngineImpl::RootOf(const Sequence& sequence, SequenceId group) const {
  if (!options_.prefix_cache) return group == 0 ? "" : fmt::format("group {}", group);
  const std::string format =
      fmt::format("{}/{}", static_cast<int>(options_.kv), LongFactors(model_->config(), sequence.final_length()));
  const Adapter* adapter = sequence.request().adapter.get();
  return PrefixRootText(options_.weights_digest, adapter != nullptr ? adapter->info().content_id : "", format,
                        sequence.request().salt);
}

void EngineImpl::Cancel(SequenceId id) {
  const std::lock_guard lock(mutex_);
  if (closed_ || id == 0 || id > last_id_) return;
  mail_.push_back({nullptr, id, ""});
  wake_.notify_one();
}

EngineStats EngineImpl::stats() const {
  const std::lock_guard lock(mutex_);
  EngineStats stats = published_;
  stats.waiting = std::max(0, in_flight_ - stats.running);
  for (const Mail& mail : mail_) {
    if (mail.submitted != nullptr) CountAdapter(*mail.submitted, false, &stats.adapters);
  }
  return stats;
}

std::vector<StepRecord> EngineImpl::StepsAfter(uint64_t after) const {
  std::vector<StepRecord> result;
  const std::lock_guard lock(mutex_);
  const uint64_t last = published_.steps;
  if (after >= last) return result;
  for (uint64_t number = std::max(after + 1, last > kStepRecords ? last - kStepRecords + 1 : 1); number <= last; ++number) {
    result.push_back(records_[number % kStepRecords]);
  }
  return result;
}

bool EngineImpl::Step() {
  HONE_CHECK(!thread_.joinable(), "Step beside a started engine");
  return RunStep();
}

bool EngineImpl::RunStep() {
  bool worked = ReadMail();
  EndLate();
  const double start = Now();
  pool_.SetNow(start);
  if (const StepBatch& batch = scheduler_.Schedule(controller_.Budget(scheduler_.demand())); !batch.sequences.empty()) {
    BeginSequences(batch);
    for (const BlockCopy& copy : batch.copies) cache_.CopyBlock(copy.from, copy.to);
    work_.Build(batch, scheduler_, [this](SequenceId id) -> Sequence& { return Get(id); });
    work_.Run(*model_, layers_, runtime_.threads);
    const double now = Now();
    scheduler_.Commit();
    CommitPrompts(batch, now);
    CommitTokens(now);
    cache_.TouchAhead(pool_.touched_blocks(), work_.cost().decodes + work_.cost().prompt_tokens, runtime_.threads);
    Record(1e3 * (Now() - start));
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
      Admit(&item);
    } else if (const auto it = sequences_.find(item.cancelled); it != sequences_.end()) {
      ++counted_.cancelled;
      Finish(item.cancelled, it->second->End(FinishReason::kCancelled, Now()));
    }
  }
  return !mail.empty();
}

void EngineImpl::Admit(Mail* mail) {
  Sequence& sequence = *mail->submitted;
  // ResolveOptions gives the pool at least one context, and no sequence is longer.
  HONE_CHECK(scheduler_.Add({.id = sequence.id(),
                             .tokens = sequence.tokens(),
                             .final_length = sequence.final_length(),
                             .priority = sequence.request().priority,
                             .root = std::move(mail->root),
                             .reuse = sequence.MayReusePrefix(),
                             .prompt_logits = sequence.WantsPromptLogits()}));
  next_late_ = std::min({next_late_, EndOfQueueing(sequence), EndOfTime(sequence)});
  sequences_[sequence.id()] = std::move(mail->submitted);
}

double EngineImpl::EndOfQueueing(const Sequence& sequence) const {
  if (sequence.was_admitted()) return kNever;
  const double asked = sequence.request().queue_timeout_s, limit = asked > 0 ? asked : options_.queue_timeout_s;
  return limit > 0 ? sequence.submitted_at() + limit : kNever;
}

double EngineImpl::EndOfTime(const Sequence& sequence) const {
  const double asked = sequence.request().timeout_s, limit = asked > 0 ? asked : options_.request_timeout_s;
  return limit > 0 ? sequence.submitted_at() + limit : kNever;
}

// Sequences whose time is over end before they cost another step.
void EngineImpl::EndLate() {
  const double now = Now();
  if (now < next_late_) return;
  std::vector<SequenceId> late;
  next_late_ = kNever;
  for (const auto& [id, sequence] : sequences_) {
    const double end = std::min(EndOfQueueing(*sequence), EndOfTime(*sequence));
    if (end <= now) {
      late.push_back(id);
    } else {
      next_late_ = std::min(next_late_, end);
    }
  }
  std::sort(late.begin(), late.end());
  for (const SequenceId id : late) {
    Sequence& sequence = Get(id);
    ++counted_.timed_out;
    const bool queueing = EndOfQueueing(sequence) <= now;
    const char* what = queueing ? "it waited in the queue for {:.1f} s, its limit; the server is busy, try again later"
                                : "it took {:.1f} s, its limit of time";
    Finish(id, sequence.Fail(queueing ? EndCause::kQueueTime : EndCause::kRequestTime,
                             fmt::format(fmt::runtime(what), now - sequence.submitted_at()), now));
  }
}

void EngineImpl::BeginSequences(const StepBatch& batch) {
  const double now = Now();
  for (const SequenceId id : batch.preempted) Get(id).Preempted();
  for (const Admission& admission : batch.admitted) {
    Sequence& sequence = Get(admission.id);
    if (!sequence.Admitted(now, admission.cached) || !options_.prefix_cache || !sequence.MayReusePrefix()) continue;
    counted_.prefix_query_tokens += static_cast<uint64_t>(sequence.prompt_tokens());
    counted_.prefix_hit_tokens += static_cast<uint64_t>(admission.cached);
  }
}

void EngineImpl::CommitPrompts(const StepBatch& batch, double now) {
  for (StepWork::Chosen& chosen : work_.chosen()) {
    if (chosen.prompt_position >= 0) chosen.sequence->TakeScore(std::move(chosen.token));
  }
  for (const StepSequence& step : batch.sequences) {
    Sequence& sequence = Get(step.id);
    counted_.prompt_tokens += static_cast<uint64_t>(sequence.CountPrompt(step.first_position + step.rows));
    if (!step.samples || !sequence.prompt_only()) continue;
    SequenceEvent event = sequence.EndOfPrompt(now);
    counted_.failed += event.finish == FinishReason::kError ? 1 : 0;
    Finish(step.id, std::move(event));
  }
}

void EngineImpl::CommitTokens(double now) {
  for (StepWork::Chosen& chosen : work_.chosen()) {
    if (chosen.prompt_position >= 0) continue;
    Sequence& sequence = *chosen.sequence;
    if (chosen.token.id < 0) {
      ++counted_.failed;
      const bool grammar = sequence.no_token_fits();
      const char* const why = grammar ? "no token of this model's vocabulary goes on within the answer that was asked for"
                                      : "no token is left to choose: the model's logits are not numbers, or the "
                                        "request's bans exclude every token";
      Finish(sequence.id(), sequence.Fail(grammar ? EndCause::kGrammar : EndCause::kLogits, why, now));
      continue;
    }
    ++counted_.output_tokens;
    const int32_t id = chosen.token.id;
    SequenceEvent event = sequence.Take(std::move(chosen.token), now);
    if (event.finish != FinishReason::kNone) {
      Finish(sequence.id(), std::move(event));
    } else {
      scheduler_.Append(sequence.id(), id);
      deliveries_.push_back({std::move(event), nullptr, &sequence.callback});
    }
  }
}

void EngineImpl::Record(double ms) {
  StepCost cost = work_.cost();
  cost.ms = ms;
  controller_.Observe(cost);
  counted_.step_tokens.Add(cost.decodes + cost.prompt_tokens, kStepTokenBounds);
  record_ = {.number = ++counted_.steps,
             .prompt_tokens = cost.prompt_tokens,
             .decode_tokens = cost.decodes,
             .sequences = work_.sequences(),
             .ms = static_cast<float>(ms)};
}

// The sequence is gone; its last event is on its way.
void EngineImpl::Finish(SequenceId id, SequenceEvent event) {
  deliveries_.push_back({std::move(event), std::move(Get(id).callback), nullptr});
  scheduler_.Remove(id);
  sequences_.erase(id);
}

void EngineImpl::CountAdapters() {
  counted_.adapters.clear();
  for (const auto& [id, sequence] : sequences_) CountAdapter(*sequence, scheduler_.Runs(id), &counted_.adapters);
}

void EngineImpl::Deliver() {
  counted_.running = scheduler_.running();
  counted_.blocks_used = pool_.used_blocks();
  counted_.blocks_shared = pool_.shared_blocks();
  counted_.blocks_cached = pool_.cached_blocks();
  counted_.preemptions = scheduler_.preemptions();
  counted_.blocks_copied = scheduler_.copied();
  counted_.blocks_evicted = scheduler_.evicted();
  counted_.block_times = pool_.times();
  CountAdapters();
  const auto is_last = [](const Delivery& delivery) { return delivery.event.finish != FinishReason::kNone; };
  {
    const std::lock_guard lock(mutex_);
    published_ = counted_;
    if (record_.number == counted_.steps) records_[record_.number % kStepRecords] = record_;
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
  counted_.cancelled += ids.size();
  for (const SequenceId id : ids) Finish(id, Get(id).End(FinishReason::kCancelled, Now()));
  Deliver();
}

void EngineImpl::Loop() {
  for (;;) {
    const bool worked = RunStep() || cache_.TouchAhead(pool_.touched_blocks(), 0, runtime_.threads);
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

Result<std::shared_ptr<const Adapter>> Engine::LoadAdapter(const std::string& path) const {
  return Unsupported(path + ": this engine takes no adapters");
}

std::vector<std::string> SchedulingPolicies() {
  std::vector<std::string> names;
  for (const Policy* policy : Policies()) names.emplace_back(policy->name);
  return names;
}

Result<std::unique_ptr<Engine>> Engine::Create(std::shared_ptr<Model> model, std::shared_ptr<const Tokenizer> tokenizer,
                                               const Runtime& runtime, const EngineOptions& options) {
  HONE_CHECK(model != nullptr && tokenizer != nullptr && runtime.clock != nullptr);
  HONE_TRY(const ResolvedOptions resolved,
           ResolveOptions(options, model->config(), model->options(), FreeMemoryBytes()));
  return std::unique_ptr<Engine>(
      std::make_unique<EngineImpl>(std::move(model), std::move(tokenizer), runtime, resolved));
}

}  // namespace hone
