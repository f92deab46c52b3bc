// What the endpoints that read OpenAI requests share.
#pragma once

#include <string>

#include "serve/context.h"
#include "serve/error.h"
#include "serve/openai/generation_fields.h"

namespace hone {

inline RequestRules RulesOf(const ServeContext& context) {
  RequestRules rules;
  rules.policy = {context.options.lenient_fields, context.runtime.log};
  rules.model = context.options.name;
  rules.vocab = context.tokenizer().vocab_size();
  rules.context = context.context();
  return rules;
}

inline ApiError NoChatTemplate(const ServeContext& context) {
  return {400, "messages: the model \"" + context.options.name + "\" has no chat template (a base model); use /v1/completions",
          "messages", "no_chat_template"};
}

}  // namespace hone
