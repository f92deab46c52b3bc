// Sequences with a grammar: what they say fits it, whoever runs beside them and however they are cut.
#include <gtest/gtest.h>

#include <set>

#include "cache/kv_cache.h"
#include "engine/grammar/token_grammar.h"
#include "engine/test_engine.h"

namespace hone {
namespace {

// One to four words of three, between spaces, and a line end.
std::shared_ptr<const Grammar> Words(int most = 4) {
  GrammarBuilder builder;
  const GrammarBuilder::Rule word = builder.AddRule(), line = builder.AddRule();
  for (const char* text : {"ab", "cad", "\xC3\xA9"}) builder.Empty(builder.Text(word.start, text), word.end);
  int at = builder.Call(line.start, word);
  for (int i = 1; i < most; ++i) {
    builder.Empty(builder.Text(at, "\n"), line.end);
    at = builder.Call(builder.Text(at, " "), word);
  }
  builder.Empty(builder.Text(at, "\n"), line.end);
  const auto grammar = builder.Build(line);
  EXPECT_TRUE(grammar);
  return *grammar;
}

// Whether `text` is a line of Words(), or the beginning of one.
bool Fits(const std::string& text, bool whole, int most = 4) {
  std::string rest = text;
  int words = 0;
  for (;; ++words) {
    const std::string before = rest;
    for (const std::string& word : {std::string("ab"), std::string("cad"), std::string("\xC3\xA9")}) {
      if (rest.starts_with(word)) {
        rest.erase(0, word.size());
        break;
      }
      if (!whole && word.starts_with(rest)) return words < most;
    }
    if (rest == before || words == most) return false;
    if (rest == "\n") return true;
    if (!rest.starts_with(" ")) return !whole && rest.empty();
    rest.erase(0, 1);
  }
}

SequenceRequest Line(uint64_t seed, int max_tokens = 0) {
  SequenceRequest request;
  request.prompt = {3, 4, 5};
  request.sampling.seed = seed;
  request.max_tokens = max_tokens;
  request.grammar = Words();
  return request;
}

TEST_F(EngineTest, WhatAGrammarLetsThroughComesOutAndEnds) {
  Make({});
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SequenceRequest request = Line(seed);
    request.ignore_end = seed % 2 == 0;
    request.sampling.temperature = seed % 5 == 0 ? 0 : 2;
    if (seed % 3 == 0) request.sampling.top_k = 1 + static_cast<int>(seed);
    const Transcript transcript = Run(std::move(request));
    EXPECT_EQ(transcript.last.finish, FinishReason::kStop);
    EXPECT_TRUE(Fits(transcript.text, true)) << transcript.text;
    EXPECT_NE(Ids(transcript).back(), kFakeEnd);  // it is over with the line end, without another token
  }
}

TEST_F(EngineTest, AGrammarThatIsCutIsABeginning) {
  Make({});
  for (int most = 1; most < 6; ++most) {
    const Transcript transcript = Run(Line(7, most));
    const bool whole = transcript.last.finish == FinishReason::kStop;
    EXPECT_TRUE(whole || transcript.last.finish == FinishReason::kLength);
    std::string text;
    for (const TokenResult& token : transcript.tokens) text += token.bytes;
    EXPECT_TRUE(Fits(text, whole)) << text;
  }
}

// Many at once, with and without grammars, short of blocks: each says what it says alone.
TEST_F(EngineTest, GrammarsDoNotNoticeOthersNorPreemption) {
  std::vector<std::string> alone;
  const auto request_of = [](int i) {
    SequenceRequest request = Line(static_cast<uint64_t>(i), 120);
    request.grammar = i % 3 == 2 ? nullptr : Words(60);
    request.sampling.logit_bias[27] = -100;  // a line end as late as can be
    request.prompt = {3 + i, 4};
    request.ignore_end = true;
    return request;
  };
  Make({});
  for (int i = 0; i < 9; ++i) alone.push_back(Run(request_of(i)).text);
  Make({.kv_bytes = KvCacheShape{EngineOptions().kv, 2, 2, 3, 8}.total_bytes(), .max_sequences = 4});  // 8 blocks
  std::vector<SequenceId> ids;
  for (int i = 0; i < 9; ++i) ids.push_back(Submit(request_of(i)));
  Drain();
  EXPECT_GT(engine_->stats().preemptions, 0u);
  for (int i = 0; i < 9; ++i) EXPECT_EQ(transcripts_[ids[i]]->text, alone[i]) << i;
}

TEST_F(EngineTest, AGroupSharesAGrammar) {
  Make({});
  std::vector<Transcript> transcripts(4);
  std::vector<EventCallback> callbacks;
  for (Transcript& transcript : transcripts) {
    callbacks.push_back([&transcript](const SequenceEvent& event) { transcript.text += event.text, transcript.last = event; });
  }
  ASSERT_TRUE(engine_->SubmitGroup(Line(3), std::move(callbacks)));
  Drain();
  std::set<std::string> texts;
  for (const Transcript& transcript : transcripts) {
    EXPECT_TRUE(Fits(transcript.text, true)) << transcript.text;
    texts.insert(transcript.text);
  }
  EXPECT_GT(texts.size(), 1u);
}

TEST_F(EngineTest, AGrammarThatTheVocabularyCannotSpellIsTheRequestsFault) {
  GrammarBuilder builder;
  const GrammarBuilder::Rule rule = builder.AddRule();
  builder.Empty(builder.Text(rule.start, "ab{}"), rule.end);  // there is no brace
  Make({});
  SequenceRequest request = Line(1);
  request.grammar = *builder.Build(rule);
  const Transcript transcript = Run(std::move(request));
  EXPECT_EQ(transcript.last.finish, FinishReason::kError);
  EXPECT_EQ(transcript.last.cause, EndCause::kGrammar);
}

// A grammar of very many sets forgets and goes on.
TEST_F(EngineTest, ManySetsAreForgotten) {
  GrammarBuilder builder;
  const GrammarBuilder::Rule rule = builder.AddRule();
  int at = rule.start;
  for (int i = 0; i < 20000; ++i) {
    const int to = builder.AddState();
    builder.Bytes(at, 'a', 'd', to);
    at = to;
  }
  builder.Empty(at, rule.end);
  const auto grammar = builder.Build(rule);
  ASSERT_TRUE(grammar);
  GrammarCursor cursor(std::make_shared<TokenGrammar>(*grammar, std::make_shared<TokenBytesTable>(FakeTokenizer())));
  for (int i = 0; i < 20000; ++i) {
    ASSERT_FALSE(cursor.MayEnd());
    ASSERT_TRUE(cursor.Advance(i % 2 == 0 ? "a" : "d")) << i;
    if (i % 1000 != 0) continue;
    EXPECT_TRUE(cursor.Mask()->has(2));  // "a"
  }
  EXPECT_TRUE(cursor.MustEnd());
  EXPECT_FALSE(cursor.Advance("a"));
}

TEST(Grammar, TextUpToAMark) {
  GrammarBuilder builder;
  const GrammarBuilder::Rule rule = builder.AddRule();
  const int text = builder.AddState();
  builder.Empty(rule.start, text);
  builder.Empty(builder.UpTo(text, "aab"), rule.end);
  const auto grammar = builder.Build(rule);
  ASSERT_TRUE(grammar);
  const auto tokens = std::make_shared<TokenGrammar>(*grammar, std::make_shared<TokenBytesTable>(FakeTokenizer()));
  for (const std::string before : {"", "a", "aa", "aaaaa", "ba", "aba", "aabb"}) {
    GrammarCursor cursor(tokens);
    const std::string all = before + "aab";
    const size_t first = all.find("aab") + 3;
    ASSERT_TRUE(cursor.Advance(all.substr(0, first))) << before;
    EXPECT_TRUE(cursor.MustEnd()) << before;
    EXPECT_FALSE(cursor.Advance("b")) << before;
  }
}

}  // namespace
}  // namespace hone
