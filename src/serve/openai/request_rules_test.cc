// Requests as wholes: messages, bad bodies, limits at their edges, and the table of fields against OpenAI's schema and the docs.
#include <nlohmann/json.hpp>

#include <fstream>
#include <set>
#include <sstream>

#include "base/random.h"
#include "base/test_shared.h"
#include "serve/openai/test_request.h"

namespace hone {
namespace {

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
      {R"([{"role":"assistant","tool_calls":[{"function":{"name":"f"},"colour":1}]}])", "messages[0].tool_calls[0].colour"},
      {R"([{"role":"assistant","tool_calls":[{"function":{"name":"f","argument":"{}"}}]}])", "messages[0].tool_calls[0].function.argument"},
      {R"([{"role":"assistant","content":"a","tool_calls":[{"index":0,"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]}])", ""},
      {R"([{"role":"assistant","content":null,"parsed":null,"tool_calls":[{"function":{"name":"f","arguments":"{}","parsed_arguments":{}}}]}])", ""},
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
  EXPECT_TRUE(Chat(ChatBody(R"("response_format":{"type":"ebnf"})"), true));
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
