// Tokenizers made from small files written here: closed forms, properties over random text, hostile files, long texts.
#include "text/tokenizer.h"

#include <algorithm>
#include <fstream>
#include <iterator>

#include "base/random.h"
#include "base/sanitizer.h"
#include "base/test_shared.h"
#include "formats/checkpoint.h"
#include "formats/gguf.h"
#include "text/stream_decoder.h"
#include "text/utf8.h"

namespace hone {
namespace {

std::shared_ptr<const Tokenizer> FromJson(const std::string& source) {
  auto tokenizer = Tokenizer::FromJson(source, "", "test");
  EXPECT_TRUE(tokenizer.has_value()) << (tokenizer ? "" : tokenizer.error().message);
  return tokenizer ? *tokenizer : nullptr;
}

std::string ErrorOf(const std::string& source) {
  const auto tokenizer = Tokenizer::FromJson(source, "", "folder/x");
  return tokenizer ? "" : tokenizer.error().message;
}

std::shared_ptr<const Tokenizer> OpenTokenizer(const std::string& path) {
  auto checkpoint = Checkpoint::Open(path);
  EXPECT_TRUE(checkpoint.has_value()) << (checkpoint ? "" : checkpoint.error().message);
  if (!checkpoint) return nullptr;
  auto tokenizer = Tokenizer::FromCheckpoint(**checkpoint);
  EXPECT_TRUE(tokenizer.has_value()) << (tokenizer ? "" : tokenizer.error().message);
  return tokenizer ? *tokenizer : nullptr;
}

// Characters of all lengths, spaces, marks, digits, contractions; with `broken`, bytes that are no UTF-8 too.
std::string RandomText(Rng* rng, bool broken) {
  static constexpr const char* kParts[] = {"the",    " a",      "it's", " ",  "  ", "\n",     "\r\n", "\t",    "123",
                                           "é",      "e\u0301", "日本", "한", "😀",  "▁",      "'S",   "!?",    "\u00a0",
                                           "\u3000", "x",       "Zo",   "½",  "ß",  "\u200d", "ſ",    "null\0"};
  std::string text;
  for (uint64_t i = rng->Below(30); i > 0; --i) {
    const uint64_t kind = rng->Below(10);
    if (kind < 7) {
      text += kParts[rng->Below(std::size(kParts))];
    } else if (kind < 9 || !broken) {
      char32_t code = static_cast<char32_t>(rng->Below(rng->Below(2) != 0 ? 0x110000 : 0x3000));
      if (code >= 0xD800 && code < 0xE000) code = 'q';
      AppendUtf8(code, &text);
    } else {
      text.push_back(static_cast<char>(rng->Below(256)));
    }
  }
  return text;
}

constexpr const char* kGoldens[] = {
    "added-flags", "bert",    "bloom",     "command-r", "deepseek-llm", "deepseek-v3",       "falcon",
    "gemma",       "gpt2",    "gpt4o",     "llama2",    "llama3",       "mistral-metaspace", "phi3",
    "qwen2",       "roberta", "starcoder", "tekken",    "template",     "unigram-bytes",     "unigram-t5"};

TEST(Tokenizer, StreamsEqualWholeDecodingForRandomIds) {
  HONE_NEED_SHARED(root, "goldens/tokenizers");
  Rng rng(7);
  for (const char* name : kGoldens) {
    const auto tokenizer = OpenTokenizer(root + "/" + name);
    ASSERT_NE(tokenizer, nullptr);
    for (int round = 0; round < 300; ++round) {
      std::vector<int32_t> ids(rng.Below(12));
      for (int32_t& id : ids) {
        // Byte tokens are few: ask for them often. Some ids are out of range.
        const auto byte = tokenizer->TokenId("<0x" + std::string(1, "0CEF"[rng.Below(4)]) +
                                             std::string(1, "0123456789ABCDEF"[rng.Below(16)]) + ">");
        id = byte && rng.Below(2) == 0 ? *byte : static_cast<int32_t>(rng.Below(tokenizer->vocab_size() + 3)) - 1;
      }
      const bool skip = rng.Below(2) == 0;
      StreamDecoder stream(tokenizer, skip);
      std::string joined;
      for (const int32_t id : ids) {
        const std::string part = stream.Push(id);
        EXPECT_TRUE(IsValidUtf8(part)) << name;
        joined += part;
      }
      joined += stream.Finish();
      EXPECT_EQ(joined, tokenizer->Decode(ids, skip)) << name;
    }
  }
}

TEST(Tokenizer, ByteLevelRoundTripsAnyBytes) {
  HONE_NEED_SHARED(root, "goldens/tokenizers");
  Rng rng(3);
  for (const char* name : {"gpt2", "llama3", "deepseek-v3", "gpt4o", "starcoder", "tekken", "bloom"}) {
    const auto tokenizer = OpenTokenizer(root + "/" + name);
    ASSERT_NE(tokenizer, nullptr);
    for (int round = 0; round < 200; ++round) {
      const std::string text = RandomText(&rng, true);
      std::string bytes;
      for (const int32_t id : tokenizer->Encode(text)) bytes += tokenizer->TokenBytes(id);
      EXPECT_EQ(bytes, text) << name;
      EXPECT_EQ(tokenizer->Decode(tokenizer->Encode(text), false), ToValidUtf8(text)) << name;
    }
  }
}

TEST(Tokenizer, AnyBytesEncodeWithEveryKind) {
  HONE_NEED_SHARED(root, "goldens/tokenizers");
  Rng rng(5);
  for (const char* name : kGoldens) {
    const auto tokenizer = OpenTokenizer(root + "/" + name);
    ASSERT_NE(tokenizer, nullptr);
    for (int round = 0; round < 100; ++round) {
      const std::string text = RandomText(&rng, true);
      for (const int32_t id : tokenizer->Encode(text, {.add_special = true, .parse_special = true})) {
        EXPECT_TRUE(tokenizer->IsValid(id)) << name;
      }
    }
  }
}

TEST(Tokenizer, BothFormsOfAModelAgreeOnRandomText) {
  HONE_NEED_SHARED(root, "goldens/models");
  Rng rng(11);
  for (const char* name : {"llama", "llama-rope-llama3", "qwen2", "qwen3", "gemma3", "mixtral"}) {
    const auto folder = OpenTokenizer(root + "/" + name);
    const auto gguf = OpenTokenizer(root + "/" + name + "/model-f32.gguf");
    ASSERT_NE(folder, nullptr);
    ASSERT_NE(gguf, nullptr);
    EXPECT_EQ(folder->eos(), gguf->eos()) << name;
    for (int round = 0; round < 300; ++round) {
      const std::string text = RandomText(&rng, false);
      EXPECT_EQ(folder->Encode(text), gguf->Encode(text)) << name << ": " << text;
      const auto ids = folder->Encode(text);
      EXPECT_EQ(folder->Decode(ids, true), gguf->Decode(ids, true)) << name;
    }
  }
}

TEST(Tokenizer, LongTextsOfOneKindEnd) {
  HONE_NEED_SHARED(root, "goldens/tokenizers");
  const auto repeat = [](const std::string& unit, size_t bytes) {
    std::string text;
    while (text.size() < (kSanitizer ? bytes / 16 : bytes)) text += unit;
    return text;
  };
  // Anything quadratic takes hours on these, and the test's time limit ends it.
  const std::string texts[] = {repeat("a", 10'000'000),
                               repeat(" ", 1 << 20),
                               repeat("\n", 1 << 20),
                               repeat(std::string(1 << 19, ' ') + "中", 1 << 20),
                               repeat("7", 1 << 20),
                               repeat("ab\u0301\u0323", 1 << 19),
                               repeat("\u0323\u0301", 1 << 19),
                               repeat("😀", 1 << 20),
                               repeat("\xFF", 1 << 19)};
  size_t first = 0;
  for (const char* name :
       {"llama3", "deepseek-llm", "gemma", "llama2", "unigram-t5", "bert", "qwen2", "gpt4o", "falcon"}) {
    const auto tokenizer = OpenTokenizer(root + "/" + name);
    ASSERT_NE(tokenizer, nullptr);
    for (size_t i = first; i < std::size(texts); ++i)
      EXPECT_FALSE(tokenizer->Encode(texts[i]).empty() && name != std::string("bert")) << name;
    first = 1;  // ten megabytes once
  }
}

// A byte-level BPE of four letters.
constexpr const char* kSmallBpe =
    R"({"model":{"type":"BPE","vocab":{"a":0,"b":1,"c":2,"ab":3,"abc":4,"bc":5},"merges":["b c","a b","ab c"]},
  "added_tokens":[{"id":6,"content":"<s>","special":true},{"id":7,"content":"<t>","special":false}],
  "pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},"decoder":{"type":"ByteLevel"}})";

TEST(Tokenizer, MergesByRankThenLeftmost) {
  const auto tokenizer = FromJson(kSmallBpe);
  EXPECT_EQ(tokenizer->Encode("abc"), (std::vector<int32_t>{0, 5}));  // "b c" comes first
  EXPECT_EQ(tokenizer->Encode("abab"), (std::vector<int32_t>{3, 3}));
  EXPECT_EQ(tokenizer->Encode(""), std::vector<int32_t>());
  // The same beyond the sizes where the way of merging changes.
  for (const size_t words : {10, 100, 5000}) {
    std::string text;
    for (size_t i = 0; i < words; ++i) text += "ab";
    EXPECT_EQ(tokenizer->Encode(text), std::vector<int32_t>(words, 3)) << words;
  }
}

TEST(Tokenizer, SpecialTokensOnlyWhereAskedFor) {
  const auto tokenizer = FromJson(kSmallBpe);
  EXPECT_EQ(tokenizer->Encode("a<s>b<t>", {.parse_special = true}), (std::vector<int32_t>{0, 6, 1, 7}));
  EXPECT_EQ(tokenizer->Encode("a<s>b<t>", {.parse_special = false}),
            (std::vector<int32_t>{0, 1, 7}));  // < s > are no tokens
  EXPECT_EQ(tokenizer->Decode(std::vector<int32_t>{0, 6, 7, 99, -5}, true), "a<t>");
  EXPECT_TRUE(tokenizer->IsSpecial(6));
  EXPECT_FALSE(tokenizer->IsSpecial(7));
  EXPECT_FALSE(tokenizer->IsValid(8));
  EXPECT_EQ(tokenizer->TokenId("abc"), 4);
  EXPECT_EQ(tokenizer->TokenText(99), "");
}

TEST(StreamDecoder, HoldsBackByteRunsUntilTheyAreSettled) {
  const auto tokenizer = FromJson(
      R"({"model":{"type":"BPE","byte_fallback":true,"vocab":{"<0xE4>":0,"<0xBD>":1,"<0xA0>":2,"x":3,"<0xFF>":4},"merges":[]},
      "decoder":{"type":"Sequence","decoders":[{"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]}})");
  StreamDecoder stream(tokenizer, true);
  EXPECT_EQ(stream.Push(0), "");
  EXPECT_EQ(stream.Push(1), "");
  EXPECT_EQ(stream.Push(2), "");  // complete, but a malformed byte would spoil the whole run
  EXPECT_EQ(stream.Push(3), "你x");
  EXPECT_EQ(stream.Push(0), "");
  EXPECT_EQ(stream.Push(4), "\uFFFD\uFFFD");  // cannot become well-formed any more
  EXPECT_EQ(stream.Push(0), "\uFFFD");
  EXPECT_EQ(stream.Push(3), "x");
  EXPECT_EQ(stream.Push(0), "");
  EXPECT_EQ(stream.Finish(), "\uFFFD");
}

TEST(StreamDecoder, KeepsTheFirstSpaceWhereItContinuesAText) {
  HONE_NEED_SHARED(folder, "goldens/tokenizers/llama2");
  const auto tokenizer = OpenTokenizer(folder);
  const auto ids = tokenizer->Encode("Hello");
  StreamDecoder from_start(tokenizer, true), from_middle(tokenizer, true, true);
  std::string start, middle;
  for (const int32_t id : ids) {
    start += from_start.Push(id);
    middle += from_middle.Push(id);
  }
  EXPECT_EQ(start + from_start.Finish(), "Hello");
  EXPECT_EQ(middle + from_middle.Finish(), " Hello");
}

TEST(TokenizerJson, ErrorsNameFileAndField) {
  EXPECT_NE(ErrorOf("{").find("folder/x: tokenizer.json: not JSON"), std::string::npos);
  EXPECT_NE(ErrorOf("[]").find("wanted a JSON object"), std::string::npos);
  EXPECT_NE(ErrorOf("{}").find("folder/x: model: wanted an object, found nothing"), std::string::npos);
  EXPECT_NE(ErrorOf(R"({"model":{"type":"LSTM","vocab":{"a":0}}})").find("'LSTM' is not supported"), std::string::npos);
  EXPECT_NE(
      ErrorOf(R"({"model":{"type":"BPE","vocab":{"a":0},"merges":["a b"]}})").find("merges: merge 0 ('a' and 'b')"),
      std::string::npos);
  EXPECT_NE(ErrorOf(R"({"model":{"type":"BPE","vocab":{"a":0},"merges":["a"]}})").find("model.merges[0]"),
            std::string::npos);
  EXPECT_NE(ErrorOf(R"({"model":{"type":"BPE","vocab":{"a":0},"merges":7}})")
                .find("model.merges: wanted an array, found number"),
            std::string::npos);
  EXPECT_NE(ErrorOf(R"({"model":{"type":"BPE","vocab":{"a":4000000000},"merges":[]}})").find("model.vocab['a']"),
            std::string::npos);
  EXPECT_NE(ErrorOf(R"({"model":{"type":"BPE","vocab":{"a":-1},"merges":[]}})").find("model.vocab['a']"),
            std::string::npos);
  EXPECT_NE(
      ErrorOf(R"({"model":{"type":"BPE","vocab":{"a":1,"b":1},"merges":[]}})").find("id 1 is given to 'a' and to 'b'"),
      std::string::npos);
  EXPECT_NE(
      ErrorOf(R"({"model":{"type":"BPE","vocab":{"a":"x"},"merges":[]}})").find("wanted a whole number, found string"),
      std::string::npos);
  EXPECT_NE(ErrorOf(R"({"model":{"type":"Unigram","vocab":[["a",-1]],"unk_id":9}})").find("model.unk_id: 9"),
            std::string::npos);
  EXPECT_NE(ErrorOf(R"({"model":{"type":"Unigram","vocab":[["a"]]}})").find("model.vocab[0]"), std::string::npos);
  EXPECT_NE(
      ErrorOf(R"({"model":{"type":"WordLevel","vocab":{"a":0},"unk_token":"u"}})").find("'u' is not in the vocabulary"),
      std::string::npos);
  const std::string model = R"({"model":{"type":"WordLevel","vocab":{"a":0}},)";
  EXPECT_NE(ErrorOf(model + R"("normalizer":{"type":"Spell"}})").find("normalizer.type: 'Spell'"), std::string::npos);
  EXPECT_NE(ErrorOf(model + R"("pre_tokenizer":{"type":"UnicodeScripts"}})").find("'UnicodeScripts' is not supported"),
            std::string::npos);
  EXPECT_NE(ErrorOf(model + R"("decoder":{"type":"X"}})").find("decoder.type: 'X'"), std::string::npos);
  EXPECT_NE(ErrorOf(model + R"("post_processor":{"type":"X"}})").find("post_processor.type: 'X'"), std::string::npos);
  EXPECT_NE(ErrorOf(model + R"("pre_tokenizer":{"type":"Split","pattern":{"Regex":"(a"}}})")
                .find("pre_tokenizer.pattern.Regex"),
            std::string::npos);
  EXPECT_NE(ErrorOf(model + R"("added_tokens":[{"id":3000000,"content":"x"}]})").find("added_tokens[0].id"),
            std::string::npos);
  EXPECT_NE(ErrorOf(model + R"("normalizer":{"type":"Precompiled","precompiled_charsmap":"AAAA"}})")
                .find("precompiled_charsmap"),
            std::string::npos);
}

TEST(TokenizerJson, DeepNestingIsAnError) {
  for (const char* key : {"normalizers", "pretokenizers"}) {
    std::string source = R"({"model":{"type":"WordLevel","vocab":{"a":0}},")" +
                       std::string(key == std::string("normalizers") ? "normalizer" : "pre_tokenizer") + "\":";
    for (int i = 0; i < 1000; ++i) source += R"({"type":"Sequence",")" + std::string(key) + "\":[";
    source += R"({"type":"NFC"})";
    for (int i = 0; i < 1000; ++i) source += "]}";
    EXPECT_NE(ErrorOf(source + "}").find("nested deeper than"), std::string::npos) << key;
  }
}

// A GGUF file with these tokenizer keys.
Result<std::shared_ptr<const Tokenizer>> FromGguf(const std::string& model, std::vector<std::string> tokens,
                                                  std::vector<std::string> merges, const std::string& pre,
                                                  std::vector<int64_t> types = {}, std::string_view force = "") {
  GgufContents contents;
  const auto text = [](std::string value) { return GgufValue{GgufType::kString, GgufType::kU32, std::move(value)}; };
  contents.metadata = {{"general.architecture", text("llama")},
                       {"tokenizer.ggml.model", text(model)},
                       {"tokenizer.ggml.pre", text(pre)},
                       {"tokenizer.ggml.tokens", GgufValue{GgufType::kArray, GgufType::kString, std::move(tokens)}},
                       {"tokenizer.ggml.merges", GgufValue{GgufType::kArray, GgufType::kString, std::move(merges)}}};
  if (!types.empty())
    contents.metadata.push_back(
        {"tokenizer.ggml.token_type", GgufValue{GgufType::kArray, GgufType::kI32, std::move(types)}});
  const std::string path = TestPath("tokenizer_test.gguf");
  HONE_RETURN_IF_ERROR(WriteGguf(path, contents));
  HONE_TRY(const auto file, GgufFile::Open(path));
  return Tokenizer::FromGguf(*file, force);
}

TEST(TokenizerGguf, UnknownPreNamesTheKnownOnesAndTheFlag) {
  const auto tokenizer = FromGguf("gpt2", {"a", "b", "ab"}, {"a b"}, "no-such");
  ASSERT_FALSE(tokenizer.has_value());
  for (const char* part : {"no-such", "llama-bpe", "qwen2", "--pre KIND"})
    EXPECT_NE(tokenizer.error().message.find(part), std::string::npos) << part;
  const auto forced = FromGguf("gpt2", {"a", "b", "ab"}, {"a b"}, "no-such", {}, "gpt-2");
  ASSERT_TRUE(forced.has_value()) << forced.error().message;
  EXPECT_EQ((*forced)->Encode("abb"), (std::vector<int32_t>{2, 1}));
}

TEST(TokenizerGguf, HostileFilesAreClearErrors) {
  const auto error = [](const Result<std::shared_ptr<const Tokenizer>>& result) {
    return result ? std::string() : result.error().message;
  };
  EXPECT_NE(error(FromGguf("rwkv", {"a"}, {}, "default")).find("'rwkv' is not supported"), std::string::npos);
  EXPECT_NE(error(FromGguf("gpt2", {"a", "a"}, {}, "gpt-2")).find("'a' has the ids 0 and 1"), std::string::npos);
  EXPECT_NE(error(FromGguf("gpt2", {"a"}, {"a b"}, "gpt-2")).find("tokenizer.ggml.merges: merge 0"), std::string::npos);
  EXPECT_NE(error(FromGguf("gpt2", {"a"}, {"ab"}, "gpt-2")).find("not \"left right\""), std::string::npos);
  EXPECT_NE(error(FromGguf("gpt2", {"a", "b"}, {}, "gpt-2", {1})).find("token_type: 1 entries for 2 tokens"),
            std::string::npos);
  EXPECT_NE(error(FromGguf("llama", {"a"}, {}, "", {}, "gpt-2")).find("--pre gpt-2"), std::string::npos);
}

TEST(TokenizerGguf, UserDefinedTokensAlwaysControlOnlyWhenParsed) {
  const auto tokenizer = FromGguf("gpt2", {"a", "<c>", "<u>", "<|im_end|>", "<"}, {}, "gpt-2", {1, 3, 4, 1, 1});
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
  EXPECT_EQ((*tokenizer)->Encode("a<u><c>"), (std::vector<int32_t>{0, 2, 4}));  // "c>" has no tokens
  EXPECT_EQ((*tokenizer)->Encode("a<u><c>", {.parse_special = true}), (std::vector<int32_t>{0, 2, 1}));
  EXPECT_EQ((*tokenizer)->end_ids(), std::vector<int32_t>{3});  // known by its text
  EXPECT_EQ((*tokenizer)->Decode(std::vector<int32_t>{0, 1, 2, 3}, true), "a<u>");
}

}  // namespace
}  // namespace hone
