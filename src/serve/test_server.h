// For tests: a Server over a FakeEngine with a plain chat template, on a free port.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <string>

#include "serve/fake_engine.h"
#include "serve/serve.h"

namespace hone {

// Marks reasoning and tagged tool calls.
inline constexpr char kThinkingTestTemplate[] =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls %}[{{ c.function.name }}]{% endfor %}</>"
    "{% endfor %}{% if tools %}<tool_call>{{ tools | length }}{% endif %}"
    "{% if add_generation_prompt %}<assistant>{% if enable_thinking %}<think>{% endif %}{% endif %}"
    "{# <think></think> #}";

inline constexpr char kTestTemplate[] =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"
    "{% if tools %}[tools {{ tools | length }}]{% endif %}"
    "{% if enable_thinking is defined %}[thinking {{ enable_thinking }}]{% endif %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}";

class ServerTest : public testing::Test {
 protected:
  ServerTest() : log_(LogLevel::kOff) {}

  void Start(ServeOptions options = {}, bool chat = true, int context = 1000, const char* source = kTestTemplate) {
    engine_ = std::make_unique<FakeEngine>(context);
    engine_->Start();
    std::shared_ptr<const ChatTemplate> chat_template;
    if (chat) {
      auto made = ChatTemplate::Create(source, "", "");
      ASSERT_TRUE(made.has_value());
      chat_template = std::make_shared<const ChatTemplate>(*made);
    }
    options.port = 0;
    if (options.hosts.empty()) options.hosts = {"t", "test"};  // what TestClient sends
    options.name = "fake/model";
    Runtime runtime;
    runtime.log = &log_;
    runtime.clock = &clock_;
    auto server = Server::Start(*engine_, chat_template, options, runtime);
    ASSERT_TRUE(server.has_value());
    server_ = std::move(*server);
  }
  void TearDown() override {
    server_.reset();
    engine_.reset();
  }

  int port() const { return server_->port(); }
  ClientResponse Call(std::string_view method, std::string_view path, std::string_view body = "", std::string_view headers = "") {
    return TestClient(port()).Call(method, path, body, headers);
  }
  ClientResponse Chat(const std::string& content, const std::string& more = "") { return Call("POST", kChat, ChatBody(content, more)); }
  static std::string ChatBody(const std::string& content, const std::string& more = "") {
    return JsonWriter().Raw(R"({"model":"fake/model","messages":[{"role":"user","content":)").text() +
           JsonWriter().String(content).text() + "}]" + (more.empty() ? "" : "," + more) + "}";
  }

  // A file of this test alone.
  static std::string WriteFile(const std::string& name, const std::string& text) {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    const std::string path = testing::TempDir() + "/" + test->test_suite_name() + "." + test->name() + "." + name;
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  static std::string Bearer(const std::string& key) { return "Authorization: Bearer " + key + "\r\n"; }

  static constexpr char kChat[] = "/v1/chat/completions";
  static constexpr char kCompletions[] = "/v1/completions";

  Log log_;
  Clock clock_;
  std::unique_ptr<FakeEngine> engine_;
  std::unique_ptr<Server> server_;
};

}  // namespace hone
