// What a model writes, in any chunks, comes out as the same content, reasoning and tool calls.
#include "serve/openai/output_parser.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/random.h"
#include "base/test_shared.h"

namespace hone {
namespace {

struct Parsed {
  std::string content, reasoning;
  std::vector<std::pair<std::string, std::string>> calls;
  bool operator==(const Parsed&) const = default;
};

void Put(const std::vector<OutputPiece>& pieces, Parsed* out) {
  for (const OutputPiece& piece : pieces) {
    switch (piece.kind) {
      case OutputPiece::Kind::kContent:
        out->content += piece.text;
        break;
      case OutputPiece::Kind::kReasoning:
        out->reasoning += piece.text;
        break;
      case OutputPiece::Kind::kCall:
        EXPECT_EQ(piece.call, static_cast<int>(out->calls.size()));
        out->calls.emplace_back(piece.text, "");
        break;
      case OutputPiece::Kind::kArguments:
        out->calls.at(static_cast<size_t>(piece.call)).second += piece.text;
        break;
    }
  }
}

Parsed Parse(const OutputFormat& format, const std::vector<std::string>& chunks) {
  OutputParser parser(format);
  Parsed out;
  std::vector<OutputPiece> pieces;
  for (const std::string& chunk : chunks) {
    pieces.clear();
    parser.Feed(chunk, &pieces);
    Put(pieces, &out);
  }
  pieces.clear();
  parser.Finish(&pieces);
  Put(pieces, &out);
  return out;
}

OutputFormat Thinking(ToolFormat tools = ToolFormat::kNone) {
  return {.think_open = "<think>", .think_close = "</think>", .tools = tools, .tool_names = {"f", "g"}};
}
OutputFormat Tools(ToolFormat tools) { return {.tools = tools, .tool_names = {"f", "g"}}; }

struct ParserCase {
  OutputFormat format;
  std::string text;
  Parsed wanted;
};

std::vector<ParserCase> Cases() {
  const OutputFormat in_thinking{.think_open = "<think>", .think_close = "</think>", .in_thinking = true};
  return {
      {{}, "plain <think>text</think> ", {"plain <think>text</think> ", "", {}}},
      {Thinking(), "<think>\nwhy\n</think>\n\nbecause ", {"because ", "why", {}}},
      {Thinking(), "\n<think>a < b </thin </think>x", {"x", "a < b </thin", {}}},
      {Thinking(), "no thought <think>here", {"no thought <think>here", "", {}}},
      {Thinking(), "<think>cut off", {"", "cut off", {}}},
      {Thinking(), "<thi", {"<thi", "", {}}},
      {Thinking(), "  ", {"  ", "", {}}},
      {in_thinking, "why\n</think>answer", {"answer", "why", {}}},
      {in_thinking, "</think>answer", {"answer", "", {}}},
      {Tools(ToolFormat::kTagged),
       "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, \"}\"]}}\n</tool_call>",
       {"", "", {{"f", "{\"a\": [1, \"}\"]}"}}}},
      {Tools(ToolFormat::kTagged),
       "Look:\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</"
       "tool_call>\n<tool_call>{\"name\":\"g\",\"arguments\":{\"s\":\"\\\"</tool_call>\"}}</tool_call>\n",
       {"Look:", "", {{"f", "{}"}, {"g", "{\"s\":\"\\\"</tool_call>\"}"}}}},
      {Tools(ToolFormat::kTagged),
       "<tool_call>{\"arguments\": {\"a\": 1}, \"name\": \"f\"}</tool_call>",
       {"", "", {{"f", "{\"a\":1}"}}}},
      {Tools(ToolFormat::kTagged),
       "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\":2}\"}</tool_call>",
       {"", "", {{"f", "{\"a\":2}"}}}},
      {Tools(ToolFormat::kTagged),
       "<tool_call>not json</tool_call> ok",
       {"<tool_call>not json</tool_call> ok", "", {}}},
      {Tools(ToolFormat::kTagged), "<tool_call>{\"name\": \"f\"", {"<tool_call>{\"name\": \"f\"", "", {}}},
      {Tools(ToolFormat::kTagged),
       "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"cut",
       {"", "", {{"f", "{\"a\":\"cut"}}}},
      {Tools(ToolFormat::kTagged),
       "<tool_call>\n<function=f>\n<parameter=n>\n3\n</parameter>\n<parameter=s>\na "
       "b\n</parameter>\n</function>\n</tool_call>",
       {"", "", {{"f", "{\"n\":3,\"s\":\"a b\"}"}}}},
      {Tools(ToolFormat::kTagged), "a <tool b <tool_cal", {"a <tool b <tool_cal", "", {}}},
      {Tools(ToolFormat::kTagged), "text with space at its end \n", {"text with space at its end \n", "", {}}},
      {Thinking(ToolFormat::kTagged),
       "<think>call f</think>\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>",
       {"", "call f", {{"f", "{}"}}}},
      {Tools(ToolFormat::kBracket),
       "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"name\": \"g\", \"arguments\": {}}]",
       {"", "", {{"f", "{\"a\":1}"}, {"g", "{}"}}}},
      {Tools(ToolFormat::kBracket), "[{\"name\": \"f\", \"arguments\": {}}]", {"", "", {{"f", "{}"}}}},
      {Tools(ToolFormat::kBracket), "[1, 2] is a list", {"[1, 2] is a list", "", {}}},
      {Tools(ToolFormat::kBracket),
       "[TOOL_CALLS]f[ARGS]{\"a\": 1}[TOOL_CALLS]g{}",
       {"", "", {{"f", "{\"a\": 1}"}, {"g", "{}"}}}},
      {Tools(ToolFormat::kBracket), "[TOOL_CALLS]unknown[ARGS]{}", {"[TOOL_CALLS]unknown[ARGS]{}", "", {}}},
      {Tools(ToolFormat::kBracket), "first [TOOL_CALLS]nothing", {"first[TOOL_CALLS]nothing", "", {}}},
      {Tools(ToolFormat::kBareJson), "{\"name\": \"f\", \"parameters\": {\"a\": 1}}", {"", "", {{"f", "{\"a\":1}"}}}},
      {Tools(ToolFormat::kBareJson),
       "{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", \"parameters\": {}}",
       {"", "", {{"f", "{}"}, {"g", "{}"}}}},
      {Tools(ToolFormat::kBareJson),
       "{\"name\": \"unknown\", \"parameters\": {}}",
       {"{\"name\": \"unknown\", \"parameters\": {}}", "", {}}},
      {Tools(ToolFormat::kBareJson), "{\"a\": 1} is JSON", {"{\"a\": 1} is JSON", "", {}}},
      {Tools(ToolFormat::kBareJson), "I say {\"name\": \"f\"}", {"I say {\"name\": \"f\"}", "", {}}},
      {Tools(ToolFormat::kBareJson), "{\"name\": \"f\", \"param", {"{\"name\": \"f\", \"param", "", {}}},
  };
}

TEST(OutputParser, WholeTexts) {
  for (const ParserCase& c : Cases()) {
    const Parsed parsed = Parse(c.format, {c.text});
    EXPECT_EQ(parsed.content, c.wanted.content) << c.text;
    EXPECT_EQ(parsed.reasoning, c.wanted.reasoning) << c.text;
    EXPECT_EQ(parsed.calls, c.wanted.calls) << c.text;
  }
}

TEST(OutputParser, ChunksDoNotMatter) {
  Rng rng(11);
  for (const ParserCase& c : Cases()) {
    for (int round = 0; round < 60; ++round) {
      std::vector<std::string> chunks;
      for (size_t at = 0; at < c.text.size();) {
        const size_t n = round == 0 ? 1 : 1 + static_cast<size_t>(rng.Below(9));
        chunks.push_back(c.text.substr(at, n));
        at += n;
      }
      ASSERT_EQ(Parse(c.format, chunks), c.wanted) << c.text << " round " << round;
    }
  }
}

// Text of marks, quotes and braces in any order: chunks do not matter, and without calls or reasoning nothing is lost
// but white space around marks.
TEST(OutputParser, RandomTexts) {
  const std::string parts[] = {"<think>",
                               "</think>",
                               "<tool_call>",
                               "</tool_call>",
                               "[TOOL_CALLS]",
                               "{\"name\":\"f\",",
                               "\"arguments\":{",
                               "}",
                               "\"",
                               "\\",
                               "a",
                               " ",
                               "\n",
                               "[",
                               "]",
                               "\xC3\xA9",
                               "<function=f>",
                               "</function>",
                               ";"};
  Rng rng(5);
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (uint64_t n = rng.Below(14); n > 0; --n) text += parts[rng.Below(std::size(parts))];
    OutputFormat format = rng.Below(2) == 0 ? Thinking() : Tools(ToolFormat::kNone);
    format.tools = static_cast<ToolFormat>(rng.Below(4));
    format.tool_names = {"f"};
    const Parsed whole = Parse(format, {text});
    std::vector<std::string> chunks;
    for (const char c : text) chunks.emplace_back(1, c);
    ASSERT_EQ(Parse(format, chunks), whole) << text;
  }
}

TEST(OutputParser, ArgumentsAreStreamed) {
  OutputParser parser(Tools(ToolFormat::kTagged));
  std::vector<OutputPiece> pieces;
  parser.Feed("<tool_call>{\"name\": \"f\", \"arguments\": {\"text\": \"one ", &pieces);
  ASSERT_EQ(pieces.size(), 2u);
  EXPECT_EQ(pieces[0].text, "f");
  EXPECT_EQ(pieces[1].text, "{\"text\": \"one ");
  pieces.clear();
  parser.Feed("two", &pieces);
  ASSERT_EQ(pieces.size(), 1u);
  EXPECT_EQ(pieces[0].text, "two");
}

// The arguments of the shared tools, as calls of each format.
TEST(OutputParser, SharedTools) {
  HONE_NEED_SHARED(path, "goldens/structured/tools.json");
  std::ifstream file(path);
  const nlohmann::json golden = nlohmann::json::parse(file);
  for (const auto& one : golden["cases"]) {
    const std::string name = one["tool"]["function"]["name"];
    for (const auto& arguments : one["arguments"]) {
      const std::string text = arguments["text"];
      if (!nlohmann::json::accept(text) || !nlohmann::json::parse(text).is_object()) continue;
      OutputFormat format{.tools = ToolFormat::kTagged, .tool_names = {name}};
      const std::string call = "{\"name\": \"" + name + "\", \"arguments\": " + text + "}";
      Parsed parsed = Parse(format, {"<tool_call>\n" + call + "\n</tool_call>"});
      ASSERT_EQ(parsed.calls.size(), 1u) << text;
      EXPECT_EQ(parsed.calls[0].second, text);
      format.tools = ToolFormat::kBareJson;
      parsed = Parse(format, {call});
      ASSERT_EQ(parsed.calls.size(), 1u) << text;
      EXPECT_EQ(nlohmann::json::parse(parsed.calls[0].second), nlohmann::json::parse(text));
    }
  }
}

TEST(OutputParser, FormatsOfTemplates) {
  EXPECT_EQ(FormatOf("...", "p", {}).tools, ToolFormat::kNone);
  EXPECT_EQ(FormatOf("<tool_call>", "p", {"f"}).tools, ToolFormat::kTagged);
  EXPECT_EQ(FormatOf("[TOOL_CALLS]", "p", {"f"}).tools, ToolFormat::kBracket);
  EXPECT_EQ(FormatOf("tools", "p", {"f"}).tools, ToolFormat::kBareJson);
  EXPECT_EQ(FormatOf("x", "p<think>", {}).think_open, "");
  EXPECT_TRUE(FormatOf("</think>", "p<think>\n", {}).in_thinking);
  EXPECT_FALSE(FormatOf("</think>", "p<think>\n\n</think>\n\n", {}).in_thinking);
}

}  // namespace
}  // namespace hone
