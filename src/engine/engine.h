// Engine: sequences in, token events out. The narrow door that serve/ and cli/ see; they know no tensors.
//
// step = schedule -> execute -> sample -> commit, on one thread that Start() makes (or that the caller is, with
// Step()). Submit and Cancel may be called from any thread. Events of a sequence come in order, from the engine's
// thread; a callback must not block and must not call back into the engine except Submit and Cancel.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/runtime.h"
#include "base/tally.h"
#include "cache/block_times.h"
#include "engine/grammar/grammar.h"
#include "engine/limits.h"
#include "engine/logprobs.h"
#include "engine/sampling_params.h"
#include "kernels/attention/kv_view.h"
#include "models/model.h"
#include "text/tokenizer.h"

namespace hone {

using SequenceId = uint64_t;

enum class LogprobsKind {
  kRaw,        // of the model's logits, before any sampler
  kProcessed,  // of what bias, penalties, temperature and cuts left; a token that was cut has -inf
};

// What of the final hidden states is wanted instead of new tokens (/v1/embeddings).
enum class Pooling { kNone, kMean, kLast };

struct SequenceRequest {
  std::vector<int32_t> prompt;  // at least one id, each below the vocabulary
  SamplingParams sampling;
  int max_tokens = 0;             // output tokens; 0: up to the context
  int min_tokens = 0;             // end and stop ids cannot come before (stop strings can)
  std::vector<std::string> stop;  // stop strings; text is cut before the first to end (docs/sampling.md)
  std::vector<int32_t> stop_ids;  // in addition to the tokenizer's end ids
  bool include_stop = false;      // keep the stop string in the text
  bool ignore_end = false;        // end ids do not end
  bool skip_special = true;       // special tokens are not part of the text
  int logprobs = -1;              // -1: none; n >= 0: of the chosen token and the n best
  LogprobsKind logprobs_kind = LogprobsKind::kRaw;
  int prompt_logprobs = -1;  // -1: none; n >= 0: raw, of each prompt token but the first, and the n best in its place
  bool prompt_only = false;  // ends with kStop once the prompt is computed; nothing is sampled (echo, scoring)
  Pooling pooling = Pooling::kNone;  // not kNone: as prompt_only, and the last event has the embedding

  std::shared_ptr<const Adapter> adapter;  // from LoadAdapter of this engine; null: the model as it is
  std::string adapter_name;                // as the client calls it; only counted by

  // What the output must be: nothing is sampled after which it could not be completed, and it ends (kStop) where nothing can
  // follow. Cut by max_tokens or a stop string it is a beginning. null: anything. One object used by many requests is fastest.
  std::shared_ptr<const Grammar> grammar;

  int priority = 0;            // smaller is more important; looked at by the policy "priority"
  std::string salt;            // prompts share cached blocks only with prompts of the same salt (docs/prefix-cache.md)
  double queue_timeout_s = 0;  // 0: the engine's. Longer in the queue: kError, EndCause::kQueueTime
  double timeout_s = 0;        // 0: the engine's. Longer from Submit on: kError, EndCause::kRequestTime
};

enum class FinishReason { kNone, kStop, kLength, kCancelled, kError };

// Why a sequence ended with kError, so that serve/ can answer with the right status.
enum class EndCause {
  kNone,
  kQueueTime,    // it waited longer than its queue_timeout_s: 429
  kRequestTime,  // it was there longer than its timeout_s: 408
  kLogits,       // no token was left to choose: 500
  kGrammar,      // no token of the vocabulary goes on within the grammar: 400
};

struct TokenResult {
  int32_t id = 0;
  std::string bytes;              // raw bytes of the token
  float logprob = 0;              // if asked for
  std::vector<TokenLogprob> top;  // if asked for, best first
};

// What a sequence did in a step.
struct SequenceEvent {
  SequenceId id = 0;
  std::string text;                           // new text, whole UTF-8 characters, stop strings held back
  std::vector<TokenResult> tokens;            // new tokens (their text may come in a later event)
  FinishReason finish = FinishReason::kNone;  // the last event of the sequence if not kNone
  std::string stop_string;                    // which one ended it, if one did
  std::string error;                          // for kError
  EndCause cause = EndCause::kNone;           // for kError
  int prompt_tokens = 0, output_tokens = 0;
  int cached_tokens = 0;    // of the prompt, found in the prefix cache when the sequence first ran
  uint64_t seed = 0;        // the effective seed
  int preemptions = 0;      // how often it lost its blocks and was computed again
  double since_last_s = 0;  // with tokens: since the sequence's previous token, 0 for the first
  double queue_s = 0, prefill_s = 0, decode_s = 0;  // filled in the last event; their sum is the whole time,
                                                    // queue_s + prefill_s that to the first token
  std::vector<TokenResult> prompt_logprobs;         // in the first event after the prompt: tokens 1 ... of the prompt
  std::vector<float> embedding;                     // [D], of length 1, for a pooling request
};
using EventCallback = std::function<void(const SequenceEvent&)>;

struct EngineOptions {
  int context = 0;  // longest sequence; 0: the model's, at most kMaxDefaultContext
  KvType kv = KvType::kBF16;
  uint64_t kv_bytes = 0;                     // 0: enough for max_sequences contexts, at most a quarter of free memory
  int max_sequences = kDefaultMaxSequences;  // running at once
  int max_queue = kDefaultMaxQueue;          // more sequences than max_sequences + max_queue at once: kLimit
  int step_tokens = kDefaultStepTokens;      // token budget of a step; at most what the model was loaded for is used
  double step_ms = kDefaultStepMs;   // prompts are cut so that they make a step of running streams so much longer; 0: uncut
  std::string policy = "fcfs";       // one of SchedulingPolicies()
  bool prefix_cache = true;          // false: nothing is kept, only the sequences of one SubmitGroup share blocks
  std::string weights_digest;        // part of every key of the prefix cache
  bool deterministic = false;        // output must not depend on the batch, chunks or cache hits
  double queue_timeout_s = 0;        // 0: none
  double request_timeout_s = 0;      // 0: none
};

// One step, for histograms and the live view.
struct StepRecord {
  uint64_t number = 0;  // from 1 on
  int prompt_tokens = 0, decode_tokens = 0, sequences = 0;
  float ms = 0;
};

// Upper bounds of tokens of a step; those of vLLM.
inline constexpr std::array<double, 13> kStepTokenBounds = {1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};

// The sequences that use an adapter.
struct AdapterSequences {
  std::string name;
  int running = 0, waiting = 0;
};

struct EngineStats {
  int running = 0, waiting = 0;
  int blocks = 0, blocks_used = 0;  // used: owned by a sequence
  int blocks_shared = 0;            // of those used: owned by more than one
  int blocks_cached = 0;            // free, with content that a later prompt can take over
  uint64_t steps = 0, prompt_tokens = 0, output_tokens = 0, preemptions = 0;
  uint64_t prefix_query_tokens = 0, prefix_hit_tokens = 0;  // prompt tokens that were looked up; that were found
  uint64_t blocks_copied = 0, blocks_evicted = 0;           // copied on write; cached content that made room
  uint64_t cancelled = 0, timed_out = 0, failed = 0;        // sequences that ended so
  Tally<kStepTokenBounds.size()> step_tokens;  // of prompts and decodes, a step
  BlockTimes block_times;
  std::vector<AdapterSequences> adapters;  // by name; those that a sequence uses
};

// The names that EngineOptions::policy may have, the default first.
std::vector<std::string> SchedulingPolicies();

class Engine {
 public:
  // Reserves all step memory and the KV cache. Errors: a context too large for the model or the memory, wrong options.
  // What `runtime` points to must outlive the engine; its threads are the engine's alone while it steps.
  static Result<std::unique_ptr<Engine>> Create(std::shared_ptr<Model> model,
                                                std::shared_ptr<const Tokenizer> tokenizer, const Runtime& runtime,
                                                const EngineOptions& options);
  virtual ~Engine() = default;

  // A LoRA adapter (docs/adapters.md) for requests of this engine, which share it with the caller: it may be dropped while they
  // run. Any thread, also while steps run. Errors: as Model::LoadAdapter.
  virtual Result<std::shared_ptr<const Adapter>> LoadAdapter(const std::string& path) const;

  // Checks the request (empty prompt, ids out of range, prompt not shorter than the context, bad sampling values:
  // errors that name the field), queues it. Errors: kLimit when the queue is full, kCancelled when the engine is
  // stopped.
  virtual Result<SequenceId> Submit(SequenceRequest request, EventCallback callback) = 0;
  // `callbacks.size()` sequences with one prompt (n > 1), which is computed once; all are accepted or none. Sequence i
  // has the request's seed + i; without a seed each has its own. Errors as Submit.
  virtual Result<std::vector<SequenceId>> SubmitGroup(const SequenceRequest& request,
                                                      std::vector<EventCallback> callbacks);
  // The sequence ends within one step with kCancelled and its blocks are free; an unknown or finished id is ignored.
  virtual void Cancel(SequenceId id) = 0;

  virtual bool Step() = 0;   // one step on the calling thread; false: nothing to do. REQUIRES: not started
  virtual void Start() = 0;  // a thread that steps while there is work and sleeps otherwise
  // Ends the thread; sequences still there end with kCancelled, Submit fails until Start. Not from a callback.
  virtual void Stop() = 0;

  virtual EngineStats stats() const = 0;  // any thread
  // The steps after number `after`, oldest first; at most the last kStepRecords are remembered. Any thread.
  virtual std::vector<StepRecord> StepsAfter(uint64_t after) const;
  virtual const ModelConfig& model_config() const = 0;
  virtual uint64_t weight_bytes() const { return 0; }  // resident, of the packed weights
  virtual const Tokenizer& tokenizer() const = 0;
  virtual const EngineOptions& options() const = 0;  // as resolved: context, kv_bytes filled in
};

}  // namespace hone
