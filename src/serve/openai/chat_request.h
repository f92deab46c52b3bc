// ChatRequest: the body of POST /v1/chat/completions, checked. Messages come out as the JSON that chat templates expect.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "serve/openai/generation_fields.h"
#include "text/chat_template.h"

namespace hone {

struct ChatRequest {
  GenerationFields fields;
  // Messages for the template: role (developer is system), content (a string; text parts are joined by newlines, null is ""),
  // name, reasoning_content, tool_call_id, tool_calls (arguments as an object where they are one).
  std::string messages_json;
  std::string tools_json;            // "" for none, or with tool_choice "none"
  std::vector<std::string> tool_names;  // of tools_json
  std::string variables_json;        // chat_template_kwargs, enable_thinking, reasoning_effort
  bool add_generation_prompt = true;
  bool continue_final = false;       // the answer goes on with the last message
  std::string final_text;            // its text
};

// `template_source` says which variables the model's template reads: a field that it would ignore is refused.
std::optional<ApiError> ParseChatRequest(std::string_view body, const RequestRules& rules, std::string_view template_source,
                                         ChatRequest* out);
// The messages array of a document (also for /tokenize); sets messages_json and final_text. Where continue_final is set, the
// last message ends in a mark that RenderChat finds again.
std::optional<ApiError> ParseMessages(const Json& document, const RequestRules& rules, ChatRequest* out);

// The tools array and tool_choice of a document whose tools are as in chat completions.
std::optional<ApiError> ReadTools(FieldReader& reader, const FieldPolicy& policy, ChatRequest* out);
// The variables that fields of the request are; see ParseChatRequest.
std::optional<ApiError> ReadVariables(FieldReader& reader, std::string_view template_source, ChatRequest* out);

// The prompt text. Errors: what the template raises, as a 400 for messages; tools that the template does not read.
std::optional<ApiError> RenderChat(const ChatTemplate& chat, const ChatRequest& request, std::string* prompt);

}  // namespace hone
