// Clients that go away in every way there is, while one stays: nobody notices, and nothing is left of them.
#include "e2e/killed_client.h"

namespace hone::e2e {
namespace {

class LeavingClients : public ServeTest {
 protected:
  static std::string Body(const json& more) {
    json body = {{"model", "builtin"}, {"prompt", "The fox"}, {"max_tokens", 1500}, {"temperature", 0}, {"ignore_eos", true}};
    body.update(more);
    return body.dump();
  }
  // Some random words, too few to be found in the cache.
  static std::string Words(int count, unsigned seed) {
    std::string text;
    for (int i = 0; i < count; ++i) text += " " + std::to_string((seed = seed * 1103515245u + 12345u) >> 20);
    return text;
  }
  std::string Text(const std::string& body) { return json::parse(Exchange(port_, "POST", "/v1/completions", body).Body())["choices"][0]["text"]; }
};

TEST_F(LeavingClients, KilledOnesLeaveNothingAndNobodyNotices) {
  ASSERT_NO_FATAL_FAILURE(Start({"--deterministic", "--max-sequences", "12", "--max-queue", "64"}));
  const std::string stays = Body({{"max_tokens", 200}});
  const std::string alone = Text(stays);
  Exchange one(port_, "POST", "/v1/completions", stays);
  for (int round = 0; round < 3; ++round) {
    AskAndBeKilled(port_, {Body({{"stream", true}, {"seed", round}}), Body({{"prompt", Words(500, round)}}),
                           Body({{"stream", true}, {"n", 4}, {"temperature", 1}, {"stop", {"zebra", "quagga"}}}),
                           Body({{"n", 3}, {"temperature", 1.5}, {"stop", {"zebra"}}}),
                           Body({{"prompt", {"one", "two", "three"}}, {"best_of", 1}})});
  }
  EXPECT_EQ(json::parse(one.Body())["choices"][0]["text"], alone);
  const json ready = Idle();
  EXPECT_EQ(ready["running"], 0);
  EXPECT_EQ(ready["waiting"], 0);
  EXPECT_EQ(ready["kv_blocks_used"], 0);
  EXPECT_EQ(Text(stays), alone);
}

TEST_F(LeavingClients, HalfClosedOnesAreCancelled) {
  ASSERT_NO_FATAL_FAILURE(Start());
  for (const bool stream : {true, false}) {
    Exchange exchange(port_, "POST", "/v1/completions", Body({{"stream", stream}, {"max_tokens", 4000}}));
    if (stream) {
      ASSERT_TRUE(exchange.ReadUntil("data: "));
    }
    exchange.ShutdownWrite();
    const std::string left = exchange.Body();
    EXPECT_EQ(left.find("[DONE]"), std::string::npos);
    EXPECT_EQ(Idle()["kv_blocks_used"], 0);
  }
}

// Beside a long prompt and a reader that reads nothing, a stream ends as it does alone.
TEST_F(LeavingClients, AReaderThatDoesNotReadHoldsNobodyUp) {
  ASSERT_NO_FATAL_FAILURE(Start({"--deterministic", "--step-ms", "20"}));
  const std::string stays = Body({{"max_tokens", 200}});
  const std::string alone = Text(stays);
  Exchange unread(port_, "POST", "/v1/completions", Body({{"stream", true}, {"logprobs", 20}, {"max_tokens", 1000}}));
  ASSERT_TRUE(unread.ReadUntil("data: "));
  Exchange prompt(port_, "POST", "/v1/completions", Body({{"prompt", Words(500, 3)}, {"max_tokens", 1}}));
  EXPECT_EQ(Text(stays), alone);
  EXPECT_EQ(json::parse(prompt.Body())["usage"]["completion_tokens"], 1);
}

TEST_F(LeavingClients, ADrainLetsALongPromptEnd) {
  ASSERT_NO_FATAL_FAILURE(Start({"--drain-timeout", "3600", "--step-ms", "20"}));
  Exchange stream(port_, "POST", "/v1/completions", Endless());
  ASSERT_TRUE(stream.ReadUntil("data: "));
  Exchange prompt(port_, "POST", "/v1/completions", Body({{"prompt", Words(600, 5)}, {"max_tokens", 2}}));
  while (Ready()["running"] != 2 && !prompt.answered()) usleep(1000);
  program_->Signal(SIGTERM);
  while (program_->Line().find("stopping") == std::string::npos) {
  }
  EXPECT_EQ(json::parse(prompt.Body())["usage"]["completion_tokens"], 2);
  stream.ShutdownWrite();
  EXPECT_EQ(program_->Wait(), 0);
}

}  // namespace
}  // namespace hone::e2e
