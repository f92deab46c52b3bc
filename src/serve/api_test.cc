// The parts of the API beyond plain answers: reasoning, tool calls, echo, best_of, prompt log-probabilities, responses,
// embeddings; and that a stream is the same text as a whole answer.
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/random.h"
#include "engine/stop_matcher.h"
#include "serve/openai/embedding_request.h"
#include "serve/openai/fields.h"
#include "serve/test_server.h"

namespace hone {
namespace {

using nlohmann::json;

class Api : public ServerTest {
 protected:
  void StartThinking() { Start({}, true, 1000, kThinkingTestTemplate); }
  json Body(const ClientResponse& response) {
    EXPECT_EQ(response.status, 200) << response.body;
    return json::parse(response.body, nullptr, false);
  }
  static constexpr char kTools[] =
      R"("tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}])";
  static constexpr char kResponses[] = "/v1/responses";
};

struct Deltas {
  std::string content, reasoning, finish;
  std::vector<std::array<std::string, 3>> calls;  // id, name, arguments
};

Deltas Join(const ClientResponse& stream) {
  Deltas out;
  for (const std::string& event : stream.events()) {
    if (event == "[DONE]") continue;
    const json choice = json::parse(event)["choices"][0];
    const json& delta = choice["delta"];
    out.content += delta.value("content", "");
    out.reasoning += delta.value("reasoning_content", "");
    if (choice["finish_reason"].is_string()) out.finish = choice["finish_reason"];
    if (!delta.contains("tool_calls")) continue;
    for (const json& call : delta["tool_calls"]) {
      const size_t index = call["index"];
      if (call.contains("id")) {
        EXPECT_EQ(index, out.calls.size());
        out.calls.push_back({call["id"], call["function"]["name"], ""});
      }
      out.calls.at(index)[2] += call["function"].value("arguments", "");
    }
  }
  return out;
}

TEST_F(Api, ReasoningIsApart) {
  StartThinking();
  engine_->Say({"<thi", "nk>\nfirst ", "this</th", "ink>\n\n", "then ", "that"});
  const json message = Body(Chat("say"))["choices"][0]["message"];
  EXPECT_EQ(message["content"], "then that");
  EXPECT_EQ(message["reasoning_content"], "first this");
  const Deltas deltas = Join(Chat("say", R"("stream":true)"));
  EXPECT_EQ(deltas.content, "then that");
  EXPECT_EQ(deltas.reasoning, "first this");
  // The prompt may begin the thought.
  engine_->Say({"deep", "</think>", "up"});
  const json answer = Body(Chat("say", R"("enable_thinking":true)"));
  EXPECT_EQ(answer["choices"][0]["message"]["reasoning_content"], "deep");
  EXPECT_EQ(answer["choices"][0]["message"]["content"], "up");
  EXPECT_EQ(answer["usage"]["completion_tokens_details"]["reasoning_tokens"], 2);
}

TEST_F(Api, ToolCallsAreParsed) {
  StartThinking();
  engine_->Say({"Let me see.\n<tool", "_call>{\"name\": \"f\", \"argu", "ments\": {\"city\": \"Z\xC3\xBCrich\"",
                "}}\n</tool_call>"});
  const json choice = Body(Chat("say", kTools))["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_EQ(choice["message"]["content"], "Let me see.");
  ASSERT_EQ(choice["message"]["tool_calls"].size(), 1u);
  const json& call = choice["message"]["tool_calls"][0];
  EXPECT_EQ(call["type"], "function");
  EXPECT_EQ(call["id"].get<std::string>().rfind("call_", 0), 0u);
  EXPECT_EQ(call["function"]["name"], "f");
  EXPECT_EQ(call["function"]["arguments"], "{\"city\": \"Z\xC3\xBCrich\"}");
  const Deltas deltas = Join(Chat("say", std::string(kTools) + R"(,"stream":true)"));
  EXPECT_EQ(deltas.content, "Let me see.");
  ASSERT_EQ(deltas.calls.size(), 1u);
  EXPECT_EQ(deltas.calls[0][1], "f");
  EXPECT_EQ(deltas.calls[0][2], "{\"city\": \"Z\xC3\xBCrich\"}");
  EXPECT_EQ(deltas.finish, "tool_calls");
  // Only a call: no content. Without tools the same text is content.
  engine_->Say({"<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>"});
  EXPECT_TRUE(Body(Chat("say", kTools))["choices"][0]["message"]["content"].is_null());
  const json plain = Body(Chat("say"))["choices"][0];
  EXPECT_EQ(plain["message"]["content"], "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>");
  EXPECT_EQ(plain["finish_reason"], "stop");
  EXPECT_EQ(Body(Chat("say", std::string(kTools) + R"(,"tool_choice":"none")"))["choices"][0]["finish_reason"], "stop");
}

TEST_F(Api, MarksThatAreSpecialTokensAreAskedFor) {
  Start({}, true, 1000, "{% for m in messages %}{{ m.content }}{% endfor %}{% if tools %}[TOOL_CALLS]{% endif %}");
  EXPECT_EQ(Chat("hello", kTools).status, 200);
  EXPECT_FALSE(engine_->last().skip_special);
  EXPECT_EQ(Chat("hello").status, 200);
  EXPECT_TRUE(engine_->last().skip_special);
}

TEST_F(Api, ToolsThatTheTemplateDoesNotReadAreRefused) {
  Start({}, true, 1000, "{% for m in messages %}{{ m.content }}{% endfor %}");
  const ClientResponse refused = Chat("hello", kTools);
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(json::parse(refused.body)["error"]["param"], "tools");
  EXPECT_EQ(Chat("hello", std::string(kTools) + R"(,"tool_choice":"none")").status, 200);
}

TEST_F(Api, AnswersThatMustHaveAFormHaveAGrammar) {
  Start();
  const std::string tools = R"("tools":[{"type":"function","function":{"name":"f","strict":true,"parameters":{"type":"object"}}}])";
  const std::string schema = R"("response_format":{"type":"json_schema","json_schema":{"name":"s","schema":)";
  const auto grammar_of = [&](const std::string& more) {
    EXPECT_EQ(Chat("hello", more).status, 200) << more;
    return engine_->requests().back().grammar;
  };
  EXPECT_EQ(grammar_of(""), nullptr);
  EXPECT_EQ(grammar_of(R"("tools":[{"type":"function","function":{"name":"f"}}])"), nullptr);
  EXPECT_EQ(grammar_of(tools + R"(,"tool_choice":"none")"), nullptr);
  const auto object = grammar_of(R"("response_format":{"type":"json_object"})");
  EXPECT_NE(object, nullptr);
  EXPECT_EQ(grammar_of(R"("response_format":{"type":"json_object"})"), object);
  EXPECT_NE(grammar_of(schema + R"({"type":"integer"}}})"), nullptr);
  for (const char* more : {"", R"(,"tool_choice":"required")", R"(,"tool_choice":{"type":"function","function":{"name":"f"}})",
                           R"(,"parallel_tool_calls":false)"}) {
    EXPECT_NE(grammar_of(tools + more), nullptr) << more;
  }
  const auto completion = Call("POST", kCompletions, R"({"model":"fake/model","prompt":"hi","response_format":{"type":"json_object"}})");
  EXPECT_EQ(completion.status, 200);
  EXPECT_NE(engine_->requests().back().grammar, nullptr);
  const auto responses = Call("POST", "/v1/responses",
                              R"({"model":"fake/model","input":"hi","text":{"format":{"type":"json_schema","name":"s","schema":{"type":"null"}}}})");
  EXPECT_EQ(responses.status, 200);
  EXPECT_NE(engine_->requests().back().grammar, nullptr);
  EXPECT_EQ(Body(responses)["text"]["format"]["type"], "json_schema");

  const auto param_of = [&](const std::string& more) {
    const ClientResponse answer = Chat("hello", more);
    EXPECT_EQ(answer.status, 400) << more;
    return json::parse(answer.body)["error"]["param"];
  };
  EXPECT_EQ(param_of(schema + R"({"not":{}}}})"), "response_format.json_schema.schema");
  EXPECT_EQ(param_of(R"("no_repeat_ngram_size":3,"response_format":{"type":"json_object"})"), "no_repeat_ngram_size");
  EXPECT_EQ(param_of(R"("tools":[{"type":"function","function":{"name":"f","strict":true,"parameters":{"multipleOf":3}}}])"),
            "tools[0].function.parameters");
}

TEST_F(Api, LogprobsOfTextThatIsHeldBack) {
  StartThinking();
  engine_->Say({"<tool", "_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>", "\n"});
  size_t tokens = 0;
  for (const std::string& event : Chat("say", std::string(kTools) + R"(,"stream":true,"logprobs":true)").events()) {
    if (event == "[DONE]") continue;
    const json choice = json::parse(event)["choices"][0];
    if (choice["logprobs"].is_object()) tokens += choice["logprobs"]["content"].size();
  }
  EXPECT_EQ(tokens, 3u);
}

TEST_F(Api, FieldsOfSchedulingReachTheEngine) {
  Start();
  ASSERT_EQ(Chat("hello", R"("priority":-2,"cache_salt":"s","logprobs_mode":"processed","logprobs":true,"mirostat":2,
    "dry_multiplier":0.5,"top_n_sigma":-1,"repeat_last_n":9)")
                .status,
            200);
  const SequenceRequest request = engine_->last();
  EXPECT_EQ(request.priority, -2);
  EXPECT_EQ(request.salt, "s\n0");
  EXPECT_EQ(request.logprobs_kind, LogprobsKind::kProcessed);
  EXPECT_TRUE(request.sampling.mirostat);
  EXPECT_FLOAT_EQ(request.sampling.dry_multiplier, 0.5f);
  EXPECT_EQ(request.sampling.top_n_sigma, 0);
  EXPECT_EQ(request.sampling.penalty_last_n, 9);
}

TEST_F(Api, EchoRepeatsThePrompt) {
  Start();
  const auto body = [](const std::string& more) {
    return R"({"model":"fake/model","prompt":"abc","echo":true,"max_tokens":2)" + more + "}";
  };
  json choice = Body(Call("POST", kCompletions, body("")))["choices"][0];
  EXPECT_EQ(choice["text"], "abcw0 w1 ");
  EXPECT_TRUE(choice["logprobs"].is_null());
  choice = Body(Call("POST", kCompletions, body(R"(,"logprobs":1)")))["choices"][0];
  const json& logprobs = choice["logprobs"];
  EXPECT_EQ(logprobs["tokens"], json::parse(R"(["","a","b","c","w0 ","w1 "])"));  // the BOS leaves no text
  EXPECT_EQ(logprobs["token_logprobs"], json::parse("[null,-0.25,-0.25,-0.25,-0.5,-0.5]"));
  EXPECT_EQ(logprobs["text_offset"], json::parse("[0,0,1,2,3,6]"));
  EXPECT_TRUE(logprobs["top_logprobs"][0].is_null());
  EXPECT_EQ(logprobs["top_logprobs"][1], json::parse(R"({"a":-0.125})"));
  EXPECT_EQ(logprobs["top_logprobs"][2], json::parse(R"({"a":-0.125,"b":-0.25})"));  // the token itself is always there
  // Scoring: nothing is generated.
  choice =
      Body(Call("POST", kCompletions,
                R"({"model":"fake/model","prompt":[97,98],"echo":true,"max_tokens":0,"logprobs":0})"))["choices"][0];
  EXPECT_EQ(choice["text"], "ab");
  EXPECT_EQ(choice["logprobs"]["token_logprobs"], json::parse("[null,-0.25]"));
  EXPECT_EQ(choice["logprobs"]["top_logprobs"], json::parse(R"([null,{"b":-0.25}])"));
  EXPECT_EQ(choice["finish_reason"], "length");
  EXPECT_TRUE(engine_->last().prompt_only);
  std::string text;
  for (const std::string& event : Call("POST", kCompletions, body(R"(,"stream":true)")).events()) {
    if (event != "[DONE]") text += json::parse(event)["choices"][0]["text"].get<std::string>();
  }
  EXPECT_EQ(text, "abcw0 w1 ");
}

TEST_F(Api, BestOfSendsTheLikeliest) {
  Start();  // the fake's log-probability falls with the seed modulo 4
  const json answer = Body(
      Call("POST", kCompletions, R"({"model":"fake/model","prompt":"a","max_tokens":2,"n":2,"best_of":4,"seed":2})"));
  ASSERT_EQ(answer["choices"].size(), 2u);
  EXPECT_EQ(answer["choices"][0]["seed"], 4);
  EXPECT_EQ(answer["choices"][1]["seed"], 5);
  EXPECT_EQ(answer["choices"][1]["index"], 1);
  EXPECT_TRUE(answer["choices"][0]["logprobs"].is_null());
  EXPECT_EQ(answer["usage"]["completion_tokens"], 8);  // what was made counts
}

TEST_F(Api, PromptLogprobs) {
  Start();
  const json whole =
      Body(Call("POST", kCompletions, R"({"model":"fake/model","prompt":"ab","max_tokens":1,"prompt_logprobs":1})"));
  const json& logprobs = whole["choices"][0]["prompt_logprobs"];
  ASSERT_EQ(logprobs.size(), 3u);  // BOS, a, b
  EXPECT_TRUE(logprobs[0].is_null());
  EXPECT_EQ(logprobs[1]["97"]["logprob"], -0.25);
  EXPECT_EQ(logprobs[1]["97"]["rank"], 1);
  EXPECT_EQ(logprobs[2]["98"]["logprob"], -0.25);
  EXPECT_FALSE(logprobs[2]["98"].contains("rank"));
  EXPECT_EQ(logprobs[2]["97"]["decoded_token"], "a");
  EXPECT_GT(Body(Chat("hello", R"("prompt_logprobs":0)"))["prompt_logprobs"].size(), 5u);
}

TEST_F(Api, TimesThatRunOut) {
  Start();
  const ClientResponse late = Chat("late");
  EXPECT_EQ(late.status, 429);
  EXPECT_EQ(json::parse(late.body)["error"]["code"], "queue_timeout");
  EXPECT_FALSE(late.header("retry-after").empty());
  const ClientResponse slow = Chat("slow");
  EXPECT_EQ(slow.status, 408);
  EXPECT_EQ(slow.header("x-should-retry"), "false");
  EXPECT_EQ(Chat("nan").header("x-should-retry"), "false");
  EXPECT_EQ(json::parse(Chat("slow", R"("stream":true)").events().back())["error"]["code"], "request_timeout");
}

TEST_F(Api, Embeddings) {
  Start();
  const json answer = Body(Call("POST", "/v1/embeddings", R"({"model":"fake/model","input":["ab","c"]})"));
  EXPECT_EQ(answer["object"], "list");
  ASSERT_EQ(answer["data"].size(), 2u);
  EXPECT_EQ(answer["data"][1]["index"], 1);
  EXPECT_EQ(answer["data"][0]["object"], "embedding");
  ASSERT_EQ(answer["data"][0]["embedding"].size(), 4u);
  EXPECT_NEAR(answer["data"][0]["embedding"][1].get<double>(), 0.8, 1e-6);
  EXPECT_EQ(answer["usage"]["prompt_tokens"], 5);
  EXPECT_EQ(answer["usage"]["total_tokens"], 5);
  const json packed = Body(Call("POST", "/v1/embeddings",
                                R"({"model":"fake/model","input":[1,2],"encoding_format":"base64","pooling":"last"})"));
  EXPECT_EQ(packed["data"][0]["embedding"], Base64(std::string("\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x80\x3f", 16)));
  EXPECT_EQ(engine_->last().pooling, Pooling::kLast);
  const std::string longest(1000, 'a');  // with the BOS one too many
  const ClientResponse refused =
      Call("POST", "/v1/embeddings", R"({"model":"fake/model","input":["a",")" + longest + "\"]}");
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(json::parse(refused.body)["error"]["param"], "input[1]");
}

TEST_F(Api, MoreEmbeddingsThanTheQueueHoldsTakeTurns) {
  Start();
  engine_->LimitSequences(2, 3);
  std::string body = R"({"model":"fake/model","input":[)";
  for (int i = 0; i < 40; ++i) body += std::string(i > 0 ? "," : "") + "\"" + std::string(1 + i % 3, 'a') + "\"";
  const json answer = Body(Call("POST", "/v1/embeddings", body + "]}"));
  ASSERT_EQ(answer["data"].size(), 40u);
  for (int i = 0; i < 40; ++i) {
    EXPECT_EQ(answer["data"][i]["index"], i);
    EXPECT_EQ(answer["data"][i]["embedding"], answer["data"][i % 3]["embedding"]);
  }
  // Of those that never end two run, and leave with the client.
  {
    TestClient client(port());
    const std::string endless = R"({"model":"fake/model","input":["hold","hold","hold"]})";
    client.Send("POST /v1/embeddings HTTP/1.1\r\nHost: t\r\nContent-Length: " + std::to_string(endless.size()) +
                "\r\n\r\n" + endless);
    EXPECT_TRUE(Eventually([&] { return engine_->running() == 2; }));
  }
  EXPECT_TRUE(Eventually([&] { return engine_->running() == 0; }));
  // A refusal in the middle waits for its turn; one of the first is the answer.
  engine_->FailAfter(1);
  EXPECT_EQ(Call("POST", "/v1/embeddings", R"({"model":"fake/model","input":["a","b","c"]})").status, 200);
  engine_->FailAfter(0);
  EXPECT_EQ(Call("POST", "/v1/embeddings", R"({"model":"fake/model","input":["a","b","c"]})").status, 429);
  // One that is never taken is the answer once no other runs.
  EXPECT_EQ(Call("POST", "/v1/embeddings", R"({"model":"fake/model","input":["a","full","c"]})").status, 429);
  EXPECT_TRUE(Eventually([&] { return engine_->running() == 0; }));
}

TEST_F(Api, ResponsesAnswerWhole) {
  StartThinking();
  engine_->Say(
      {"<think>hm</think>", "It is ", "so.", "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":1}}</tool_call>"});
  const json answer = Body(
      Call("POST", kResponses, R"({"model":"fake/model","instructions":"be brief","input":"say","metadata":{"k":"v"},
    "tools":[{"type":"function","name":"f","parameters":{"type":"object"}}],"include":["message.output_text.logprobs"]})"));
  EXPECT_EQ(answer["object"], "response");
  EXPECT_EQ(answer["status"], "completed");
  EXPECT_EQ(answer["instructions"], "be brief");
  EXPECT_EQ(answer["metadata"]["k"], "v");
  EXPECT_EQ(answer["store"], false);
  ASSERT_EQ(answer["output"].size(), 3u);
  EXPECT_EQ(answer["output"][0]["type"], "reasoning");
  EXPECT_EQ(answer["output"][0]["content"][0]["text"], "hm");
  EXPECT_EQ(answer["output"][1]["type"], "message");
  EXPECT_EQ(answer["output"][1]["content"][0]["type"], "output_text");
  EXPECT_EQ(answer["output"][1]["content"][0]["text"], "It is so.");
  EXPECT_EQ(answer["output"][2]["type"], "function_call");
  EXPECT_EQ(answer["output"][2]["arguments"], "{\"a\":1}");
  EXPECT_GT(answer["usage"]["input_tokens"], 10);
  EXPECT_EQ(answer["usage"]["output_tokens"], 4);
  const std::vector<int32_t> prompt = engine_->last().prompt;
  EXPECT_EQ(engine_->tokenizer().Decode(prompt, true), "<system>be brief</><user>say</><tool_call>1<assistant>");
  const json cut = Body(Call("POST", kResponses, R"({"model":"fake/model","input":"hello","max_output_tokens":2,"temperature":0.7,"top_p":0.95})"));
  EXPECT_EQ(cut["temperature"], 0.7);  // as it was sent
  EXPECT_EQ(cut["top_p"], 0.95);
  EXPECT_EQ(cut["status"], "incomplete");
  EXPECT_EQ(cut["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(cut["output"][0]["content"][0]["text"], "w0 w1 ");
}

TEST_F(Api, ResponsesStream) {
  StartThinking();
  engine_->Say(
      {"<think>hm</think>", "It is ", "so.", "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\"", ":1}}</tool_call>"});
  const std::string body =
      R"({"model":"fake/model","input":"say","tools":[{"type":"function","name":"f","parameters":{}}])";
  const json whole = Body(Call("POST", kResponses, body + "}"));
  const ClientResponse stream = Call("POST", kResponses, body + R"(,"stream":true})");
  ASSERT_EQ(stream.status, 200);
  std::vector<std::string> types;
  std::string text, thought, arguments;
  int64_t number = 0;
  json last;
  for (const std::string& event : stream.events()) {
    last = json::parse(event);
    EXPECT_EQ(last["sequence_number"], number++);
    types.push_back(last["type"]);
    EXPECT_NE(stream.body.find("event: " + types.back() + "\ndata: "), std::string::npos);
    if (types.back() == "response.output_text.delta") text += last["delta"];
    if (types.back() == "response.reasoning_text.delta") thought += last["delta"];
    if (types.back() == "response.function_call_arguments.delta") arguments += last["delta"];
  }
  EXPECT_EQ(types[0], "response.created");
  EXPECT_EQ(types[1], "response.in_progress");
  EXPECT_EQ(types[2], "response.output_item.added");
  EXPECT_EQ(types.back(), "response.completed");
  EXPECT_EQ(std::count(types.begin(), types.end(), "response.output_item.done"), 3);
  EXPECT_EQ(text, "It is so.");
  EXPECT_EQ(thought, "hm");
  EXPECT_EQ(arguments, "{\"a\":1}");
  ASSERT_EQ(last["response"]["output"].size(), whole["output"].size());
  for (size_t i = 0; i < whole["output"].size(); ++i) {
    for (const char* key : {"type", "content", "arguments", "name", "status"}) {
      EXPECT_EQ(last["response"]["output"][i].value(key, json()), whole["output"][i].value(key, json())) << key;
    }
  }
  const std::vector<std::string> failed =
      Call("POST", kResponses, R"({"model":"fake/model","input":"crash","stream":true})").events();
  EXPECT_EQ(json::parse(failed.back())["type"], "response.failed");
  EXPECT_EQ(json::parse(failed.back())["response"]["status"], "failed");
}

// What a response repeats of its request can be sent again, as tools do that keep a response's settings.
TEST_F(Api, WhatAResponseRepeatsOfItsRequestIsTaken) {
  StartThinking();
  const json request = json::parse(R"({"model":"fake/model","input":"hello","temperature":0.7,"metadata":{"a":"b"},"user":"u","tool_choice":"auto",
    "tools":[{"type":"function","name":"f","description":"d","parameters":{"type":"object","properties":{}},"strict":false}],
    "text":{"format":{"type":"json_object"}},"instructions":"be brief","max_output_tokens":5,"parallel_tool_calls":false})");
  for (const json& of : {json{{"model", "fake/model"}, {"input", "hello"}}, request}) {
    const json first = Body(Call("POST", kResponses, of.dump()));
    json again = {{"input", "hello"}};
    for (const FieldRule& rule : FieldRules()) {
      if (rule.response != FieldKind::kAbsent && first.contains(rule.name)) again[std::string(rule.name)] = first[std::string(rule.name)];
    }
    EXPECT_GT(again.size(), 18u);
    const json second = Body(Call("POST", kResponses, again.dump()));
    for (const auto& [name, value] : again.items()) {
      if (name != "input") {
        EXPECT_EQ(second.value(name, json("missing")), value) << name;
      }
    }
  }
}

// Wherever an answer is cut, its last item says so, as it ends and in the whole; what was finished before stays completed.
TEST_F(Api, ResponsesThatAreCutSayWhatIsIncomplete) {
  StartThinking();
  const std::vector<std::string> pieces = {"<think>", "hm", "</think>", "It is ", "so.", "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\"", ":1}", "}</tool_call>"};
  engine_->Say(pieces);
  for (size_t most = 1; most <= pieces.size(); ++most) {
    const std::string body = R"({"model":"fake/model","input":"say","tools":[{"type":"function","name":"f","parameters":{}}],"max_output_tokens":)" + std::to_string(most);
    const json whole = Body(Call("POST", kResponses, body + "}"));
    EXPECT_EQ(whole["status"], most < pieces.size() ? "incomplete" : "completed");
    json done = json::array(), last;
    for (const std::string& event : Call("POST", kResponses, body + R"(,"stream":true})").events()) {
      last = json::parse(event);
      if (last["type"] == "response.output_item.done") done.push_back(last["item"]);
    }
    EXPECT_EQ(last["response"]["output"], done) << most;
    ASSERT_EQ(done.size(), whole["output"].size()) << most;
    for (size_t i = 0; i < done.size(); ++i) {
      const bool cut = i + 1 == done.size() && most < pieces.size();
      EXPECT_EQ(done[i]["status"], cut ? "incomplete" : "completed") << most << " " << i;
      EXPECT_EQ(whole["output"][i]["status"], done[i]["status"]) << most << " " << i;
      EXPECT_EQ(whole["output"][i]["type"], done[i]["type"]) << most << " " << i;
    }
  }
}

// Random texts of characters of 1 to 4 bytes, cut into tokens anywhere (within characters too), with random stop
// strings: the deltas joined are the whole text, which is what a search in the plain text says, and are whole
// characters.
TEST_F(Api, AStreamIsTheWholeAnswer) {
  StartThinking();
  const std::string letters[] = {"a", "b", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80", "<", " "};
  Rng rng(42);
  for (int round = 0; round < 60; ++round) {
    std::string text;
    for (uint64_t n = 1 + rng.Below(40); n > 0; --n) text += letters[rng.Below(std::size(letters))];
    std::vector<std::string> stops;
    for (uint64_t n = rng.Below(3); n > 0; --n) {
      std::string stop;
      for (uint64_t k = 1 + rng.Below(3); k > 0; --k) stop += letters[rng.Below(std::size(letters))];
      stops.push_back(stop);
    }
    // The rule, the slow way: the first stop string to end wins, of those that end together the longest.
    std::string wanted = text;
    for (size_t end = 1; end <= text.size() && wanted.size() == text.size(); ++end) {
      size_t longest = 0;
      for (const std::string& stop : stops) {
        if (std::string_view(text).substr(0, end).ends_with(stop)) longest = std::max(longest, stop.size());
      }
      if (longest > 0) wanted = text.substr(0, end - longest);
    }
    // What the engine does with the bytes of its tokens: stops held back, whole characters.
    StopMatcher matcher(stops);
    std::vector<std::string> pieces;
    for (size_t at = 0; at < text.size() && !matcher.stopped();) {
      const size_t n = 1 + static_cast<size_t>(rng.Below(5));
      pieces.push_back(matcher.Push(std::string_view(text).substr(at, n)));
      at += n;
    }
    pieces.push_back(matcher.Finish());
    for (const std::string& piece : pieces) ASSERT_EQ(FindInvalidUtf8(piece), std::string::npos);
    engine_->Say(pieces);
    const json whole = json::parse(Chat("say").body);
    const ClientResponse stream = Chat("say", R"("stream":true)");
    EXPECT_EQ(FindInvalidUtf8(stream.body), std::string::npos);
    ASSERT_EQ(whole["choices"][0]["message"]["content"], wanted) << text;
    ASSERT_EQ(Join(stream).content, wanted) << text;
  }
}

}  // namespace
}  // namespace hone
