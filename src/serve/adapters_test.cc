// Adapters by name: loaded and unloaded by the admin while the server runs, chosen by `model`, kept by requests that use them.
#include <nlohmann/json.hpp>

#include "serve/served_model.h"
#include "serve/test_server.h"

namespace hone {
namespace {

using nlohmann::json;

class Adapters : public ServerTest {
 protected:
  void StartWithAdmin(ServeOptions options = {}) {
    options.admin_key = "the-admin-key";
    Start(std::move(options));
  }
  json Admin(const std::string& path, const std::string& body, int status = 200) {
    const ClientResponse response = Call("POST", path, body, Bearer("the-admin-key"));
    EXPECT_EQ(response.status, status) << response.body;
    return json::parse(response.body, nullptr, false);
  }
  json Load(const std::string& name, const std::string& path, int status = 200, const std::string& more = "") {
    return Admin("/v1/load_lora_adapter", R"({"lora_name":")" + name + R"(","lora_path":")" + path + "\"" + more + "}", status);
  }
  json Unload(const std::string& name, int status = 200) {
    return Admin("/v1/unload_lora_adapter", R"({"lora_name":")" + name + "\"}", status);
  }
  static std::string Body(const std::string& model, const std::string& content, const std::string& more = "") {
    return R"({"model":")" + model + R"(","messages":[{"role":"user","content":")" + content + "\"}]" + more + "}";
  }
  json Ask(const std::string& model, int status = 200) {
    const ClientResponse response = Call("POST", kChat, Body(model, "hi"));
    EXPECT_EQ(response.status, status) << response.body;
    return json::parse(response.body, nullptr, false);
  }
  json Models() { return json::parse(Call("GET", "/v1/models").body)["data"]; }
  // The path of the adapter that the last sequence had; "": none.
  std::string Used() {
    const auto adapter = engine_->last().adapter;
    return adapter == nullptr ? "" : adapter->info().path;
  }
};

TEST_F(Adapters, LoadedChosenAndUnloaded) {
  StartWithAdmin();
  Ask("sql", 404);
  const json card = Load("sql", "/adapters/sql.gguf");
  EXPECT_EQ(card["id"], "sql");
  EXPECT_EQ(card["root"], "/adapters/sql.gguf");
  EXPECT_EQ(card["parent"], "fake/model");
  EXPECT_EQ(card["adapter_bytes"], 1000);
  EXPECT_EQ(card["rank"], 8);
  Load("poems", "poems");
  ASSERT_EQ(Models().size(), 3u);
  EXPECT_EQ(Models()[0]["id"], "fake/model");
  EXPECT_EQ(Models()[0]["parent"], nullptr);
  EXPECT_EQ(Models()[0]["adapter_bytes"], 2000);
  EXPECT_EQ(Models()[1]["id"], "poems");
  EXPECT_EQ(json::parse(Call("GET", "/v1/models/sql").body)["parent"], "fake/model");

  EXPECT_EQ(Ask("sql")["model"], "sql");
  EXPECT_EQ(Used(), "/adapters/sql.gguf");
  EXPECT_EQ(Ask("fake/model")["model"], "fake/model");
  EXPECT_EQ(Used(), "");
  const auto post = [&](const char* path, const std::string& body) { return Call("POST", path, body).body; };
  EXPECT_EQ(json::parse(post(kCompletions, R"({"model":"poems","prompt":"a"})"))["model"], "poems");
  EXPECT_EQ(Used(), "poems");
  EXPECT_EQ(json::parse(post("/v1/embeddings", R"({"model":"sql","input":"a"})"))["model"], "sql");
  EXPECT_EQ(Used(), "/adapters/sql.gguf");
  EXPECT_EQ(json::parse(post("/v1/responses", R"({"model":"poems","input":"a"})"))["model"], "poems");
  EXPECT_EQ(Used(), "poems");
  EXPECT_NE(post(kChat, Body("sql", "hi", R"(,"stream":true)")).find(R"("model":"sql")"), std::string::npos);
  EXPECT_EQ(json::parse(post("/tokenize", R"({"model":"sql","prompt":"abc"})"))["count"], 4);

  EXPECT_EQ(Unload("sql")["deleted"], true);
  Unload("sql", 404);
  const json gone = Ask("sql", 404);
  EXPECT_EQ(gone["error"]["code"], "model_not_found");
  EXPECT_NE(std::string(gone["error"]["message"]).find("poems"), std::string::npos);
  EXPECT_EQ(Call("GET", "/v1/models/sql").status, 404);
  Ask("poems");
}

TEST_F(Adapters, OnlyTheAdminMay) {
  StartWithAdmin();
  const std::string body = R"({"lora_name":"a","lora_path":"a"})";
  for (const char* path : {"/v1/load_lora_adapter", "/v1/unload_lora_adapter"}) {
    EXPECT_EQ(Call("POST", path, body).status, 401);
    EXPECT_EQ(Call("POST", path, body, Bearer("another-key")).status, 401);
  }
  Start();
  EXPECT_EQ(Call("POST", "/v1/load_lora_adapter", body, Bearer("another-key")).status, 403);
  EXPECT_EQ(Models().size(), 1u);
}

TEST_F(Adapters, WhatCannotBeLoadedChangesNothing) {
  StartWithAdmin();
  Load("a", "first");
  const json conflict = Load("a", "second", 409);
  EXPECT_NE(std::string(conflict["error"]["message"]).find("first"), std::string::npos);
  const json bad = Load("b", "bad.gguf", 400);
  EXPECT_EQ(bad["error"]["param"], "lora_path");
  EXPECT_NE(std::string(bad["error"]["message"]).find("does not fit"), std::string::npos);
  Load("a", "bad.gguf", 400, R"(,"load_inplace":true)");
  EXPECT_EQ(Models().size(), 2u);
  Ask("a");
  EXPECT_EQ(Used(), "first");
  Load("a", "second", 200, R"(,"load_inplace":true)");
  Ask("a");
  EXPECT_EQ(Used(), "second");

  Load("fake/model", "a", 400);
  Load("", "a", 400);
  Load("b", "", 400);
  Load(std::string(257, 'x'), "a", 400);
  Load(R"(\u0007)", "a", 400);
  Load("b", "a", 400, R"(,"colour":1)");
  Admin("/v1/load_lora_adapter", "{", 400);
  Admin("/v1/load_lora_adapter", R"({"lora_name":5,"lora_path":"a"})", 400);
  Admin("/v1/unload_lora_adapter", "{}", 400);
  EXPECT_EQ(Models().size(), 2u);
}

TEST_F(Adapters, TheirNumberIsLimited) {
  StartWithAdmin();
  for (size_t i = 0; i < kMaxAdapters; ++i) Load("a" + std::to_string(i), "p");
  Load("one more", "p", 429);
  Load("a7", "q", 200, R"(,"load_inplace":true)");
  Unload("a3");
  Load("one more", "p");
  EXPECT_EQ(Models().size(), kMaxAdapters + 1);
}

TEST_F(Adapters, ARunningRequestKeepsItsOwn) {
  StartWithAdmin();
  Load("a", "first");
  TestClient client(port());
  client.Send(TestClient::Format("POST", kChat, Body("a", "hold", R"(,"stream":true)")));
  ASSERT_TRUE(Eventually([&] { return engine_->running() == 1; }));
  std::weak_ptr<const Adapter> kept = engine_->last().adapter;
  Unload("a");
  Ask("a", 404);
  EXPECT_FALSE(kept.expired());
  engine_->ReleaseHeld();
  const ClientResponse response = client.ReadResponse();
  EXPECT_EQ(response.status, 200);
  EXPECT_NE(response.body.find("[DONE]"), std::string::npos);
}

TEST_F(Adapters, FromTheStart) {
  ServeOptions options;
  options.adapters = {{"a", "first"}, {"b", "second"}};
  StartWithAdmin(options);
  Ask("b");
  EXPECT_EQ(Used(), "second");
  const Clock clock;
  Runtime runtime{.clock = &clock};
  options.port = 0;
  options.adapters = {{"a", "bad"}};
  const auto server = Server::Start(*engine_, nullptr, options, runtime);
  ASSERT_FALSE(server.has_value());
  EXPECT_NE(server.error().message.find("--lora a"), std::string::npos);
  options.adapters = {{"model", "good"}};
  EXPECT_FALSE(Server::Start(*engine_, nullptr, options, runtime).has_value()) << "the name of the model itself";
}

// Weights that are loaded beside the old ones get the adapters too.
TEST_F(Adapters, OtherWeightsHaveThemToo) {
  ServeOptions options;
  std::shared_ptr<FakeEngine> beside;
  options.loader = [&](const std::string& model) -> Result<LoadedWeights> {
    beside = std::make_shared<FakeEngine>(2000);
    auto chat = ChatTemplate::Create(kTestTemplate, "", "");
    return LoadedWeights{beside, std::make_shared<const ChatTemplate>(*chat), model};
  };
  StartWithAdmin(options);
  const auto phase = [&](const std::string& wanted) {
    return Eventually([&] {
      const ClientResponse response = Call("GET", "/admin/models", "", Bearer("the-admin-key"));
      return json::parse(response.body)["canary"]["phase"] == wanted;
    });
  };
  Load("a", "first");
  Admin("/admin/models", R"({"model":"other","share":1})", 202);
  ASSERT_TRUE(phase("running"));
  Load("b", "second");
  Ask("a");
  EXPECT_EQ(beside->last().adapter->info().model, beside.get()) << "an adapter of the weights that answer";
  Ask("b");
  EXPECT_EQ(beside->last().adapter->info().path, "second");
  Unload("a");
  Ask("a", 404);
  Admin("/admin/models/promote", "{}");
  EXPECT_EQ(Models().size(), 2u);
  Ask("b");
  EXPECT_EQ(beside->last().adapter->info().path, "second");
}

}  // namespace
}  // namespace hone
