// The built-in model answers its held-out tasks as measured.json says, within one item a kind, batched through the engine.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/engine.h"
#include "formats/checkpoint.h"
#include "text/chat_template.h"

namespace hone {
namespace {

using nlohmann::ordered_json;

const std::string kAssets = HONE_SOURCE_DIR "/assets/builtin/";

std::string Trim(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \n\t\r");
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(" \n\t\r") - begin + 1);
}

class BuiltinTasks : public testing::TestWithParam<const char*> {
 protected:
  static void SetUpTestSuite() {
    cpu_ = new CpuFacts(ReadCpuFacts());
    log_ = new Log(LogLevel::kWarn);
    threads_ = new ThreadPool(cpu_->physical_cores);
    clock_ = new Clock;
  }

  Runtime runtime() const { return {cpu_, cpu_->best_isa(), threads_, log_, clock_}; }

  static CpuFacts* cpu_;
  static Log* log_;
  static ThreadPool* threads_;
  static Clock* clock_;
};
CpuFacts* BuiltinTasks::cpu_;
Log* BuiltinTasks::log_;
ThreadPool* BuiltinTasks::threads_;
Clock* BuiltinTasks::clock_;

TEST_P(BuiltinTasks, AsMeasured) {
  const std::string kind = GetParam();
  const auto checkpoint = Checkpoint::Open(kAssets + "main");
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  const auto tokenizer = Tokenizer::FromCheckpoint(**checkpoint);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const auto chat_template = ChatTemplateFromCheckpoint(**checkpoint);
  ASSERT_TRUE(chat_template) << chat_template.error().message;
  auto loaded = Model::Load(*checkpoint, runtime(), {});
  ASSERT_TRUE(loaded) << loaded.error().message;
  EngineOptions options;
  options.context = 4096;
  options.kv_bytes = uint64_t{256} << 20;
  options.max_queue = 1000;
  auto engine = Engine::Create(std::move(*loaded), *tokenizer, runtime(), options);
  ASSERT_TRUE(engine) << engine.error().message;

  std::ifstream tasks(kAssets + "tasks/" + kind + ".jsonl");
  std::map<SequenceId, std::string> answers, wanted;
  size_t unfinished = 0;
  for (std::string line; std::getline(tasks, line);) {
    const ordered_json item = ordered_json::parse(line);
    ChatInput input{.messages_json = item["messages"].dump()};
    if (item.contains("tools")) input.tools_json = item["tools"].dump();
    const auto prompt = chat_template->Render(input);
    ASSERT_TRUE(prompt) << prompt.error().message;
    SequenceRequest request;
    request.prompt = (*tokenizer)->Encode(*prompt, {.add_special = false, .parse_special = true});
    request.sampling.temperature = 0;
    request.max_tokens = 120;
    request.skip_special = false;
    ++unfinished;
    const auto id = (*engine)->Submit(std::move(request), [&](const SequenceEvent& event) {
      answers[event.id] += event.text;
      if (event.finish != FinishReason::kNone) --unfinished;
    });
    ASSERT_TRUE(id) << id.error().message;
    wanted[*id] = item["answer"].get<std::string>();
  }
  ASSERT_GE(wanted.size(), 35u);
  while (unfinished > 0) ASSERT_TRUE((*engine)->Step());

  int right = 0;
  for (const auto& [id, answer] : wanted) {
    std::string got = answers[id];
    const std::string end = "<|im_end|>";
    if (const size_t at = got.find(end); at != std::string::npos) got.erase(at);
    right += Trim(got) == answer;
  }
  std::ifstream measured_file(kAssets + "main/measured.json");
  const ordered_json measured = ordered_json::parse(measured_file);
  EXPECT_EQ(static_cast<int>(wanted.size()), measured[kind]["of"].get<int>());
  EXPECT_NEAR(right, measured[kind]["right"].get<int>(), 1);
}

INSTANTIATE_TEST_SUITE_P(Kinds, BuiltinTasks,
                         testing::Values("arithmetic", "facts", "json", "memory", "recall", "terms", "think", "tool", "words"),
                         [](const auto& kind) { return std::string(kind.param); });

}  // namespace
}  // namespace hone
