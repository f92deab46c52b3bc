// For the tests of openai/: good request bodies, and what changes them for better or worse.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <optional>
#include <string>
#include <utility>

#include "serve/limits.h"
#include "serve/openai/chat_request.h"
#include "serve/openai/completion_request.h"
#include "serve/openai/embedding_request.h"
#include "serve/openai/responses_request.h"

namespace hone {

inline RequestRules Rules(bool lenient = false) {
  RequestRules rules;
  rules.policy.lenient = lenient;
  rules.model = "m";
  rules.vocab = 1000;
  rules.context = 100;
  return rules;
}

inline constexpr char kThinkingTemplate[] = "{{ enable_thinking }}";

inline std::optional<ApiError> Chat(const std::string& body, bool lenient = false, const char* source = "") {
  ChatRequest out;
  return ParseChatRequest(body, Rules(lenient), source, &out);
}
inline std::optional<ApiError> Completion(const std::string& body, bool lenient = false) {
  CompletionRequest out;
  return ParseCompletionRequest(body, Rules(lenient), &out);
}
inline std::optional<ApiError> Responses(const std::string& body, bool lenient = false, const char* source = "") {
  ResponsesRequest out;
  return ParseResponsesRequest(body, Rules(lenient), source, &out);
}
inline std::optional<ApiError> Embeddings(const std::string& body) {
  EmbeddingRequest out;
  return ParseEmbeddingRequest(body, Rules(), 4, &out);
}
// A good request of these members, of which that one is left out that `more` begins with (a name may be there once only).
inline std::string GoodBody(std::initializer_list<std::pair<const char*, const char*>> members, const std::string& more) {
  std::string body = "{";
  for (const auto& [name, value] : members) {
    const std::string key = "\"" + std::string(name) + "\":";
    if (!more.starts_with(key)) body += (body.size() > 1 ? "," : "") + key + value;
  }
  return body + (more.empty() ? "" : "," + more) + "}";
}
inline std::string ChatBody(const std::string& more) {
  return GoodBody({{"model", "\"m\""}, {"messages", R"([{"role":"user","content":"hi"}])"}}, more);
}
inline std::string CompletionBody(const std::string& more) { return GoodBody({{"model", "\"m\""}, {"prompt", "\"hi\""}}, more); }
inline std::string InputBody(const std::string& more) { return GoodBody({{"model", "\"m\""}, {"input", "\"hi\""}}, more); }

struct Mutation {
  const char* more;      // members added to a good request
  const char* param;     // of the error; "": the request is good
  const char* says = ""; // part of the message
};

inline void Check(const Mutation& mutation, const std::optional<ApiError>& error) {
  if (*mutation.param == 0) {
    EXPECT_FALSE(error.has_value()) << mutation.more << ": " << error->message;
    return;
  }
  ASSERT_TRUE(error.has_value()) << mutation.more;
  EXPECT_EQ(error->param, mutation.param) << mutation.more << ": " << error->message;
  EXPECT_NE(error->message.find(mutation.says), std::string::npos) << mutation.more << ": " << error->message;
  EXPECT_EQ(error->status, error->code == "model_not_found" ? 404 : 400);
  EXPECT_FALSE(error->code.empty());
  // The message names the field.
  EXPECT_NE(error->message.find(mutation.param), std::string::npos) << error->message;
}

}  // namespace hone
