// Requests, field by field: what is honoured, what is refused and what the refusal says.
#include <nlohmann/json.hpp>

#include <fstream>
#include <set>
#include <sstream>

#include "base/random.h"
#include "base/test_shared.h"
#include "serve/openai/test_request.h"

namespace hone {
namespace {

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
    {R"("stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true})", ""},
    {R"("stream":true,"stream_options":{"continuous_usage_stats":false})", ""},
    {R"("stream":true,"stream_options":{"continuous_usage_stats":true})", "stream_options.continuous_usage_stats", "only with include_usage"},
    {R"("stream":true,"stream_options":{"include_use":true})", "stream_options.include_use", "did you mean include_usage?"},
    {R"("stream":true,"stream_options":{"include_obfuscation":false})", ""},
    {R"("stream":true,"stream_options":{"include_obfuscation":true})", "stream_options.include_obfuscation"},
    {R"("stream":true,"stream_options":7)", "stream_options"},
    {R"("stream_options":{"include_usage":true})", "stream_options", "only allowed when stream is true"},
    {R"("response_format":{"type":"text"})", ""},
    {R"("response_format":{"type":"json_object"})", ""},
    {R"("response_format":{"type":"json_schema","json_schema":{"name":"s","schema":{"type":"object"},"strict":true}})", ""},
    {R"("response_format":{"type":"json_schema","json_schema":{"name":"s","schema":{},"description":"d","strict":null}})", ""},
    {R"("response_format":{"type":"json_schema"})", "response_format.json_schema", "missing"},
    {R"("response_format":{"type":"json_schema","json_schema":{}})", "response_format.json_schema.name", "missing"},
    {R"("response_format":{"type":"json_schema","json_schema":{"name":"s"}})", "response_format.json_schema.schema", "missing"},
    {R"("response_format":{"type":"json_schema","json_schema":{"name":"s","schema":3}})", "response_format.json_schema.schema"},
    {R"("response_format":{"type":"json_schema","json_schema":{"name":"s","schema":{},"strict":1}})", "response_format.json_schema.strict"},
    {R"("response_format":{"type":"json_schema","json_schema":{"name":"s","shema":{}}})", "response_format.json_schema.shema", "schema"},
    {R"("response_format":{"type":"grammar"})", "response_format.type", "json_object"},
    {R"("response_format":"text")", "response_format"},
    {R"("response_format":{"type":"text","schema":{}})", "response_format.schema", "unknown field"},
    {R"("response_format":{"type":"json_object","schema":{}})", "response_format.schema", "unknown field"},
    {R"("response_format":{"type":"json_schema","strict":true,"json_schema":{"name":"s","schema":{}}})", "response_format.strict", "unknown field"},
    {R"("ignore_eos":1)", "ignore_eos"},
    {R"("min_tokens":-1)", "min_tokens"},
    {R"("include_stop_str_in_output":"a")", "include_stop_str_in_output"},
    {R"("skip_special_tokens":0)", "skip_special_tokens"},
    {R"("user":"someone")", ""},
    {R"("user":5)", "user"},
    {R"("temprature":1)", "temprature", "did you mean temperature?"},
    {R"("max_token":1)", "max_token", "did you mean max_tokens?"},
    {R"("frobnicate":1)", "frobnicate", "unknown field frobnicate"},
    {R"("a\u000aE 12:00:00.000 \u001b[31mforged\u007f":1)", "a?E 12:00:00.000 ?[31mforged?"},
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
    {R"("tool_choice":"required")", "tool_choice", "no tools"},
    {R"("tool_choice":{"type":"function","function":{"name":"f"}})", "tool_choice", "no tools"},
    {R"("tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"required")", ""},
    {R"("tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"function","function":{"name":"f"}})", ""},
    {R"("tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"function","function":{"name":"g"}})", "tool_choice", "none of the tools"},
    {R"("tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"custom","custom":{"name":"f"}})", "tool_choice"},
    {R"("tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[{"type":"function","function":{"name":"f"}}]}})", ""},
    {R"("tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"some","tools":[]}})", "tool_choice"},
    {R"("tools":[{"type":"function","function":{"name":"f","strict":true,"parameters":{"type":"object"}}}])", ""},
    {R"("tools":[{"type":"function","colour":1,"function":{"name":"f"}}])", "tools[0].colour", "unknown field"},
    {R"("tools":[{"type":"function","function":{"name":"f","paramters":{}}}])", "tools[0].function.paramters", "did you mean parameters?"},
    {R"("tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"function","function":{"name":"f"},"mode":1})", "tool_choice.mode"},
    {R"("tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"function","function":{"name":"f","mode":1}})", "tool_choice.function.mode"},
    {R"("tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tool":1,"tools":[{"type":"function","function":{"name":"f"}}]}})", "tool_choice.allowed_tools.tool", "did you mean tools?"},
    {R"("tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"allowed_tools","mode":"auto","allowed_tools":{"mode":"auto","tools":[{"type":"function","function":{"name":"f"}}]}})", "tool_choice.mode"},
    {R"("tools":[{"type":"function","function":{"name":"f","strict":"yes"}}])", "tools[0].function.strict"},
    {R"("tools":[{"type":"function","function":{"name":"f","parameters":[]}}])", "tools[0].function.parameters"},
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
    {R"("service_tier":"default")", ""},
    {R"("service_tier":"auto|default")", "service_tier"},
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
      {R"("stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true})", "stream_options.continuous_usage_stats"},
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
      {R"("text":{"format":{"type":"json_object"}})", ""},
      {R"("text":{"format":{"type":"json_schema","name":"s","schema":{"type":"object"},"strict":true}})", ""},
      {R"("text":{"format":{"type":"json_schema"}})", "text.format.name", "missing"},
      {R"("text":{"format":{"type":"regex"}})", "text.format.type"},
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
      {R"("tool_choice":"required")", "tool_choice", "no tools"},
      {R"("tools":[{"type":"function","name":"f"}],"tool_choice":{"type":"function","name":"f"})", ""},
      {R"("tools":[{"type":"function","name":"f","strict":3}])", "tools[0].strict", "tools[0].strict"},
      {R"("text":{"format":{"type":"json_object","schema":{}}})", "text.format.schema", "unknown field"},
      {R"("tools":[{"type":"function","name":"f"}],"tool_choice":{"type":"function","name":"f","mode":1})", "tool_choice.mode"},
      {R"("temperature":3)", "temperature"},
      {R"("prompt":{"id":"p"})", "prompt"},
      {R"("messages":[])", "messages", "unknown field"},
  };
  for (const Mutation& mutation : kResponses) {
    Check(mutation, Responses(InputBody(mutation.more)));
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
      {R"([{"role":"assistant","content":[{"type":"output_text","text":"{}","annotations":[],"logprobs":[],"parsed":{}}]}])", ""},
      {R"([{"type":"function_call","call_id":"c","name":"f","arguments":"{}","parsed_arguments":{}}])", ""},
      {R"([{"type":"message","role":"user","content":[{"type":"input_text","text":"a","colour":1}]}])", "input[0].content[0].colour"},
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
    Check(mutation, Embeddings(InputBody(mutation.more)));
  }
  EXPECT_EQ(Base64(""), "");
  EXPECT_EQ(Base64("f"), "Zg==");
  EXPECT_EQ(Base64("fo"), "Zm8=");
  EXPECT_EQ(Base64("foobar"), "Zm9vYmFy");
}

// The text of a document in which one member, the `twice`-th of all, is there twice in its object; its path.
std::string WriteTwice(const nlohmann::json& value, const std::string& path, int* twice, std::string* found) {
  std::string out;
  if (value.is_object()) {
    for (const auto& [name, member] : value.items()) {
      const std::string at = path.empty() ? name : path + "." + name;
      const bool here = --*twice == 0;
      if (here) *found = at;
      // An escape in the second name: it is the same name.
      if (here) out += nlohmann::json(name).dump() + ":[{}],";
      const std::string escaped = here && name != "" && name[0] == 'm' ? "\"\\u006d" + name.substr(1) + "\"" : nlohmann::json(name).dump();
      out += escaped + ":" + WriteTwice(member, at, twice, found) + ",";
    }
    if (!out.empty()) out.pop_back();
    return "{" + out + "}";
  }
  if (!value.is_array()) return value.dump();
  for (size_t i = 0; i < value.size(); ++i) out += WriteTwice(value[i], path + "[" + std::to_string(i) + "]", twice, found) + ",";
  if (!out.empty()) out.pop_back();
  return "[" + out + "]";
}

// Wherever in a good request a name is there twice, it is refused by its place; the last value does not silently win.
TEST(Request, NoNameIsThereTwice) {
  int checked = 0;
  const auto check = [&](const std::string& body, const auto& parse) {
    const nlohmann::json document = nlohmann::json::parse(body);
    for (int member = 1;; ++member) {
      int left = member;
      std::string path;
      const std::string text = WriteTwice(document, "", &left, &path);
      if (left > 0) break;
      const std::optional<ApiError> error = parse(text);
      ASSERT_TRUE(error.has_value()) << text;
      EXPECT_EQ(error->code, "duplicate_field") << text << error->message;
      EXPECT_EQ(error->param, path) << text;
      EXPECT_EQ(error->status, 400);
      EXPECT_NE(error->message.find(path), std::string::npos) << error->message;
      ++checked;
    }
  };
  const auto chat = [](const std::string& body) { return Chat(body); };
  const auto lenient = [](const std::string& body) { return Chat(body, true); };
  for (const Mutation& mutation : kChat) {
    if (*mutation.param == 0) check(ChatBody(mutation.more), chat);
  }
  for (const Mutation& mutation : kCommon) {
    if (*mutation.param != 0) continue;
    check(ChatBody(mutation.more), lenient);
    check(CompletionBody(mutation.more), [](const std::string& body) { return Completion(body); });
  }
  check(R"({"model":"m","input":[{"role":"user","content":[{"type":"input_text","text":"a"}]}],"metadata":{"a":"b"}})",
        [](const std::string& body) { return Responses(body); });
  check(R"({"model":"m","input":["a"],"user":"u"})", [](const std::string& body) { return Embeddings(body); });
  EXPECT_GT(checked, 400);
  EXPECT_EQ(Chat(R"({"":1,"":2})")->code, "duplicate_field");
  // The same name in two objects is two names.
  EXPECT_FALSE(Chat(R"({"model":"m","messages":[{"role":"user","content":"a"},{"role":"user","content":"b"}]})"));
}

// Nothing hides behind the end of a body, whatever a parser takes for it.
TEST(Request, NothingComesBehindTheBody) {
  const std::string good = ChatBody("");
  for (const std::string& behind : {std::string(1, '\0'), std::string("\0{}", 3), std::string(" \0 ", 3), std::string("x"), std::string("{}"), std::string(","),
                                    std::string("//"), std::string("\xEF\xBB\xBF"), std::string("\x1a")}) {
    const auto error = Chat(good + behind);
    ASSERT_TRUE(error.has_value()) << testing::PrintToString(behind);
    EXPECT_EQ(error->code, "invalid_json");
  }
  EXPECT_TRUE(Chat(std::string(1, '\0') + good));
  EXPECT_FALSE(Chat(good + " \r\n\t "));
}

// What is wrong with a body is said in a line, however large what is wrong is.
TEST(Request, ErrorsAreShort) {
  const std::string many(1 << 20, 'a'), slashes(1 << 20, '\\'), ones(1 << 20, '1');
  for (const std::string& body : {"{\"" + many, "{\"a\":\"" + slashes, "{\"a\":" + many, "{\"a\":" + ones, "{\"a\":-" + many, "{\"" + many + "\":1}", "\"" + many + "\"",
                                  many, ChatBody("\"stop\":\"" + many + "\""), ChatBody("\"temperature\":\"" + many + "\""),
                                  ChatBody("\"model\":\"" + many + "\""), ChatBody("\"tools\":[{\"type\":\"" + many + "\"}]"), "{\"" + many + "\":1,\"" + many + "\":1}"}) {
    const auto error = Chat(body);
    ASSERT_TRUE(error.has_value());
    EXPECT_LT(error->message.size() + error->param.size(), 1000u) << error->message.substr(0, 200);
  }
}

// As many values as are allowed are read in a walk or two, whatever they are. (Looking through an array for each of its
// elements would take minutes.)
TEST(Request, ManyValuesAreReadOnce) {
  for (const std::string& element : {std::string("{}"), std::string("[]"), std::string(R"({"a":1,"b":{}})"), std::string("7")}) {
    std::string list = element;
    for (size_t i = 1; i < kMaxJsonValues / 5; ++i) list += "," + element;
    EXPECT_EQ(Chat(ChatBody("\"frobnicate\":[" + list + "]"))->param, "frobnicate");
  }
}

// A model's arguments are text: what was sent back as it came is taken as clients' parsers take it.
TEST(Request, ArgumentsOfCallsMayRepeatNames) {
  ChatRequest out;
  ASSERT_FALSE(ParseChatRequest(R"({"model":"m","messages":[{"role":"user","content":"q"},{"role":"assistant","tool_calls":[{"id":"c",
    "type":"function","function":{"name":"f","arguments":"{\"x\":1,\"x\":2}"}}]},{"role":"tool","tool_call_id":"c","content":"r"}]})",
                                Rules(), "", &out));
  EXPECT_NE(out.messages_json.find(R"("arguments":{"x":2})"), std::string::npos) << out.messages_json;
}

}  // namespace
}  // namespace hone
