// Chat templates against texts that transformers gave for real templates, and where checkpoints keep theirs.
#include "text/chat_template.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/test_shared.h"

namespace hone {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

std::string ReadFile(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
}

jinja::CivilTime Clock() { return jinja::CivilTime::Parse("2026-01-02T03:04:05").value(); }

// The message of an expectation "UndefinedError: list object has no element 0".
std::string WithoutClass(const std::string& raises) { return raises.substr(raises.find(": ") + 2); }

TEST(ChatTemplate, RealTemplatesGiveTheReferenceText) {
  HONE_NEED_SHARED(folder, "data/templates");
  int cases = 0, raised = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".jinja") continue;
    fs::path expected = entry.path();
    const Json all = Json::parse(ReadFile(expected.replace_extension(".json")));
    for (const Json& one : all) {
      SCOPED_TRACE(entry.path().filename().string() + " " + one["case"].get<std::string>());
      auto chat = ChatTemplate::Create(ReadFile(entry.path()), one["bos_token"], one["eos_token"]);
      ASSERT_TRUE(chat.has_value()) << chat.error().message;
      Json input = {{"messages", one["messages"]}, {"tools", one["tools"]}, {"add_generation_prompt", one["add_generation_prompt"]}};
      for (const auto& [key, value] : one["kwargs"].items()) input[key] = value;
      const auto text = chat->RenderJson(input.dump(), Clock());

      ChatInput parts;
      parts.messages_json = one["messages"].dump();
      if (!one["tools"].is_null()) parts.tools_json = one["tools"].dump();
      parts.add_generation_prompt = one["add_generation_prompt"];
      parts.variables_json = one["kwargs"].dump();
      parts.now = Clock();
      const auto same = chat->Render(parts);

      ++cases;
      if (one.contains("raises")) {
        ++raised;
        const std::string message = WithoutClass(one["raises"]);
        ASSERT_FALSE(text.has_value()) << *text;
        EXPECT_EQ(text.error().code, ErrorCode::kInvalidInput);
        if (one["raises"].get<std::string>().starts_with("TemplateError: ")) {
          EXPECT_EQ(text.error().message, message);
        } else {
          EXPECT_TRUE(text.error().message.starts_with(message + " (template line ")) << text.error().message;
        }
        ASSERT_FALSE(same.has_value());
        EXPECT_EQ(same.error().message, text.error().message);
      } else {
        ASSERT_TRUE(text.has_value()) << text.error().message;
        EXPECT_EQ(*text, one["expect"].get<std::string>());
        ASSERT_TRUE(same.has_value()) << same.error().message;
        EXPECT_EQ(*same, *text);
      }
    }
  }
  EXPECT_EQ(cases, 22 * 13);
  EXPECT_GT(raised, 30);
}

TEST(ChatTemplate, TokensOfTheConversationWin) {
  auto chat = ChatTemplate::Create("{{ bos_token }}{{ messages[0].content }}{{ eos_token }}", "<s>", "</s>");
  ASSERT_TRUE(chat.has_value());
  EXPECT_EQ(chat->RenderJson(R"({"messages": [{"role": "user", "content": "a"}]})").value(), "<s>a</s>");
  EXPECT_EQ(chat->RenderJson(R"({"messages": [{"role": "user", "content": "a"}], "bos_token": "!"})").value(), "!a</s>");
}

TEST(ChatTemplate, AbsentToolsAreNone) {
  auto chat = ChatTemplate::Create("{{ tools }} {{ documents }} {{ add_generation_prompt }} {{ other is defined }}", "", "");
  EXPECT_EQ(chat->RenderJson(R"({"messages": []})").value(), "None None False False");
  EXPECT_EQ(chat->Render(ChatInput{}).value(), "None None True False");
}

TEST(ChatTemplate, ToolUseTemplateServesTools) {
  auto chat = ChatTemplate::CreateNamed({{"default", "plain"}, {"tool_use", "tools"}, {"rag", "rag"}}, {});
  ASSERT_TRUE(chat.has_value());
  EXPECT_EQ(chat->source(), "plain");
  EXPECT_EQ(chat->RenderJson(R"({"messages": []})").value(), "plain");
  EXPECT_EQ(chat->RenderJson(R"({"messages": [], "tools": null})").value(), "plain");
  EXPECT_EQ(chat->RenderJson(R"({"messages": [], "tools": []})").value(), "tools");
  EXPECT_EQ(ChatTemplate::CreateNamed({{"tool_use", "only"}}, {})->RenderJson(R"({"messages": []})").value(), "only");
}

TEST(ChatTemplate, BadInputIsAnError) {
  EXPECT_EQ(ChatTemplate::CreateNamed({}, {}).error().code, ErrorCode::kNotFound);
  EXPECT_FALSE(ChatTemplate::CreateNamed({{"a", "x"}, {"b", "y"}}, {}).has_value());
  EXPECT_NE(ChatTemplate::Create("{% if %}", "", "").error().message.find("line 1"), std::string::npos);
  auto chat = ChatTemplate::Create("x", "", "");
  for (const char* json : {"", "[]", "{}", "{\"messages\": 1}", "{\"messages\": [", "nonsense", "{\"messages\": []} x", "\xff"}) {
    SCOPED_TRACE(json);
    const auto text = chat->RenderJson(json);
    ASSERT_FALSE(text.has_value());
    EXPECT_EQ(text.error().code, ErrorCode::kInvalidInput);
  }
  const std::string deep = "{\"messages\": " + std::string(100000, '[') + std::string(100000, ']') + "}";
  EXPECT_FALSE(chat->RenderJson(deep).has_value());
  ChatInput input;
  input.tools_json = "{";
  EXPECT_FALSE(chat->Render(input).has_value());
}

class ChatTemplateFolder : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / ("chat_template_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
    Write("tokenizer.json", "{}");
    Write("config.json", "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\"}");
  }
  void TearDown() override { fs::remove_all(folder_); }
  void Write(const std::string& name, const std::string& text) {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }
  Result<ChatTemplate> Load() {
    auto checkpoint = Checkpoint::Open(folder_.string());
    if (!checkpoint) return std::move(checkpoint).error();
    return ChatTemplateFromCheckpoint(**checkpoint);
  }
  std::string Render(const std::string& json = R"({"messages": []})") {
    auto chat = Load();
    if (!chat) return "error: " + chat.error().message;
    auto text = chat->RenderJson(json);
    return text ? *text : "error: " + text.error().message;
  }
  fs::path folder_;
};

TEST_F(ChatTemplateFolder, ReadsTheTokenizerConfig) {
  EXPECT_EQ(Load().error().code, ErrorCode::kNotFound);
  Write("tokenizer_config.json", R"({"bos_token": {"content": "<b>", "lstrip": false}, "eos_token": "<e>", "unk_token": null,
        "chat_template": "{{ bos_token }}|{{ eos_token }}|{{ unk_token is defined }}"})");
  EXPECT_EQ(Render(), "<b>|<e>|False");
  Write("tokenizer_config.json", R"({"chat_template": [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}]})");
  EXPECT_EQ(Render(), "d");
  EXPECT_EQ(Render(R"({"messages": [], "tools": [1]})"), "t");
  Write("chat_template.json", R"({"chat_template": "from json"})");
  EXPECT_EQ(Render(), "from json");
  Write("chat_template.jinja", "from file");
  EXPECT_EQ(Render(), "from file");
  Write("additional_chat_templates/tool_use.jinja", "more");
  EXPECT_EQ(Render(R"({"messages": [], "tools": [1]})"), "more");
  Write("tokenizer_config.json", "[]");
  EXPECT_EQ(Load().error().code, ErrorCode::kInvalidInput);
}

TEST(ChatTemplateGguf, ReadsTheMetadata) {
  const auto strings = [](std::vector<std::string> texts) {
    GgufValue value;
    value.type = GgufType::kArray;
    value.element_type = GgufType::kString;
    value.value = std::move(texts);
    return value;
  };
  const auto string = [](std::string text) {
    GgufValue value;
    value.type = GgufType::kString;
    value.value = std::move(text);
    return value;
  };
  GgufValue one;
  one.value = uint64_t{1};
  GgufContents contents;
  contents.metadata = {{"general.architecture", string("llama")},
                       {"tokenizer.ggml.tokens", strings({"<unk>", "<s>"})},
                       {"tokenizer.ggml.bos_token_id", one},
                       {"tokenizer.chat_template.tool_use", string("tools")},
                       {"tokenizer.chat_template", string("{{ bos_token }}x{{ eos_token }}")}};
  const std::string path = testing::TempDir() + "chat_template_" + std::to_string(::getpid()) + ".gguf";
  ASSERT_TRUE(WriteGguf(path, contents).has_value());
  auto checkpoint = Checkpoint::Open(path);
  ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().message;
  auto chat = ChatTemplateFromCheckpoint(**checkpoint);
  ASSERT_TRUE(chat.has_value()) << chat.error().message;
  EXPECT_EQ(chat->RenderJson(R"({"messages": []})").value(), "<s>x");
  EXPECT_EQ(chat->RenderJson(R"({"messages": [], "tools": []})").value(), "tools");
  fs::remove(path);
}

}  // namespace
}  // namespace hone
