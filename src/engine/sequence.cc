// Text: token -> StreamDecoder (whole characters) -> StopMatcher (nothing that may become a stop string) -> event.
#include "engine/sequence.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace hone {

Sequence::Sequence(SequenceId id, SequenceRequest request, EventCallback event_callback, uint64_t seed, int context,
                   std::shared_ptr<const Tokenizer> tokenizer, const std::vector<int32_t>& end_ids, GrammarCursor grammar,
                   double now)
    : callback(std::move(event_callback)),
      id_(id),
      request_(std::move(request)),
      tokenizer_(tokenizer),
      ending_(request_.stop_ids),
      state_{TokenHistory(std::move(request_.prompt)), Rng(seed), {}, 2 * request_.sampling.mirostat_tau},
      grammar_(std::move(grammar)),
      decoder_(std::move(tokenizer), request_.skip_special, /*continues_text=*/true),
      matcher_(request_.stop, request_.include_stop),
      seed_(seed),
      submitted_at_(now) {
  request_.prompt.clear();
  const int room = context - prompt_tokens();
  max_output_ = prompt_only() ? 0 : request_.max_tokens > 0 ? std::min(request_.max_tokens, room) : room;
  if (!request_.ignore_end) ending_.insert(ending_.end(), end_ids.begin(), end_ids.end());
  std::sort(ending_.begin(), ending_.end());
}

bool Sequence::IsEnd(int32_t id) const { return std::binary_search(ending_.begin(), ending_.end(), id); }

TokenResult Sequence::Choose(std::span<const float> logits, Candidates* scratch) {
  state_.banned = {};
  if (output_tokens() < request_.min_tokens) state_.banned = ending_;
  std::shared_ptr<const TokenMask> mask;
  if (grammar_.active()) {
    mask = grammar_.Mask();
    state_.allowed = mask.get();
    state_.allowed_ends = grammar_.MayEnd() ? std::span<const int32_t>(ending_) : std::span<const int32_t>();
  }
  TokenResult result;
  no_token_fits_ = mask != nullptr && state_.allowed_ends.empty() &&
                   std::all_of(mask->bits.begin(), mask->bits.end(), [](uint64_t bits) { return bits == 0; });
  result.id = SampleToken(DefaultSamplerOrder(), logits, request_.sampling, &state_, scratch);
  if (result.id < 0 || request_.logprobs < 0) return result;
  const bool raw = request_.logprobs_kind == LogprobsKind::kRaw;
  if (!raw && request_.sampling.temperature == 0) {  // greedy leaves one candidate
    if (request_.logprobs > 0) result.top = {{result.id, 0.0f}};
    return result;
  }
  if (raw) scratch->Fill(logits);
  Logprobs logprobs = LogprobsOf(scratch, result.id, request_.logprobs);
  result.logprob = logprobs.chosen;
  result.top = std::move(logprobs.top);
  return result;
}

TokenResult Sequence::Score(std::span<const float> logits, int position, Candidates* scratch) const {
  TokenResult result;
  result.id = tokens()[position];
  scratch->Fill(logits);
  Logprobs logprobs = LogprobsOf(scratch, result.id, request_.prompt_logprobs);
  result.logprob = logprobs.chosen;
  result.top = std::move(logprobs.top);
  result.bytes = tokenizer_->TokenBytes(result.id);
  return result;
}

void Sequence::TakeScore(TokenResult token) {
  prompt_logprobs_.push_back(std::move(token));
  ++scored_;
}

// Each position counts once, also if it is computed again after a preemption.
void Sequence::AddState(int position, std::span<const float> state) {
  const bool last = request_.pooling == Pooling::kLast;
  if (last ? position != prompt_tokens() - 1 : position != states_) return;
  state_sum_.resize(state.size(), 0);
  for (size_t i = 0; i < state.size(); ++i) state_sum_[i] += double{state[i]};
  ++states_;
}

SequenceEvent Sequence::EndOfPrompt(double now) {
  double squares = 0;
  for (const double x : state_sum_) squares += x * x;
  if (request_.pooling != Pooling::kNone && !(squares > 0 && std::isfinite(squares))) {
    return Fail(EndCause::kLogits, "the model's hidden states are not numbers, or all 0: there is no embedding", now);
  }
  if (first_token_at_ < 0) first_token_at_ = now;
  SequenceEvent event = End(FinishReason::kStop, now);
  const double scale = 1 / std::sqrt(squares);
  for (const double x : state_sum_) event.embedding.push_back(static_cast<float>(x * scale));
  event.prompt_logprobs = std::move(prompt_logprobs_);
  return event;
}

SequenceEvent Sequence::Take(TokenResult token, double now) {
  SequenceEvent event;
  if (first_token_at_ < 0) {
    first_token_at_ = now;
    event.prompt_logprobs = std::move(prompt_logprobs_);
  } else {
    event.since_last_s = now - last_token_at_;
  }
  last_token_at_ = now;
  state_.history.Append(token.id);
  const bool ended = IsEnd(token.id);
  if (!ended || request_.include_stop) event.text = matcher_.Push(decoder_.Push(token.id));
  if (ended || matcher_.stopped()) {
    event.finish = FinishReason::kStop;
  } else if (output_tokens() >= max_output_) {
    event.finish = FinishReason::kLength;
  }
  token.bytes = tokenizer_->TokenBytes(token.id);
  if (grammar_.active() && event.finish != FinishReason::kStop && grammar_.Advance(token.bytes) && grammar_.MustEnd()) {
    event.finish = FinishReason::kStop;  // also at the last token: it is whole
  }
  event.tokens.push_back(std::move(token));
  if (event.finish != FinishReason::kNone) Flush(&event);
  Describe(&event, now);
  return event;
}

SequenceEvent Sequence::Fail(EndCause cause, std::string error, double now) {
  SequenceEvent event = End(FinishReason::kError, now);
  event.cause = cause;
  event.error = std::move(error);
  return event;
}

SequenceEvent Sequence::End(FinishReason reason, double now) {
  SequenceEvent event;
  event.finish = reason;
  Flush(&event);
  Describe(&event, now);
  return event;
}

// What the decoder and the matcher still hold; it may even complete a stop string.
void Sequence::Flush(SequenceEvent* event) {
  if (!matcher_.stopped()) {
    event->text += matcher_.Push(decoder_.Finish());
    event->text += matcher_.Finish();
    if (matcher_.stopped() && event->finish == FinishReason::kLength) event->finish = FinishReason::kStop;
  }
  if (matcher_.stopped()) event->stop_string = matcher_.stop_string();
}

void Sequence::Describe(SequenceEvent* event, double now) const {
  event->id = id_;
  event->prompt_tokens = prompt_tokens();
  event->output_tokens = output_tokens();
  event->seed = seed_;
  event->cached_tokens = cached_;
  event->preemptions = preemptions_;
  if (event->finish == FinishReason::kNone) return;
  const double admitted = admitted_at_ < 0 ? now : admitted_at_, first = first_token_at_ < 0 ? now : first_token_at_;
  event->queue_s = admitted - submitted_at_;
  event->prefill_s = first - admitted;
  event->decode_s = now - first;
}

int Sequence::CountPrompt(int computed) {
  const int counted = std::max(prompt_counted_, std::min(computed, prompt_tokens()));
  return counted - std::exchange(prompt_counted_, counted);
}

bool Sequence::Admitted(double now, int cached) {
  if (was_admitted()) return false;
  admitted_at_ = now;
  cached_ = prompt_counted_ = cached;
  return true;
}

}  // namespace hone
