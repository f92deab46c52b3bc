// What operators rely on: keys, limits, metrics, the access log, TLS. Other weights: hot_swap_test.cc.
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>

#include "serve/served_model.h"
#include "serve/tenants.h"
#include "serve/test_server.h"

namespace hone {
namespace {

using nlohmann::json;

class Operations : public ServerTest {
 protected:
  static std::string Code(const ClientResponse& response) {
    const json body = json::parse(response.body, nullptr, false);
    return body.is_object() && body.contains("error") ? body["error"].value("code", "") : "";
  }
  // The value of a sample, by its whole name with labels; -1: not there.
  static double Sample(const std::string& text, const std::string& name) {
    const size_t at = ("\n" + text).find("\n" + name + " ");
    return at == std::string::npos ? -1 : std::atof(text.c_str() + at + name.size() + 1);
  }
};

TEST_F(Operations, KeysCloseEveryRouteButHealth) {
  ServeOptions options;
  options.api_keys_file = WriteFile("keys", "# who\nalice: alice-key-1\nbob: bob-key-22 priority=5 salt=pepper\n");
  options.admin_key = "the-admin-key";
  Start(options);
  EXPECT_EQ(Call("GET", "/health").status, 200);
  for (const auto& [method, path] :
       std::vector<std::pair<std::string, std::string>>{{"GET", "/"},
                                                        {"GET", "/ready"},
                                                        {"GET", "/metrics"},
                                                        {"GET", "/v1/models"},
                                                        {"GET", "/v1/models/x"},
                                                        {"POST", kChat},
                                                        {"POST", kCompletions},
                                                        {"POST", "/v1/responses"},
                                                        {"POST", "/v1/embeddings"},
                                                        {"POST", "/tokenize"},
                                                        {"POST", "/detokenize"},
                                                        {"GET", "/nowhere"},
                                                        {"OPTIONS", kChat},
                                                        {"BREW", "/"},
                                                        {"GET", "/admin/models"},
                                                        {"POST", "/admin/models"},
                                                        {"POST", "/admin/models/promote"}}) {
    const ClientResponse closed = Call(method, path, method == "POST" ? "{}" : "");
    EXPECT_EQ(closed.status, 401) << method << path;
    EXPECT_EQ(closed.header("www-authenticate"), "Bearer");
    EXPECT_EQ(Code(closed), "missing_api_key");
    EXPECT_EQ(Call(method, path, method == "POST" ? "{}" : "", Bearer("alice-key-2")).status, 401) << path;
  }
  EXPECT_EQ(Call("POST", kChat, ChatBody("hello"), Bearer("alice-key-1")).status, 200);
  const std::string salt = engine_->last().salt;
  EXPECT_EQ(salt.size(), 32u);  // made of the key
  EXPECT_EQ(engine_->last().priority, 0);
  EXPECT_EQ(
      Call("POST", kChat, ChatBody("hello", R"("cache_salt":"x","priority":2)"), "X-Api-Key: bob-key-22\r\n").status,
      200);
  EXPECT_EQ(engine_->last().salt.rfind("pepper", 0), 0u);
  EXPECT_NE(engine_->last().salt, "pepper");
  EXPECT_EQ(engine_->last().priority, 7);
  EXPECT_EQ(Call("GET", "/v1/models", "", "authorization: bearer alice-key-1\r\n").status, 200);
  EXPECT_EQ(Call("GET", "/v1/models", "", "Authorization: Basic alice-key-1\r\n").status, 401);
  // Admin routes: the admin key alone, which opens the others too.
  EXPECT_EQ(Code(Call("GET", "/admin/models", "", Bearer("alice-key-1"))), "not_admin");
  EXPECT_EQ(Call("GET", "/admin/models", "", Bearer("the-admin-key")).status, 200);
  EXPECT_EQ(Call("GET", "/v1/models", "", Bearer("the-admin-key")).status, 200);
}

// "team" + "xy" is not "teamx" + "y".
TEST_F(Operations, SaltsOfRequestsDoNotReachOtherTenants) {
  ServeOptions options;
  options.api_keys_file = WriteFile("keys", "a: key-of-a-1 salt=team\nb: key-of-b-1 salt=teamx\n");
  options.open_routes = {std::string(kChat)};
  Start(options);
  const auto salt = [&](const std::string& key, const std::string& more) {
    EXPECT_EQ(Call("POST", kChat, ChatBody("hello", more), Bearer(key)).status, 200);
    return engine_->last().salt;
  };
  EXPECT_NE(salt("key-of-a-1", R"("cache_salt":"xy")"), salt("key-of-b-1", R"("cache_salt":"y")"));
  EXPECT_NE(salt("key-of-a-1", R"("cache_salt":"x")"), salt("key-of-b-1", ""));
  EXPECT_EQ(salt("key-of-a-1", R"("cache_salt":"x")"), salt("key-of-a-1", R"("cache_salt":"x")"));
  // Nor does a caller of an open route, who has no key, by spelling a tenant's salt.
  EXPECT_NE(salt("", R"("cache_salt":"team")"), salt("key-of-a-1", ""));
}

TEST_F(Operations, WithoutAnAdminKeyAdminRoutesAreClosed) {
  Start();
  EXPECT_EQ(Call("GET", "/v1/models").status, 200);
  EXPECT_EQ(Call("GET", "/admin/models").status, 403);
  EXPECT_EQ(Call("GET", "/admin/models", "", Bearer("x")).status, 403);
}

TEST_F(Operations, SomeRoutesMayBeOpened) {
  ServeOptions options;
  options.api_keys_file = WriteFile("keys", "alice: alice-key-1\n");
  options.open_routes = {"/metrics", "/ready"};
  options.cors = "http://page";
  Start(options);
  EXPECT_EQ(Call("GET", "/metrics").status, 200);
  EXPECT_EQ(Call("GET", "/ready").status, 200);
  EXPECT_EQ(Call("GET", "/").status, 401);
  // A browser asks without a key whether it may send one.
  const ClientResponse preflight =
      Call("OPTIONS", kChat, "", "Origin: http://page\r\nAccess-Control-Request-Method: POST\r\n");
  EXPECT_EQ(preflight.status, 204);
  EXPECT_NE(preflight.header("access-control-allow-headers").find("Authorization"), std::string::npos);
  EXPECT_EQ(Call("POST", kChat, ChatBody("x"), "Origin: http://page\r\n").header("access-control-allow-origin"),
            "http://page");
}

TEST_F(Operations, RatesAreKept) {
  ServeOptions options;
  options.api_keys_file = WriteFile("keys", "slow: slow-key-1 rate=1/h burst=2\nfree: free-key-1\n");
  Start(options);
  const auto call = [&](const std::string& key) {
    return Call("POST", kChat, ChatBody("hello", R"("max_tokens":1)"), Bearer(key));
  };
  EXPECT_EQ(call("slow-key-1").status, 200);
  EXPECT_EQ(call("slow-key-1").status, 200);
  const ClientResponse refused = call("slow-key-1");
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(Code(refused), "rate_limited");
  EXPECT_GT(std::atoi(refused.header("retry-after").c_str()), 3000);
  EXPECT_EQ(Call("GET", "/v1/models", "", Bearer("slow-key-1")).status, 200);
  EXPECT_EQ(call("free-key-1").status, 200);
}

TEST(Tenants, FilesThatAreNotOne) {
  const auto error = [](const char* text) {
    const auto tenants = Tenants::Parse(text, "keys");
    return tenants ? "" : tenants.error().message;
  };
  EXPECT_EQ(error("a: 12345678\n\n# b\r\nb:\t87654321 rate=3/m burst=4 priority=-1 salt=s\r\n"), "");
  EXPECT_NE(error("").find("holds no key"), std::string::npos);
  EXPECT_NE(error("a: 12345678\nb\n").find("keys:2"), std::string::npos);
  EXPECT_NE(error(": 12345678\n").find("name"), std::string::npos);
  EXPECT_NE(error("a: 1234567\n").find("at least 8"), std::string::npos);
  EXPECT_EQ(error("a: 1234567\n").find("1234567"), std::string::npos);  // a message shows no key
  EXPECT_NE(error("a: 12345678\na: 87654321\n").find("twice"), std::string::npos);
  EXPECT_NE(error("a: 12345678\nb: 12345678\n").find("same key as a"), std::string::npos);
  EXPECT_NE(error("a: 12345678 rate=3\n").find("10/s"), std::string::npos);
  EXPECT_NE(error("a: 12345678 rate=-3/s\n").find("rate"), std::string::npos);
  EXPECT_NE(error("a: 12345678 burst=3\n").find("without rate"), std::string::npos);
  EXPECT_NE(error("a: 12345678 priority=x\n").find("priority"), std::string::npos);
  EXPECT_NE(error("a: 12345678 salt=\n").find("salt"), std::string::npos);
  EXPECT_NE(error("a: 12345678 color=red\n").find("unknown option \"color\""), std::string::npos);
  EXPECT_FALSE(Tenants::Read("/does/not/exist").has_value());
  const auto folder = Tenants::Read(testing::TempDir());
  ASSERT_FALSE(folder.has_value());
  EXPECT_NE(folder.error().message.find("is a folder"), std::string::npos);
  const auto endless = Tenants::Read("/dev/zero");
  ASSERT_FALSE(endless.has_value());
  EXPECT_NE(endless.error().message.find("4 MiB"), std::string::npos);
  const auto tenants = Tenants::Parse("a: 12345678\nb: 87654321\n", "keys");
  ASSERT_TRUE(tenants.has_value());
  EXPECT_EQ(tenants->Find("12345678")->name, "a");
  EXPECT_EQ(tenants->Find("1234567"), nullptr);
  EXPECT_EQ(tenants->Find(""), nullptr);
  EXPECT_NE(tenants->Find("12345678")->salt, tenants->Find("87654321")->salt);
}

TEST(Tenants, ABucketFills) {
  auto tenants = Tenants::Parse("a: 12345678 rate=2/s burst=3\n", "keys");
  ASSERT_TRUE(tenants.has_value());
  Tenant& tenant = *tenants->Find("12345678");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(tenant.Wait(10), 0);
  EXPECT_DOUBLE_EQ(tenant.Wait(10), 0.5);
  EXPECT_EQ(tenant.Wait(10.5), 0);
  EXPECT_GT(tenant.Wait(10.5), 0);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(tenant.Wait(1000), 0);  // never more than the burst
  EXPECT_GT(tenant.Wait(1000), 0);
}

TEST(Sha256, KnownDigests) {
  const Digest digest = Sha256("abc");  // FIPS 180-2, B.1
  EXPECT_EQ(digest[0], 0xba);
  EXPECT_EQ(digest[1], 0x78);
  EXPECT_EQ(digest[31], 0xad);
  EXPECT_TRUE(SameDigest(digest, Sha256("abc")));
  for (size_t i = 0; i < digest.size(); ++i) {
    Digest other = digest;
    other[i] ^= 1;
    EXPECT_FALSE(SameDigest(digest, other));
  }
}

TEST_F(Operations, GenerationsAtOnceAreLimited) {
  ServeOptions options;
  options.request_limits.requests = 2;
  Start(options);
  TestClient one(port()), two(port());
  one.Send(TestClient::Format("POST", kChat, ChatBody("hold", R"("stream":true)")));
  two.Send(TestClient::Format("POST", kChat, ChatBody("hold")));
  ASSERT_TRUE(Eventually([&] { return engine_->running() == 2; }));
  const ClientResponse refused = Chat("hello");
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(Code(refused), "queue_full");
  EXPECT_FALSE(refused.header("retry-after").empty());
  one.Reset();  // who leaves makes room
  EXPECT_TRUE(Eventually([&] { return Chat("hello", R"("max_tokens":1)").status == 200; }));
  engine_->ReleaseHeld();
  EXPECT_EQ(two.ReadResponse().status, 200);
}

TEST_F(Operations, MetricsCount) {
  ServeOptions options;
  options.vllm_metrics = true;
  Start(options);
  engine_->SetStats({.waiting = 3,
                     .blocks = 10,
                     .blocks_used = 4,
                     .preemptions = 2,
                     .prefix_query_tokens = 8,
                     .prefix_hit_tokens = 5,
                     .step_tokens = {.counts = {0, 2, 1}, .sum = 20},
                     .block_times = {.lifetime = {.counts = {0, 3}, .sum = 0.006}, .idle = {}, .reuse_gap = {}},
                     .adapters = {{"poems", 2, 0}, {"sql", 1, 4}}});
  EXPECT_EQ(Chat("hello", R"("max_tokens":4)").status, 200);
  EXPECT_EQ(Chat("hello", R"("n":2)").status, 200);
  EXPECT_EQ(Chat("crash").status, 500);
  EXPECT_EQ(Chat("hello", R"("temperature":9)").status, 400);
  EXPECT_EQ(Call("BREW", "/health").status, 405);
  EXPECT_EQ(Call("GET", "/no/such/path").status, 404);
  const ClientResponse response = Call("GET", "/metrics");
  EXPECT_EQ(response.header("content-type"), "text/plain; version=0.0.4; charset=utf-8");
  const std::string& text = response.body;
  const std::string labels = R"({model_name="fake/model",weights="1"})";
  EXPECT_EQ(Sample(text, "hone_time_to_first_token_seconds_count" + labels), 4);
  EXPECT_EQ(Sample(text, "hone_request_seconds_count" + labels), 3);
  EXPECT_EQ(Sample(text, "hone_generation_tokens_total" + labels), 4 + 20 + 3);
  EXPECT_EQ(Sample(text, "hone_prompt_tokens_total" + labels), 2 * 25);
  EXPECT_EQ(Sample(text, "hone_cached_prompt_tokens_total" + labels), 4);
  EXPECT_EQ(Sample(text, R"(hone_requests_total{model_name="fake/model",weights="1",finished_reason="length"})"), 1);
  EXPECT_EQ(Sample(text, R"(hone_requests_total{model_name="fake/model",weights="1",finished_reason="stop"})"), 2);
  EXPECT_EQ(Sample(text, R"(hone_requests_total{model_name="fake/model",weights="1",finished_reason="error"})"), 1);
  EXPECT_EQ(Sample(text, R"(hone_http_requests_total{method="POST",route="/v1/chat/completions",code="200"})"), 2);
  EXPECT_EQ(Sample(text, R"(hone_http_requests_total{method="POST",route="/v1/chat/completions",code="400"})"), 1);
  EXPECT_EQ(Sample(text, R"(hone_http_requests_total{method="other",route="none",code="405"})"), 1);
  EXPECT_EQ(Sample(text, R"(hone_http_requests_total{method="GET",route="none",code="404"})"), 1);
  EXPECT_EQ(Sample(text, "hone_sequences_waiting" + labels), 3);
  EXPECT_EQ(Sample(text, "hone_kv_usage" + labels), 0.4);
  EXPECT_EQ(Sample(text, "hone_ready"), 1);
  EXPECT_GT(Sample(text, "hone_resident_bytes"), 1e6);
  const std::string vllm = R"({model_name="fake/model",engine="0"})";
  EXPECT_EQ(Sample(text, "vllm:num_requests_waiting" + vllm), 3);
  EXPECT_EQ(Sample(text, "vllm:num_preemptions_total" + vllm), 2);
  EXPECT_EQ(Sample(text, "vllm:prefix_cache_hits_total" + vllm), 5);
  EXPECT_EQ(Sample(text, "vllm:e2e_request_latency_seconds_count" + vllm), 3);
  EXPECT_EQ(Sample(text, R"(vllm:request_success_total{model_name="fake/model",engine="0",finished_reason="stop"})"),
            2);
  EXPECT_EQ(Sample(text, "vllm:time_per_output_token_seconds_count" + vllm), Sample(text, "vllm:inter_token_latency_seconds_count" + vllm));
  EXPECT_EQ(Sample(text, R"(vllm:iteration_tokens_total_bucket{model_name="fake/model",engine="0",le="8"})"), 2);
  EXPECT_EQ(Sample(text, R"(vllm:iteration_tokens_total_bucket{model_name="fake/model",engine="0",le="16384"})"), 3);
  EXPECT_EQ(Sample(text, "vllm:iteration_tokens_total_sum" + vllm), 20);
  EXPECT_EQ(Sample(text, "hone_step_tokens_count" + labels), 3);
  EXPECT_EQ(Sample(text, R"(vllm:kv_block_lifetime_seconds_bucket{model_name="fake/model",engine="0",le="0.001"})"), 0);
  EXPECT_EQ(Sample(text, R"(vllm:kv_block_lifetime_seconds_bucket{model_name="fake/model",engine="0",le="0.002"})"), 3);
  EXPECT_EQ(Sample(text, "vllm:kv_block_idle_before_evict_seconds_count" + vllm), 0);
  EXPECT_EQ(Sample(text, "vllm:kv_block_reuse_gap_seconds_count" + vllm), 0);
  EXPECT_EQ(Sample(text, "vllm:prompt_tokens_cached_total" + vllm), 4);
  EXPECT_EQ(Sample(text, "vllm:request_prefill_kv_computed_tokens_sum" + vllm), 2 * 25 - 4);
  EXPECT_EQ(Sample(text, "vllm:request_time_per_output_token_seconds_count" + vllm), 3);
  EXPECT_EQ(Sample(text, R"(hone_adapter_sequences{model_name="fake/model",weights="1",adapter="sql",state="waiting"})"), 4);
  const std::string adapters = R"(vllm:lora_requests_info{model_name="fake/model",engine="0",max_lora="16",running_lora_adapters="poems,sql",waiting_lora_adapters="sql"})";
  EXPECT_GE(Sample(text, adapters), Sample(text, "hone_start_time_seconds"));
  EXPECT_EQ(text.find("vllm:spec_decode"), std::string::npos) << "nothing is drafted";
  const std::string cache = R"(model_name="fake/model",engine="0",block_size="32",enable_prefix_caching="True",num_gpu_blocks="10")";
  EXPECT_NE(text.find("vllm:cache_config_info{" + cache), std::string::npos);
  // The format: every sample has its TYPE before it, buckets only rise, and end with +Inf, which is the count.
  std::istringstream lines(text);
  std::map<std::string, std::string> types;
  double bucket = 0;
  for (std::string line; std::getline(lines, line);) {
    ASSERT_FALSE(line.empty());
    if (line.rfind("# TYPE ", 0) == 0) {
      std::istringstream words(line.substr(7));
      std::string name, type;
      words >> name >> type;
      EXPECT_TRUE(types.emplace(name, type).second) << name;
      bucket = 0;
      continue;
    }
    if (line[0] == '#') continue;
    std::string name = line.substr(0, line.find_first_of("{ "));
    if (!types.count(name)) {
      for (const char* suffix : {"_bucket", "_sum", "_count"}) {
        if (name.ends_with(suffix)) name.resize(name.size() - std::string(suffix).size());
      }
      EXPECT_EQ(types[name], "histogram") << line;
    }
    if (line.find("_bucket{") != std::string::npos) {
      const double value = std::atof(line.c_str() + line.rfind(' '));
      EXPECT_GE(value, bucket) << line;
      bucket = line.find("+Inf") != std::string::npos ? 0 : value;
    }
  }
  Start();
  EXPECT_EQ(Call("GET", "/metrics").body.find("vllm:"), std::string::npos);
}

// What the dashboards that come with vLLM, and Ray's, draw of a server without drafts, swapping and connectors, in their labels.
TEST_F(Operations, DashboardsOfVllmFindWhatTheyDraw) {
  ServeOptions options;
  options.vllm_metrics = true;
  Start(options);
  engine_->SetStats({.waiting = 3});
  EXPECT_EQ(Chat("hello", R"("n":2)").status, 200);
  const std::string text = Call("GET", "/metrics").body;
  for (const char* name :
       {"num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "gpu_cache_usage_perc", "num_preemptions_total", "prefix_cache_queries_total",
        "prefix_cache_hits_total", "gpu_prefix_cache_queries_total", "gpu_prefix_cache_hits_total", "prompt_tokens_total", "generation_tokens_total",
        "prompt_tokens_cached_total", "time_to_first_token_seconds", "time_per_output_token_seconds", "inter_token_latency_seconds",
        "request_time_per_output_token_seconds", "e2e_request_latency_seconds", "request_queue_time_seconds", "request_prefill_time_seconds",
        "request_decode_time_seconds", "request_inference_time_seconds", "request_prompt_tokens", "request_generation_tokens",
        "request_max_num_generation_tokens", "request_params_n", "request_params_max_tokens", "request_prefill_kv_computed_tokens", "iteration_tokens_total"}) {
    const std::string full = std::string("vllm:") + name, labels = R"({model_name="fake/model",engine="0"} )";
    EXPECT_NE(text.find("# TYPE " + full + " "), std::string::npos) << name;
    EXPECT_TRUE(text.find("\n" + full + labels) != std::string::npos || text.find("\n" + full + "_count" + labels) != std::string::npos) << name;
  }
  const auto sample = [&](const std::string& name, const std::string& label) {
    return Sample(text, "vllm:" + name + R"({model_name="fake/model",engine="0",)" + label + "}");
  };
  EXPECT_EQ(sample("engine_sleep_state", R"(sleep_state="awake")"), 1);
  EXPECT_EQ(sample("engine_sleep_state", R"(sleep_state="discard_all")"), 0);
  EXPECT_EQ(sample("num_requests_waiting_by_reason", R"(reason="capacity")"), 3);
  EXPECT_EQ(sample("num_requests_waiting_by_reason", R"(reason="deferred")"), 0);
  EXPECT_EQ(sample("prompt_tokens_by_source_total", R"(source="local_compute")"), 25 - 2);
  EXPECT_EQ(sample("prompt_tokens_by_source_total", R"(source="local_cache_hit")"), 2);
  // A request's choices count once, as the longest of them.
  EXPECT_EQ(Sample(text, R"(vllm:request_max_num_generation_tokens_sum{model_name="fake/model",engine="0"})"), 10);
  EXPECT_EQ(Sample(text, R"(vllm:request_max_num_generation_tokens_count{model_name="fake/model",engine="0"})"), 1);
  EXPECT_EQ(Sample(text, R"(vllm:request_generation_tokens_count{model_name="fake/model",engine="0"})"), 2);
}

TEST_F(Operations, TheDocsNameEveryMetric) {
  ServeOptions options;
  options.access_log = WriteFile("access.log", "");
  Start(options);
  std::ifstream file(std::string(HONE_SOURCE_DIR) + "/docs/server.md");
  const std::string docs{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  std::istringstream lines(Call("GET", "/metrics").body);
  int names = 0;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("# TYPE ")) continue;
    const std::string name = line.substr(7, line.find(' ', 7) - 7);
    EXPECT_NE(docs.find("`" + name + "`"), std::string::npos) << name;
    ++names;
  }
  EXPECT_GT(names, 30);
}

TEST(Histograms, BucketsAndQuantiles) {
  constexpr double kBounds[] = {1, 2, 4};
  Histogram histogram(kBounds);
  EXPECT_EQ(histogram.Quantile(0.5), 0);
  histogram.Observe(1);  // a bound belongs to its bucket
  histogram.Observe(1.5, 2);
  histogram.Observe(9);
  histogram.Observe(-1);
  histogram.Observe(std::nan(""));
  std::string text;
  histogram.Write("h", "a=\"b\"", &text);
  EXPECT_EQ(text,
            "h_bucket{a=\"b\",le=\"1\"} 1\nh_bucket{a=\"b\",le=\"2\"} 3\nh_bucket{a=\"b\",le=\"4\"} 3\n"
            "h_bucket{a=\"b\",le=\"+Inf\"} 4\nh_sum{a=\"b\"} 13\nh_count{a=\"b\"} 4\n");
  EXPECT_DOUBLE_EQ(histogram.mean(), 3.25);
  EXPECT_DOUBLE_EQ(histogram.Quantile(0.5), 1.5);
  EXPECT_DOUBLE_EQ(histogram.Quantile(1), 4);
  EXPECT_EQ(MetricLabel("a", "x\"y\\z\n"), "a=\"x\\\"y\\\\z\\n\"");
}

TEST_F(Operations, TheAccessLogHasALineARequest) {
  ServeOptions options;
  options.access_log = WriteFile("log", "");
  options.api_keys_file = WriteFile("keys", "alice: alice-key-1\n");
  Start(options);
  Call("POST", kChat, ChatBody("hello", R"("stream":true)"), Bearer("alice-key-1") + "X-Request-Id: mine\r\n");
  Call("GET", "/v1/models");
  Call("POST", kChat, "{", Bearer("alice-key-1"));
  TestClient bad(port());
  bad.Send("nonsense\r\n\r\n");
  bad.ReadAll();
  TestClient gone(port());
  gone.Send(TestClient::Format("POST", kChat, ChatBody("hold"), Bearer("alice-key-1")));
  ASSERT_TRUE(Eventually([&] { return engine_->running() == 1; }));
  gone.Reset();
  ASSERT_TRUE(Eventually([&] { return engine_->running() == 0; }));
  // What was sent to one that left in the middle is in its line.
  TestClient left(port());
  left.Send(TestClient::Format("POST", kChat, ChatBody("endless", R"("stream":true)"), Bearer("alice-key-1")));
  ASSERT_TRUE(left.ReadUntil("w4 "));
  left.Reset();
  ASSERT_TRUE(Eventually([&] { return engine_->running() == 0; }));
  server_.reset();
  std::ifstream file(options.access_log);
  std::vector<json> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(json::parse(line));
  ASSERT_EQ(lines.size(), 6u);
  EXPECT_EQ(lines[0]["id"], "mine");
  EXPECT_EQ(lines[0]["tenant"], "alice");
  EXPECT_EQ(lines[0]["status"], 200);
  EXPECT_EQ(lines[0]["stream"], true);
  EXPECT_EQ(lines[0]["completion_tokens"], 10);
  EXPECT_EQ(lines[0]["finish"], "stop");
  EXPECT_EQ(lines[0]["peer"], "127.0.0.1");
  EXPECT_GE(lines[0]["ms"].get<double>(), lines[0]["ttft_ms"].get<double>());
  EXPECT_EQ(lines[0]["time"].get<std::string>().back(), 'Z');
  EXPECT_EQ(lines[1]["status"], 401);
  EXPECT_EQ(lines[1]["error"], "missing_api_key");
  EXPECT_FALSE(lines[1].contains("model"));
  EXPECT_EQ(lines[2]["error"], "invalid_json");
  EXPECT_EQ(lines[3]["error"], "bad_http");
  EXPECT_EQ(lines[4]["status"], 499);
  EXPECT_EQ(lines[4]["finish"], "abort");
  EXPECT_EQ(lines[5]["status"], 499);
  EXPECT_GE(lines[5]["completion_tokens"], 5);
  EXPECT_GT(lines[5]["prompt_tokens"], 5);
}

TEST_F(Operations, ReadyAfterTheWarmUp) {
  ServeOptions options;
  options.warm_up = true;
  Start(options);
  EXPECT_TRUE(Eventually([&] { return Call("GET", "/ready").status == 200; }));
  ASSERT_EQ(engine_->requests().size(), 1u);
  EXPECT_EQ(engine_->requests()[0].max_tokens, 2);
}

TEST(StartWith, FilesThatAreNotThere) {
  FakeEngine engine;
  const Clock clock;
  const auto message = [&](ServeOptions options) {
    options.port = 0;
    const auto server = Server::Start(engine, nullptr, options, Runtime{.clock = &clock});
    return server ? "" : server.error().message;
  };
  ServeOptions options;
  options.api_keys_file = "/no/keys";
  EXPECT_NE(message(options).find("/no/keys"), std::string::npos);
  options = {};
  options.access_log = "/no/such/folder/log";
  EXPECT_NE(message(options).find("/no/such/folder/log"), std::string::npos);
  options = {};
  options.tls_cert_file = "/no/cert.pem";
  EXPECT_NE(message(options).find("both"), std::string::npos);
  options.tls_key_file = "/no/key.pem";
  EXPECT_NE(message(options).find("/no/cert.pem"), std::string::npos);
  options.tls_cert_file = options.tls_key_file = HONE_SOURCE_DIR "/dev";
  EXPECT_NE(message(options).find("PEM"), std::string::npos);
}

TEST(StartWith, AKeyWithAPassPhraseIsRefusedWithoutAsking) {
  const std::string cert = testing::TempDir() + "/phrase.cert.pem", key = testing::TempDir() + "/phrase.key.pem";
  const std::string make = "openssl req -x509 -newkey rsa:2048 -passout pass:secret -days 2 -subj /CN=localhost -keyout " +
                           key + " -out " + cert + " 2>/dev/null";
  if (std::system(make.c_str()) != 0) GTEST_SKIP() << "openssl is not there";
  FakeEngine engine;
  const Clock clock;
  ServeOptions options;
  options.port = 0;
  options.tls_cert_file = cert;
  options.tls_key_file = key;
  const auto server = Server::Start(engine, nullptr, options, Runtime{.clock = &clock});
  ASSERT_FALSE(server.has_value());
  EXPECT_NE(server.error().message.find("pass phrase"), std::string::npos) << server.error().message;
}

// By the programs of Debian's openssl and curl, which are not ours.
TEST_F(Operations, Tls) {
  const std::string cert = WriteFile("cert.pem", ""), key = WriteFile("key.pem", "");
  const std::string make =
      "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost "
      "-addext subjectAltName=IP:127.0.0.1 -keyout " +
      key + " -out " + cert + " 2>/dev/null";
  if (std::system(make.c_str()) != 0 || std::system("curl --version >/dev/null 2>&1") != 0) {
    GTEST_SKIP() << "openssl or curl is not there";
  }
  ServeOptions options;
  options.tls_cert_file = cert;
  options.tls_key_file = key;
  Start(options);
  const std::string out = WriteFile("out", "");
  const auto curl = [&](const std::string& arguments) {
    const std::string command = "curl -s --max-time 20 --cacert " + cert + " -o " + out + " -w '%{http_code}' " +
                                arguments + " > " + out + ".code";
    EXPECT_EQ(std::system(command.c_str()), 0) << arguments;
    std::ifstream code_file(out + ".code"), body_file(out);
    std::string code, body((std::istreambuf_iterator<char>(body_file)), {});
    code_file >> code;
    return std::pair(code, body);
  };
  const std::string url = "https://127.0.0.1:" + std::to_string(port());
  EXPECT_EQ(curl(url + "/health").first, "200");
  const auto [code, body] =
      curl("-H 'Content-Type: application/json' -d '" + ChatBody("hello", R"("stream":true)") + "' " + url + kChat);
  EXPECT_EQ(code, "200");
  EXPECT_NE(body.find("data: [DONE]"), std::string::npos);
  EXPECT_EQ(curl(url + "/health -o " + out + " " + url + "/ready").first, "200200");  // one connection, two requests
  // Who speaks plain HTTP, or nothing, gets no answer and does no harm.
  TestClient plain(port());
  plain.Send("GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(plain.ReadAll().find("HTTP/1.1 200"), std::string::npos);
  { TestClient silent(port()); }
  EXPECT_EQ(curl(url + "/health").first, "200");
  // A client that leaves cancels, here too.
  std::system(("timeout 2 curl -s -N --cacert " + cert + " -H 'Content-Type: application/json' -d '" +
               ChatBody("endless", R"("stream":true)") + "' " + url + kChat + " | head -c 200 > /dev/null")
                  .c_str());
  EXPECT_TRUE(Eventually([&] { return engine_->running() == 0; }));
}

}  // namespace
}  // namespace hone
