// Other weights beside the old ones: the rule, commands, promotion and roll-back under load.
#include <nlohmann/json.hpp>

#include "serve/served_model.h"
#include "serve/test_server.h"

namespace hone {
namespace {

using nlohmann::json;

CanarySide Side(uint64_t ended, uint64_t errors, double ttft_s, double tpot_s) {
  return {.ended = ended,
          .errors = errors,
          .ttft_count = ended,
          .tpot_count = ended * 10,
          .ttft_s = ttft_s * static_cast<double>(ended),
          .tpot_s = tpot_s * static_cast<double>(ended * 10)};
}

TEST(Canary, Rule) {
  CanaryRule rule;
  rule.requests = 50;
  std::string why;
  const CanarySide stable = Side(500, 5, 0.2, 0.02);
  EXPECT_EQ(JudgeCanary(rule, stable, Side(49, 0, 0.2, 0.02), &why), CanaryVerdict::kWait);
  EXPECT_EQ(JudgeCanary(rule, stable, Side(50, 0, 0.2, 0.02), &why), CanaryVerdict::kGood);
  EXPECT_EQ(JudgeCanary(rule, stable, Side(50, 1, 0.2, 0.02), &why), CanaryVerdict::kGood);
  EXPECT_EQ(JudgeCanary(rule, stable, Side(50, 2, 0.2, 0.02), &why), CanaryVerdict::kBad);
  EXPECT_NE(why.find("2 of 50"), std::string::npos);
  EXPECT_EQ(JudgeCanary(rule, stable, Side(4, 4, 0.2, 0.02), &why), CanaryVerdict::kWait);
  EXPECT_EQ(JudgeCanary(rule, stable, Side(5, 5, 0.2, 0.02), &why), CanaryVerdict::kBad);  // no need to wait for 50
  EXPECT_EQ(JudgeCanary(rule, stable, Side(50, 0, 0.3, 0.02), &why), CanaryVerdict::kBad);
  EXPECT_NE(why.find("first token"), std::string::npos);
  EXPECT_EQ(JudgeCanary(rule, stable, Side(50, 0, 0.2, 0.03), &why), CanaryVerdict::kBad);
  EXPECT_NE(why.find("between tokens"), std::string::npos);
  EXPECT_EQ(JudgeCanary(rule, Side(0, 0, 0, 0), Side(50, 0, 0.2, 0.02), &why),
            CanaryVerdict::kGood);  // nothing to compare with
}

class HotSwap : public ServerTest {
 protected:
  // Weights "a" load, "none" do not; whatever "bad", "slow" and "stuck" are asked, they crash, are too slow, keep it in the queue.
  void StartWithLoader() {
    ServeOptions options;
    options.admin_key = "the-admin-key";
    options.loader = [this](const std::string& model) -> Result<LoadedWeights> {
      if (model == "none") return NotFound("none: no such model");
      auto engine = std::make_shared<FakeEngine>(2000);
      {
        std::lock_guard lock(mutex_);
        loaded_.push_back(engine);
      }
      const char* prompt = model == "bad" ? "crash" : model == "slow" ? "slow" : model == "stuck" ? "late" : kTestTemplate;
      auto chat = ChatTemplate::Create(prompt, "", "");
      return LoadedWeights{engine, std::make_shared<const ChatTemplate>(*chat), "root of " + model};
    };
    Start(options);
  }
  json Admin(const std::string& method, const std::string& path, const std::string& body = "", int status = 200) {
    const ClientResponse response = Call(method, path, body, Bearer("the-admin-key"));
    EXPECT_EQ(response.status, status) << response.body;
    return json::parse(response.body, nullptr, false);
  }
  bool Phase(const std::string& phase) {
    return Eventually([&] { return Admin("GET", "/admin/models")["canary"]["phase"] == phase; });
  }
  std::string Fingerprint(const std::string& content = "hello") {
    const json answer = json::parse(Chat(content, R"("max_tokens":1)").body, nullptr, false);
    return answer.value("system_fingerprint", "");
  }
  std::weak_ptr<FakeEngine> loaded(size_t i) {
    std::lock_guard lock(mutex_);
    return loaded_.at(i);
  }

  std::mutex mutex_;
  std::vector<std::weak_ptr<FakeEngine>> loaded_;
};

TEST_F(HotSwap, ByCommand) {
  StartWithLoader();
  EXPECT_EQ(Admin("GET", "/admin/models")["models"].size(), 1u);
  Admin("POST", "/admin/models/promote", "{}", 409);
  Admin("POST", "/admin/models/rollback", "{}", 409);
  const std::string old = Fingerprint();
  const json began = Admin("POST", "/admin/models", R"({"model":"a","share":1,"rule":{"more_errors":0.07,"slower":1.3}})", 202);
  EXPECT_EQ(began["canary"]["weights"], 2);
  EXPECT_EQ(began["canary"]["rule"]["more_errors"], 0.07);  // as it was sent
  EXPECT_EQ(began["canary"]["rule"]["slower"], 1.3);
  ASSERT_TRUE(Phase("running"));
  Admin("POST", "/admin/models", R"({"model":"a"})", 409);
  const std::string fresh = Fingerprint();
  EXPECT_NE(fresh, old);
  Admin("POST", "/admin/models/share", R"({"share":0})");
  for (int i = 0; i < 20; ++i) EXPECT_EQ(Fingerprint(), old);
  EXPECT_EQ(Admin("POST", "/admin/models/share", R"({"share":0.3})")["canary"]["share"], 0.3);
  Admin("POST", "/admin/models/share", R"({"share":0.5})");
  int canary = 0;
  for (int i = 0; i < 60; ++i) canary += Fingerprint() == fresh;
  EXPECT_GT(canary, 8);  // 30 expected; beyond 5 sigma
  EXPECT_LT(canary, 52);
  const json state = Admin("GET", "/admin/models");
  EXPECT_EQ(state["models"][1]["role"], "canary");
  EXPECT_EQ(state["models"][1]["root"], "root of a");
  EXPECT_EQ(state["canary"]["since_start_canary"]["ended"], canary + 1);
  EXPECT_EQ(state["canary"]["since_start_stable"]["ended"], 20 + 60 - canary);
  // What began with the old weights ends with them.
  Admin("POST", "/admin/models/share", R"({"share":0})");
  TestClient hold(port());
  hold.Send(TestClient::Format("POST", kChat, ChatBody("hold", R"("max_tokens":1)")));
  ASSERT_TRUE(Eventually([&] { return engine_->running() == 1; }));
  Admin("POST", "/admin/models/promote");
  EXPECT_EQ(Fingerprint(), fresh);
  EXPECT_EQ(Admin("GET", "/admin/models")["models"].size(), 2u);  // the old ones retire
  EXPECT_EQ(json::parse(Call("GET", "/v1/models").body)["data"][0]["root"], "root of a");
  engine_->ReleaseHeld();
  EXPECT_EQ(json::parse(hold.ReadResponse().body)["system_fingerprint"], old);
  EXPECT_TRUE(Eventually([&] { return Admin("GET", "/admin/models")["models"].size() == 1; }));
  // And again, back: the second weights are dropped when the third have been promoted.
  Admin("POST", "/admin/models", R"({"model":"a","share":1})", 202);
  ASSERT_TRUE(Phase("running"));
  Admin("POST", "/admin/models/promote");
  EXPECT_TRUE(Eventually([&] { return loaded(0).expired(); }));
  EXPECT_FALSE(loaded(1).expired());
}

TEST_F(HotSwap, ByRule) {
  StartWithLoader();
  const std::string old = Fingerprint();
  // Weights that fail, that never get ready, and that let nobody have a turn.
  const std::pair<std::string, int> kinds[] = {{"bad", 500}, {"slow", 408}, {"stuck", 429}};
  for (size_t kind = 0; kind < std::size(kinds); ++kind) {
    const auto& [model, status] = kinds[kind];
    Admin("POST", "/admin/models", R"({"model":")" + model + R"(","share":1,"rule":{"requests":1000}})", 202);
    ASSERT_TRUE(Phase("running"));
    for (int i = 0; i < 5; ++i) {
      const bool stream = i % 2 == 1;  // then the error is in the stream
      EXPECT_EQ(Chat("hello", stream ? R"("stream":true)" : "").status, stream ? 200 : status) << model;
    }
    ASSERT_TRUE(Phase("rolled_back")) << model;
    EXPECT_EQ(Fingerprint(), old);
    EXPECT_NE(Admin("GET", "/admin/models")["canary"]["why"].get<std::string>().find("by rule"), std::string::npos);
    EXPECT_TRUE(Eventually([&] { return loaded(kind).expired(); }));
  }

  Admin("POST", "/admin/models", R"({"model":"a","share":1,"rule":{"requests":3,"promote":true,"slower":1000}})", 202);
  ASSERT_TRUE(Phase("running"));
  for (int i = 0; i < 3; ++i) EXPECT_NE(Fingerprint(), old);
  ASSERT_TRUE(Phase("promoted"));
  EXPECT_NE(Fingerprint(), old);

  Admin("POST", "/admin/models", R"({"model":"none"})", 202);
  ASSERT_TRUE(Phase("failed"));
  EXPECT_EQ(Admin("GET", "/admin/models")["canary"]["why"], "none: no such model");
}

TEST_F(HotSwap, WrongRequests) {
  StartWithLoader();
  for (const char* body :
       {"{", "{}", R"({"model":5})", R"({"model":"a","share":2})", R"({"model":"a","sahre":1})",
        R"({"model":"a","rule":5})", R"({"model":"a","rule":{"slower":0.5}})", R"({"model":"a","rule":{"x":1}})"}) {
    Admin("POST", "/admin/models", body, 400);
  }
  Admin("POST", "/admin/models/share", R"({"share":0.5})", 409);
  Admin("POST", "/admin/models/share", "{}", 400);
  for (const char* path : {"/admin/models/promote", "/admin/models/rollback"}) {
    Admin("POST", path, R"({"share":1})", 400);
    Admin("POST", path, "{", 400);
    Admin("POST", path, "{}", 409);
  }
  server_.reset();
  ServeOptions options;
  options.admin_key = "the-admin-key";
  Start(options);
  EXPECT_NE(Admin("POST", "/admin/models", R"({"model":"a"})", 409)["error"]["message"].get<std::string>().find(
                "cannot load"),
            std::string::npos);
}

// Requests, promotions and roll-backs at once: every request is answered by one set of weights or the other.
TEST_F(HotSwap, UnderLoad) {
  StartWithLoader();
  std::atomic<bool> done{false};
  std::atomic<int> answered{0};
  std::vector<std::thread> clients;
  for (int i = 0; i < 4; ++i) {
    clients.emplace_back([&] {
      while (!done) {
        const ClientResponse response = Chat("hello", R"("max_tokens":3,"stream":true)");
        EXPECT_EQ(response.status, 200) << response.body;
        EXPECT_NE(response.body.find("[DONE]"), std::string::npos);
        ++answered;
      }
    });
  }
  for (int round = 0; round < 6; ++round) {
    Admin("POST", "/admin/models", R"({"model":"a","share":0.5,"rule":{"roll_back":false}})", 202);
    ASSERT_TRUE(Phase("running"));
    const int before = answered;
    ASSERT_TRUE(Eventually([&] { return answered > before + 10; }));
    Admin("POST", round % 2 == 0 ? "/admin/models/promote" : "/admin/models/rollback");
  }
  done = true;
  for (std::thread& client : clients) client.join();
  EXPECT_TRUE(Eventually([&] { return Admin("GET", "/admin/models")["models"].size() == 1; }));
}

}  // namespace
}  // namespace hone
