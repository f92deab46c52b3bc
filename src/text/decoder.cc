// The decoders of tokenizer.json, by the behaviour of the `tokenizers` library, as stages that can stream.
#include "text/decoder.h"

#include <algorithm>

#include "text/byte_level.h"
#include "text/model.h"
#include "text/utf8.h"

namespace hone {
namespace {

void ReplaceAll(std::string* text, std::string_view pattern, std::string_view content) {
  if (pattern.empty()) return;
  size_t at = text->find(pattern);
  if (at == std::string::npos) return;
  std::string out;
  size_t pos = 0;
  for (; at != std::string::npos; at = text->find(pattern, pos)) {
    out.append(*text, pos, at - pos);
    out.append(content);
    pos = at + pattern.size();
  }
  out.append(*text, pos);
  *text = std::move(out);
}

// What BERT's decoder does to each token.
void CleanUp(std::string* text) {
  static constexpr std::string_view kRules[][2] = {
      {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},    {" n't", "n't"},
      {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
  };
  for (const auto& rule : kRules) ReplaceAll(text, rule[0], rule[1]);
}

// A stage that maps each token by itself: function(index is 0, &token). On a fused text it waits for the whole.
template <typename Function>
class MapStage final : public DecoderStage {
 public:
  explicit MapStage(Function function) : function_(std::move(function)) {}
  std::unique_ptr<DecoderRun> Open(bool fused, bool mid_text) const override {
    return std::make_unique<Run>(function_, fused, mid_text);
  }
  void MidStream(std::string* token) const override { function_(false, token); }

 private:
  class Run final : public DecoderRun {
   public:
    Run(const Function& function, bool fused, bool mid_text) : function_(function), fused_(fused), first_(!mid_text) {}
    void Push(std::string token, const Next& next) override {
      if (fused_) {
        whole_ += token;
        any_ = true;
        return;
      }
      function_(first_, &token);
      first_ = false;
      next(std::move(token));
    }
    void Finish(const Next& next) override {
      if (!any_) return;
      function_(first_, &whole_);
      next(std::move(whole_));
    }

   private:
    const Function& function_;
    std::string whole_;
    bool fused_, first_, any_ = false;
  };
  Function function_;
};

template <typename Function>
std::unique_ptr<DecoderStage> Map(Function function) {
  return std::make_unique<MapStage<Function>>(std::move(function));
}

// A stage with its own Run class, made from this stage.
template <typename Run, typename Options>
class RunStage final : public DecoderStage {
 public:
  RunStage(Options options, bool fuses) : options_(std::move(options)), fuses_(fuses) {}
  std::unique_ptr<DecoderRun> Open(bool fused, bool mid_text) const override {
    return std::make_unique<Run>(options_, fused, mid_text);
  }
  bool fuses() const override { return fuses_; }
  void MidStream(std::string* token) const override { Run::MidStream(options_, token); }

 private:
  Options options_;
  bool fuses_;
};

struct NoOptions {};

class ByteLevelRun final : public DecoderRun {
 public:
  ByteLevelRun(const NoOptions&, bool fused, bool /*mid_text*/) : fused_(fused) {}
  void Push(std::string token, const Next& next) override {
    if (fused_) {
      whole_ += token;
      return;
    }
    std::string out;
    MidStream({}, &token);
    utf8_.Push(token, &out);
    if (!out.empty()) next(std::move(out));
  }
  void Finish(const Next& next) override {
    std::string out;
    if (fused_) {
      MidStream({}, &whole_);
      utf8_.Push(whole_, &out);
    }
    utf8_.Finish(&out);
    if (!out.empty()) next(std::move(out));
  }
  static void MidStream(const NoOptions&, std::string* token) {
    if (auto bytes = FromByteMapped(*token)) *token = std::move(*bytes);
  }

 private:
  Utf8Assembler utf8_;
  std::string whole_;
  bool fused_;
};

// A run of byte tokens is text only if all of it is well-formed; else every byte is one U+FFFD. So a run is held back
// until it ends, or until it cannot become well-formed.
class ByteFallbackRun final : public DecoderRun {
 public:
  ByteFallbackRun(const NoOptions&, bool fused, bool /*mid_text*/) : fused_(fused) {}
  void Push(std::string token, const Next& next) override {
    if (fused_) {
      whole_ += token;
      return;
    }
    const int byte = ByteOfToken(token);
    if (byte < 0) {
      EndRun(next);
      next(std::move(token));
      return;
    }
    run_.push_back(static_cast<char>(byte));
    if (!broken_) {
      checked_ += ValidUtf8Prefix(std::string_view(run_).substr(checked_));
      broken_ = checked_ < run_.size() && !Utf8At(run_, checked_).cut;
    }
    if (broken_) EmitBroken(next);
  }
  void Finish(const Next& next) override {
    if (fused_) {
      fused_ = false;
      if (!whole_.empty()) Push(std::move(whole_), next);
    }
    EndRun(next);
  }
  static void MidStream(const NoOptions&, std::string* token) {
    const int byte = ByteOfToken(*token);
    if (byte >= 0) token->assign(1, static_cast<char>(byte));
  }

 private:
  void EmitBroken(const Next& next) {
    for (size_t i = 0; i < run_.size(); ++i) next(std::string(kReplacement));
    run_.clear();
    checked_ = 0;
  }
  void EndRun(const Next& next) {
    if (checked_ < run_.size()) {
      EmitBroken(next);
    } else if (!run_.empty()) {
      next(std::move(run_));
    }
    run_.clear();
    checked_ = 0;
    broken_ = false;
  }
  std::string run_, whole_;
  size_t checked_ = 0;  // bytes of run_ that are well-formed
  bool fused_, broken_ = false;
};

class FuseRun final : public DecoderRun {
 public:
  FuseRun(const NoOptions&, bool /*fused*/, bool /*mid_text*/) {}
  void Push(std::string token, const Next& next) override { next(std::move(token)); }
  static void MidStream(const NoOptions&, std::string* /*token*/) {}
};

struct StripOptions {
  std::string character;
  size_t start, stop;
};

class StripRun final : public DecoderRun {
 public:
  StripRun(const StripOptions& options, bool fused, bool mid_text)
      : options_(options), fused_(fused), left_(fused && mid_text ? 0 : options.start) {}
  void Push(std::string token, const Next& next) override {
    if (!fused_) {
      CutStart(&token, options_.start);
      CutStop(&token, options_.stop);
      next(std::move(token));
      return;
    }
    token.insert(0, held_);
    held_.clear();
    if (left_ > 0) {
      left_ -= CutStart(&token, left_);
      if (!token.empty()) left_ = 0;
    }
    const size_t cut = CutStop(&token, options_.stop);
    for (size_t i = 0; i < cut; ++i) held_ += options_.character;
    if (!token.empty()) next(std::move(token));
  }
  static void MidStream(const StripOptions&, std::string* /*token*/) {}

 private:
  // Both return how many were cut, at most `most`.
  size_t CutStart(std::string* token, size_t most) const {
    size_t cut = 0, at = 0;
    for (; cut < most && std::string_view(*token).substr(at).starts_with(options_.character); ++cut) {
      at += options_.character.size();
    }
    token->erase(0, at);
    return cut;
  }
  size_t CutStop(std::string* token, size_t most) const {
    size_t cut = 0;
    for (; cut < most && token->ends_with(options_.character); ++cut)
      token->resize(token->size() - options_.character.size());
    return cut;
  }
  const StripOptions& options_;
  bool fused_;
  size_t left_;       // still to strip at the start of a fused text
  std::string held_;  // may be the end of a fused text
};

struct ReplaceOptions {
  std::string pattern, content;
};

class ReplaceRun final : public DecoderRun {
 public:
  ReplaceRun(const ReplaceOptions& options, bool fused, bool /*mid_text*/) : options_(options), fused_(fused) {}
  void Push(std::string token, const Next& next) override {
    if (!fused_) {
      ReplaceAll(&token, options_.pattern, options_.content);
      next(std::move(token));
      return;
    }
    token.insert(0, held_);
    held_.clear();
    std::string out;
    size_t pos = 0;
    for (size_t at; (at = token.find(options_.pattern, pos)) != std::string::npos; pos = at + options_.pattern.size()) {
      out.append(token, pos, at - pos);
      out.append(options_.content);
    }
    // The longest tail that may be the start of the pattern waits.
    size_t keep = std::min(token.size() - pos, options_.pattern.size() - 1);
    while (keep > 0 && token.compare(token.size() - keep, keep, options_.pattern, 0, keep) != 0) --keep;
    out.append(token, pos, token.size() - keep - pos);
    held_ = token.substr(token.size() - keep);
    if (!out.empty()) next(std::move(out));
  }
  void Finish(const Next& next) override {
    if (!held_.empty()) next(std::move(held_));
  }
  static void MidStream(const ReplaceOptions& options, std::string* token) {
    ReplaceAll(token, options.pattern, options.content);
  }

 private:
  const ReplaceOptions& options_;
  std::string held_;
  bool fused_;
};

// The suffix of the last token of all is dropped, that of the others becomes a space: one token is held back.
class SuffixRun final : public DecoderRun {
 public:
  SuffixRun(const std::string& suffix, bool /*fused*/, bool /*mid_text*/) : suffix_(suffix) {}
  void Push(std::string token, const Next& next) override {
    if (any_) {
      ReplaceAll(&held_, suffix_, " ");
      next(std::move(held_));
    }
    held_ = std::move(token);
    any_ = true;
  }
  void Finish(const Next& next) override {
    if (!any_) return;
    ReplaceAll(&held_, suffix_, "");
    next(std::move(held_));
  }
  static void MidStream(const std::string& suffix, std::string* token) { ReplaceAll(token, suffix, " "); }

 private:
  const std::string& suffix_;
  std::string held_;
  bool any_ = false;
};

struct CtcOptions {
  std::string pad, word_delimiter;
  bool cleanup;
};

class CtcRun final : public DecoderRun {
 public:
  CtcRun(const CtcOptions& options, bool /*fused*/, bool /*mid_text*/) : options_(options) {}
  void Push(std::string token, const Next& next) override {
    if (any_ && token == last_) return;
    any_ = true;
    last_ = token;
    MidStream(options_, &token);
    if (!token.empty()) next(std::move(token));
  }
  static void MidStream(const CtcOptions& options, std::string* token) {
    ReplaceAll(token, options.pad, "");
    if (!options.cleanup) return;
    CleanUp(token);
    ReplaceAll(token, options.word_delimiter, " ");
  }

 private:
  const CtcOptions& options_;
  std::string last_;
  bool any_ = false;
};

class Utf8Run final : public DecoderRun {
 public:
  Utf8Run(const NoOptions&, bool /*fused*/, bool /*mid_text*/) {}
  void Push(std::string token, const Next& next) override {
    std::string out;
    utf8_.Push(token, &out);
    if (!out.empty()) next(std::move(out));
  }
  void Finish(const Next& next) override {
    std::string out;
    utf8_.Finish(&out);
    if (!out.empty()) next(std::move(out));
  }
  static void MidStream(const NoOptions&, std::string* /*token*/) {}

 private:
  Utf8Assembler utf8_;
};

template <typename Run, typename Options>
std::unique_ptr<DecoderStage> MakeRun(Options options, bool fuses = false) {
  return std::make_unique<RunStage<Run, Options>>(std::move(options), fuses);
}

}  // namespace

std::unique_ptr<DecoderStage> MakeByteLevelDecoder() { return MakeRun<ByteLevelRun>(NoOptions{}, true); }
std::unique_ptr<DecoderStage> MakeByteFallbackDecoder() { return MakeRun<ByteFallbackRun>(NoOptions{}); }
std::unique_ptr<DecoderStage> MakeFuseDecoder() { return MakeRun<FuseRun>(NoOptions{}, true); }
std::unique_ptr<DecoderStage> MakeUtf8Decoder() { return MakeRun<Utf8Run>(NoOptions{}, true); }

std::unique_ptr<DecoderStage> MakeStripDecoder(std::string character, size_t start, size_t stop) {
  return MakeRun<StripRun>(StripOptions{std::move(character), start, stop});
}

std::unique_ptr<DecoderStage> MakeReplaceDecoder(std::string pattern, std::string content) {
  return MakeRun<ReplaceRun>(ReplaceOptions{std::move(pattern), std::move(content)});
}

std::unique_ptr<DecoderStage> MakeBpeSuffixDecoder(std::string suffix) { return MakeRun<SuffixRun>(std::move(suffix)); }

std::unique_ptr<DecoderStage> MakeCtcDecoder(std::string pad, std::string word_delimiter, bool cleanup) {
  return MakeRun<CtcRun>(CtcOptions{std::move(pad), std::move(word_delimiter), cleanup});
}

std::unique_ptr<DecoderStage> MakeRegexReplaceDecoder(Regex pattern, std::string content) {
  auto shared = std::make_shared<const Regex>(std::move(pattern));
  return Map([shared, content = std::move(content)](bool, std::string* token) {
    std::vector<TextRange> matches;
    shared->FindAll(*token, &matches);
    std::string out;
    size_t pos = 0;
    for (const TextRange& match : matches) {
      out.append(*token, pos, match.begin - pos);
      out.append(content);
      pos = match.end;
    }
    out.append(*token, pos);
    *token = std::move(out);
  });
}

std::unique_ptr<DecoderStage> MakeMetaspaceDecoder(std::string replacement, bool drop_first) {
  return Map([replacement = std::move(replacement), drop_first](bool first, std::string* token) {
    ReplaceAll(token, replacement, first && drop_first ? "" : " ");
  });
}

std::unique_ptr<DecoderStage> MakeWordPieceDecoder(std::string prefix, bool cleanup) {
  return Map([prefix = std::move(prefix), cleanup](bool first, std::string* token) {
    if (!first) {
      if (token->starts_with(prefix)) {
        token->erase(0, prefix.size());
      } else {
        token->insert(0, 1, ' ');
      }
    }
    if (cleanup) CleanUp(token);
  });
}

std::unique_ptr<DecoderStage> MakeSpaceJoinDecoder() {
  return Map([](bool first, std::string* token) {
    if (!first) token->insert(0, 1, ' ');
  });
}

DecoderStream::DecoderStream(const DecoderChain& chain, bool mid_text) {
  bool fused = false;
  for (const auto& stage : chain) {
    runs_.push_back(stage->Open(fused, mid_text));
    fused |= stage->fuses();
  }
}

void DecoderStream::Pass(size_t stage, std::string token, std::string* out) {
  if (stage == runs_.size()) {
    out->append(token);
    return;
  }
  runs_[stage]->Push(std::move(token), [&](std::string passed) { Pass(stage + 1, std::move(passed), out); });
}

void DecoderStream::Finish(std::string* out) {
  for (size_t stage = 0; stage < runs_.size(); ++stage) {
    runs_[stage]->Finish([&](std::string passed) { Pass(stage + 1, std::move(passed), out); });
  }
}

}  // namespace hone
