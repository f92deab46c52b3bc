// Weights and adapters that come and go while clients stream, stay and leave: who stays gets the answer of the weights and the
// adapter that it began with, and nothing is left of those that went.
#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <set>
#include <sstream>

#include "e2e/killed_client.h"
#include "e2e/peft_folder.h"

namespace hone::e2e {
namespace {

const char* const kAdmin = "Authorization: Bearer the-admin-key\r\n";

class ChangingModels : public ServeTest {
 protected:
  void StartWithAdmin(std::vector<std::string> more = {}) {
    more.insert(more.end(), {"--deterministic", "--admin-key", "the-admin-key", "--max-queue", "256", "--vllm-metrics"});
    ASSERT_NO_FATAL_FAILURE(Start(std::move(more)));
  }
  static std::string Body(const json& more) {
    json body = {{"model", "builtin"}, {"prompt", "The fox saw a lamp and"}, {"max_tokens", 120}, {"temperature", 0}, {"ignore_eos", true}, {"logprobs", 1}};
    if (!more.is_null()) body.update(more);
    return body.dump();
  }
  json Admin(const std::string& method, const std::string& path, const json& body, int status = 200) {
    Exchange exchange(port_, method, path, body.is_null() ? "" : body.dump(), kAdmin);
    const json answer = json::parse(exchange.Body(), nullptr, false);
    EXPECT_EQ(exchange.status(), status) << path << answer;
    return answer;
  }
  // An answer: its text, the log-probabilities of its tokens, in which an adapter shows that changes no token, and whose weights it is of.
  struct Said {
    std::string text;
    json logprobs = json::array();
    std::string weights;
    bool operator==(const Said&) const = default;
  };
  static Said ReadSaid(Exchange& exchange) {
    const json answer = json::parse(exchange.Body(), nullptr, false);
    EXPECT_TRUE(answer.contains("choices")) << answer;
    if (!answer.contains("choices")) return {};
    const json& choice = answer["choices"][0];
    return {choice["text"], choice["logprobs"]["token_logprobs"], answer["system_fingerprint"]};
  }
  Said Ask(const json& more = {}, const std::string& headers = "") {
    Exchange exchange(port_, "POST", "/v1/completions", Body(more), headers);
    return ReadSaid(exchange);
  }
  std::unique_ptr<Exchange> Begin(const json& more, const std::string& headers = "") {
    return std::make_unique<Exchange>(port_, "POST", "/v1/completions", Body(more), headers);
  }
  // A stream that has begun.
  std::unique_ptr<Exchange> Stream(json more, const std::string& headers = "") {
    more["stream"] = true;
    auto exchange = Begin(more, headers);
    EXPECT_TRUE(exchange->ReadUntil("data: "));
    return exchange;
  }
  static Said Joined(Exchange& exchange) {
    Said said;
    std::vector<std::string> events = Events(exchange.Body());
    EXPECT_TRUE(!events.empty() && events.back() == "[DONE]");
    for (const std::string& event : events) {
      if (event == "[DONE]") continue;
      const json chunk = json::parse(event);
      said.weights = chunk["system_fingerprint"];
      for (const json& choice : chunk["choices"]) {
        said.text += choice.value("text", "");
        if (!choice["logprobs"].is_object()) continue;
        for (const json& logprob : choice["logprobs"]["token_logprobs"]) said.logprobs.push_back(logprob);
      }
    }
    return said;
  }
  json Models() { return Admin("GET", "/admin/models", nullptr); }
  void WaitForPhase(const std::string& phase) {
    while (Models()["canary"]["phase"] != phase) usleep(5000);
  }
  // Until nothing runs and only the stable weights are there.
  void WaitForRest() {
    while (Models()["models"].size() != 1) usleep(5000);
    Idle();
  }
  static size_t Threads(pid_t pid) {
    const std::filesystem::directory_iterator tasks("/proc/" + std::to_string(pid) + "/task");
    return static_cast<size_t>(std::distance(begin(tasks), end(tasks)));
  }
  std::string Metrics() { return Exchange(port_, "GET", "/metrics", "", kAdmin).Body(); }
  // The values of all samples of a metric whose labels hold `labels`.
  std::vector<double> Samples(const std::string& name, const std::string& labels = "") {
    std::vector<double> values;
    std::istringstream lines(Metrics());
    for (std::string line; std::getline(lines, line);) {
      if (line.rfind(name, 0) == 0 && (line[name.size()] == '{' || line[name.size()] == ' ') && line.find(labels) != std::string::npos)
        values.push_back(std::atof(line.c_str() + line.rfind(' ')));
    }
    return values;
  }
};

TEST_F(ChangingModels, WeightsAreSwappedWhileClientsStreamAndLeave) {
  ASSERT_NO_FATAL_FAILURE(StartWithAdmin({"--max-sequences", "16", "--threads", "1"}));  // workers of the first weights stay
  Said stable = Ask();
  const size_t threads = Threads(program_->pid());
  std::string weights[] = {"builtin-draft", "builtin"};
  for (int round = 0; round < 4; ++round) {
    SCOPED_TRACE(round);
    const bool promote = round % 2 == 0;
    auto before = Stream({});
    auto before_whole = Begin({});
    Admin("POST", "/admin/models", {{"model", weights[0]}, {"share", 1.0}, {"rule", {{"roll_back", false}}}}, 202);
    AskAndBeKilled(port_, {Body({{"stream", true}}), Body({{"n", 3}}), Body({{"prompt", {"one", "two", "three"}}})});
    WaitForPhase("running");
    const Said canary = Ask();
    EXPECT_NE(canary.weights, stable.weights);
    EXPECT_NE(canary.text, stable.text) << "other weights say something else";
    auto during = Stream({});
    auto during_whole = Begin({});
    auto aborted = Stream({{"max_tokens", 3000}});
    auto half_closed = Stream({{"max_tokens", 3000}});
    AskAndBeKilled(port_, {Body({{"stream", true}, {"max_tokens", 3000}}), Body({{"n", 3}, {"max_tokens", 3000}})});
    half_closed->ShutdownWrite();
    Admin("POST", promote ? "/admin/models/promote" : "/admin/models/rollback", json::object());
    aborted.reset();
    AskAndBeKilled(port_, {Body({{"stream", true}, {"max_tokens", 3000}}), Body({{"best_of", 4}, {"max_tokens", 3000}})});
    auto after = Begin({});
    EXPECT_EQ(Joined(*before), stable);
    // When these were given their weights is not known; it was one of the two, to the end.
    for (const auto& whole : {&before_whole, &during_whole}) {
      const Said said = ReadSaid(**whole);
      EXPECT_EQ(said, said.weights == canary.weights ? canary : stable);
    }
    EXPECT_EQ(Joined(*during), canary);
    EXPECT_EQ(ReadSaid(*after), promote ? canary : stable);
    if (promote) {
      stable = canary;
      std::swap(weights[0], weights[1]);
    }
    WaitForRest();
    EXPECT_EQ(Ask(), stable);
    // Of the weights that went not a thread is left, nor a series of metrics.
    while (Threads(program_->pid()) > threads) usleep(5000);
    EXPECT_EQ(Samples("hone_kv_blocks_used"), std::vector<double>{0});
    EXPECT_EQ(Samples("hone_sequences_running"), std::vector<double>{0});
  }
}

TEST_F(ChangingModels, ACanaryIsGivenUpWhileItLoadsAndTakenTwice) {
  ASSERT_NO_FATAL_FAILURE(StartWithAdmin());
  const Said stable = Ask();
  auto stays = Stream({{"max_tokens", 400}});
  const json begin = {{"model", "builtin-draft"}, {"share", 1.0}};
  for (int i = 0; i < 3; ++i) {
    Admin("POST", "/admin/models", begin, 202);
    Exchange second(port_, "POST", "/admin/models", begin.dump(), kAdmin);
    second.Body();
    EXPECT_EQ(second.status(), 409);
    Admin("POST", "/admin/models/rollback", json::object());
    EXPECT_EQ(Ask(), stable);
  }
  Admin("POST", "/admin/models", {{"model", "/no/such/model"}}, 202);
  WaitForPhase("failed");
  stays->ShutdownWrite();
  WaitForRest();
  EXPECT_EQ(Ask(), stable);
  EXPECT_EQ(Samples("hone_kv_blocks_used"), std::vector<double>{0});
}

TEST_F(ChangingModels, AdaptersComeAndGoUnderLoad) {
  ASSERT_NO_FATAL_FAILURE(StartWithAdmin({"--max-sequences", "16"}));
  const std::string folders[] = {WriteAdapter("swap_plus", 0.7f), WriteAdapter("swap_minus", -0.7f), WriteAdapter("swap_more", 2)};
  const auto load = [&](const std::string& name, int folder, bool in_place = false) {
    Admin("POST", "/v1/load_lora_adapter", {{"lora_name", name}, {"lora_path", folders[folder]}, {"load_inplace", in_place}});
  };
  const auto unload = [&](const std::string& name) { Admin("POST", "/v1/unload_lora_adapter", {{"lora_name", name}}); };
  // What each says when nobody else is there.
  std::vector<json> alone;
  for (int i = 0; i < 3; ++i) {
    load("a", i, i > 0);
    alone.push_back(Ask({{"model", "a"}}).logprobs);
  }
  const json base = Ask().logprobs;
  EXPECT_EQ(std::set<json>({base, alone[0], alone[1], alone[2]}).size(), 4u) << "adapters that change nothing show nothing";
  unload("a");

  for (int round = 0; round < 3; ++round) {
    SCOPED_TRACE(round);
    load("a", 0);
    load("b", 1);
    // One batch of all of them, and who leaves it.
    auto of_base = Stream({}), of_a = Stream({{"model", "a"}}), of_b = Stream({{"model", "b"}});
    auto held = Stream({{"model", "a"}, {"max_tokens", 3000}});
    AskAndBeKilled(port_, {Body({{"model", "a"}, {"stream", true}, {"max_tokens", 3000}}), Body({{"model", "b"}, {"n", 3}, {"max_tokens", 3000}}),
                           Body({{"n", 2}, {"max_tokens", 3000}})});
    EXPECT_GE(Samples("hone_adapter_sequences", R"(adapter="a",state="running")").at(0), 1);
    EXPECT_EQ(Samples("vllm:lora_requests_info", R"(max_lora="16",running_lora_adapters="a)").size(), 1u) << Metrics();
    // Both go while they are in use; under the name of one comes another.
    unload("a");
    load("b", 2, true);
    Exchange gone(port_, "POST", "/v1/completions", Body({{"model", "a"}}));
    gone.Body();
    EXPECT_EQ(gone.status(), 404);
    EXPECT_EQ(Ask({{"model", "b"}}).logprobs, alone[2]) << "not what the adapter of that name cached before";
    AskAndBeKilled(port_, {Body({{"model", "b"}, {"stream", true}, {"max_tokens", 3000}})});
    EXPECT_EQ(Joined(*of_base).logprobs, base);
    EXPECT_EQ(Joined(*of_a).logprobs, alone[0]) << "unloaded while it ran";
    EXPECT_EQ(Joined(*of_b).logprobs, alone[1]) << "replaced while it ran";
    held->ShutdownWrite();
    unload("b");
    const json ready = Idle();
    EXPECT_EQ(ready["kv_blocks_used"], 0);
    EXPECT_EQ(json::parse(Exchange(port_, "GET", "/v1/models").Body())["data"].size(), 1u);
    EXPECT_TRUE(Samples("hone_adapter_sequences").empty());
    EXPECT_EQ(Samples("vllm:lora_requests_info", R"(running_lora_adapters="",waiting_lora_adapters="")").size(), 1u);
    EXPECT_EQ(Ask().logprobs, base);
  }
}

// Cached prompts are shared within a tenant and an adapter, never beyond, also while clients leave and adapters change.
TEST_F(ChangingModels, PrefixesStayWithTheirTenantAndAdapter) {
  const std::string keys = WriteTemp("swap_keys", "one: key-of-one-123\ntwo: key-of-two-123\n");
  ASSERT_NO_FATAL_FAILURE(StartWithAdmin({"--api-keys", keys, "--max-sequences", "16"}));
  const std::string tenants[] = {"X-Api-Key: key-of-one-123\r\n", "X-Api-Key: key-of-two-123\r\n"};
  Admin("POST", "/v1/load_lora_adapter", {{"lora_name", "a"}, {"lora_path", WriteAdapter("tenant_plus", 0.7f)}});
  std::string words = "A lamp";
  for (int i = 0; i < 200; ++i) words += " and " + std::to_string(i * 7919 % 1000);
  std::map<std::string, json> said;  // log-probabilities, by round and adapter
  for (int round = 0; round < 3; ++round) {
    SCOPED_TRACE(round);
    for (const std::string& tenant : tenants) {
      AskAndBeKilled(port_, {Body({{"stream", true}, {"max_tokens", 2000}}), Body({{"model", "a"}, {"n", 2}, {"max_tokens", 2000}})}, tenant);
      for (const std::string model : {"builtin", "a"}) {
        // The first in this tenant's cache of the round, then all of it but the last tokens is found.
        const json more = {{"model", model}, {"prompt", std::to_string(round) + words}, {"max_tokens", 20}};
        for (const bool again : {false, true}) {
          const json answer = json::parse(Exchange(port_, "POST", "/v1/completions", Body(more), tenant).Body());
          const int cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"], prompt = answer["usage"]["prompt_tokens"];
          EXPECT_EQ(cached > prompt / 2, again) << cached << model << tenant;
          EXPECT_EQ(cached > 0, again) << cached << model << tenant;
          const json& logprobs = answer["choices"][0]["logprobs"]["token_logprobs"];
          EXPECT_EQ(said.emplace(std::to_string(round) + model, logprobs).first->second, logprobs);
        }
      }
    }
    EXPECT_NE(said[std::to_string(round) + "builtin"], said[std::to_string(round) + "a"]);
    // Another adapter under the same name has nothing of the old one's.
    Admin("POST", "/v1/load_lora_adapter",
          {{"lora_name", "a"}, {"lora_path", WriteAdapter("tenant_" + std::to_string(round), 1 + 0.5f * static_cast<float>(round))}, {"load_inplace", true}});
  }
  json ready;
  do ready = json::parse(Exchange(port_, "GET", "/ready", "", kAdmin).Body());
  while (ready["running"] != 0 || ready["waiting"] != 0);
  EXPECT_EQ(ready["kv_blocks_used"], 0);
  EXPECT_GE(Samples("vllm:kv_block_reuse_gap_seconds_count").at(0), 1);
  EXPECT_GE(Samples("vllm:iteration_tokens_total_count").at(0), Samples("hone_steps_total").at(0));
}

// A cache that is too small evicts; how long blocks lived is counted.
TEST_F(ChangingModels, EvictedBlocksAreCounted) {
  ASSERT_NO_FATAL_FAILURE(StartWithAdmin({"--ctx", "256", "--kv-bytes", "2MiB", "--max-sequences", "2"}));
  for (int i = 0; Samples("hone_kv_blocks_evicted_total").at(0) == 0; ++i) {
    Ask({{"prompt", std::to_string(i) + " lamps stood in the wood where " + std::to_string(i * i) + " foxes slept"}, {"max_tokens", 60}});
  }
  const double evicted = Samples("hone_kv_blocks_evicted_total").at(0);
  for (const char* name : {"hone_kv_block_lifetime_seconds_count", "hone_kv_block_idle_before_evict_seconds_count",
                           "vllm:kv_block_lifetime_seconds_count", "vllm:kv_block_idle_before_evict_seconds_count"}) {
    EXPECT_EQ(Samples(name).at(0), evicted) << name;
  }
  EXPECT_LE(Samples("hone_kv_block_idle_before_evict_seconds_sum").at(0), Samples("hone_kv_block_lifetime_seconds_sum").at(0));
}

}  // namespace
}  // namespace hone::e2e
