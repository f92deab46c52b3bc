// Two threads meet in Generation: the engine's puts events into a queue, the I/O thread drains it into chunks or one
// answer. However a request ends (done, failed, abandoned), End() is the last word: what comes after it is dropped.
#include "serve/generation.h"

#include <deque>
#include <mutex>
#include <utility>

#include "serve/error.h"

namespace hone {
namespace {

const ApiError kStopping{503, "the server is stopping", "", "unavailable"};

std::string Sse(std::string json) {
  json.insert(0, "data: ");
  json.append("\n\n");
  return json;
}

// Owned by the engine's callbacks until its sequences end. The mutex guards what both threads touch; the rest belongs to the
// I/O thread once Run has returned.
class Generation : public std::enable_shared_from_this<Generation> {
 public:
  Generation(Engine& engine, GenerationRequest request, std::shared_ptr<ResponseWriter> writer)
      : engine_(engine), request_(std::move(request)), writer_(std::move(writer)), choices_(request_.sequences.size()) {}

  void Run() {
    const EngineOptions& options = engine_.options();
    if (const size_t most = static_cast<size_t>(options.max_sequences + options.max_queue); choices_.size() > most) {
      return writer_->Send(ErrorResponse({400, "the request asks for " + std::to_string(choices_.size()) +
                                          " answers, more than the " + std::to_string(most) + " that this server holds at once",
                                          "n", "invalid_value"}));
    }
    std::vector<SequenceId> ids;
    for (size_t i = 0; i < choices_.size(); ++i) {
      Result<SequenceId> id = engine_.Submit(std::move(request_.sequences[i]), [self = shared_from_this(), i](
                                                                                  const SequenceEvent& event) {
        self->OnEvent(static_cast<int>(i), event);
      });
      if (!id) {
        {
          std::lock_guard lock(mutex_);
          ended_ = true;
        }
        for (const SequenceId other : ids) engine_.Cancel(other);
        return writer_->Send(ErrorResponse(FromError(id.error())));
      }
      ids.push_back(*id);
    }
    {
      std::lock_guard lock(mutex_);
      ids_ = std::move(ids);
    }
    if (request_.stream) {
      HttpResponse head;
      head.content_type = "text/event-stream; charset=utf-8";
      head.headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
      writer_->StartStream(std::move(head), ": ping\n\n", Sse(ErrorJson(kStopping)));
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
    bool opened = false, finished = false;
    int prompt_tokens = 0, cached_tokens = 0, output_tokens = 0;
  };

  // The engine's thread.
  void OnEvent(int choice, const SequenceEvent& event) {
    {
      std::lock_guard lock(mutex_);
      if (ended_) return;
      events_.emplace_back(choice, event);
      if (!listening_ || posted_) return;
      posted_ = true;
    }
    PostDrain();
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
    if (finished_ == choices_.size()) Finish();
  }

  // False: the generation has ended with an error.
  bool Handle(int index, const SequenceEvent& event, std::string* out) {
    Choice& choice = choices_[static_cast<size_t>(index)];
    if (choice.finished) return true;
    if (event.finish == FinishReason::kError || event.finish == FinishReason::kCancelled) {
      return Fail(event, std::move(*out)), false;
    }
    if (request_.stream) {
      if (!choice.opened) {
        if (std::string json = request_.shape->Opening(index); !json.empty()) *out += Sse(std::move(json));
        choice.opened = true;
      }
      if (std::string json = request_.shape->Delta(index, event); !json.empty()) *out += Sse(std::move(json));
    } else {
      request_.shape->Add(index, event);
    }
    if (event.finish == FinishReason::kNone) return true;
    if (request_.stream) *out += Sse(request_.shape->Closing(index, event));
    choice = {true, true, event.prompt_tokens, event.cached_tokens, event.output_tokens};
    ++finished_;
    return true;
  }

  void Finish() {
    const Usage usage = TotalUsage();
    End();
    if (!request_.stream) {
      HttpResponse response;
      response.body = request_.shape->Whole(usage);
      return writer_->Send(std::move(response));
    }
    std::string out;
    if (request_.include_usage) out = Sse(request_.shape->UsageChunk(usage));
    writer_->Write(out + "data: [DONE]\n\n");
    writer_->End();
  }

  void Fail(const SequenceEvent& event, std::string out) {
    CancelAll();
    const ApiError error = event.finish == FinishReason::kCancelled
                               ? kStopping
                               : ApiError{500, "generation failed: " + event.error, "", "internal_error"};
    if (!request_.stream) return writer_->Send(ErrorResponse(error));
    writer_->Write(out + Sse(ErrorJson(error)));
    writer_->End();
  }

  // The client is gone.
  void Abandon() {
    CancelAll();
    writer_->Abort();
  }

  void CancelAll() {
    for (const SequenceId id : End()) engine_.Cancel(id);
  }

  // Nothing is handled from now on. The sequences that were not cancelled yet.
  std::vector<SequenceId> End() {
    std::lock_guard lock(mutex_);
    ended_ = true;
    events_.clear();
    return std::exchange(ids_, {});
  }

  Usage TotalUsage() const {
    Usage usage;
    for (size_t i = 0; i < choices_.size(); ++i) {
      usage.completion_tokens += choices_[i].output_tokens;
      if (i % static_cast<size_t>(request_.choices_a_prompt) != 0) continue;  // a prompt counts once
      usage.prompt_tokens += choices_[i].prompt_tokens;
      usage.cached_tokens += choices_[i].cached_tokens;
    }
    return usage;
  }

  Engine& engine_;
  GenerationRequest request_;
  const std::shared_ptr<ResponseWriter> writer_;

  std::mutex mutex_;
  std::deque<std::pair<int, SequenceEvent>> events_;
  std::vector<SequenceId> ids_;
  bool listening_ = false;  // Run is through; before, events only pile up
  bool posted_ = false;     // a Drain is on its way
  bool ended_ = false;

  std::vector<Choice> choices_;
  size_t finished_ = 0;
};

}  // namespace

void StartGeneration(Engine& engine, GenerationRequest request, std::shared_ptr<ResponseWriter> writer) {
  std::make_shared<Generation>(engine, std::move(request), std::move(writer))->Run();
}

const char* FinishText(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop: return "stop";
    case FinishReason::kLength: return "length";
    case FinishReason::kNone:
    case FinishReason::kCancelled:
    case FinishReason::kError: break;
  }
  return "error";
}

}  // namespace hone
