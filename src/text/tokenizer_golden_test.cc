// Every golden tokenizer, real vocabularies as GGUF, and the models' own: ids and texts exactly, whole and streamed.
#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/test_shared.h"
#include "formats/checkpoint.h"
#include "text/stream_decoder.h"
#include "text/tokenizer.h"

namespace hone {
namespace {

using nlohmann::json;

std::string ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::shared_ptr<const Tokenizer> Open(const std::string& path) {
  auto checkpoint = Checkpoint::Open(path);
  EXPECT_TRUE(checkpoint.has_value()) << (checkpoint ? "" : checkpoint.error().message);
  if (!checkpoint) return nullptr;
  auto tokenizer = Tokenizer::FromCheckpoint(**checkpoint);
  EXPECT_TRUE(tokenizer.has_value()) << (tokenizer ? "" : tokenizer.error().message);
  return tokenizer ? *tokenizer : nullptr;
}

std::string Streamed(const std::shared_ptr<const Tokenizer>& tokenizer, const std::vector<int32_t>& ids,
                     bool skip_special) {
  StreamDecoder stream(tokenizer, skip_special);
  std::string text;
  for (const int32_t id : ids) text += stream.Push(id);
  return text + stream.Finish();
}

void ExpectDecodes(const std::shared_ptr<const Tokenizer>& tokenizer, const json& entry, const std::string& name) {
  const auto ids = entry.at("ids").get<std::vector<int32_t>>();
  const auto plain = entry.at("decoded").get<std::string>();
  const auto with_special = entry.value("decoded_with_special", plain);
  EXPECT_EQ(tokenizer->Decode(ids, true), plain) << name << " " << entry.dump();
  EXPECT_EQ(tokenizer->Decode(ids, false), with_special) << name << " " << entry.dump();
  EXPECT_EQ(Streamed(tokenizer, ids, true), plain) << name << " " << entry.dump();
  EXPECT_EQ(Streamed(tokenizer, ids, false), with_special) << name << " " << entry.dump();
}

class GoldenTokenizer : public testing::TestWithParam<const char*> {};

TEST_P(GoldenTokenizer, EncodesAndDecodesEveryCase) {
  HONE_NEED_SHARED(folder, std::string("goldens/tokenizers/") + GetParam());
  const auto tokenizer = Open(folder);
  ASSERT_NE(tokenizer, nullptr);
  const json golden = json::parse(ReadText(folder + "/cases.json"));
  EXPECT_EQ(tokenizer->vocab_size(), golden.at("vocab_size").get<int>());
  ASSERT_FALSE(golden.at("cases").empty());
  for (const json& entry : golden.at("cases")) {
    const auto text = entry.at("text").get<std::string>();
    const json& ids = entry.at("ids");
    const json& bare = entry.contains("ids_no_special") ? entry.at("ids_no_special") : ids;
    EXPECT_EQ(json(tokenizer->Encode(text, {.add_special = true, .parse_special = true})), ids)
        << GetParam() << json(text).dump();
    EXPECT_EQ(json(tokenizer->Encode(text, {.add_special = false, .parse_special = true})), bare)
        << GetParam() << json(text).dump();
    ExpectDecodes(tokenizer, entry, GetParam());
  }
  for (const json& entry : golden.value("decode_only", json::array())) ExpectDecodes(tokenizer, entry, GetParam());
}

INSTANTIATE_TEST_SUITE_P(All, GoldenTokenizer,
                         testing::Values("added-flags", "bert", "bloom", "command-r", "deepseek-llm", "deepseek-v3",
                                         "falcon", "gemma", "gpt2", "gpt4o", "llama2", "llama3", "mistral-metaspace",
                                         "phi3", "qwen2", "roberta", "starcoder", "tekken", "template", "unigram-bytes",
                                         "unigram-t5"),
                         [](const auto& param_info) {
                           std::string name = param_info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

class RealVocabulary : public testing::TestWithParam<const char*> {};

TEST_P(RealVocabulary, EncodesEveryText) {
  HONE_NEED_SHARED(gguf, std::string("data/tokenizers/") + GetParam() + ".gguf");
  const auto tokenizer = Open(gguf);
  ASSERT_NE(tokenizer, nullptr);
  const std::string stem = gguf.substr(0, gguf.size() - 5);
  const std::string inputs = ReadText(stem + ".inp");
  std::ifstream outputs(stem + ".out");
  constexpr std::string_view kSeparator = "\n__ggml_vocab_test__\n";
  size_t count = 0;
  for (size_t pos = 0; pos < inputs.size();) {
    const size_t end = inputs.find(kSeparator, pos);
    const std::string text = inputs.substr(pos, end == std::string::npos ? end : end - pos);
    pos = end == std::string::npos ? inputs.size() : end + kSeparator.size();
    std::string line;
    ASSERT_TRUE(std::getline(outputs, line));
    std::istringstream numbers(line);
    const std::vector<int32_t> want{std::istream_iterator<int32_t>(numbers), {}};
    const auto ids = tokenizer->Encode(text, {});
    EXPECT_EQ(ids, want) << GetParam() << ": " << json(text).dump(-1, ' ', false, json::error_handler_t::replace);
    EXPECT_EQ(tokenizer->Decode(ids, true), text);
    EXPECT_EQ(Streamed(tokenizer, ids, true), text);
    ++count;
  }
  EXPECT_GT(count, 40u);
}

INSTANTIATE_TEST_SUITE_P(All, RealVocabulary, testing::Values("gpt-2", "llama-bpe", "llama-spm", "phi-3", "qwen2"),
                         [](const auto& param_info) {
                           std::string name = param_info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(ModelTokenizers, EncodeTheManifestsTextsFromBothForms) {
  HONE_NEED_SHARED(folder, "goldens/models");
  const json manifest = json::parse(ReadText(folder + "/manifest.json"));
  int opened = 0;
  for (const json& model : manifest.at("cases")) {
    if (!model.contains("tokenizer") || !model["tokenizer"].is_object()) continue;
    std::vector<std::string> paths = {folder + "/" + model.at("folder").get<std::string>()};
    if (model.contains("gguf") && model["gguf"].is_object())
      paths.push_back(paths[0] + "/" + model["gguf"].at("file").get<std::string>());
    for (const std::string& path : paths) {
      const auto tokenizer = Open(path);
      ASSERT_NE(tokenizer, nullptr) << path;
      ++opened;
      for (const json& entry : model["tokenizer"].at("cases")) {
        const auto text = entry.at("text").get<std::string>();
        EXPECT_EQ(json(tokenizer->Encode(text, {.parse_special = true})), entry.at("ids"))
            << path << " " << entry.dump();
        if (entry.contains("decoded")) {
          EXPECT_EQ(tokenizer->Decode(entry.at("ids").get<std::vector<int32_t>>(), true),
                    entry.at("decoded").get<std::string>());
        }
      }
    }
  }
  EXPECT_GE(opened, 12);
}

TEST(ModelTokenizers, SmolLm2EncodesItsPrompts) {
  HONE_NEED_SHARED(model, "models/smollm2-135m-instruct-q4_1.gguf");
  HONE_NEED_SHARED(folder, "goldens/smollm2");
  const auto tokenizer = Open(model);
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_FALSE(tokenizer->adds_bos());
  const json prompts = json::parse(ReadText(folder + "/prompts.json"));
  EXPECT_EQ(tokenizer->eos(), prompts.at("eos_id").get<int32_t>());
  int compared = 0;
  for (const json& entry : prompts.at("cases")) {
    const auto greedy = entry.at("greedy").at("ids").get<std::vector<int32_t>>();
    if (entry.at("greedy").contains("text")) {
      EXPECT_EQ(tokenizer->Decode(greedy, false), entry["greedy"]["text"].get<std::string>()) << entry.at("name");
    }
    if (!entry.contains("text") || !entry["text"].is_string()) continue;
    const EncodeOptions options{.parse_special = entry.at("parse_special").get<bool>()};
    EXPECT_EQ(json(tokenizer->Encode(entry["text"].get<std::string>(), options)), entry.at("ids")) << entry.at("name");
    ++compared;
  }
  EXPECT_GE(compared, 8);
}

TEST(ModelTokenizers, TheBuiltInModelsRoundTripTheirText) {
  HONE_NEED_SHARED(folder, "models/builtin");
  const std::string text = ReadText(folder + "/tasks/held-out.txt");
  ASSERT_GT(text.size(), 1000u);
  for (const char* model : {"main", "draft"}) {
    const auto tokenizer = Open(folder + "/" + model);
    ASSERT_NE(tokenizer, nullptr);
    ASSERT_TRUE(tokenizer->eos().has_value());
    EXPECT_EQ(tokenizer->IsSpecial(*tokenizer->eos()), true);
    const auto ends = tokenizer->end_ids();
    EXPECT_NE(std::find(ends.begin(), ends.end(), *tokenizer->eos()), ends.end());
    const auto ids = tokenizer->Encode(text, {.parse_special = true});
    EXPECT_LT(ids.size(), text.size() / 2);
    EXPECT_EQ(tokenizer->Decode(ids, false), text);
    EXPECT_EQ(Streamed(tokenizer, ids, false), text);
  }
}

}  // namespace
}  // namespace hone
