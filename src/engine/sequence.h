// Sequence: what the engine knows of one sequence beyond what the scheduler needs: its tokens, how the next is chosen,
// and how tokens become text and an end. Used from the engine's thread only, once it is submitted.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/grammar/token_grammar.h"
#include "engine/samplers/sampler.h"
#include "engine/stop_matcher.h"
#include "text/stream_decoder.h"

namespace hone {

class Sequence {
 public:
  // `request` is checked (CheckRequest). `end_ids`: the tokenizer's.
  Sequence(SequenceId id, SequenceRequest request, EventCallback callback, uint64_t seed, int context,
           std::shared_ptr<const Tokenizer> tokenizer, const std::vector<int32_t>& end_ids, GrammarCursor grammar,
           double now);

  SequenceId id() const { return id_; }
  const SequenceRequest& request() const { return request_; }  // without the prompt, which is part of tokens()
  std::span<const int32_t> tokens() const { return state_.history.tokens(); }
  int prompt_tokens() const { return static_cast<int>(state_.history.prompt_tokens()); }
  int output_tokens() const { return static_cast<int>(tokens().size()) - prompt_tokens(); }
  int final_length() const { return prompt_tokens() + max_output_; }  // as long as it can get
  bool prompt_only() const { return request_.prompt_only || request_.pooling != Pooling::kNone; }
  bool was_admitted() const { return admitted_at_ >= 0; }
  double submitted_at() const { return submitted_at_; }
  bool no_token_fits() const { return no_token_fits_; }  // the last Choose: the grammar let nothing through
  bool WantsPromptLogits() const { return request_.prompt_logprobs >= 0; }
  int next_prompt_logit() const { return 1 + scored_; }  // position of the token
  // False: every prompt token must be computed, for its logits or its state.
  bool MayReusePrefix() const { return !WantsPromptLogits() && request_.pooling != Pooling::kMean; }

  // The next token after `logits` [V]: id -1 if none is left to choose. `scratch` is overwritten. Different sequences
  // may choose at the same time.
  TokenResult Choose(std::span<const float> logits, Candidates* scratch);

  // Raw log-probabilities of the prompt's token at `position` in the logits before it. As Choose.
  TokenResult Score(std::span<const float> logits, int position, Candidates* scratch) const;
  void TakeScore(TokenResult token);  // in order of position
  void AddState(int position, std::span<const float> state);  // final hidden state, for the pooled one

  // The token joins the sequence. Fills the event but for its callback; its finish says whether the sequence is over.
  SequenceEvent Take(TokenResult token, double now);
  // The sequence ends without another token.
  SequenceEvent End(FinishReason reason, double now);
  SequenceEvent Fail(EndCause cause, std::string error, double now);
  // A prompt_only sequence whose prompt is computed.
  SequenceEvent EndOfPrompt(double now);

  // Of the prompt's first `computed` tokens, how many were computed for the first time: neither found nor computed again.
  int CountPrompt(int computed);
  // `cached` tokens were found. Returns true the first time, which is the one that counts.
  bool Admitted(double now, int cached);
  void Preempted() { ++preemptions_; }

  EventCallback callback;

 private:
  bool IsEnd(int32_t id) const;
  void Flush(SequenceEvent* event);
  void Describe(SequenceEvent* event, double now) const;

  const SequenceId id_;
  SequenceRequest request_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::vector<int32_t> ending_;  // ids that end the sequence, sorted
  SamplerState state_;
  GrammarCursor grammar_;
  bool no_token_fits_ = false;
  StreamDecoder decoder_;
  StopMatcher matcher_;
  uint64_t seed_;
  int max_output_;
  int prompt_counted_ = 0;
  int cached_ = 0, preemptions_ = 0;
  std::vector<TokenResult> prompt_logprobs_;
  std::vector<double> state_sum_;  // [D]
  int states_ = 0, scored_ = 0;    // positions in it; prompt tokens with log-probabilities
  double submitted_at_, admitted_at_ = -1, first_token_at_ = -1, last_token_at_ = -1;
};

}  // namespace hone
