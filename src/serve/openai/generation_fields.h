// GenerationFields: what /v1/chat/completions and /v1/completions have in common: sampling, lengths, stops, streaming.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "serve/openai/fields.h"

namespace hone {

struct GenerationFields {
  SequenceRequest sequence;    // prompt empty, max_tokens 0 if not given
  int n = 1;
  bool stream = false;
  bool include_usage = false;
};

// What the reading of a request depends on.
struct RequestRules {
  FieldPolicy policy;
  std::string model;  // the only name that `model` may have
  int vocab = 0;      // ids are below it
  int context = 0;    // the longest sequence
};

// `model`, where it is sent, names this server's model; anything else is a 404.
void CheckModel(FieldReader& reader, const RequestRules& rules);
// `model`, and every common field of a checked object. Not max_tokens: the endpoints differ there.
void ReadGenerationFields(FieldReader& reader, const RequestRules& rules, GenerationFields* out);

// n copies of `fields.sequence` with its prompt: seeds differ, max_tokens fits the context. `param` names the prompt's field.
// Errors: an empty prompt; one that leaves no room in the context (code context_length_exceeded, both numbers).
std::optional<ApiError> MakeSequences(const GenerationFields& fields, std::vector<int32_t> prompt, const RequestRules& rules,
                                      const std::string& param, std::vector<SequenceRequest>* out);

}  // namespace hone
