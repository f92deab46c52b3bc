// Answers and chunks held against the types of OpenAI's own client: every required field is there, and every field that
// the types know has a value of its type.
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/test_shared.h"
#include "serve/test_server.h"

namespace hone {
namespace {

using nlohmann::json;

class Schema : public ServerTest {
 protected:
  // The empty string, or what is wrong and where. `type` in the notation of the golden file.
  std::string Wrong(const json& value, const json& type, const std::string& at) const {
    if (type.is_string()) {
      const std::string name = type;
      const bool fits = name == "any" || (name == "string" && value.is_string()) ||
                        (name == "integer" && value.is_number_integer()) || (name == "number" && value.is_number()) ||
                        (name == "boolean" && value.is_boolean()) || (name == "null" && value.is_null());
      return fits ? "" : at + ": " + value.dump() + " is no " + name;
    }
    if (type.contains("enum")) {
      for (const json& one : type["enum"]) {
        if (one == value) return "";
      }
      return at + ": " + value.dump() + " is none of " + type["enum"].dump();
    }
    if (type.contains("any_of")) {
      std::string first;
      for (const json& one : type["any_of"]) {
        const std::string wrong = Wrong(value, one, at);
        if (wrong.empty()) return "";
        first += "\n  " + wrong;
      }
      return at + ": none of its types:" + first;
    }
    if (type.contains("array_of")) {
      if (!value.is_array()) return at + ": no array";
      for (size_t i = 0; i < value.size(); ++i) {
        const std::string wrong = Wrong(value[i], type["array_of"], at + "[" + std::to_string(i) + "]");
        if (!wrong.empty()) return wrong;
      }
      return "";
    }
    if (type.contains("map_of")) return value.is_object() ? "" : at + ": no object";
    if (type.contains("ref")) return WrongObject(value, golden_["types"][type["ref"].get<std::string>()], at);
    return at + ": unknown notation " + type.dump();
  }

  std::string WrongObject(const json& value, const json& fields, const std::string& at) const {
    if (!value.is_object()) return at + ": no object";
    for (const auto& [name, field] : fields.items()) {
      const std::string path = at + "." + name;
      if (!value.contains(name)) {
        if (field["required"] == true) return path + ": missing";
        continue;
      }
      if (value[name].is_null() && (field["nullable"] == true || field["required"] == false)) continue;
      const std::string wrong = Wrong(value[name], field["type"], path);
      if (!wrong.empty()) return wrong;
    }
    return "";
  }

  void CheckAnswer(const std::string& name, const ClientResponse& response) {
    ASSERT_EQ(response.status, 200) << response.body;
    EXPECT_EQ(WrongObject(json::parse(response.body), golden_["responses"][name], name), "");
  }
  void CheckChunks(const json& fields, const ClientResponse& stream) {
    ASSERT_EQ(stream.status, 200) << stream.body;
    size_t chunks = 0;
    for (const std::string& event : stream.events()) {
      if (event == "[DONE]") continue;
      EXPECT_EQ(WrongObject(json::parse(event), fields, "chunk"), "") << event;
      ++chunks;
    }
    EXPECT_GT(chunks, 2u);
  }

  json golden_;
};

TEST_F(Schema, AnswersAndChunks) {
  HONE_NEED_SHARED(path, "goldens/structured/openai_request_fields.json");
  std::ifstream file(path);
  golden_ = json::parse(file);
  Start({}, true, 1000, kThinkingTestTemplate);
  engine_->Say(
      {"<think>hm</think>", "It is ", "so.", "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\"", ":1}}</tool_call>"});
  const std::string stream = R"("stream":true,"stream_options":{"include_usage":true})";
  const std::string tools = R"("tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}])";
  const json& chunk = golden_["stream"]["chat.completion.chunk"];
  for (const std::string& more : {std::string(R"("n":2)"), std::string(R"("logprobs":true,"top_logprobs":2)")}) {
    CheckAnswer("chat.completion", Chat("hello", more));
    CheckChunks(chunk, Chat("hello", more + "," + stream));
  }
  CheckAnswer("chat.completion", Chat("say", tools));
  CheckChunks(chunk, Chat("say", tools + "," + stream));

  const std::string prompt = R"({"model":"fake/model","prompt":"abc","logprobs":2)";
  CheckAnswer("text_completion", Call("POST", kCompletions, prompt + "}"));
  CheckAnswer("text_completion", Call("POST", kCompletions, R"({"model":"fake/model","prompt":["a","b"],"n":2})"));
  // The types have one object for both; in a stream the reason is null until the last chunk.
  golden_["types"]["completion_choice.CompletionChoice"]["finish_reason"]["nullable"] = true;
  CheckChunks(golden_["stream"]["text_completion"]["fields"], Call("POST", kCompletions, prompt + "," + stream + "}"));

  CheckAnswer("embedding list", Call("POST", "/v1/embeddings", R"({"model":"fake/model","input":["a","b"]})"));
  CheckAnswer("model", Call("GET", "/v1/models/fake/model"));
}

TEST_F(Schema, Responses) {
  HONE_NEED_SHARED(path, "goldens/structured/openai_request_fields.json");
  std::ifstream file(path);
  golden_ = json::parse(file);
  Start({}, true, 1000, kThinkingTestTemplate);
  engine_->Say(
      {"<think>hm</think>", "It is ", "so.", "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\"", ":1}}</tool_call>"});
  const json& events = golden_["stream"]["responses events"];
  const std::string tools = R"("tools":[{"type":"function","name":"f","parameters":{"type":"object"},"strict":true}])";
  for (const std::string& body :
       {R"({"model":"fake/model","input":"say",)" + tools,
        std::string(R"({"model":"fake/model","input":"hello","max_output_tokens":3)"),
        std::string(
            R"({"model":"fake/model","input":"hello","include":["message.output_text.logprobs"],"top_logprobs":2)")}) {
    CheckAnswer("response", Call("POST", "/v1/responses", body + "}"));
    for (const std::string& event : Call("POST", "/v1/responses", body + R"(,"stream":true})").events()) {
      const json one = json::parse(event);
      const std::string type = one["type"];
      ASSERT_TRUE(events.contains(type)) << type;
      EXPECT_EQ(WrongObject(one, events[type], type), "") << event;
    }
  }
  for (const std::string& event :
       Call("POST", "/v1/responses", R"({"model":"fake/model","input":"crash","stream":true})").events()) {
    const json one = json::parse(event);
    EXPECT_EQ(WrongObject(one, events[one["type"].get<std::string>()], one["type"]), "") << event;
  }
}

}  // namespace
}  // namespace hone
