// For tests: a tokenizer of bytes and longer pieces, and grammars run over texts and by random sampling.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/random.h"
#include "engine/grammar/token_grammar.h"
#include "serve/fake_engine.h"

namespace hone {

// Ids below 256 are bytes, then the special ones of FakeChatTokenizer, then pieces as vocabularies have them.
class PiecesTokenizer final : public FakeChatTokenizer {
 public:
  int vocab_size() const override { return kFakeVocab + static_cast<int>(kPieces.size()); }
  std::string TokenBytes(int32_t id) const override {
    if (id == kFakeBos) return "<tool_call>";  // special
    return id >= kFakeVocab && id < vocab_size() ? kPieces[static_cast<size_t>(id - kFakeVocab)] : FakeChatTokenizer::TokenBytes(id);
  }
  bool IsSpecial(int32_t id) const override { return id == kFakeBos || id == kFakeEnd; }
  bool IsValid(int32_t id) const override { return id >= 0 && id < vocab_size(); }

 private:
  const std::vector<std::string> kPieces = {"{\"", "\":", "\",\"", "\"}", "},{", "],[", " \"", "\": \"", "true", "false", "null", "12", "-1", ".5", "e+",
                                            "name", "the", " a", "\\\"", "\\u00", "\xC3\xA9", "\xF0\x9F", "\n  ", "\n", "[]", "{}", "}}", "1}", "\"a"};
};

class GrammarRun {
 public:
  explicit GrammarRun(std::shared_ptr<const Grammar> grammar)
      : tokens_(std::make_shared<TokenGrammar>(std::move(grammar), std::make_shared<TokenBytesTable>(tokenizer_))) {}

  GrammarCursor Start() const { return GrammarCursor(tokens_); }
  const PiecesTokenizer& tokenizer() const { return tokenizer_; }
  std::vector<int32_t> Allowed(GrammarCursor& cursor) const {
    const auto mask = cursor.Mask();
    std::vector<int32_t> ids;
    for (int32_t id = 0; id < tokenizer_.vocab_size(); ++id) {
      if (mask->has(id)) ids.push_back(id);
    }
    return ids;
  }

  // How many bytes of `text` begin a string of the grammar; one more if it is one.
  size_t Fits(const std::string& text) const {
    GrammarCursor cursor = Start();
    for (size_t i = 0; i < text.size(); ++i) {
      if (!cursor.Advance(text.substr(i, 1))) return i;
    }
    return text.size() + (cursor.MayEnd() ? 1 : 0);
  }
  bool Accepts(const std::string& text) const { return Fits(text) == text.size() + 1; }

  // The same by tokens: at each place one of those that `text` goes on with, chosen by `rng`, must be allowed if and only if
  // it fits byte by byte. "" or what is wrong.
  std::string CheckTokens(const std::string& text, Rng& rng) const {
    GrammarCursor cursor = Start();
    for (size_t at = 0; at < text.size();) {
      const auto mask = cursor.Mask();
      std::vector<int32_t> ids;
      for (int32_t id = 0; id < tokenizer_.vocab_size(); ++id) {
        const std::string bytes = tokenizer_.TokenBytes(id);
        if (tokenizer_.IsSpecial(id) || bytes.empty() || text.compare(at, bytes.size(), bytes) != 0) continue;
        GrammarCursor copy = cursor;
        if (copy.Advance(bytes) != mask->has(id)) return "token \"" + bytes + "\" at " + std::to_string(at) + " of " + text;
        ids.push_back(id);
      }
      const int32_t id = ids[rng.Below(ids.size())];
      if (!mask->has(id)) return "";  // refused here, as byte by byte
      cursor.Advance(tokenizer_.TokenBytes(id));
      at += tokenizer_.TokenBytes(id).size();
    }
    return "";
  }

  // A random answer of at most `most` tokens; *whole: it came to its end. An empty mask before is a failure.
  std::string Sample(Rng& rng, int most, bool* whole) const {
    GrammarCursor cursor = Start();
    std::string text;
    *whole = false;
    for (int i = 0; i < most; ++i) {
      *whole = cursor.MustEnd() || (cursor.MayEnd() && rng.Below(3) == 0);
      if (*whole) return text;
      const std::vector<int32_t> ids = Allowed(cursor);
      if (ids.empty()) {
        ADD_FAILURE() << "nothing may follow: " << text;
        return text;
      }
      // Closing is as likely as all the rest, or texts would never end.
      std::vector<int32_t> closing;
      for (const int32_t id : ids) {
        if (const std::string bytes = tokenizer_.TokenBytes(id); bytes == "\"" || bytes == "}" || bytes == "]" || bytes == "\"}") closing.push_back(id);
      }
      const std::vector<int32_t>& from = !closing.empty() && rng.Below(2) == 0 ? closing : ids;
      const std::string bytes = tokenizer_.TokenBytes(from[rng.Below(from.size())]);
      EXPECT_TRUE(cursor.Advance(bytes)) << text << " then " << bytes;
      text += bytes;
    }
    return text;
  }

 private:
  const PiecesTokenizer tokenizer_;
  const std::shared_ptr<TokenGrammar> tokens_;
};

}  // namespace hone
