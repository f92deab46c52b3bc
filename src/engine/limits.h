// Every limit of the engine in one place. Each is tested at its edge.
#pragma once

#include <cstddef>

namespace hone {

inline constexpr int kMaxDefaultContext = 8192;  // context when --ctx is not given: the model's, at most this
inline constexpr int kDefaultMaxSequences = 16;  // running at once
inline constexpr int kMaxSequences = 4096;       // the most that can be asked for
inline constexpr int kDefaultMaxQueue = 256;     // waiting
inline constexpr int kDefaultStepTokens = 512;   // token budget of a step
inline constexpr double kDefaultStepMs = 200;    // what prompts may add to a step of running streams
inline constexpr int kPromptLogitRows = 64;      // rows a step whose logits are wanted beside the last ones (echo)
inline constexpr int kStepRecords = 4096;        // steps remembered for the live view
inline constexpr int kMaxSaltBytes = 1024;       // bytes of a salt
inline constexpr int kMaxStops = 64;             // stop strings a request
inline constexpr int kMaxStopBytes = 4096;       // bytes a stop string
inline constexpr int kMaxStopIds = 1024;         // stop ids a request
inline constexpr int kMaxLogprobs = 64;          // best tokens reported a position
inline constexpr size_t kMaxDryBreakers = 4096;  // breaker ids a request
inline constexpr int kMaxGrammars = 16;          // remembered, with their masks (engine/grammar/token_grammar.h)
inline constexpr int kMaxNoRepeatNgram = 256;    // longest n-gram of no_repeat_ngram

}  // namespace hone
