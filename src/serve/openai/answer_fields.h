// The fields that say what an answer must be: response_format, text.format, tools, tool_choice → AnswerForm.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "serve/openai/fields.h"
#include "serve/structured/answer_form.h"

namespace hone {

// `field` ("response_format"): {"type": "text" | "json_object" | "json_schema"}; a schema stands in its member json_schema, or
// beside `type` if `flat`.
std::optional<ApiError> ReadTextFormat(const Json& format, const std::string& field, bool flat, const FieldPolicy& policy, AnswerForm* out);

// What `tools` and `tool_choice` amount to.
struct ToolFields {
  std::string json;                // of the tools for the chat template; "" for none
  std::vector<std::string> names;  // of those
};
// Both as in chat completions; a choice may also be as in responses. With "none" nothing is offered, with "allowed_tools" only those.
std::optional<ApiError> ReadToolFields(FieldReader& reader, const FieldPolicy& policy, AnswerForm* form, ToolFields* out);

}  // namespace hone
