// The translation from Oniguruma, checked by what the translated patterns match; and the table of pre-tokenizer kinds.
#include "text/regex.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "text/pre_tokenizer.h"
#include "text/unicode.h"

namespace hone {
namespace {

std::vector<std::string> Matches(const std::string& pattern, const std::string& text) {
  const auto regex = Regex::Compile(pattern);
  EXPECT_TRUE(regex.has_value()) << (regex ? "" : regex.error().message);
  std::vector<TextRange> ranges;
  if (regex) regex->FindAll(text, &ranges);
  std::vector<std::string> found;
  for (const TextRange& range : ranges) found.push_back(text.substr(range.begin, range.end - range.begin));
  return found;
}
using Strings = std::vector<std::string>;

TEST(Regex, LineEndsAndSpaces) {
  EXPECT_EQ(Matches("b$", "ab\ncb"), (Strings{"b", "b"}));
  EXPECT_EQ(Matches("^c", "ab\ncb"), Strings{"c"});
  EXPECT_EQ(Matches("\\s+$", "ab  \ncd  "), (Strings{"  ", "  "}));
  EXPECT_EQ(Matches("\\s+$", "a \n\n"), Strings{" \n\n"});
  EXPECT_EQ(Matches("\\s", "\u0085\u00a0\u2028\u3000\u1680\u200a\u202f\u205f").size(), 8u);
  EXPECT_EQ(Matches("\\s", "\x1c\x1f\u180e\u200b\u2060\ufeff"), Strings{});
  EXPECT_EQ(Matches("[^\\s]", "\u180e"), Strings{"\u180e"});
  EXPECT_EQ(Matches("[\\Sx]", "\u180e \u00a0"), Strings{"\u180e"});
}

TEST(Regex, SetsWithinSets) {
  EXPECT_EQ(Matches("[^(\\s|[.,!])]+", "ab.c(d|e f"), (Strings{"ab", "c", "d", "e", "f"}));
  EXPECT_EQ(Matches("[a-z&&[^aeiou]]+", "hello"), (Strings{"h", "ll"}));
  EXPECT_EQ(Matches("[^a-z&&[^aeiou]]+", "hello1"), (Strings{"e", "o1"}));
  EXPECT_EQ(Matches("[]a]+", "a]b"), Strings{"a]"});
  EXPECT_EQ(Matches("[a\\-c]+", "a-bc"), (Strings{"a-", "c"}));
  EXPECT_EQ(Matches("[[:alpha:]]+", "ab1é"), (Strings{"ab", "é"}));
  EXPECT_EQ(Matches("[\\p{L}&&[^\\p{Han}]]+", "ab中c"), (Strings{"ab", "c"}));
}

TEST(Regex, WhatRubySpellsDifferently) {
  EXPECT_EQ(Matches("(?i:'s)", "'S'\u017f"), (Strings{"'S", "'\u017f"}));
  EXPECT_EQ(Matches("\\h+", "0aFg"), Strings{"0aF"});
  EXPECT_EQ(Matches("(?m:a.b)", "a\nb"), Strings{"a\nb"});
  EXPECT_EQ(Matches("a.b", "a\nb"), Strings{});
  EXPECT_EQ(Matches("\\u4e2d", "中"), Strings{"中"});
  EXPECT_EQ(Matches("a{,2}b", "aaab"), Strings{"aab"});
  EXPECT_EQ(Matches("\\p{N}{1,3}+", "12345"), Strings{"12345"});  // + repeats the interval
  EXPECT_EQ(Matches("a++b", "aab"), Strings{"aab"});
  EXPECT_EQ(Matches("\\bé\\b", "é aé"), Strings{"é"});
  EXPECT_EQ(Matches("x{", "x{"), Strings{"x{"});
}

TEST(Regex, RefusesWhatItCannotKeepTheMeaningOf) {
  for (const char* pattern : {"(", "[a", "a)", "(?x)a", "(*ACCEPT)", "\\g<a>", "\\xE4\\xB8", "a(?i)b", "(?<=a*)b",
                              "\\p{NoSuchScript}", "*a"}) {
    EXPECT_FALSE(Regex::Compile(pattern).has_value()) << pattern;
  }
  std::string deep;
  for (int i = 0; i < 5000; ++i) deep += "(";
  EXPECT_FALSE(Regex::Compile(deep).has_value());
  std::string sets;
  for (int i = 0; i < 5000; ++i) sets += "[";
  EXPECT_FALSE(Regex::Compile(sets).has_value());
}

TEST(Regex, GroupsOfThreeFromTheEnd) {
  EXPECT_EQ(Matches("\\d{1,3}(?=(?:\\d{3})*\\b)", "1234567 12a 12"), (Strings{"1", "234", "567", "12"}));
  EXPECT_EQ(Matches("(?=(\\d{3})+(?!\\d))", "1234567"), (Strings{"", ""}));
}

TEST(Regex, HostilePatternEnds) {
  const auto regex = Regex::Compile("(a+)+$x");
  ASSERT_TRUE(regex.has_value());
  std::vector<TextRange> ranges;
  std::string text(200, 'a');
  text += 'b';
  regex->FindAll(text, &ranges);
  EXPECT_TRUE(ranges.empty());
}

TEST(PreKinds, EveryKindCompilesAndCoversItsText) {
  const std::string text = "Hello, it's  1234567 wörld!\n\n 日本語 \U0001F600 <sentinel:3>\t";
  for (const std::string_view name : PreKindNames()) {
    const PreKind* kind = FindPreKind(name);
    ASSERT_NE(kind, nullptr);
    const auto split = MakePreTokenizer(*kind);
    ASSERT_TRUE(split.has_value()) << name << ": " << split.error().message;
    Pieces pieces(text, true);
    (*split)->Apply(&pieces);
    std::string joined;
    for (const TextRange& range : pieces.ranges()) joined += pieces.At(range);
    EXPECT_EQ(joined, text) << name;  // isolating loses nothing
    EXPECT_GT(pieces.ranges().size(), 1u) << name;
  }
  EXPECT_EQ(FindPreKind("no-such"), nullptr);
}

TEST(PreKinds, KnownSplits) {
  const auto split = [](const char* name, const std::string& text) {
    const auto made = MakePreTokenizer(*FindPreKind(name));
    Pieces pieces(text, true);
    (*made)->Apply(&pieces);
    Strings out;
    for (const TextRange& range : pieces.ranges()) out.emplace_back(pieces.At(range));
    return out;
  };
  EXPECT_EQ(split("llama-bpe", "I'M  here 12345"), (Strings{"I", "'M", " ", " here", " ", "123", "45"}));
  EXPECT_EQ(split("qwen2", "a 123"), (Strings{"a", " ", "1", "2", "3"}));
  EXPECT_EQ(split("gpt-2", "I'M x"), (Strings{"I", "'", "M", " x"}));
  EXPECT_EQ(split("gpt-4o", "HelloWorld's"), (Strings{"Hello", "World's"}));
  EXPECT_EQ(split("kimi-k2", "ab中文c 12"), (Strings{"ab", "中文", "c", " ", "12"}));
  EXPECT_EQ(split("superbpe", "a1234567"), (Strings{"a", "1", "234", "567"}));
  EXPECT_EQ(split("afmoe", "12345x"), (Strings{"12", "345", "x"}));
  EXPECT_EQ(split("jais-2", std::string(7, ' ')), (Strings{"    ", "  ", " "}));
}

TEST(Unicode, NormalFormsOfTheStandard) {
  EXPECT_EQ(Normalize("e\u0301", NormalForm::kNfc), "é");
  EXPECT_EQ(Normalize("é", NormalForm::kNfd), "e\u0301");
  EXPECT_EQ(Normalize("\ufb01\u00bd", NormalForm::kNfkc), "fi1\u20442");
  EXPECT_EQ(Normalize("a\u0301\u0323", NormalForm::kNfd), "a\u0323\u0301");  // by combining class
  EXPECT_EQ(Normalize("\u1100\u1161\u11a8", NormalForm::kNfc), "각");
  EXPECT_EQ(Normalize("\u212b", NormalForm::kNfc), "Å");
  EXPECT_EQ(Normalize(std::string("a\0é", 4), NormalForm::kNfd), std::string("a\0e\u0301", 5));
}

}  // namespace
}  // namespace hone
