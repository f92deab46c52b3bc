// Every limit of the server in one place. Each is tested at its edge. Those that an operator may want to move are fields of
// HttpLimits; those that protect memory whatever is configured are constants.
#pragma once

#include <cstddef>

namespace hone {

// Limits of connections. Times in seconds.
struct HttpLimits {
  size_t header_bytes = 32 << 10;        // request line and headers; more: 431
  size_t body_bytes = 32u << 20;         // more: 413, before the body is read where Content-Length tells
  size_t all_bodies_bytes = 512u << 20;  // bodies of all connections that are being read or worked on; more: 503
  size_t connections = 1024;             // open at once; more: 503
  size_t stream_queue_bytes = 1u << 20;  // written to a stream and not taken by its reader; more: the reader is dropped
  double header_s = 30;                  // from the first byte of a request to the end of its headers; longer: 408
  double body_s = 300;                   // for a whole body; longer: 408
  double idle_s = 120;                   // between two requests; longer: closed
  double write_s = 60;                   // without the client taking a byte; longer: closed
  double ping_s = 10;                    // silence of a stream after which a comment is sent
};

// Limits of generations, by flags; those of time are EngineOptions'. 0: no limit but the context's.
struct RequestLimits {
  int prompt_tokens = 0;  // more: 400
  int output_tokens = 0;  // a request that asks for more: 400; one that does not say gets at most so many
  int requests = 1024;    // generations at work, whole and streamed; more: 429
};

inline constexpr double kLastWordSeconds = 1;           // to send the 503 of a request that the end of the server cuts
inline constexpr size_t kMaxPipelinedBytes = 64 << 10;  // read ahead while a request is worked on
inline constexpr size_t kMaxRequestIdBytes = 128;       // X-Request-Id that is echoed
inline constexpr int kWorkerThreads = 2;                // parse JSON, render templates, tokenise
inline constexpr size_t kMaxWorkerQueue = 1024;         // requests waiting for a worker; more: 503

inline constexpr int kMaxJsonDepth = 64;                // nesting of a request body
inline constexpr size_t kMaxJsonValues = 1u << 20;      // values of a request body, counted by its commas and brackets
inline constexpr int kMaxJsonKeys = 1024;               // members of one object

inline constexpr size_t kMaxAccessLines = 1u << 16;     // of the access log that wait for the disk; more are dropped
inline constexpr int kMaxRetryAfterSeconds = 60;

inline constexpr size_t kMaxAdapters = 256;             // loaded at once
inline constexpr size_t kMaxAdapterNameBytes = 256;

inline constexpr int kMaxN = 128;                       // n, best_of
inline constexpr int kMaxInputs = 2048;                 // texts of /v1/embeddings
inline constexpr int kMaxPriority = 1000000;          // of a request, in either direction
inline constexpr int kMaxCacheSaltBytes = 256;
inline constexpr int kMaxPrompts = 64;                  // prompts of /v1/completions
inline constexpr int kMaxMessages = 4096;
inline constexpr int kMaxTools = 128;
inline constexpr int kMaxLogitBias = 1024;
inline constexpr int kMaxStopTokenIds = 1024;
inline constexpr double kMaxTemperature = 2;
inline constexpr double kMaxPenalty = 2;                // presence, frequency: in [-2, 2]
inline constexpr double kMaxRepetitionPenalty = 10;

}  // namespace hone
