// Requests, field by field: what is honoured, what is refused and what the refusal says.
#include <nlohmann/json.hpp>

#include <fstream>
#include <set>
#include <sstream>

#include "base/random.h"
#include "base/test_shared.h"
#include "serve/limits.h"
#include "serve/openai/chat_request.h"
#include "serve/openai/completion_request.h"
#include "serve/openai/embedding_request.h"
#include "serve/openai/responses_request.h"

namespace hone {
namespace {

RequestRules Rules(bool lenient = false) {
  RequestRules rules;
  rules.policy.lenient = lenient;
  rules.model = "m";
  rules.vocab = 1000;
  rules.context = 100;
  return rules;
}

constexpr char kThinkingTemplate[] = "{{ enable_thinking }}";

std::optional<ApiError> Chat(const std::string& body, bool lenient = false, const char* source = "") {
  ChatRequest out;
  return ParseChatRequest(body, Rules(lenient), source, &out);
}
std::optional<ApiError> Completion(const std::string& body, bool lenient = false) {
  CompletionRequest out;
  return ParseCompletionRequest(body, Rules(lenient), &out);
}
std::optional<ApiError> Responses(const std::string& body, bool lenient = false, const char* source = "") {
  ResponsesRequest out;
  return ParseResponsesRequest(body, Rules(lenient), source, &out);
}
std::optional<ApiError> Embeddings(const std::string& body) {
  EmbeddingRequest out;
  return ParseEmbeddingRequest(body, Rules(), 4, &out);
}
std::string ChatBody(const std::string& more) {
  return R"({"model":"m","messages":[{"role":"user","content":"hi"}])" + (more.empty() ? "" : "," + more) + "}";
}
std::string CompletionBody(const std::string& more) {
  return R"({"model":"m","prompt":"hi")" + (more.empty() ? "" : "," + more) + "}";
}

struct Mutation {
  const char* more;      // members added to a good request
  const char* param;     // of the error; "": the request is good
  const char* says = ""; // part of the message
};

// Fields that both endpoints have.
constexpr Mutation kCommon[] = {
    {"", ""},
    {R"("temperature":0)", ""},
    {R"("temperature":2)", ""},
    {R"("temperature":null)", ""},
    {R"("temperature":2.01)", "temperature", "found 2.01, wanted a number in [0, 2]"},
    {R"("temperature":-0.1)", "temperature"},
    {R"("temperature":"hot")", "temperature", "found \"hot\""},
    {R"("temperature":true)", "temperature"},
    {R"("temperature":[1])", "temperature", "an array of 1"},
    {R"("top_p":1)", ""},
    {R"("top_p":0)", ""},
    {R"("top_p":1.5)", "top_p", "[0, 1]"},
    {R"("top_p":-1)", "top_p"},
    {R"("min_p":0.5)", ""},
    {R"("min_p":2)", "min_p"},
    {R"("typical_p":0)", "typical_p", "(0, 1]"},
    {R"("typical_p":1)", ""},
    {R"("top_k":-1)", ""},
    {R"("top_k":-2)", "top_k", "[-1, "},
    {R"("top_k":1.5)", "top_k", "an integer"},
    {R"("top_k":99999999999)", "top_k"},
    {R"("repetition_penalty":0)", "repetition_penalty"},
    {R"("repetition_penalty":10)", ""},
    {R"("repetition_penalty":10.5)", "repetition_penalty"},
    {R"("presence_penalty":-2)", ""},
    {R"("presence_penalty":2.5)", "presence_penalty", "[-2, 2]"},
    {R"("frequency_penalty":-2.5)", "frequency_penalty"},
    {R"("n":1)", ""},
    {R"("n":128)", ""},
    {R"("n":129)", "n", "found 129, wanted an integer in [1, 128]"},
    {R"("priority":-3)", ""},
    {R"("priority":1000001)", "priority", "[-1000000, 1000000]"},
    {R"("cache_salt":"a")", ""},
    {R"("cache_salt":"")", "cache_salt", "0 bytes"},
    {R"("cache_salt":5)", "cache_salt"},
    {R"("logprobs_mode":"processed")", ""},
    {R"("logprobs_mode":"cooked")", "logprobs_mode", "\"raw\" or \"processed\""},
    {R"("prompt_logprobs":0)", ""},
    {R"("prompt_logprobs":64)", ""},
    {R"("prompt_logprobs":65)", "prompt_logprobs", "[0, 64]"},
    {R"("prompt_logprobs":1,"stream":true)", "prompt_logprobs", "stream"},
    {R"("top_n_sigma":1.5,"xtc_probability":0.5,"xtc_threshold":0.2)", ""},
    {R"("xtc_probability":1.5)", "xtc_probability", "[0, 1]"},
    {R"("dry_multiplier":0.8,"dry_base":1.5,"dry_allowed_length":3,"dry_penalty_last_n":-1)", ""},
    {R"("dry_base":0)", "dry_base", "(0, "},
    {R"("mirostat":2,"mirostat_tau":4,"mirostat_eta":0.2)", ""},
    {R"("mirostat":1)", "mirostat", "supported: 0 (off), 2"},
    {R"("mirostat":3)", "mirostat"},
    {R"("dynatemp_range":0.5,"dynatemp_exponent":2)", ""},
    {R"("dynatemp_range":-1)", "dynatemp_range"},
    {R"("repeat_last_n":64,"no_repeat_ngram_size":3,"epsilon_cutoff":0.1,"eta_cutoff":0.1)", ""},
    {R"("no_repeat_ngram_size":257)", "no_repeat_ngram_size", "[0, 256]"},
    {R"("n":0)", "n"},
    {R"("max_tokens":1)", ""},
    {R"("max_tokens":16.0)", ""},
    {R"("max_tokens":0)", "max_tokens", "[1, "},
    {R"("max_tokens":-5)", "max_tokens", "found -5"},
    {R"("max_tokens":1e30)", "max_tokens"},
    {R"("max_tokens":18446744073709551615)", "max_tokens"},
    {R"("seed":-9223372036854775808)", ""},
    {R"("seed":18446744073709551615)", ""},
    {R"("seed":1.5)", "seed", "64-bit"},
    {R"("seed":"1")", "seed"},
    {R"("stop":"x")", ""},
    {R"("stop":["a","b"])", ""},
    {R"("stop":[])", ""},
    {R"("stop":"")", "stop", "0 bytes"},
    {R"("stop":["a",""])", "stop"},
    {R"("stop":[1])", "stop"},
    {R"("stop":7)", "stop", "a string or an array"},
    {R"("stop_token_ids":[0,999])", ""},
    {R"("stop_token_ids":[1000])", "stop_token_ids", "[0, 999]"},
    {R"("stop_token_ids":[-1])", "stop_token_ids"},
    {R"("stop_token_ids":3)", "stop_token_ids"},
    {R"("logit_bias":{"5":100})", ""},
    {R"("logit_bias":{"5":101})", "logit_bias", "[-100, 100]"},
    {R"("logit_bias":{"5":"x"})", "logit_bias"},
    {R"("logit_bias":{"1000":1})", "logit_bias", "[0, 999]"},
    {R"("logit_bias":{"-1":1})", "logit_bias"},
    {R"("logit_bias":{"x":1})", "logit_bias", "found \"x\""},
    {R"("logit_bias":{" 5":1})", "logit_bias"},
    {R"("logit_bias":[1])", "logit_bias"},
    {R"("stream":true)", ""},
    {R"("stream":null)", ""},
    {R"("stream":"yes")", "stream", "true or false"},
    {R"("stream":true,"stream_options":{"include_usage":true})", ""},
    {R"("stream":true,"stream_options":{"include_usage":1})", "stream_options.include_usage"},
    {R"("stream":true,"stream_options":{"include_use":true})", "stream_options.include_use", "did you mean include_usage?"},
    {R"("stream":true,"stream_options":{"include_obfuscation":false})", ""},
    {R"("stream":true,"stream_options":{"include_obfuscation":true})", "stream_options.include_obfuscation"},
    {R"("stream":true,"stream_options":7)", "stream_options"},
    {R"("stream_options":{"include_usage":true})", "stream_options", "only allowed when stream is true"},
    {R"("response_format":{"type":"text"})", ""},
    {R"("response_format":{"type":"json_object"})", "response_format.type", "json_object"},
    {R"("response_format":{"type":"json_schema","json_schema":{}})", "response_format.type", "not supported"},
    {R"("response_format":"text")", "response_format"},
    {R"("ignore_eos":1)", "ignore_eos"},
    {R"("min_tokens":-1)", "min_tokens"},
    {R"("include_stop_str_in_output":"a")", "include_stop_str_in_output"},
    {R"("skip_special_tokens":0)", "skip_special_tokens"},
    {R"("user":"someone")", ""},
    {R"("user":5)", "user"},
    {R"("temprature":1)", "temprature", "did you mean temperature?"},
    {R"("max_token":1)", "max_token", "did you mean max_tokens?"},
    {R"("frobnicate":1)", "frobnicate", "unknown field frobnicate"},
    {R"("model":"other")", "model", "does not exist; this server has \"m\""},
    {R"("model":null)", "model", "missing"},
    {R"("model":5)", "model"},
};

constexpr Mutation kChat[] = {
    {R"("logprobs":true,"top_logprobs":64)", ""},
    {R"("logprobs":true,"top_logprobs":65)", "top_logprobs", "[0, 64]"},
    {R"("logprobs":false,"top_logprobs":3)", "top_logprobs", "only allowed when logprobs is true"},
    {R"("logprobs":3)", "logprobs"},
    {R"("max_completion_tokens":5)", ""},
    {R"("max_completion_tokens":5,"max_tokens":5)", ""},
    {R"("max_completion_tokens":5,"max_tokens":6)", "max_tokens", "send one"},
    {R"("max_completion_tokens":0)", "max_completion_tokens"},
    {R"("tools":[])", ""},
    {R"("tools":[{"type":"function","function":{"name":"f"}}])", ""},
    {R"("tools":[{"type":"custom","custom":{"name":"f"}}])", "tools[0].type"},
    {R"("tools":[{"type":"function"}])", "tools[0].function"},
    {R"("tools":[1])", "tools[0]"},
    {R"("tools":{})", "tools"},
    {R"("tool_choice":"auto")", ""},
    {R"("tool_choice":"none")", ""},
    {R"("tool_choice":"required")", "tool_choice", "\"required\""},
    {R"("tool_choice":{"type":"function","function":{"name":"f"}})", "tool_choice"},
    {R"("tool_choice":"maybe")", "tool_choice"},
    {R"("parallel_tool_calls":true)", ""},
    {R"("parallel_tool_calls":"x")", "parallel_tool_calls"},
    {R"("functions":[])", ""},
    {R"("functions":[{"name":"f"}])", "functions", "use tools"},
    {R"("function_call":"auto")", "function_call"},
    {R"("modalities":["text"])", ""},
    {R"("modalities":["text","audio"])", "modalities"},
    {R"("audio":{"voice":"x","format":"wav"})", "audio", "text only"},
    {R"("store":false)", ""},
    {R"("store":true)", "store", "stores no completions"},
    {R"("metadata":{})", ""},
    {R"("metadata":{"a":"b"})", "metadata"},
    {R"("service_tier":"auto")", ""},
    {R"("service_tier":"flex")", "service_tier"},
    {R"("verbosity":"medium")", ""},
    {R"("verbosity":"low")", "verbosity"},
    {R"("prediction":{"type":"content","content":"x"})", "prediction"},
    {R"("web_search_options":{"search_context_size":"low"})", "web_search_options"},
    {R"("prompt_cache_key":"k","safety_identifier":"s")", ""},
    {R"("prompt_cache_key":1)", "prompt_cache_key"},
    {R"("enable_thinking":true)", "enable_thinking", "does not read it"},
    {R"("reasoning_effort":"low")", "reasoning_effort"},
    {R"("reasoning_effort":null)", ""},
    {R"("chat_template_kwargs":{"a":[1]})", ""},
    {R"("chat_template_kwargs":{"messages":[]})", "chat_template_kwargs"},
    {R"("chat_template_kwargs":[])", "chat_template_kwargs"},
    {R"("add_generation_prompt":false)", ""},
    {R"("continue_final_message":true)", "continue_final_message", "assistant"},
    {R"("prompt":"x")", "prompt", "unknown field prompt"},
    {R"("best_of":2)", "best_of"},
};

constexpr Mutation kCompletion[] = {
    {R"("logprobs":0)", ""},
    {R"("logprobs":64)", ""},
    {R"("logprobs":65)", "logprobs", "[0, 64]"},
    {R"("logprobs":true)", "logprobs"},
    {R"("logprobs":false)", ""},
    {R"("echo":false)", ""},
    {R"("echo":true)", ""},
    {R"("echo":1)", "echo"},
    {R"("echo":true,"max_tokens":0)", ""},
    {R"("max_tokens":0)", "max_tokens"},
    {R"("suffix":"")", ""},
    {R"("suffix":"x")", "suffix"},
    {R"("best_of":1)", ""},
    {R"("best_of":2)", ""},
    {R"("best_of":2,"n":3)", "best_of", "at least n, which is 3"},
    {R"("best_of":3,"n":3,"stream":true)", ""},
    {R"("best_of":3,"n":2,"stream":true)", "best_of", "stream"},
    {R"("best_of":129)", "best_of"},
    {R"("add_special_tokens":false)", ""},
    {R"("messages":[])", "messages", "unknown field messages"},
    {R"("top_logprobs":1)", "top_logprobs"},
    {R"("prompt":null)", "prompt", "missing"},
    {R"("prompt":["a","b"])", ""},
    {R"("prompt":[1,2])", ""},
    {R"("prompt":[[1],[2,3]])", ""},
    {R"("prompt":[])", "prompt"},
    {R"("prompt":{})", "prompt"},
    {R"("prompt":5)", "prompt"},
    {R"("prompt":[1000])", "prompt", "[0, 999]"},
    {R"("prompt":[1,"a"])", "prompt"},
    {R"("prompt":["a",1])", "prompt[1]"},
    {R"("prompt":[[1],["a"]])", "prompt[1]"},
    {R"("prompt":[[1],2])", "prompt[1]"},
    {R"("prompt":[null])", "prompt[0]"},
};

void Check(const Mutation& mutation, const std::optional<ApiError>& error) {
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

TEST(Request, MutationsOfBoth) {
  for (const Mutation& mutation : kCommon) {
    Check(mutation, Chat(ChatBody(mutation.more)));
    Check(mutation, Completion(CompletionBody(mutation.more)));
  }
}
TEST(Request, MutationsOfChat) {
  for (const Mutation& mutation : kChat) Check(mutation, Chat(ChatBody(mutation.more)));
}
TEST(Request, MutationsOfCompletions) {
  for (const Mutation& mutation : kCompletion) Check(mutation, Completion(CompletionBody(mutation.more)));
}

TEST(Request, MutationsOfResponses) {
  constexpr Mutation kResponses[] = {
      {"", ""},
      {R"("instructions":"be brief")", ""},
      {R"("instructions":5)", "instructions"},
      {R"("max_output_tokens":5)", ""},
      {R"("max_output_tokens":0)", "max_output_tokens"},
      {R"("max_tokens":5)", "max_tokens", "unknown field max_tokens"},
      {R"("store":false)", ""},
      {R"("store":true)", "store", "stores no completions"},
      {R"("background":false)", ""},
      {R"("background":true)", "background"},
      {R"("previous_response_id":"resp_1")", "previous_response_id", "send the whole conversation"},
      {R"("conversation":{"id":"x"})", "conversation"},
      {R"("truncation":"disabled")", ""},
      {R"("truncation":"auto")", "truncation"},
      {R"("text":{"format":{"type":"text"},"verbosity":"medium"})", ""},
      {R"("text":{"format":{"type":"json_schema"}})", "text.format.type"},
      {R"("text":{"verbosity":"low"})", "text.verbosity"},
      {R"("text":{"colour":"red"})", "text.colour"},
      {R"("reasoning":{"effort":"low"})", "reasoning.effort", "does not read it"},
      {R"("reasoning":{"summary":"auto"})", "reasoning.summary"},
      {R"("reasoning":{"effort":null,"summary":null})", ""},
      {R"("include":["message.output_text.logprobs"],"top_logprobs":3)", ""},
      {R"("include":["reasoning.encrypted_content"])", "include"},
      {R"("metadata":{"a":"b"})", ""},
      {R"("metadata":{"a":1})", "metadata"},
      {R"("max_tool_calls":3,"parallel_tool_calls":false,"user":"u")", ""},
      {R"("tools":[{"type":"function","name":"f","parameters":{},"strict":true}])", ""},
      {R"("tools":[{"type":"web_search"}])", "tools[0].type", "supported: \"function\""},
      {R"("tools":[{"type":"function"}])", "tools[0].function"},
      {R"("tools":[{"type":"function","name":"f","paramters":{}}])", "tools[0].paramters", "did you mean parameters?"},
      {R"("tool_choice":"required")", "tool_choice"},
      {R"("temperature":3)", "temperature"},
      {R"("prompt":{"id":"p"})", "prompt"},
      {R"("messages":[])", "messages", "unknown field"},
  };
  for (const Mutation& mutation : kResponses) {
    Check(mutation, Responses(R"({"model":"m","input":"hi")" + std::string(*mutation.more ? "," : "") + mutation.more + "}"));
  }
  const std::pair<const char*, const char*> inputs[] = {
      {R"("a")", ""},
      {R"([])", "input"},
      {R"(5)", "input"},
      {R"(["a"])", "input[0]"},
      {R"([{"role":"user","content":"a"}])", ""},
      {R"([{"role":"robot","content":"a"}])", "input[0].role"},
      {R"([{"role":"user"}])", "input[0].content"},
      {R"([{"type":"message","role":"user","content":[{"type":"input_text","text":"a"}]}])", ""},
      {R"([{"type":"message","role":"user","content":[{"type":"input_image","image_url":"x"}]}])", "input[0].content[0].type"},
      {R"([{"type":"item_reference","id":"x"}])", "input[0].type"},
      {R"([{"type":"function_call","call_id":"c","name":"f"}])", "input[0].arguments"},
      {R"([{"type":"function_call_output","call_id":"c"}])", "input[0].output"},
      {R"([{"type":"reasoning","summary":[],"encrypted_content":"x"}])", "input[0].encrypted_content"},
      {R"([{"role":"user","content":"a","colour":1}])", "input[0].colour"},
  };
  for (const auto& [input, param] : inputs) {
    const auto error = Responses(R"({"model":"m","input":)" + std::string(input) + "}");
    EXPECT_EQ(error ? error->param : "", param) << input << (error ? error->message : "");
  }
  ResponsesRequest out;
  ASSERT_FALSE(ParseResponsesRequest(R"({"model":"m","instructions":"S","input":[{"role":"user","content":"q"},
    {"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"hm"}]},
    {"type":"message","id":"m1","status":"completed","role":"assistant","content":[{"type":"output_text","text":"a","annotations":[]}]},
    {"type":"function_call","call_id":"c1","name":"f","arguments":"{\"x\":1}"},
    {"type":"function_call_output","call_id":"c1","output":"42"}]})", Rules(), "", &out));
  EXPECT_EQ(out.chat.messages_json,
            R"([{"role":"system","content":"S"},{"role":"user","content":"q"},)"
            R"({"role":"assistant","content":"a","reasoning_content":"hm","tool_calls":[{"id":"c1","type":"function",)"
            R"("function":{"name":"f","arguments":{"x":1}}}]},{"role":"tool","content":"42","tool_call_id":"c1"}])");
}

TEST(Request, MutationsOfEmbeddings) {
  constexpr Mutation kEmbeddings[] = {
      {"", ""},
      {R"("encoding_format":"base64")", ""},
      {R"("encoding_format":"hex")", "encoding_format"},
      {R"("dimensions":4)", ""},
      {R"("dimensions":2)", "dimensions", "have 4"},
      {R"("pooling":"last")", ""},
      {R"("pooling":"max")", "pooling"},
      {R"("user":"u","cache_salt":"s","priority":1)", ""},
      {R"("temperature":1)", "temperature", "unknown field"},
      {R"("input":null)", "input", "missing"},
      {R"("input":[])", "input"},
      {R"("input":["a",1])", "input[1]"},
      {R"("input":[[1,2],[3]])", ""},
      {R"("input":[1000])", "input", "[0, 999]"},
      {R"("model":"x")", "model"},
  };
  for (const Mutation& mutation : kEmbeddings) {
    Check(mutation, Embeddings(R"({"model":"m","input":"hi")" + std::string(*mutation.more ? "," : "") + mutation.more + "}"));
  }
  EXPECT_EQ(Base64(""), "");
  EXPECT_EQ(Base64("f"), "Zg==");
  EXPECT_EQ(Base64("fo"), "Zm8=");
  EXPECT_EQ(Base64("foobar"), "Zm9vYmFy");
}

TEST(Request, Messages) {
  const std::pair<const char*, const char*> cases[] = {
      {R"([])", "messages"},
      {R"({})", "messages"},
      {R"(null)", "messages"},
      {R"(["hi"])", "messages[0]"},
      {R"([{"content":"a"}])", "messages[0].role"},
      {R"([{"role":"robot","content":"a"}])", "messages[0].role"},
      {R"([{"role":7,"content":"a"}])", "messages[0].role"},
      {R"([{"role":"function","name":"f","content":"a"}])", "messages[0].role"},
      {R"([{"role":"user"}])", "messages[0].content"},
      {R"([{"role":"user","content":null}])", "messages[0].content"},
      {R"([{"role":"user","content":3}])", "messages[0].content"},
      {R"([{"role":"user","content":"a"},{"role":"user","content":["a"]}])", "messages[1].content[0]"},
      {R"([{"role":"user","content":[{"type":"text"}]}])", "messages[0].content[0].text"},
      {R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"x"}}]}])",
       "messages[0].content[1].type"},
      {R"([{"role":"user","content":[{"type":"text","text":"a","extra":1}]}])", "messages[0].content[0].extra"},
      {R"([{"role":"user","content":"a","nmae":"x"}])", "messages[0].nmae"},
      {R"([{"role":"user","content":"a","name":1}])", "messages[0].name"},
      {R"([{"role":"tool","content":"a"}])", "messages[0].tool_call_id"},
      {R"([{"role":"user","content":"a","tool_calls":[]}])", "messages[0].tool_calls"},
      {R"([{"role":"assistant","tool_calls":[{}]}])", "messages[0].tool_calls[0]"},
      {R"([{"role":"assistant","tool_calls":[{"type":"custom","function":{"name":"f"}}]}])", "messages[0].tool_calls[0].type"},
      {R"([{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":3}}]}])",
       "messages[0].tool_calls[0].function.arguments"},
      {R"([{"role":"assistant","content":"a","refusal":"no"}])", "messages[0].refusal"},
      {R"([{"role":"assistant","content":"a","audio":{"id":"x"}}])", "messages[0].audio"},
      {R"([{"role":"assistant","content":"a","refusal":null,"annotations":[],"audio":null,"function_call":null,"tool_calls":null}])", ""},
      {R"([{"role":"assistant","content":"a","reasoning_content":"b"}])", ""},
      {R"([{"role":"system","content":""}])", ""},
  };
  for (const auto& [messages, param] : cases) {
    const auto error = Chat(R"({"model":"m","messages":)" + std::string(messages) + "}");
    EXPECT_EQ(error ? error->param : "", param) << messages << (error ? error->message : "");
  }
  ChatRequest out;
  const std::string body = R"({"model":"m","messages":[{"role":"assistant","content":null,"tool_calls":[
    {"id":"1","type":"function","function":{"name":"f","arguments":"{\"b\":1,\"a\":[]}"}},
    {"id":"2","type":"function","function":{"name":"g","arguments":"not json"}}]}]})";
  ASSERT_FALSE(ParseChatRequest(body, Rules(), "", &out));
  // The order of keys is the caller's; text that is no object stays text.
  EXPECT_EQ(out.messages_json,
            R"([{"role":"assistant","content":"","tool_calls":[)"
            R"({"id":"1","type":"function","function":{"name":"f","arguments":{"b":1,"a":[]}}},)"
            R"({"id":"2","type":"function","function":{"name":"g","arguments":"not json"}}]}])");
}

TEST(Request, TemplateVariables) {
  ChatRequest out;
  ASSERT_FALSE(ParseChatRequest(ChatBody(R"("enable_thinking":false,"chat_template_kwargs":{"z":1})"), Rules(), kThinkingTemplate, &out));
  EXPECT_EQ(out.variables_json, R"({"z":1,"enable_thinking":false})");
}

TEST(Request, BadBodies) {
  const std::pair<std::string, const char*> cases[] = {
      {"", "empty"},
      {"{", "line 1, column 2"},
      {"{\"model\":\"m\",\n \"n\": 1,}", "line 2, column 9"},
      {"[]", "not a JSON object"},
      {"\"a\"", "not a JSON object"},
      {"{\"a\":\"\xFF\"}", "not valid UTF-8 at byte 6"},
      {"{\"a\":\"\xED\xA0\x80\"}", "not valid UTF-8"},
      {R"({"a":"\ud800"})", "not valid JSON"},
      {"{\"a\":1e999}", "beyond the range"},
      {"{\"a\":NaN}", "not valid JSON"},
      {"{} x", "not valid JSON"},
      {std::string(100000, '['), "nested deeper than 64"},
      {"{\"messages\":" + std::string(64, '[') + std::string(64, ']') + "}", "nested deeper"},
      {"{\"a\":[" + std::string(kMaxJsonValues, ',') + "]}", "JSON values"},
      {"{\"a\":\"b\0c\"}", "not valid JSON"},
  };
  for (const auto& [body, says] : cases) {
    for (const auto& error : {Chat(body), Completion(body)}) {
      ASSERT_TRUE(error.has_value()) << body.substr(0, 50);
      EXPECT_EQ(error->status, 400);
      EXPECT_NE(error->message.find(says), std::string::npos) << error->message;
    }
  }
  // The deepest that is allowed, and braces inside strings, are read.
  EXPECT_EQ(Chat("{\"messages\":" + std::string(63, '[') + std::string(63, ']') + "}")->param, "model");
  EXPECT_FALSE(Chat(R"({"model":"m","messages":[{"role":"user","content":")" + std::string(1000, '[') + R"("}]})"));
  // Of a key that comes twice the last counts.
  EXPECT_FALSE(Chat(ChatBody(R"("n":99,"n":2)")));
}

TEST(Request, LimitsAtTheirEdges) {
  const auto list = [](size_t count, const std::string& item) {
    std::string out = "[";
    for (size_t i = 0; i < count; ++i) out += (i ? "," : "") + item;
    return out + "]";
  };
  const auto object = [](int count) {
    std::string out = "{";
    for (int i = 0; i < count; ++i) out += (i ? ",\"" : "\"") + std::to_string(i % 1000) + std::string(i / 1000, ' ') + "\":1";
    return out + "}";
  };
  EXPECT_FALSE(Chat(ChatBody(R"("stop":)" + list(kMaxStops, "\"a\""))));
  EXPECT_TRUE(Chat(ChatBody(R"("stop":)" + list(kMaxStops + 1, "\"a\""))));
  EXPECT_FALSE(Chat(ChatBody(R"("stop":")" + std::string(kMaxStopBytes, 'a') + "\"")));
  EXPECT_TRUE(Chat(ChatBody(R"("stop":")" + std::string(kMaxStopBytes + 1, 'a') + "\"")));
  EXPECT_FALSE(Chat(ChatBody(R"("stop_token_ids":)" + list(kMaxStopTokenIds, "1"))));
  EXPECT_TRUE(Chat(ChatBody(R"("stop_token_ids":)" + list(kMaxStopTokenIds + 1, "1"))));
  EXPECT_TRUE(Chat(ChatBody(R"("chat_template_kwargs":)" + object(kMaxJsonKeys + 1))));
  EXPECT_FALSE(Chat(ChatBody(R"("chat_template_kwargs":)" + object(kMaxJsonKeys))));
  const std::string message = R"({"role":"user","content":"a"})";
  EXPECT_FALSE(Chat(R"({"model":"m","messages":)" + list(kMaxMessages, message) + "}"));
  EXPECT_TRUE(Chat(R"({"model":"m","messages":)" + list(kMaxMessages + 1, message) + "}"));
  const std::string tool = R"({"type":"function","function":{"name":"f"}})";
  EXPECT_FALSE(Chat(ChatBody(R"("tools":)" + list(kMaxTools, tool))));
  EXPECT_TRUE(Chat(ChatBody(R"("tools":)" + list(kMaxTools + 1, tool))));
  EXPECT_FALSE(Completion(CompletionBody(R"("prompt":)" + list(kMaxPrompts, "\"a\""))));
  EXPECT_TRUE(Completion(CompletionBody(R"("prompt":)" + list(kMaxPrompts + 1, "\"a\""))));
}

TEST(Request, TheContextIsAHardEnd) {
  GenerationFields fields;
  std::vector<PromptChoices> out;
  auto error = MakeChoices(fields, std::vector<int32_t>(100, 1), Rules(), "prompt", &out);
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code, "context_length_exceeded");
  EXPECT_NE(error->message.find("100 tokens"), std::string::npos);
  EXPECT_FALSE(MakeChoices(fields, std::vector<int32_t>(99, 1), Rules(), "prompt", &out));
  EXPECT_EQ(out.back().sequence.max_tokens, 1);
  fields.sequence.max_tokens = 30;
  EXPECT_FALSE(MakeChoices(fields, std::vector<int32_t>(50, 1), Rules(), "prompt", &out));
  EXPECT_EQ(out.back().sequence.max_tokens, 30);
  EXPECT_FALSE(MakeChoices(fields, std::vector<int32_t>(80, 1), Rules(), "prompt", &out));
  EXPECT_EQ(out.back().sequence.max_tokens, 20);
  fields.sequence.min_tokens = 21;
  EXPECT_EQ(MakeChoices(fields, std::vector<int32_t>(80, 1), Rules(), "prompt", &out)->param, "min_tokens");
  EXPECT_EQ(MakeChoices(fields, {}, Rules(), "prompt", &out)->param, "prompt");

  // What only reads its prompt may fill the context with it.
  fields = {};
  fields.sequence.prompt_only = true;
  EXPECT_FALSE(MakeChoices(fields, std::vector<int32_t>(100, 1), Rules(), "prompt", &out));
  EXPECT_TRUE(MakeChoices(fields, std::vector<int32_t>(101, 1), Rules(), "prompt", &out));
}

TEST(Request, LimitsOfTheServer) {
  GenerationFields fields;
  RequestRules rules = Rules();
  rules.limits.prompt_tokens = 20;
  rules.limits.output_tokens = 10;
  std::vector<PromptChoices> out;
  EXPECT_FALSE(MakeChoices(fields, std::vector<int32_t>(20, 1), rules, "prompt", &out));
  EXPECT_EQ(out.back().sequence.max_tokens, 10);
  const auto longer = MakeChoices(fields, std::vector<int32_t>(21, 1), rules, "prompt", &out);
  ASSERT_TRUE(longer.has_value());
  EXPECT_EQ(longer->code, "context_length_exceeded");
  fields.sequence.max_tokens = 10;
  EXPECT_FALSE(MakeChoices(fields, {1}, rules, "prompt", &out));
  fields.sequence.max_tokens = 11;
  EXPECT_EQ(MakeChoices(fields, {1}, rules, "prompt", &out)->param, "max_tokens");
  // With tenants a request can only stand back.
  rules.min_priority = 0;
  ChatRequest chat;
  EXPECT_FALSE(ParseChatRequest(ChatBody(R"("priority":0)"), rules, "", &chat));
  EXPECT_EQ(ParseChatRequest(ChatBody(R"("priority":-1)"), rules, "", &chat)->param, "priority");
}

TEST(Request, BestOfMakesMoreThanItSends) {
  CompletionRequest out;
  ASSERT_FALSE(ParseCompletionRequest(CompletionBody(R"("n":2,"best_of":5)"), Rules(), &out));
  std::vector<PromptChoices> choices;
  ASSERT_FALSE(MakeChoices(out.fields, {1}, Rules(), "prompt", &choices));
  EXPECT_EQ(choices.back().count, 5);
}

TEST(Request, LenientFieldsPassOnlyWhatDoesNotChangeTheAnswer) {
  EXPECT_FALSE(Chat(ChatBody(R"("frobnicate":1,"store":true,"metadata":{"a":"b"})"), true));
  EXPECT_TRUE(Chat(ChatBody(R"("response_format":{"type":"json_object"})"), true));
  EXPECT_TRUE(Chat(ChatBody(R"("functions":[{"name":"f"}])"), true));
  EXPECT_TRUE(Chat(ChatBody(R"("temperature":9)"), true));
  EXPECT_TRUE(Completion(CompletionBody(R"("suffix":"a")"), true));
}

// Every field of OpenAI's own schema has a rule, and is never unknown.
TEST(Request, EveryFieldOfTheSchemaHasARule) {
  HONE_NEED_SHARED(path, "goldens/structured/openai_request_fields.json");
  std::ifstream file(path);
  const nlohmann::json golden = nlohmann::json::parse(file);
  size_t fields = 0;
  const auto check = [&](const char* request, FieldKind FieldRule::*kind) {
    for (const auto& [name, schema] : golden["requests"][request].items()) {
      ++fields;
      bool found = false;
      for (const FieldRule& rule : FieldRules()) found |= rule.name == name && rule.*kind != FieldKind::kAbsent;
      EXPECT_TRUE(found) << request << " " << name;
      if (schema["nullable"] == true) {  // null is "not set" for whatever has a default
        const std::string more = "\"" + name + "\":null";
        const auto error = kind == &FieldRule::chat         ? Chat(ChatBody(more))
                           : kind == &FieldRule::completion ? Completion(CompletionBody(more))
                           : kind == &FieldRule::response   ? Responses(R"({"model":"m","input":"a",)" + more + "}")
                                                            : Embeddings(R"({"model":"m","input":"a",)" + more + "}");
        EXPECT_EQ(error.has_value(), schema["required"] == true) << name;
      }
    }
  };
  check("chat.completions", &FieldRule::chat);
  check("completions", &FieldRule::completion);
  check("responses", &FieldRule::response);
  check("embeddings", &FieldRule::embedding);
  EXPECT_GT(fields, 85u);
}

TEST(Request, TheDocsNameEveryField) {
  std::ifstream file(std::string(HONE_SOURCE_DIR) + "/docs/server.md");
  std::stringstream text;
  text << file.rdbuf();
  for (const FieldRule& rule : FieldRules()) {
    EXPECT_NE(text.str().find("`" + std::string(rule.name) + "`"), std::string::npos) << rule.name;
  }
}

TEST(Request, RulesAreUnique) {
  std::set<std::string_view> names;
  for (const FieldRule& rule : FieldRules()) EXPECT_TRUE(names.insert(rule.name).second) << rule.name;
}

TEST(Request, NearestName) {
  constexpr std::string_view kNames[] = {"temperature", "top_p", "stop"};
  EXPECT_EQ(Nearest("temperatur", kNames), "temperature");
  EXPECT_EQ(Nearest("top-p", kNames), "top_p");
  EXPECT_EQ(Nearest("something_else", kNames), "");
  EXPECT_EQ(Nearest(std::string(100000, 'a'), kNames), "");
}

}  // namespace
}  // namespace hone
