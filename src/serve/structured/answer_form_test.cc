// Random answers of each form, read by the parser that reads a model's: what the grammar lets through is a call by its schema,
// or JSON, or reasoning and then that.
#include "serve/structured/answer_form.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "serve/openai/fields.h"
#include "serve/structured/test_grammar.h"

namespace hone {
namespace {

constexpr char kCity[] = R"({"type":"object","properties":{"city":{"enum":["Rome","Oslo"]},"days":{"type":"integer","minimum":1,"maximum":9}},)"
                         R"("required":["city"],"additionalProperties":false})";

AnswerForm Tools(bool must_call, bool one_call, bool strict = true) {
  AnswerForm form;
  form.tools = {{"weather", kCity, "tools[0].function.parameters", strict}, {"now", "", "tools[1].function.parameters", strict}};
  form.must_call = must_call;
  form.one_call = one_call;
  return form;
}

struct Answer {
  std::string content, reasoning;
  std::vector<std::pair<std::string, std::string>> calls;
};
Answer Read(const OutputFormat& format, const std::string& text) {
  OutputParser parser(format);
  std::vector<OutputPiece> pieces;
  parser.Feed(text, &pieces);
  parser.Finish(&pieces);
  Answer answer;
  for (const OutputPiece& piece : pieces) {
    if (piece.kind == OutputPiece::Kind::kContent) answer.content += piece.text;
    if (piece.kind == OutputPiece::Kind::kReasoning) answer.reasoning += piece.text;
    if (piece.kind == OutputPiece::Kind::kCall) answer.calls.emplace_back(piece.text, "");
    if (piece.kind == OutputPiece::Kind::kArguments) answer.calls.back().second += piece.text;
  }
  return answer;
}

void CheckCalls(const Answer& answer, const std::string& text) {
  for (const auto& [name, arguments] : answer.calls) {
    const Json value = Json::parse(arguments, nullptr, false);
    ASSERT_TRUE(value.is_object()) << text;
    if (name == "now") continue;
    ASSERT_EQ(name, "weather") << text;
    ASSERT_TRUE(value.contains("city")) << text;
    EXPECT_TRUE(value["city"] == Json("Rome") || value["city"] == Json("Oslo")) << text;
    EXPECT_LE(value.size(), 2u) << text;
  }
}

// Each form of calls, with `named`: the newer one of Mistral.
struct Marks {
  ToolFormat tools;
  bool named;
};
constexpr Marks kMarks[] = {{ToolFormat::kTagged, false}, {ToolFormat::kBracket, false}, {ToolFormat::kBracket, true}, {ToolFormat::kBareJson, false}};

AnswerMarks MarksOf(const Marks& marks, bool thinks, bool in_thinking = false) {
  AnswerMarks result;
  result.format.tools = marks.tools;
  result.format.tool_names = {"weather", "now"};
  if (thinks) result.format.think_open = "<think>", result.format.think_close = "</think>";
  result.format.in_thinking = in_thinking;
  result.named_arguments = marks.named;
  return result;
}

std::shared_ptr<const Grammar> Find(const AnswerForm& form, const AnswerMarks& marks) {
  GrammarCache cache;
  std::shared_ptr<const Grammar> grammar;
  const auto error = cache.Find(form, marks, &grammar);
  EXPECT_FALSE(error) << error->message;
  return grammar;
}

TEST(AnswerForm, CallsThatMustBe) {
  for (const Marks& one : kMarks) {
    for (const bool one_call : {true, false}) {
      const AnswerMarks marks = MarksOf(one, false);
      const GrammarRun run(Find(Tools(true, one_call), marks));
      int whole_count = 0;
      for (uint64_t seed = 0; seed < 30; ++seed) {
        Rng rng(seed);
        bool whole = false;
        const std::string text = run.Sample(rng, 500, &whole);
        if (!whole) continue;
        ++whole_count;
        const Answer answer = Read(marks.format, text);
        EXPECT_EQ(answer.content, "") << text;
        ASSERT_GE(answer.calls.size(), 1u) << text;
        EXPECT_TRUE(!one_call || answer.calls.size() == 1) << text;
        CheckCalls(answer, text);
      }
      EXPECT_GT(whole_count, 10);
    }
  }
}

TEST(AnswerForm, StrictCallsAmongFreeText) {
  for (const Marks& one : kMarks) {
    const AnswerMarks marks = MarksOf(one, false);
    const GrammarRun run(Find(Tools(false, false), marks));
    EXPECT_TRUE(run.Accepts("Some text, and no call.")) << static_cast<int>(one.tools);
    EXPECT_TRUE(run.Accepts("")) << static_cast<int>(one.tools);
  }
  const GrammarRun tagged(Find(Tools(false, false), MarksOf(kMarks[0], false)));
  EXPECT_TRUE(tagged.Accepts("Let me see. <tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}}\n</tool_call>"));
  EXPECT_FALSE(tagged.Accepts("Let me see. <tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>"));
  EXPECT_FALSE(tagged.Accepts("Let me see. <tool_call>{\"name\": \"other\", \"arguments\": {}}</tool_call>"));
  EXPECT_FALSE(tagged.Accepts("<tool_call>no call"));
  EXPECT_TRUE(tagged.Accepts("<tool_cal is no mark <<tool_call"));
}

TEST(AnswerForm, ReasoningComesBefore) {
  AnswerForm form;
  form.text = AnswerForm::Text::kSchema;
  form.schema = kCity;
  for (const bool in_thinking : {true, false}) {
    const AnswerMarks marks = MarksOf({ToolFormat::kNone, false}, true, in_thinking);
    const GrammarRun run(Find(form, marks));
    const std::string begin = in_thinking ? "" : "<think>";
    EXPECT_TRUE(run.Accepts(begin + "anything {\"x\" <thi </think>\n\n{\"city\":\"Oslo\"}"));
    EXPECT_FALSE(run.Accepts(begin + "anything</think>{\"city\":\"Bonn\"}"));
    EXPECT_FALSE(run.Accepts(begin + "anything"));
    EXPECT_EQ(run.Accepts("{\"city\":\"Oslo\"}"), !in_thinking);
  }
}

TEST(AnswerForm, TextOrCalls) {
  AnswerForm form = Tools(false, true);
  form.text = AnswerForm::Text::kJsonObject;
  const GrammarRun run(Find(form, MarksOf(kMarks[0], false)));
  EXPECT_TRUE(run.Accepts(R"({"a":[1,{"b":null}]})"));
  EXPECT_FALSE(run.Accepts("[1]"));
  EXPECT_FALSE(run.Accepts("text"));
  EXPECT_TRUE(run.Accepts("<tool_call>{\"name\":\"now\",\"arguments\":{}}</tool_call>"));
}

// A special token may stand for a mark, and no other.
TEST(AnswerForm, MarksMayBeSpecialTokens) {
  const GrammarRun run(Find(Tools(true, true), MarksOf(kMarks[0], false)));
  GrammarCursor cursor = run.Start();
  EXPECT_TRUE(cursor.Mask()->has(kFakeBos));  // whose text is <tool_call>
  EXPECT_FALSE(cursor.Mask()->has(kFakeEnd));
  ASSERT_TRUE(cursor.Advance("<tool_call>"));
  EXPECT_FALSE(cursor.Mask()->has(kFakeBos));
}

TEST(AnswerForm, WhatCannotBeEnforced) {
  GrammarCache cache;
  std::shared_ptr<const Grammar> grammar;
  AnswerForm form = Tools(true, false);
  form.tools[0].parameters = R"({"type":"object","properties":{"a":{"not":{}}}})";
  const auto error = cache.Find(form, MarksOf(kMarks[0], false), &grammar);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->status, 400);
  EXPECT_EQ(error->param, "tools[0].function.parameters");
  EXPECT_NE(error->message.find("properties.a.not"), std::string::npos) << error->message;
  form.tools[0].strict = false;  // then any object is good enough, and the other tools are not lost
  EXPECT_FALSE(cache.Find(form, MarksOf(kMarks[0], false), &grammar));
  EXPECT_TRUE(GrammarRun(grammar).Accepts("<tool_call>{\"name\":\"weather\",\"arguments\":{\"a\":1}}</tool_call>"));
}

TEST(AnswerForm, OneFormIsOneGrammar) {
  GrammarCache cache;
  std::shared_ptr<const Grammar> first, again, other;
  ASSERT_FALSE(cache.Find(Tools(true, true), MarksOf(kMarks[0], false), &first));
  ASSERT_FALSE(cache.Find(Tools(true, true), MarksOf(kMarks[0], false), &again));
  ASSERT_FALSE(cache.Find(Tools(true, false), MarksOf(kMarks[0], false), &other));
  EXPECT_EQ(first, again);
  EXPECT_NE(first, other);
  ASSERT_FALSE(cache.Find({}, MarksOf(kMarks[0], false), &other));
  EXPECT_EQ(other, nullptr);
}

}  // namespace
}  // namespace hone
