// Two threads meet in Generation: the engine's puts events into a queue, the I/O thread drains it into chunks or one
// answer. However a request ends (done, failed, abandoned), End() is the last word: what comes after it is dropped.
#include "serve/generation.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <mutex>
#include <utility>

namespace hone {
namespace {

// One salt of two. Where the tenant's ends is said, so that no tenant can complete its own to another's, and that nobody without
// one (the admin, a caller of an open route) can spell a tenant's: those have no line ends.
std::string NarrowedSalt(const std::string& of_tenant, const std::string& of_request) {
  if (of_request.empty()) return of_tenant;
  return of_tenant + of_request + "\n" + std::to_string(of_tenant.size());
}

ApiError Stopping() { return {503, "the server is stopping", "", "unavailable"}; }

// When to come back: the time that the sequences before a new one take, as far as the last ones tell.
int RetryAfter(const ServedModel& model) {
  const EngineStats stats = model.engine->stats();
  const double rounds = static_cast<double>(stats.waiting) / std::max(1, model.engine->options().max_sequences);
  const double seconds = std::ceil(model.metrics.e2e_s.mean() * std::max(1.0, rounds));
  return static_cast<int>(std::clamp(seconds, 1.0, static_cast<double>(kMaxRetryAfterSeconds)));
}

ApiError ErrorOf(const SequenceEvent& event, const ServedModel& model) {
  if (event.finish == FinishReason::kCancelled) return Stopping();
  switch (event.cause) {
    case EndCause::kQueueTime:
      return {429, "the request waited too long for its turn: " + event.error, "", "queue_timeout", RetryAfter(model)};
    case EndCause::kRequestTime:
      return {408, "the request took too long: " + event.error, "", "request_timeout", 1, false};
    case EndCause::kLogits:
      return {500, "generation failed: " + event.error, "", "internal_error", 1, false};
    case EndCause::kGrammar:
      return {400, "generation failed: " + event.error, "", "invalid_value"};
    case EndCause::kNone:
      break;
  }
  return {500, "generation failed: " + event.error, "", "internal_error"};
}

// Owned by the engine's callbacks until its sequences end. The mutex guards what both threads touch.
class Generation : public std::enable_shared_from_this<Generation> {
 public:
  Generation(ServeContext& context, std::shared_ptr<ServedModel> model, const HttpRequest& from,
             GenerationRequest request, std::shared_ptr<ResponseWriter> writer)
      : context_(context),
        model_(std::move(model)),
        request_(std::move(request)),
        record_(from.record),
        writer_(std::move(writer)) {
    for (const PromptChoices& prompt : request_.prompts) {
      for (int i = 0; i < prompt.count; ++i) choices_.push_back({.first_of_prompt = i == 0});
    }
    if (record_ == nullptr) record_ = std::make_shared<RequestRecord>();
    record_->model = request_.model.empty() ? context_.options.name : request_.model;
    record_->weights = model_->number;
    record_->streamed = request_.stream;
    for (PromptChoices& prompt : request_.prompts) {
      // The tenant's salt and the request's narrow each other; a priority of the request counts within the tenant's.
      prompt.sequence.salt = NarrowedSalt(from.caller.cache_salt, prompt.sequence.salt);
      prompt.sequence.priority += from.caller.priority;
    }
  }

  void Run() {
    const EngineOptions& options = model_->engine->options();
    if (const size_t most = static_cast<size_t>(options.max_sequences + options.max_queue);
        choices_.size() > most && !request_.by_turns) {
      return Refuse({400,
                     "the request asks for " + std::to_string(choices_.size()) + " answers, more than the " +
                         std::to_string(most) + " that this server holds at once",
                     "n", "invalid_value"});
    }
    if (context_.generations.fetch_add(1) >= context_.options.request_limits.requests) {
      context_.generations.fetch_sub(1);
      return Refuse({429,
                     "as many requests as this server works on at once (" +
                         std::to_string(context_.options.request_limits.requests) + ") are at work",
                     "", "queue_full", RetryAfter(*model_)});
    }
    counted_ = true;
    if (request_.by_turns) most_at_once_ = static_cast<size_t>(options.max_sequences);
    if (auto error = Submit()) {
      for (const SequenceId id : End()) model_->engine->Cancel(id);
      return Refuse(std::move(*error));
    }
    if (request_.stream) {
      HttpResponse head;
      head.content_type = "text/event-stream; charset=utf-8";
      head.headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
      writer_->StartStream(std::move(head), ": ping\n\n", request_.shape->Failed(Stopping()));
      writer_->Write(request_.shape->Begin());
    }
    writer_->OnGone([self = shared_from_this()] { self->Abandon(); });
    {
      std::lock_guard lock(mutex_);
      listening_ = true;
      if (events_.empty()) return;
      posted_ = true;
    }
    PostDrain();
  }

 private:
  struct Choice {
    bool first_of_prompt = true;
    bool opened = false, finished = false;
    int prompt_tokens = 0, cached_tokens = 0, output_tokens = 0;
    bool began = false;  // a token was seen; the engine's thread only
  };

  // Prompts that are not submitted yet, as many as may run at once. First on the thread of Run; with by_turns again
  // on the I/O thread, each time that some have ended. An error: none of the request may run.
  std::optional<ApiError> Submit() {
    for (; next_prompt_ < request_.prompts.size() && submitted_ - finished_ < most_at_once_; ++next_prompt_) {
      PromptChoices& prompt = request_.prompts[next_prompt_];
      std::vector<EventCallback> callbacks;
      for (int i = 0; i < prompt.count; ++i) {
        const int choice = static_cast<int>(submitted_) + i;
        callbacks.push_back(
            [self = shared_from_this(), choice](const SequenceEvent& event) { self->OnEvent(choice, event); });
      }
      Result<std::vector<SequenceId>> group = SubmitGroup(prompt, std::move(callbacks));
      if (!group) {
        // The queue is full: this one's turn comes when one before it has ended.
        if (request_.by_turns && submitted_ > finished_ && group.error().code == ErrorCode::kLimit) break;
        ApiError error = FromError(group.error());
        if (error.status == 429) error.retry_after_s = RetryAfter(*model_);
        return error;
      }
      model_->metrics.request_n.Observe(prompt.count);
      model_->metrics.request_max_tokens.Observe(prompt.sequence.max_tokens);
      submitted_ += static_cast<size_t>(prompt.count);
      prompt.sequence = {};
      std::lock_guard lock(mutex_);
      ids_.insert(ids_.end(), group->begin(), group->end());
    }
    return std::nullopt;
  }

  Result<std::vector<SequenceId>> SubmitGroup(PromptChoices& prompt, std::vector<EventCallback> callbacks) {
    if (callbacks.size() > 1) return model_->engine->SubmitGroup(prompt.sequence, std::move(callbacks));
    HONE_TRY(const SequenceId id, model_->engine->Submit(prompt.sequence, std::move(callbacks.front())));
    return std::vector<SequenceId>{id};
  }

  void Refuse(ApiError error) {
    Uncount();
    record_->error_code = error.code;
    writer_->Send(ErrorResponse(error));
  }

  // The engine's thread.
  void OnEvent(int choice, const SequenceEvent& event) {
    Measure(choices_[static_cast<size_t>(choice)], event);
    {
      std::lock_guard lock(mutex_);
      if (ended_) return;
      events_.emplace_back(choice, event);
      if (!listening_ || posted_) return;
      posted_ = true;
    }
    PostDrain();
  }

  void Measure(Choice& choice, const SequenceEvent& event) {
    ModelMetrics& metrics = model_->metrics;
    if (!event.tokens.empty()) {
      metrics.generation_tokens.fetch_add(event.tokens.size(), std::memory_order_relaxed);
      if (!std::exchange(choice.began, true)) {
        const double ttft_s = context_.Now() - record_->arrived_s;
        metrics.ttft_s.Observe(ttft_s);
        std::lock_guard lock(mutex_);
        if (first_token_s_ < 0) first_token_s_ = ttft_s;
      } else if (event.since_last_s > 0) {
        metrics.tpot_s.Observe(event.since_last_s / static_cast<double>(event.tokens.size()), event.tokens.size());
      }
    }
    if (event.finish != FinishReason::kStop && event.finish != FinishReason::kLength) return;
    metrics.e2e_s.Observe(context_.Now() - record_->arrived_s);
    metrics.queue_s.Observe(event.queue_s);
    metrics.prefill_s.Observe(event.prefill_s);
    metrics.decode_s.Observe(event.decode_s);
    metrics.inference_s.Observe(event.prefill_s + event.decode_s);
    metrics.request_generation_tokens.Observe(event.output_tokens);
    if (event.output_tokens > 1) metrics.mean_tpot_s.Observe(event.decode_s / (event.output_tokens - 1));
    if (!choice.first_of_prompt) return;
    metrics.request_prompt_tokens.Observe(event.prompt_tokens);
    metrics.request_computed_tokens.Observe(event.prompt_tokens - event.cached_tokens);
    metrics.prompt_tokens.fetch_add(static_cast<uint64_t>(event.prompt_tokens), std::memory_order_relaxed);
    metrics.cached_tokens.fetch_add(static_cast<uint64_t>(event.cached_tokens), std::memory_order_relaxed);
  }

  void PostDrain() {
    writer_->Post([self = shared_from_this()] { self->Drain(); });
  }

  // The I/O thread.
  void Drain() {
    std::deque<std::pair<int, SequenceEvent>> events;
    {
      std::lock_guard lock(mutex_);
      posted_ = false;
      if (ended_) return;
      events.swap(events_);
    }
    std::string out;
    for (const auto& [choice, event] : events) {
      if (!Handle(choice, event, &out)) return;
    }
    if (request_.stream) writer_->Write(std::move(out));
    if (finished_ == choices_.size()) return Finish();
    if (auto error = Submit()) Fail(*error, "");
  }

  // False: the generation has ended with an error.
  bool Handle(int index, const SequenceEvent& event, std::string* out) {
    Choice& choice = choices_[static_cast<size_t>(index)];
    if (choice.finished) return true;
    if (event.finish == FinishReason::kError || event.finish == FinishReason::kCancelled) {
      return Fail(ErrorOf(event, *model_), std::move(*out)), false;
    }
    if (request_.stream) {
      if (!choice.opened) *out += request_.shape->Opening(index, event);
      choice.opened = true;
      *out += request_.shape->Delta(index, event);
    } else {
      request_.shape->Add(index, event);
    }
    choice.prompt_tokens = event.prompt_tokens;
    choice.cached_tokens = event.cached_tokens;
    choice.output_tokens = event.output_tokens;
    if (event.finish == FinishReason::kNone) return true;
    if (request_.stream) *out += request_.shape->Closing(index, event);
    choice.finished = true;
    if (record_->queue_s < 0) record_->queue_s = event.queue_s;
    const bool tools = request_.shape->CalledTools(index);
    const Outcome outcome = tools                                 ? Outcome::kToolCalls
                            : event.finish == FinishReason::kStop ? Outcome::kStop
                                                                  : Outcome::kLength;
    record_->finish = OutcomeText(outcome);
    CountOutcome(outcome, 1);
    ++finished_;
    return true;
  }

  void CountOutcome(Outcome outcome, uint64_t times) {
    model_->metrics.outcomes[static_cast<size_t>(outcome)].fetch_add(times, std::memory_order_relaxed);
  }

  void Finish() {
    const Usage usage = TotalUsage();
    End();
    Record(usage);
    ObserveLongest();
    context_.models.Judge();
    if (!request_.stream) {
      HttpResponse response;
      response.body = request_.shape->Whole(usage);
      return writer_->Send(std::move(response));
    }
    writer_->Write(request_.shape->End(usage));
    writer_->End();
  }

  void Fail(const ApiError& error, std::string out) {
    // Time that ran out is the server's too: weights that are too slow to answer would never be judged otherwise.
    const bool ours = error.status == 500 || error.code == "request_timeout" || error.code == "queue_timeout";
    CountOutcome(ours ? Outcome::kError : Outcome::kAbort, choices_.size() - finished_);
    CancelAll();
    record_->error_code = error.code;
    Record(TotalUsage());
    if (ours) context_.models.Judge();
    if (!request_.stream) return writer_->Send(ErrorResponse(error));
    writer_->Write(out + request_.shape->Failed(error));
    writer_->End();
  }

  // The client is gone.
  void Abandon() {
    CountOutcome(Outcome::kAbort, choices_.size() - finished_);
    CancelAll();
    record_->finish = OutcomeText(Outcome::kAbort);
    Record(TotalUsage());
    writer_->Abort();
  }

  void CancelAll() {
    for (const SequenceId id : End()) model_->engine->Cancel(id);
  }

  // Nothing is handled from now on. The sequences that were not cancelled yet.
  std::vector<SequenceId> End() {
    Uncount();
    std::lock_guard lock(mutex_);
    ended_ = true;
    events_.clear();
    return std::exchange(ids_, {});
  }

  void ObserveLongest() {
    int longest = 0;
    for (size_t i = 0; i < choices_.size(); ++i) {
      longest = std::max(choices_[i].first_of_prompt ? 0 : longest, choices_[i].output_tokens);
      if (i + 1 == choices_.size() || choices_[i + 1].first_of_prompt) model_->metrics.request_longest.Observe(longest);
    }
  }

  void Uncount() {
    if (std::exchange(counted_, false)) context_.generations.fetch_sub(1);
  }

  void Record(const Usage& usage) {
    record_->prompt_tokens = usage.prompt_tokens;
    record_->cached_tokens = usage.cached_tokens;
    record_->completion_tokens = usage.completion_tokens;
    std::lock_guard lock(mutex_);
    record_->ttft_s = first_token_s_;
  }

  Usage TotalUsage() const {
    Usage usage;
    for (const Choice& choice : choices_) {
      usage.completion_tokens += choice.output_tokens;
      if (!choice.first_of_prompt) continue;  // a prompt counts once
      usage.prompt_tokens += choice.prompt_tokens;
      usage.cached_tokens += choice.cached_tokens;
    }
    return usage;
  }

  ServeContext& context_;  // touched before the server has stopped only
  const std::shared_ptr<ServedModel> model_;
  GenerationRequest request_;
  std::shared_ptr<RequestRecord> record_;
  const std::shared_ptr<ResponseWriter> writer_;
  bool counted_ = false;

  std::mutex mutex_;
  std::deque<std::pair<int, SequenceEvent>> events_;
  std::vector<SequenceId> ids_;
  double first_token_s_ = -1;
  bool listening_ = false;  // Run is through; before, events only pile up
  bool posted_ = false;     // a Drain is on its way
  bool ended_ = false;

  std::vector<Choice> choices_;
  size_t finished_ = 0;
  size_t next_prompt_ = 0, submitted_ = 0;  // prompts, choices
  size_t most_at_once_ = SIZE_MAX;          // choices
};

}  // namespace

std::string AnswerShape::Failed(const ApiError& error) { return Sse(ErrorJson(error)); }

void StartGeneration(ServeContext& context, std::shared_ptr<ServedModel> model, const HttpRequest& request,
                     GenerationRequest generation, std::shared_ptr<ResponseWriter> writer) {
  std::make_shared<Generation>(context, std::move(model), request, std::move(generation), std::move(writer))->Run();
}

const char* FinishText(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kNone:
    case FinishReason::kCancelled:
    case FinishReason::kError:
      break;
  }
  return "error";
}

std::string Sse(std::string json) {
  json.insert(0, "data: ");
  json.append("\n\n");
  return json;
}

std::string NamedSse(std::string_view name, std::string_view json) {
  return "event: " + std::string(name) + "\ndata: " + std::string(json) + "\n\n";
}

}  // namespace hone
