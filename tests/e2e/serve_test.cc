// hone serve as clients meet it: the announced address works, a stream is the same answer as a whole one, the seed that an
// answer names repeats it, a signal drains, a second one ends at once.
#include <map>

#include "base/random.h"
#include "e2e/server.h"

namespace hone::e2e {
namespace {

class Serve : public ServeTest {};

TEST_F(Serve, AStreamIsTheSameTextAsAWholeAnswer) {
  ASSERT_NO_FATAL_FAILURE(Start());
  for (const json& more : {json{{"temperature", 0}}, json{{"temperature", 1.2}, {"seed", -5}},
                           json{{"temperature", 0}, {"stop", {"fox"}}}}) {
    const json whole = Chat(more)["choices"][0], stream = Chat(more, true);
    EXPECT_FALSE(whole["message"]["content"].get<std::string>().empty());
    EXPECT_EQ(whole["message"]["content"], stream["content"]) << more;
    EXPECT_EQ(whole["finish_reason"], stream["finish_reason"]);
    EXPECT_EQ(stream["seed"].is_number(), true);
    if (!more.contains("seed")) continue;
    EXPECT_EQ(whole["seed"], more["seed"]);
    EXPECT_EQ(stream["seed"], more["seed"]);
  }
  // A random seed is told, and small enough for every JSON reader.
  const json random = Chat({{"temperature", 1.2}})["choices"][0];
  EXPECT_LT(random["seed"].get<int64_t>(), int64_t{1} << 53);
  EXPECT_EQ(Chat({{"temperature", 1.2}, {"seed", random["seed"]}})["choices"][0]["message"], random["message"]);
  EXPECT_EQ(Chat({{"temperature", 1}, {"seed", 3}, {"n", 2}})["choices"][1]["seed"], 4);
}

// What a choice says, of a whole answer or gathered from its chunks.
struct Said {
  std::string text, reasoning, finish;
  json calls = json::array(), logprobs, seed;
  bool operator==(const Said&) const = default;

  void Add(const json& choice) {
    const auto text_of = [](const json& of, const char* key) { return of.contains(key) && of[key].is_string() ? of[key].get<std::string>() : ""; };
    const json& part = choice.contains("message") ? choice["message"] : choice.contains("delta") ? choice["delta"] : choice;
    text += text_of(part, "content") + text_of(part, "text");
    reasoning += text_of(part, "reasoning_content");
    finish += text_of(choice, "finish_reason");
    if (choice.contains("seed")) seed = choice["seed"];
    for (const json& call : part.value("tool_calls", json::array())) {
      const size_t index = call.value("index", calls.size());
      if (index >= calls.size()) calls.push_back({{"name", ""}, {"arguments", ""}});
      for (const char* key : {"name", "arguments"}) calls[index][key] = text_of(calls[index], key) + text_of(call["function"], key);
    }
    if (!choice.contains("logprobs") || !choice["logprobs"].is_object()) return;
    for (const auto& [key, list] : choice["logprobs"].items()) {
      for (const json& one : list) logprobs[key].push_back(one);
    }
  }
};

json AnyRequest(Rng& rng, bool chat) {
  const auto maybe = [&](double chance) { return rng.Uniform() < chance; };
  const auto any = [&](const json& of) { return of[rng.Below(of.size())]; };
  json body = {{"model", "builtin"}, {"seed", rng.Below(100)}, {"temperature", any({0, 0.7, 1.3, 2})}, {"max_tokens", any({5, 8, 24, 40})}};
  if (maybe(0.4)) body["n"] = any({2, 3});
  if (maybe(0.5)) body["stop"] = {any({" the", "e", "}", "ing"}), any({" a", ".", "\n", "\"", "</"})};
  if (maybe(0.3)) body["include_stop_str_in_output"] = true;
  if (maybe(0.3)) body["min_tokens"] = 1 + rng.Below(5);
  if (maybe(0.2)) body["ignore_eos"] = true;
  if (maybe(0.2)) body["skip_special_tokens"] = false;
  if (maybe(0.3)) body["logprobs_mode"] = "processed";
  if (maybe(0.2)) body["response_format"] = {{"type", "json_object"}};
  const bool logprobs = maybe(0.5);
  if (!chat) {
    body["prompt"] = any({"Tell me about the sea.", json{"Why?", "\u00dcber \u20ac \U0001F600"}, json{5, 6, 7}, json{{1, 2}, {3, 4}}});
    if (logprobs) body["logprobs"] = any({0, 1, 3});
    if (maybe(0.4)) body["echo"] = true;
    return body;
  }
  body["messages"] = {{{"role", "user"}, {"content", any({"What is the weather in Paris?", "Write a JSON object.", "\u00dcber \u20ac \U0001F600?"})}}};
  if (logprobs) body["logprobs"] = true, body["top_logprobs"] = any({0, 2});
  if (maybe(0.3)) body["enable_thinking"] = maybe(0.5);
  if (maybe(0.3)) {
    const json parameters = json::parse(R"({"type":"object","properties":{"city":{"type":"string","maxLength":12}},"required":["city"],"additionalProperties":false})");
    body["tools"] = {{{"type", "function"}, {"function", {{"name", "weather"}, {"parameters", parameters}}}}};
    body["tool_choice"] = any({"auto", "required"});
  }
  return body;
}

// Whatever is asked for together, a stream joined is the whole answer: text, reasoning, calls, log-probabilities, ends, seeds.
TEST_F(Serve, AStreamIsTheWholeAnswerWhateverIsAsked) {
  ASSERT_NO_FATAL_FAILURE(Start({"--deterministic"}));
  Rng rng(7);
  for (int round = 0; round < 80; ++round) {
    const bool chat = rng.Below(5) < 3;
    const std::string path = chat ? "/v1/chat/completions" : "/v1/completions";
    json body = AnyRequest(rng, chat);
    const json whole = Post(path, body);
    ASSERT_TRUE(whole.contains("choices")) << body;
    body["stream"] = true;
    body["stream_options"] = {{"include_usage", true}};
    std::vector<std::string> events = Events(Exchange(port_, "POST", path, body.dump()).Body());
    ASSERT_FALSE(events.empty()) << body;
    ASSERT_EQ(events.back(), "[DONE]") << body;
    events.pop_back();
    std::map<int, Said> wanted, got;
    for (const json& choice : whole["choices"]) wanted[choice["index"]].Add(choice);
    json usage;
    for (const std::string& event : events) {
      const json chunk = json::parse(event);
      for (const json& choice : chunk["choices"]) got[choice["index"]].Add(choice);
      usage = chunk["usage"];
    }
    EXPECT_TRUE(wanted == got) << body << whole << "\n" << json(events);
    for (const auto& [index, said] : wanted) {
      if (chat || said.logprobs.is_null()) continue;
      for (size_t i = body.contains("echo") ? 1 : 0; i < said.logprobs["tokens"].size(); ++i) {
        const std::string token = said.logprobs["tokens"][i];  // "": a special one of the prompt
        EXPECT_TRUE(token.empty() || said.logprobs["top_logprobs"][i].contains(token)) << body << i << said.logprobs;
      }
    }
    for (const char* key : {"prompt_tokens", "completion_tokens"}) EXPECT_EQ(usage[key], whole["usage"][key]) << body;
  }
}

// Five blocks of memory more than one context: sequences push each other out, and say what they say alone.
TEST_F(Serve, PreemptionAndLeavingClientsChangeNothing) {
  ASSERT_NO_FATAL_FAILURE(Start({"--ctx", "256", "--kv-bytes", "1400KiB", "--max-sequences", "8"}));
  const auto body = [](int i) {
    return json({{"model", "builtin"}, {"prompt", "The fox number " + std::to_string(i)}, {"max_tokens", 100},
                 {"temperature", 0}, {"ignore_eos", true}}).dump();
  };
  std::vector<std::string> alone;
  for (int i = 0; i < 8; ++i) {
    Exchange one(port_, "POST", "/v1/completions", body(i));
    alone.push_back(json::parse(one.Body())["choices"][0]["text"]);
  }
  {
    Exchange leaves(port_, "POST", "/v1/completions", Endless());
    std::vector<std::unique_ptr<Exchange>> together;
    for (int i = 0; i < 8; ++i) together.push_back(std::make_unique<Exchange>(port_, "POST", "/v1/completions", body(i)));
    for (int i = 0; i < 8; ++i) EXPECT_EQ(json::parse(together[i]->Body())["choices"][0]["text"], alone[i]) << i;
  }
  const json ready = Idle();
  EXPECT_EQ(ready["running"], 0);
  EXPECT_EQ(ready["waiting"], 0);
  EXPECT_EQ(ready["kv_blocks_used"], 0);
  EXPECT_GT(ready["kv_blocks"], 0);
  EXPECT_GT(ready["preemptions"], 0);
}

TEST_F(Serve, ASignalLetsStreamsEnd) {
  ASSERT_NO_FATAL_FAILURE(Start({"--drain-timeout", "3600"}));
  json body = json::parse(Endless());
  body["max_tokens"] = 200;
  Exchange stream(port_, "POST", "/v1/completions", body.dump());
  ASSERT_TRUE(stream.ReadUntil("data: "));
  program_->Signal(SIGTERM);
  const std::vector<std::string> events = Events(stream.Body());
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.back(), "[DONE]");
  EXPECT_EQ(program_->Wait(), 0);
  EXPECT_FALSE(Exchange(port_, "GET", "/health").connected());
}

TEST_F(Serve, WhoIsCutIsTold) {
  ASSERT_NO_FATAL_FAILURE(Start({"--drain-timeout", "0.01"}));
  Exchange stream(port_, "POST", "/v1/completions", Endless());
  ASSERT_TRUE(stream.ReadUntil("data: "));
  program_->Signal(SIGTERM);
  const std::vector<std::string> events = Events(stream.Body());
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(json::parse(events.back())["error"]["code"], "unavailable");
  EXPECT_EQ(program_->Wait(), 0);
}

TEST_F(Serve, ASecondSignalEndsAtOnce) {
  ASSERT_NO_FATAL_FAILURE(Start({"--drain-timeout", "60"}));
  Exchange stream(port_, "POST", "/v1/completions", Endless());
  ASSERT_TRUE(stream.ReadUntil("data: "));
  program_->Signal(SIGTERM);
  while (program_->Line().find("stopping") == std::string::npos) {
  }
  program_->Signal(SIGTERM);
  EXPECT_EQ(program_->Wait(), 130);
}

TEST_F(Serve, APortInUseIsNamed) {
  ASSERT_NO_FATAL_FAILURE(Start());
  ServerProgram second({"serve", "builtin", "--port", std::to_string(port_)});
  EXPECT_NE(second.Line().find("port " + std::to_string(port_)), std::string::npos);
  EXPECT_EQ(second.Wait(), 1);
}

TEST_F(Serve, TheAnnouncedCurlLineHoldsAnyName) {
  ASSERT_NO_FATAL_FAILURE(Start({"--name", "it's \"q\""}));
  program_->Line();
  EXPECT_NE(program_->Line().find("curl http://127.0.0.1:" + std::to_string(port_)), std::string::npos);
  EXPECT_NE(program_->Line().find(R"({"model": "it'\''s \"q\"", )"), std::string::npos);
}

// A page whose name resolves to this machine (DNS rebinding) reads nothing; a proxy's name is given.
TEST_F(Serve, NamesOfOthersNeedAFlag) {
  ASSERT_NO_FATAL_FAILURE(Start({"--allow-host", "my.box"}));
  for (const auto& [host, status] : {std::pair<const char*, int>{"localhost:1", 200}, {"127.0.0.1", 200}, {"my.box:80", 200}, {"evil.example", 403}, {"my.box.evil", 403}}) {
    Exchange exchange(port_, "GET", "/v1/models", "", "Host: " + std::string(host) + "\r\n");
    const json answer = json::parse(exchange.Body(), nullptr, false);
    EXPECT_EQ(exchange.status(), status) << host << answer;
    if (status == 403) {
      EXPECT_EQ(answer["error"]["code"], "host_not_allowed");
    }
  }
}

}  // namespace
}  // namespace hone::e2e
