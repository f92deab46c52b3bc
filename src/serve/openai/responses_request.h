// ResponsesRequest: the body of POST /v1/responses, checked, as the chat request that it amounts to. Stateless: nothing
// is stored, so what refers to something stored is refused by name.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "serve/openai/chat_request.h"

namespace hone {

struct ResponsesRequest {
  ChatRequest chat;
  // What the answer repeats, as JSON.
  std::string instructions_json = "null", tools_json = "[]", tool_choice_json = "\"auto\"", metadata_json = "{}";
  std::string effort_json = "null", user_json = "null", format_json = R"({"type":"text"})";
  int max_output_tokens = 0;  // 0: not said
  bool parallel_tool_calls = true;
};

std::optional<ApiError> ParseResponsesRequest(std::string_view body, const RequestRules& rules,
                                              std::string_view template_source, ResponsesRequest* out);

}  // namespace hone
