// Endpoints and their shapes, over a fake engine and real sockets.
#include "serve/serve.h"

#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "serve/test_server.h"

namespace hone {
namespace {

using nlohmann::json;

class Endpoints : public ServerTest {};

TEST_F(Endpoints, ChatAnswersWhole) {
  Start();
  const ClientResponse response = Chat("hello", R"("max_tokens":4)");
  ASSERT_EQ(response.status, 200) << response.body;
  EXPECT_EQ(response.header("content-type"), "application/json");
  EXPECT_FALSE(response.header("x-request-id").empty());
  const json answer = json::parse(response.body);
  EXPECT_EQ(answer["object"], "chat.completion");
  EXPECT_EQ(answer["model"], "fake/model");
  EXPECT_EQ(answer["id"].get<std::string>().rfind("chatcmpl-", 0), 0u);
  EXPECT_GT(answer["created"].get<int64_t>(), 1700000000);
  ASSERT_EQ(answer["choices"].size(), 1u);
  EXPECT_EQ(answer["choices"][0]["message"]["role"], "assistant");
  EXPECT_EQ(answer["choices"][0]["message"]["content"], "w0 w1 w2 w3 ");
  EXPECT_TRUE(answer["choices"][0]["message"]["refusal"].is_null());
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "length");
  EXPECT_TRUE(answer["choices"][0]["logprobs"].is_null());
  const std::string prompt = "<user>hello</><assistant>";
  EXPECT_EQ(answer["usage"]["prompt_tokens"], prompt.size());
  EXPECT_EQ(answer["usage"]["completion_tokens"], 4);
  EXPECT_EQ(answer["usage"]["total_tokens"], prompt.size() + 4);
  EXPECT_EQ(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 2);
}

TEST_F(Endpoints, ChatStreams) {
  Start();
  const ClientResponse response = Chat("hello", R"("stream":true,"stream_options":{"include_usage":true})");
  ASSERT_EQ(response.status, 200) << response.body;
  EXPECT_EQ(response.header("content-type").rfind("text/event-stream", 0), 0u);
  EXPECT_TRUE(response.chunked);
  EXPECT_TRUE(response.complete);
  std::vector<std::string> events = response.events();
  ASSERT_EQ(events.size(), 1 + 10 + 1 + 1 + 1u);
  EXPECT_EQ(events.back(), "[DONE]");
  events.pop_back();
  const json first = json::parse(events.front());
  EXPECT_EQ(first["choices"][0]["delta"]["role"], "assistant");
  std::string text;
  for (size_t i = 0; i < events.size(); ++i) {
    const json chunk = json::parse(events[i]);
    EXPECT_EQ(chunk["object"], "chat.completion.chunk");
    EXPECT_EQ(chunk["id"], first["id"]);
    EXPECT_EQ(chunk["created"], first["created"]);
    ASSERT_TRUE(chunk.contains("usage"));
    if (i + 1 == events.size()) {
      EXPECT_TRUE(chunk["choices"].empty());
      EXPECT_EQ(chunk["usage"]["completion_tokens"], 10);
      continue;
    }
    EXPECT_TRUE(chunk["usage"].is_null());
    const json& choice = chunk["choices"][0];
    text += choice["delta"].value("content", "");
    if (i + 2 == events.size()) {
      EXPECT_EQ(choice["finish_reason"], "stop");
      EXPECT_TRUE(choice["delta"].empty());
    } else {
      EXPECT_TRUE(choice["finish_reason"].is_null());
    }
  }
  const json whole = json::parse(Chat("hello").body);
  EXPECT_EQ(text, whole["choices"][0]["message"]["content"]);
}

// vLLM's option: every chunk tells its choice's tokens up to it, and the last one those of all.
TEST_F(Endpoints, UsageMayBeInEveryChunk) {
  Start();
  const std::string more = R"("n":2,"seed":1,"max_tokens":4,"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}})";
  for (const auto& [path, head, begins] : {std::tuple(kChat, R"({"model":"fake/model","messages":[{"role":"user","content":"hello"}],)", 0),
                                           std::tuple(kCompletions, R"({"model":"fake/model","prompt":"hello",)", 1)}) {
    const ClientResponse response = Call("POST", path, head + more);
    ASSERT_EQ(response.status, 200) << response.body;
    std::vector<std::string> events = response.events();
    ASSERT_EQ(events.back(), "[DONE]");
    events.pop_back();
    std::map<int, std::vector<int>> counts;
    json usage;
    for (const std::string& event : events) {
      const json chunk = json::parse(event);
      usage = chunk["usage"];
      EXPECT_EQ(usage["total_tokens"], usage["prompt_tokens"].get<int>() + usage["completion_tokens"].get<int>());
      if (!chunk["choices"].empty()) counts[chunk["choices"][0]["index"]].push_back(usage["completion_tokens"]);
    }
    std::vector<int> wanted = {0, 1, 2, 3, 4, 4};
    wanted.erase(wanted.begin(), wanted.begin() + begins);
    EXPECT_EQ(counts[0], wanted);
    EXPECT_EQ(counts[1], wanted);
    EXPECT_EQ(usage["completion_tokens"], 8);
  }
}

TEST_F(Endpoints, StreamWithoutUsageHasNoUsage) {
  Start();
  const ClientResponse response = Chat("hello", R"("stream":true)");
  for (const std::string& event : response.events()) EXPECT_EQ(event.find("usage"), std::string::npos);
}

TEST_F(Endpoints, CharactersOfSeveralTokensStayWhole) {
  Start();
  const std::string smile = "\xF0\x9F\x98\x80";
  const ClientResponse stream = Chat("emoji", R"("stream":true,"logprobs":true,"top_logprobs":2)");
  ASSERT_EQ(stream.status, 200) << stream.body;
  EXPECT_EQ(FindInvalidUtf8(stream.body), std::string::npos);
  std::string text;
  size_t tokens = 0;
  for (const std::string& event : stream.events()) {
    if (event == "[DONE]") continue;
    const json choice = json::parse(event)["choices"][0];
    text += choice["delta"].value("content", "");
    if (!choice["logprobs"].is_object()) continue;
    for (const json& token : choice["logprobs"]["content"]) {
      ++tokens;
      EXPECT_EQ(token["bytes"].size(), 2u);
      EXPECT_EQ(token["top_logprobs"].size(), 2u);
      EXPECT_EQ(token["logprob"], -0.5);
    }
  }
  EXPECT_EQ(text, smile + smile + smile + smile + smile);
  EXPECT_EQ(tokens, 10u);
  const json whole = json::parse(Chat("emoji", R"("logprobs":true)").body);
  EXPECT_EQ(whole["choices"][0]["message"]["content"], text);
  EXPECT_EQ(whole["choices"][0]["logprobs"]["content"].size(), 10u);
  EXPECT_EQ(whole["choices"][0]["logprobs"]["content"][0]["bytes"], json::parse("[240,159]"));
}

TEST_F(Endpoints, ManyChoices) {
  Start();
  const json answer = json::parse(Chat("hello", R"("n":3,"seed":7,"max_tokens":2)").body);
  ASSERT_EQ(answer["choices"].size(), 3u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(answer["choices"][i]["index"], i);
    EXPECT_EQ(answer["choices"][i]["seed"], 7 + i);
    EXPECT_EQ(engine_->requests()[static_cast<size_t>(i)].sampling.seed, 7u + static_cast<uint64_t>(i));
  }
  EXPECT_EQ(answer["usage"]["completion_tokens"], 6);
  EXPECT_EQ(answer["usage"]["prompt_tokens"], std::string("<user>hello</><assistant>").size());
  std::map<int, std::string> texts;
  std::map<int, int> roles, ends;
  for (const std::string& event : Chat("hello", R"("n":3,"stream":true)").events()) {
    if (event == "[DONE]") continue;
    const json choice = json::parse(event)["choices"][0];
    texts[choice["index"]] += choice["delta"].value("content", "");
    roles[choice["index"]] += choice["delta"].contains("role");
    ends[choice["index"]] += choice["finish_reason"].is_string();
  }
  ASSERT_EQ(texts.size(), 3u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(texts[i], texts[0]);
    EXPECT_EQ(roles[i], 1);
    EXPECT_EQ(ends[i], 1);
  }
}

TEST_F(Endpoints, TheEffectiveSeedIsToldOnceAChoice) {
  Start();
  EXPECT_EQ(json::parse(Chat("hello").body)["choices"][0]["seed"], 12345);
  EXPECT_EQ(json::parse(Chat("hello", R"("seed":-5)").body)["choices"][0]["seed"], -5);
  const std::string text = R"({"model":"fake/model","prompt":"a","seed":9)";
  EXPECT_EQ(json::parse(Call("POST", kCompletions, text + "}").body)["choices"][0]["seed"], 9);
  for (const ClientResponse& stream : {Chat("hello", R"("seed":9,"stream":true)"),
                                       Call("POST", kCompletions, text + R"(,"stream":true})")}) {
    int seeds = 0;
    for (const std::string& event : stream.events()) {
      if (event == "[DONE]") continue;
      const json choice = json::parse(event)["choices"][0];
      EXPECT_EQ(choice.contains("seed"), choice["finish_reason"].is_string());
      if (!choice.contains("seed")) continue;
      EXPECT_EQ(choice["seed"], 9);
      ++seeds;
    }
    EXPECT_EQ(seeds, 1);
  }
}

TEST_F(Endpoints, MoreAnswersThanTheServerEverHoldsAre400) {
  Start();
  engine_->LimitSequences(2, 3);
  EXPECT_EQ(Chat("hello", R"("n":5)").status, 200);
  const ClientResponse refused = Chat("hello", R"("n":6)");  // to try again would not help: no 429
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(json::parse(refused.body)["error"]["param"], "n");
}

TEST_F(Endpoints, CompletionsTakeTextsAndIds) {
  Start();
  const auto body = [](const std::string& prompt, const std::string& more = "") {
    return R"({"model":"fake/model","prompt":)" + prompt + more + "}";
  };
  json answer = json::parse(Call("POST", kCompletions, body(R"("abc")", R"(,"max_tokens":3)")).body);
  EXPECT_EQ(answer["object"], "text_completion");
  EXPECT_EQ(answer["choices"][0]["text"], "w0 w1 w2 ");
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(answer["usage"]["prompt_tokens"], 4);
  EXPECT_EQ(engine_->last().prompt, (std::vector<int32_t>{kFakeBos, 'a', 'b', 'c'}));
  answer = json::parse(Call("POST", kCompletions, body("[65,66]")).body);
  EXPECT_EQ(engine_->last().prompt, (std::vector<int32_t>{65, 66}));
  EXPECT_EQ(engine_->last().max_tokens, 16);
  answer = json::parse(Call("POST", kCompletions, body("[[65],[66,67]]", R"(,"n":2)")).body);
  ASSERT_EQ(answer["choices"].size(), 4u);
  EXPECT_EQ(answer["usage"]["prompt_tokens"], 3);
  answer = json::parse(Call("POST", kCompletions, body(R"(["a","b","c"])")).body);
  ASSERT_EQ(answer["choices"].size(), 3u);
  EXPECT_EQ(answer["choices"][2]["index"], 2);
}

TEST_F(Endpoints, CompletionLogprobsHaveTheLegacyShape) {
  Start();
  const std::string body = R"({"model":"fake/model","prompt":"abc","max_tokens":3,"logprobs":2)";
  const json answer = json::parse(Call("POST", kCompletions, body + "}").body);
  const json& logprobs = answer["choices"][0]["logprobs"];
  EXPECT_EQ(logprobs["tokens"], json::parse(R"(["w0 ","w1 ","w2 "])"));
  EXPECT_EQ(logprobs["token_logprobs"], json::parse("[-0.5,-0.5,-0.5]"));
  EXPECT_EQ(logprobs["text_offset"], json::parse("[0,3,6]"));
  EXPECT_EQ(logprobs["top_logprobs"][1], json::parse(R"({"a":-0.5,"b":-1.5,"w1 ":-0.5})"));  // two, and the token itself
  const ClientResponse stream = Call("POST", kCompletions, body + R"(,"stream":true})");
  std::vector<int> offsets;
  std::string text;
  for (const std::string& event : stream.events()) {
    if (event == "[DONE]") continue;
    const json choice = json::parse(event)["choices"][0];
    text += choice["text"].get<std::string>();
    if (choice["logprobs"].is_object()) offsets.push_back(choice["logprobs"]["text_offset"][0]);
  }
  EXPECT_EQ(text, "w0 w1 w2 ");
  EXPECT_EQ(offsets, (std::vector<int>{0, 3, 6}));
}

TEST_F(Endpoints, Models) {
  ServeOptions options;
  options.root = "/models/fake";
  Start(options, true, 777);
  const json list = json::parse(Call("GET", "/v1/models").body);
  EXPECT_EQ(list["object"], "list");
  ASSERT_EQ(list["data"].size(), 1u);
  const json& model = list["data"][0];
  EXPECT_EQ(model["id"], "fake/model");
  EXPECT_EQ(model["object"], "model");
  EXPECT_EQ(model["root"], "/models/fake");
  EXPECT_TRUE(model["parent"].is_null());
  EXPECT_EQ(model["max_model_len"], 777);
  EXPECT_EQ(json::parse(Call("GET", "/v1/models/fake%2Fmodel").body), model);
  EXPECT_EQ(json::parse(Call("GET", "/v1/models/fake/model").body), model);
  const ClientResponse other = Call("GET", "/v1/models/gpt-4");
  EXPECT_EQ(other.status, 404);
  EXPECT_EQ(json::parse(other.body)["error"]["code"], "model_not_found");
}

TEST_F(Endpoints, HealthReadyAndStop) {
  Start();
  EXPECT_EQ(json::parse(Call("GET", "/health").body)["status"], "ok");
  const json ready = json::parse(Call("GET", "/ready").body);
  EXPECT_EQ(ready["status"], "ready");
  for (const char* field : {"running", "waiting", "kv_blocks", "kv_blocks_used", "preemptions"}) EXPECT_EQ(ready[field], 0) << field;
}

TEST_F(Endpoints, TokenizeAndBack) {
  Start();
  json answer = json::parse(Call("POST", "/tokenize", R"({"model":"fake/model","prompt":"ab"})").body);
  EXPECT_EQ(answer["tokens"], json::parse("[256,97,98]"));
  EXPECT_EQ(answer["count"], 3);
  EXPECT_EQ(answer["max_model_len"], 1000);
  answer = json::parse(Call("POST", "/tokenize", R"({"prompt":"ab","add_special_tokens":false,"return_token_strs":true})").body);
  EXPECT_EQ(answer["tokens"], json::parse("[97,98]"));
  EXPECT_EQ(answer["token_strs"], json::parse(R"(["a","b"])"));
  answer = json::parse(Call("POST", "/tokenize", R"({"messages":[{"role":"user","content":"x"}]})").body);
  EXPECT_EQ(answer["count"], std::string("<user>x</><assistant>").size());
  EXPECT_EQ(json::parse(Call("POST", "/detokenize", R"({"tokens":[104,195,169]})").body)["prompt"], "h\u00e9");
  EXPECT_EQ(Call("POST", "/tokenize", R"({"prompt":"a","messages":[]})").status, 400);
  EXPECT_EQ(Call("POST", "/tokenize", R"({})").status, 400);
  EXPECT_EQ(Call("POST", "/tokenize", R"({"prompt":"a","model":"other"})").status, 404);
  EXPECT_EQ(Call("POST", "/detokenize", R"({"tokens":[258]})").status, 400);
  EXPECT_EQ(Call("POST", "/detokenize", R"({"tokens":"a"})").status, 400);
  EXPECT_EQ(Call("POST", "/detokenize", R"({})").status, 400);
}

TEST_F(Endpoints, BaseModelsExplainChat) {
  Start({}, false);
  const ClientResponse response = Chat("hello");
  EXPECT_EQ(response.status, 400);
  EXPECT_NE(response.body.find("no chat template"), std::string::npos);
  EXPECT_EQ(Call("POST", "/tokenize", R"({"messages":[{"role":"user","content":"x"}]})").status, 400);
  EXPECT_EQ(Call("POST", kCompletions, R"({"model":"fake/model","prompt":"a"})").status, 200);
}

TEST_F(Endpoints, FieldsReachTheEngine) {
  Start();
  const ClientResponse response = Chat("hello", R"("temperature":0.5,"top_p":0.9,"top_k":40,"min_p":0.1,"typical_p":0.8,
    "repetition_penalty":1.1,"presence_penalty":-1,"frequency_penalty":1.5,"logit_bias":{"65":-100,"66":3.5},"seed":-1,
    "stop":["a","bc"],"stop_token_ids":[10],"include_stop_str_in_output":true,"ignore_eos":true,"min_tokens":3,
    "max_completion_tokens":5,"skip_special_tokens":false,"user":"me","n":1)");
  ASSERT_EQ(response.status, 200) << response.body;
  const SequenceRequest request = engine_->last();
  const SamplingParams& sampling = request.sampling;
  EXPECT_FLOAT_EQ(sampling.temperature, 0.5f);
  EXPECT_FLOAT_EQ(sampling.top_p, 0.9f);
  EXPECT_EQ(sampling.top_k, 40);
  EXPECT_FLOAT_EQ(sampling.min_p, 0.1f);
  EXPECT_FLOAT_EQ(sampling.typical, 0.8f);
  EXPECT_FLOAT_EQ(sampling.repetition_penalty, 1.1f);
  EXPECT_FLOAT_EQ(sampling.presence_penalty, -1);
  EXPECT_FLOAT_EQ(sampling.frequency_penalty, 1.5f);
  EXPECT_EQ(sampling.logit_bias, (std::map<int32_t, float>{{65, -100.0f}, {66, 3.5f}}));
  EXPECT_EQ(sampling.seed, ~uint64_t{0});
  EXPECT_EQ(request.stop, (std::vector<std::string>{"a", "bc"}));
  EXPECT_EQ(request.stop_ids, (std::vector<int32_t>{10}));
  EXPECT_TRUE(request.include_stop);
  EXPECT_TRUE(request.ignore_end);
  EXPECT_FALSE(request.skip_special);
  EXPECT_EQ(request.min_tokens, 3);
  EXPECT_EQ(request.max_tokens, 5);
  EXPECT_EQ(request.logprobs, -1);

  Chat("hello");  // the defaults
  const SequenceRequest plain = engine_->last();
  EXPECT_FLOAT_EQ(plain.sampling.temperature, 1);
  EXPECT_FALSE(plain.sampling.seed.has_value());
  EXPECT_EQ(plain.max_tokens, 1000 - static_cast<int>(plain.prompt.size()));
  EXPECT_TRUE(plain.skip_special);
}

TEST_F(Endpoints, MessagesReachTheTemplate) {
  Start();
  const auto prompt = [&](const std::string& messages, const std::string& more = "") {
    const ClientResponse response = Call("POST", kChat, R"({"model":"fake/model","max_tokens":1,"messages":)" + messages + more + "}");
    EXPECT_EQ(response.status, 200) << response.body;
    const std::vector<int32_t> ids = engine_->last().prompt;
    return engine_->tokenizer().Decode(ids, true);
  };
  EXPECT_EQ(prompt(R"([{"role":"developer","content":"be"},{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}])"),
            "<system>be</><user>a\nb</><assistant>");
  EXPECT_EQ(prompt(R"([{"role":"user","content":"q"},{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function",
    "function":{"name":"f","arguments":"{\"x\":1}"}}]},{"role":"tool","tool_call_id":"c1","content":"42"}])"),
            "<user>q</><assistant></><tool>42</><assistant>");
  const std::string tools = R"(,"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}])";
  const std::string hi = R"([{"role":"user","content":"hi"}])";
  EXPECT_EQ(prompt(hi, tools), "<user>hi</>[tools 1]<assistant>");
  EXPECT_EQ(prompt(hi, tools + R"(,"tool_choice":"none")"), "<user>hi</><assistant>");
  EXPECT_EQ(prompt(hi, R"(,"add_generation_prompt":false)"), "<user>hi</>");
  EXPECT_EQ(prompt(hi, R"(,"enable_thinking":false)"), "<user>hi</>[thinking False]<assistant>");
  EXPECT_EQ(prompt(hi, R"(,"chat_template_kwargs":{"enable_thinking":true})"), "<user>hi</>[thinking True]<assistant>");
  EXPECT_EQ(prompt(R"([{"role":"user","content":"hi"},{"role":"assistant","content":"I am"}])", R"(,"continue_final_message":true)"),
            "<user>hi</><assistant>I am");
  // Its end is found although the template's own text after it holds the same characters.
  EXPECT_EQ(prompt(R"([{"role":"user","content":"hi"},{"role":"assistant","content":"/"}])", R"(,"continue_final_message":true)"),
            "<user>hi</><assistant>/");
}

TEST_F(Endpoints, FailuresOfTheEngine) {
  Start();
  const ClientResponse full = Chat("full");
  EXPECT_EQ(full.status, 429);
  EXPECT_EQ(full.header("retry-after"), "1");
  EXPECT_EQ(json::parse(full.body)["error"]["type"], "rate_limit_error");
  EXPECT_EQ(Chat("full", R"("stream":true)").status, 429);
  const ClientResponse crash = Chat("crash");
  EXPECT_EQ(crash.status, 500);
  EXPECT_NE(crash.body.find("the script says so"), std::string::npos);

  const ClientResponse stream = Chat("crash", R"("stream":true)");
  EXPECT_EQ(stream.status, 200);
  const std::vector<std::string> events = stream.events();
  ASSERT_GE(events.size(), 2u);
  EXPECT_EQ(json::parse(events.back())["error"]["type"], "server_error");
  EXPECT_TRUE(stream.complete);

  // The third of four sequences is refused: none of them runs on.
  engine_->FailAfter(2);
  EXPECT_EQ(Chat("endless", R"("n":4)").status, 429);
  EXPECT_TRUE(Eventually([&] { return engine_->running() == 0; }));
}

TEST_F(Endpoints, MethodsAndPaths) {
  Start();
  const ClientResponse wrong = Call("GET", kChat);
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.header("allow"), "POST, OPTIONS");
  EXPECT_EQ(Call("POST", "/health", "{}").header("allow"), "GET, HEAD, OPTIONS");
  EXPECT_EQ(Call("DELETE", "/v1/models").status, 405);
  EXPECT_EQ(Call("BREW", "/health").status, 405);
  const ClientResponse nowhere = Call("GET", "/v1/nothing");
  EXPECT_EQ(nowhere.status, 404);
  EXPECT_EQ(json::parse(nowhere.body)["error"]["type"], "invalid_request_error");
  const ClientResponse head = Call("HEAD", "/health");
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.header("content-length"), "15");
  const ClientResponse options = Call("OPTIONS", kChat);
  EXPECT_EQ(options.status, 204);
  EXPECT_EQ(options.header("allow"), "POST, OPTIONS");
  EXPECT_EQ(Call("GET", "/health?probe=1").status, 200);
  EXPECT_EQ(Call("GET", "http://host/health").status, 200);
  EXPECT_EQ(Call("POST", kChat, ChatBody("x"), "Content-Type: text/plain\r\n").status, 415);
  EXPECT_EQ(Call("POST", kChat, ChatBody("x"), "Content-Type: application/json; charset=utf-8\r\n").status, 200);
}

TEST_F(Endpoints, ThePageIsServed) {
  Start();
  const ClientResponse page = Call("GET", "/");
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(page.header("content-type"), "text/html; charset=utf-8");
  EXPECT_NE(page.header("content-security-policy").find("default-src 'none'"), std::string::npos);
  EXPECT_EQ(page.body.rfind("<!doctype html>", 0), 0u);
  EXPECT_NE(page.body.find("v1/chat/completions"), std::string::npos);
}

TEST_F(Endpoints, RequestIds) {
  Start();
  EXPECT_EQ(Call("GET", "/health", "", "X-Request-Id: abc-1\r\n").header("x-request-id"), "abc-1");
  const std::string made = Call("GET", "/health", "", "X-Request-Id: bad id\r\n").header("x-request-id");
  EXPECT_EQ(made.rfind("req_", 0), 0u);
  EXPECT_NE(made, Call("GET", "/health").header("x-request-id"));
  const std::string longest(kMaxRequestIdBytes, 'a');
  EXPECT_EQ(Call("GET", "/health", "", "X-Request-Id: " + longest + "\r\n").header("x-request-id"), longest);
  EXPECT_NE(Call("GET", "/health", "", "X-Request-Id: a" + longest + "\r\n").header("x-request-id"), "a" + longest);
}

// A name that a web page may have chosen (DNS rebinding) opens nothing.
TEST_F(Endpoints, OnlyNamesOfThisMachine) {
  ServeOptions options;
  options.hosts = {"Box.example", "test"};
  const auto host = [&](const std::string& name, const std::string& path = "/v1/models", const std::string& more = "") {
    TestClient client(port());
    client.Send("GET " + path + " HTTP/1.1\r\nHost: " + name + "\r\n" + more + "\r\n");
    return client.ReadResponse().status;
  };
  Start(options);
  for (const char* name : {"localhost", "localhost:8080", "LOCALHOST", "localhost.", "a.localhost:1", "127.0.0.1:8080", "10.0.0.5", "[::1]:8080", "[fe80::1]",
                           "", "box.example", "BOX.EXAMPLE:99"}) {
    EXPECT_EQ(host(name), 200) << name;
  }
  for (const char* name : {"evil.example", "evil.example:8080", "localhost.evil.example", "evil-localhost", "127.0.0.1.evil.example", "box.example.evil",
                           "1.2.3.4a", "evil.example#localhost", "evil.example.", "box"}) {
    for (const char* path : {"/v1/models", "/", "/health", "/metrics", "/admin/models", "/none"}) EXPECT_EQ(host(name, path), 403) << name << path;
    // A target that names a host does not make Host say something else.
    EXPECT_EQ(host(name, "http://localhost/v1/models"), 403) << name;
  }
  const ClientResponse refused = Call("POST", kChat, ChatBody("x"), "Host: evil.example\r\n");
  EXPECT_EQ(refused.status, 400) << "two Host headers";
  options.hosts = {"*"};
  Start(options);
  EXPECT_EQ(host("evil.example"), 200);
  // With keys a page has none; on an address of others names are the operator's business.
  options.hosts = {"test"};
  options.api_keys_file = WriteFile("keys", "a: key-of-a-123\n");
  Start(options);
  EXPECT_EQ(host("evil.example"), 401);
  EXPECT_EQ(host("evil.example", "/v1/models", "X-Api-Key: key-of-a-123\r\n"), 200);
  options.api_keys_file = "";
  options.host = "0.0.0.0";
  Start(options);
  EXPECT_EQ(host("evil.example"), 200);
}

// A page may send bytes of no type to any address without asking; they are not taken for JSON.
TEST_F(Endpoints, PagesMustSayWhatTheySend) {
  Start();
  const auto post = [&](const std::string& headers) {
    TestClient client(port());
    const std::string body = ChatBody("x");
    client.Send("POST /v1/chat/completions HTTP/1.1\r\nHost: t\r\n" + headers + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
    return client.ReadResponse().status;
  };
  EXPECT_EQ(post(""), 200);
  EXPECT_EQ(post("Origin: http://evil.example\r\n"), 415);
  EXPECT_EQ(post("Origin: null\r\n"), 415);
  EXPECT_EQ(post("Origin: http://evil.example\r\nContent-Type: text/plain\r\n"), 415);
  EXPECT_EQ(post("Origin: http://t\r\nContent-Type: application/json\r\n"), 200) << "the server's own page";
}

TEST_F(Endpoints, CorsIsOffUnlessAsked) {
  Start();
  const std::string origin = "Origin: http://page\r\nAccess-Control-Request-Method: POST\r\n";
  EXPECT_EQ(Call("OPTIONS", kChat, "", origin).header("access-control-allow-origin"), "");
  server_.reset();
  ServeOptions options;
  options.cors = "http://page";
  Start(options);
  const ClientResponse preflight = Call("OPTIONS", kChat, "", origin);
  EXPECT_EQ(preflight.header("access-control-allow-origin"), "http://page");
  EXPECT_EQ(preflight.header("access-control-allow-methods"), "POST, OPTIONS");
  EXPECT_EQ(Call("POST", kChat, ChatBody("x"), origin).header("access-control-allow-origin"), "http://page");
  // Clients' libraries send headers of their own; what they read of an answer is shown to them.
  const std::string asked = "authorization,content-type,x-stainless-lang,x-stainless-retry-count";
  EXPECT_EQ(Call("OPTIONS", kChat, "", origin + "Access-Control-Request-Headers: " + asked + "\r\n").header("access-control-allow-headers"), asked);
  const std::string shown = Call("POST", kChat, ChatBody("full"), "Origin: http://page\r\n").header("access-control-expose-headers");
  for (const char* name : {"X-Request-Id", "Retry-After", "X-Should-Retry"}) EXPECT_NE(shown.find(name), std::string::npos) << name;
  for (const char* evil : {"Origin: http://evil\r\n", "Origin: http://page.evil\r\n", "Origin: null\r\n", ""}) {
    const ClientResponse refused = Call("OPTIONS", kChat, "", evil + ("Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: " + asked + "\r\n"));
    for (const char* name : {"origin", "headers", "methods"}) EXPECT_EQ(refused.header(std::string("access-control-allow-") + name), "") << evil;
  }
}

TEST(Start, SaysWhyItCannotListen) {
  FakeEngine engine;
  const Clock clock;
  const auto start = [&](const std::string& host, int port) {
    ServeOptions options;
    options.host = host;
    options.port = port;
    return Server::Start(engine, nullptr, options, Runtime{.clock = &clock});
  };
  auto first = start("127.0.0.1", 0);
  ASSERT_TRUE(first.has_value());
  const auto second = start("127.0.0.1", (*first)->port());
  ASSERT_FALSE(second.has_value());
  EXPECT_NE(second.error().message.find(std::to_string((*first)->port())), std::string::npos);
  EXPECT_NE(second.error().message.find("--port"), std::string::npos);
  EXPECT_FALSE(start("not an address", 0).has_value());
  EXPECT_FALSE(start("127.0.0.1", 70000).has_value());
}

}  // namespace
}  // namespace hone
