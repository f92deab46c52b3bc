// GenerationFields: what the generating endpoints have in common: sampling, lengths, stops, streaming.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "serve/adapters.h"
#include "serve/limits.h"
#include "serve/openai/fields.h"
#include "serve/prompt_choices.h"
#include "serve/structured/answer_form.h"

namespace hone {

struct GenerationFields {
  std::string model;           // as the request said it
  SequenceRequest sequence;    // prompt empty, max_tokens 0 if not given; the adapter, if `model` is one
  int n = 1;
  int best_of = 1;             // completions: so many are made, the n best sent
  bool stream = false;
  bool include_usage = false, continuous_usage = false;
  AnswerForm form;             // response_format, tools
};

// What the reading of a request depends on.
struct RequestRules {
  FieldPolicy policy;
  std::string model;  // what `model` must be, if it is no adapter
  std::shared_ptr<const AdapterMap> adapters;  // null: none
  int vocab = 0;      // ids are below it
  int context = 0;    // the longest sequence
  RequestLimits limits;
  int min_priority = -kMaxPriority;  // 0 where tenants have their own: a request can only stand back in its tenant's
};

// `model`, where it is sent, names this server's model or one of its adapters; anything else is a 404. `out` may be null.
void CheckModel(FieldReader& reader, const RequestRules& rules, GenerationFields* out);
// `model`, and every common field of a checked object. Not max_tokens: the endpoints differ there.
void ReadGenerationFields(FieldReader& reader, const RequestRules& rules, GenerationFields* out);

// Sets the grammar of the sequence, where the form needs one.
std::optional<ApiError> FindGrammar(GrammarCache& grammars, const AnswerMarks& marks, GenerationFields* fields);

// `fields.sequence` with its prompt, max(n, best_of) times; max_tokens fits the context and the server's limit. `param` names
// the prompt's field. Errors: an empty prompt; one that leaves no room in the context, or is beyond the server's limit (code
// context_length_exceeded, both numbers).
std::optional<ApiError> MakeChoices(const GenerationFields& fields, std::vector<int32_t> prompt, const RequestRules& rules,
                                    const std::string& param, std::vector<PromptChoices>* out);

// priority and cache_salt.
void ReadScheduling(FieldReader& reader, const RequestRules& rules, SequenceRequest* out);

}  // namespace hone
