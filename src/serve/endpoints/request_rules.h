// What the endpoints that read OpenAI requests share.
#pragma once

#include <string>

#include "serve/context.h"
#include "serve/error.h"
#include "serve/openai/generation_fields.h"

namespace hone {

inline RequestRules RulesOf(const ServeContext& context, const ServedModel& model) {
  RequestRules rules;
  rules.policy = {context.options.lenient_fields, context.runtime.log};
  rules.model = context.options.name;
  rules.adapters = model.adapters.get();
  rules.vocab = model.tokenizer().vocab_size();
  rules.context = model.context();
  rules.limits = context.options.request_limits;
  if (context.tenants) rules.min_priority = 0;
  return rules;
}

inline ApiError NoChatTemplate(const ServeContext& context, const std::string& field = "messages") {
  return {400, field + ": the model \"" + context.options.name + "\" has no chat template (a base model); use /v1/completions",
          field, "no_chat_template"};
}

// The answer to a request that cannot begin.
inline void Refuse(const ApiError& error, const HttpRequest& request, ResponseWriter& writer) {
  if (request.record != nullptr) request.record->error_code = error.code;
  writer.Send(ErrorResponse(error));
}

}  // namespace hone
