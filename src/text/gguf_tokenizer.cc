// tokenizer.ggml.model picks the kind: gpt2 and gemma4 (BPE), llama (SentencePiece BPE), t5 (unigram), bert
// (WordPiece).
//
// Where llama.cpp departs from the tokenizer that a model was trained with, the training wins: pre-tokenizer patterns
// are the original ones (llama.cpp's are rewritten for its own regex code), a malformed byte keeps its value, and
// decoded text is not "cleaned" of spaces before punctuation.
#include "text/gguf_tokenizer.h"

#include <algorithm>

#include "text/byte_level.h"
#include "text/gguf_token_types.h"
#include "text/space_mark.h"

namespace hone {
namespace {

std::string WithSpaces(std::string_view text) {
  std::string out;
  for (size_t pos = 0; pos < text.size();) {
    if (text.substr(pos).starts_with(kSpaceMark)) {
      out.push_back(' ');
      pos += kSpaceMark.size();
    } else {
      out.push_back(text[pos++]);
    }
  }
  return out;
}

class Reader {
 public:
  Reader(const GgufFile& file, std::string_view force_pre) : file_(file), force_pre_(force_pre) {}

  Result<TokenizerParts> Read() {
    HONE_TRY(model_, file_.String(kPrefix + "model"));
    HONE_RETURN_IF_ERROR(CheckModel());
    HONE_RETURN_IF_ERROR(ReadVocabulary());
    HONE_RETURN_IF_ERROR(ReadSpecialIds());
    MarkControlTexts();
    HONE_RETURN_IF_ERROR(ReadModel());
    HONE_RETURN_IF_ERROR(ReadAdditions());
    CollectAdded();
    CollectEnds();
    return std::move(parts_);
  }

 private:
  Error Bad(std::string_view key, const std::string& what) const {
    return InvalidInput(file_.path() + ": " + kPrefix + std::string(key) + ": " + what);
  }

  Result<void> CheckModel() {
    if (!force_pre_.empty() && model_ != "gpt2" && model_ != "gemma4") {
      return UsageError("--pre " + std::string(force_pre_) + ": " + file_.path() + " has a tokenizer of model '" +
                        model_.substr(0, 100) + "'; only byte-level BPE (gpt2) has pre-tokenizer kinds");
    }
    for (const std::string_view known : {"gpt2", "gemma4", "llama", "t5", "bert"}) {
      if (model_ == known) return {};
    }
    return Unsupported(file_.path() + ": " + kPrefix + "model: '" + model_.substr(0, 100) +
                       "' is not supported; known are gpt2, gemma4, llama, t5, bert");
  }

  Result<void> ReadVocabulary() {
    HONE_TRY(const std::span<const std::string> tokens, file_.Strings(kPrefix + "tokens"));
    if (tokens.empty()) return Bad("tokens", "no tokens");
    if (tokens.size() > INT32_MAX) return Bad("tokens", "too many tokens");
    auto vocabulary = std::make_shared<Vocabulary>();
    vocabulary->texts.assign(tokens.begin(), tokens.end());
    vocabulary->valid.assign(tokens.size(), true);
    size_t bytes = 0;
    for (const std::string& text : tokens) bytes += text.size();
    vocabulary->ids.Reserve(tokens.size(), bytes);
    for (size_t id = 0; id < tokens.size(); ++id) {
      std::string& text = vocabulary->texts[id];
      if (text.empty()) text = "[EMPTY_" + std::to_string(id) + "]";
      if (!vocabulary->ids.Insert(text, static_cast<int32_t>(id))) {
        return Bad("tokens", "the token '" + text.substr(0, 100) + "' has the ids " +
                                 std::to_string(vocabulary->Find(text)) + " and " + std::to_string(id));
      }
    }
    types_.assign(tokens.size(), kNormal);
    if (file_.Has(kPrefix + "token_type")) {
      HONE_TRY(const std::vector<int64_t> types, file_.Ints(kPrefix + "token_type"));
      if (types.size() != tokens.size()) {
        return Bad("token_type",
                   std::to_string(types.size()) + " entries for " + std::to_string(tokens.size()) + " tokens");
      }
      for (size_t id = 0; id < types.size(); ++id) {
        if (types[id] >= 1 && types[id] <= 6) types_[id] = static_cast<GgufTokenType>(types[id]);
      }
    }
    if (file_.Has(kPrefix + "scores")) {
      HONE_TRY(scores_, file_.Numbers(kPrefix + "scores"));
      if (scores_.size() != tokens.size()) {
        return Bad("scores",
                   std::to_string(scores_.size()) + " entries for " + std::to_string(tokens.size()) + " tokens");
      }
    }
    scores_.resize(tokens.size(), 0.0);
    vocabulary_ = vocabulary;
    parts_.vocabulary = std::move(vocabulary);
    return {};
  }

  // A special id: what the file says, else `fallback` if the vocabulary reaches that far, else none.
  Result<std::optional<int32_t>> SpecialId(std::string_view key, int64_t fallback) {
    HONE_TRY(const int64_t id, file_.Int(kPrefix + std::string(key), fallback));
    if (id < 0 || static_cast<size_t>(id) >= vocabulary_->size()) return std::optional<int32_t>();
    return std::optional(static_cast<int32_t>(id));
  }

  Result<void> ReadSpecialIds() {
    int64_t bos = -1, eos = -1, unk = -1, sep = -1, pad = -1;
    if (model_ == "llama") {
      bos = 1, eos = 2, unk = 0;
    } else if (model_ == "bert") {
      bos = 101, unk = 100, sep = 102, pad = 0;
    } else if (model_ == "t5") {
      eos = 1, unk = 2, pad = 0;
    } else if (model_ == "gpt2" && vocabulary_->size() > 11 && types_[11] == kControl) {
      bos = eos = 11;  // the first files of this kind had no key for them
    }
    HONE_TRY(parts_.bos, SpecialId("bos_token_id", bos));
    HONE_TRY(parts_.eos, SpecialId("eos_token_id", eos));
    HONE_TRY(parts_.unk, SpecialId("unknown_token_id", unk));
    HONE_TRY(parts_.pad, SpecialId("padding_token_id", pad));
    HONE_TRY(sep_, SpecialId("seperator_token_id", sep));  // spelled so in files
    HONE_TRY(const std::optional<int32_t> eot, SpecialId("eot_token_id", -1));
    HONE_TRY(const std::optional<int32_t> eom, SpecialId("eom_token_id", -1));
    for (const auto& id : {parts_.eos, eot, eom}) {
      if (id) parts_.end_ids.push_back(*id);
    }
    return {};
  }

  // Tokens that well-known models use as control tokens are control tokens even where a file calls them normal, and
  // those that a reader of the output must see are not.
  void MarkControlTexts() {
    for (const int32_t id : WellKnownEndIds(*vocabulary_, std::vector<bool>(vocabulary_->size(), true))) {
      types_[static_cast<size_t>(id)] = kControl;
    }
    for (const std::string_view text : {"<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"}) {
      const int32_t id = vocabulary_->Find(text);
      if (id >= 0) types_[static_cast<size_t>(id)] = kUserDefined;
    }
  }

  Result<void> ReadModel() {
    if (model_ == "llama") return ReadSpm();
    if (model_ == "t5") return ReadUnigram();
    if (model_ == "bert") return ReadWordPiece();
    return ReadBpe();
  }

  int32_t UnkOr(int32_t fallback) const { return parts_.unk.value_or(fallback); }

  Result<const PreKind*> Kind() const {
    std::string name(force_pre_);
    if (name.empty()) {
      HONE_TRY(name, file_.String(kPrefix + "pre", model_ == "gemma4" ? "gemma4" : "default"));
    }
    if (const PreKind* kind = FindPreKind(name)) return kind;
    std::string known;
    for (const std::string_view one : PreKindNames()) known += (known.empty() ? "" : ", ") + std::string(one);
    const std::string what =
        force_pre_.empty() ? file_.path() + ": " + kPrefix + "pre: unknown pre-tokenizer '" : "--pre: unknown kind '";
    return Unsupported(what + name.substr(0, 100) + "'; known are " + known +
                       ". Force one with --pre KIND if its rules are the same");
  }

  Result<void> ReadBpe() {
    HONE_TRY(const PreKind* kind, Kind());
    HONE_TRY(parts_.pre_tokenizer, MakePreTokenizer(*kind));
    HONE_TRY(const std::span<const std::string> lines, file_.Strings(kPrefix + "merges"));
    std::vector<std::pair<std::string, std::string>> merges;
    merges.reserve(lines.size());
    for (const std::string& line : lines) {
      const size_t space = line.find(' ', 1);  // the first character may be a space itself
      if (space == std::string::npos) {
        return Bad("merges", "'" + line.substr(0, 100) + "' (number " + std::to_string(merges.size()) +
                                 ") is not \"left right\"");
      }
      merges.emplace_back(line.substr(0, space), line.substr(space + 1));
    }
    BpeOptions options;
    options.ignore_merges = kind->ignore_merges;
    options.gaps_part = true;
    if (kind->space_mark) {
      options.byte_fallback = true;
      options.newline_runs_whole = true;
      options.unk = UnkOr(-1);
      parts_.normalizer = MakeReplaceNormalizer(" ", std::string(kSpaceMark));
      parts_.malformed = TokenizerParts::Malformed::kReplaced;
    } else {
      options.byte_level = true;
      if (kind->nfc) parts_.normalizer = MakeFormNormalizer(NormalForm::kNfc);
      parts_.malformed = TokenizerParts::Malformed::kOwnPieces;
    }
    HONE_TRY(parts_.model,
             MakeBpeModel(vocabulary_, merges, std::move(options)).Context(file_.path() + ": " + kPrefix + "merges"));
    adds_bos_ = kind->add_bos;
    SetDecodeTexts(kind->space_mark);
    parts_.decoder.push_back(MakeUtf8Decoder());
    return {};
  }

  Result<void> ReadSpm() {
    HONE_TRY(const bool space_prefix, file_.Bool(kPrefix + "add_space_prefix", true));
    std::vector<std::unique_ptr<Normalizer>> steps;
    if (space_prefix) steps.push_back(MakePrependNormalizer(" "));
    steps.push_back(MakeReplaceNormalizer(" ", std::string(kSpaceMark)));
    parts_.normalizer = MakeSequenceNormalizer(std::move(steps));
    parts_.malformed = TokenizerParts::Malformed::kAsIs;
    parts_.model = MakeSpmModel(vocabulary_, std::vector<float>(scores_.begin(), scores_.end()), UnkOr(-1));
    adds_bos_ = true;
    SetDecodeTexts(true);
    parts_.decoder.push_back(MakeUtf8Decoder());
    if (space_prefix) parts_.decoder.push_back(MakeStripDecoder(" ", 1, 0));
    return {};
  }

  Result<void> ReadUnigram() {
    SpmNormalizerOptions options;
    HONE_TRY(options.add_space_prefix, file_.Bool(kPrefix + "add_space_prefix", false));
    HONE_TRY(options.remove_extra_whitespaces, file_.Bool(kPrefix + "remove_extra_whitespaces", false));
    std::optional<CharsMap> map;
    if (file_.Has(kPrefix + "precompiled_charsmap")) {
      HONE_TRY(const std::vector<int64_t> bytes, file_.Ints(kPrefix + "precompiled_charsmap"));
      std::string blob;
      blob.reserve(bytes.size());
      for (const int64_t byte : bytes) blob.push_back(static_cast<char>(byte & 0xFF));
      if (!blob.empty()) {
        HONE_TRY(map, CharsMap::Parse(std::move(blob)).Context(file_.path() + ": " + kPrefix + "precompiled_charsmap"));
      }
    }
    parts_.normalizer = MakeSpmNormalizer(std::move(map), options);
    parts_.malformed = TokenizerParts::Malformed::kAsIs;
    std::vector<double> scores(scores_.size());
    std::vector<bool> excluded(scores_.size());
    double lowest = 0;
    bool any = false;
    for (size_t id = 0; id < scores_.size(); ++id) {
      scores[id] = types_[id] == kUserDefined ? 0.0 : static_cast<double>(static_cast<float>(scores_[id]));
      excluded[id] = types_[id] != kNormal && types_[id] != kUserDefined && types_[id] != kUnused;
      if (types_[id] == kNormal) {
        lowest = any ? std::min(lowest, scores[id]) : scores[id];
        any = true;
      }
    }
    UnigramOptions unigram;
    unigram.unk = UnkOr(-1);
    parts_.model = MakeUnigramModel(vocabulary_, std::move(scores), excluded, lowest, unigram);
    adds_eos_ = true;
    SetDecodeTexts(true);
    parts_.decoder.push_back(MakeUtf8Decoder());
    if (options.add_space_prefix || options.remove_extra_whitespaces)
      parts_.decoder.push_back(MakeStripDecoder(" ", 1, 0));
    return {};
  }

  Result<void> ReadWordPiece() {
    BertNormalizerOptions normal;
    HONE_TRY(normal.lowercase, file_.Bool(kPrefix + "normalizer.lowercase", true));
    HONE_TRY(normal.strip_accents, file_.Bool(kPrefix + "normalizer.strip_accents", normal.lowercase));
    parts_.normalizer = MakeBertNormalizer(normal);
    parts_.pre_tokenizer = MakeBertPreTokenizer();
    // The file marks the start of a word with ▁; here, as in the original, what goes on with a word has ##.
    auto original = std::make_shared<Vocabulary>();
    original->texts = vocabulary_->texts;
    original->valid = vocabulary_->valid;
    for (size_t id = 0; id < original->size(); ++id) {
      std::string& text = original->texts[id];
      if (types_[id] == kControl || types_[id] == kUnknown) continue;
      if (text.starts_with(kSpaceMark)) {
        text.erase(0, kSpaceMark.size());
      } else if (!(text.starts_with('[') && text.ends_with(']'))) {
        text.insert(0, "##");
      }
    }
    for (size_t id = 0; id < original->size(); ++id)
      original->ids.Insert(original->texts[id], static_cast<int32_t>(id));
    parts_.decode_texts = original->texts;
    WordPieceOptions options;
    options.unk = UnkOr(-1);
    options.max_characters = SIZE_MAX;
    parts_.model = MakeWordPieceModel(std::move(original), options);
    adds_bos_ = true;
    adds_sep_ = true;
    parts_.decoder.push_back(MakeWordPieceDecoder("##", true));
    parts_.decoder.push_back(MakeUtf8Decoder());
    return {};
  }

  // The bytes that each token stands for.
  void SetDecodeTexts(bool space_mark) {
    parts_.decode_texts.reserve(vocabulary_->size());
    for (size_t id = 0; id < vocabulary_->size(); ++id) {
      const std::string& text = vocabulary_->texts[id];
      const int byte = types_[id] == kByte ? ByteOfToken(text) : -1;
      if (byte >= 0) {
        parts_.decode_texts.push_back(std::string(1, static_cast<char>(byte)));
      } else if (types_[id] == kControl || types_[id] == kUnknown || types_[id] == kUserDefined) {
        parts_.decode_texts.push_back(text);
      } else if (space_mark) {
        parts_.decode_texts.push_back(WithSpaces(text));
      } else {
        parts_.decode_texts.push_back(FromByteMapped(text).value_or(text));
      }
    }
  }

  Result<void> ReadAdditions() {
    HONE_TRY(const bool bos, file_.Bool(kPrefix + "add_bos_token", adds_bos_));
    HONE_TRY(const bool eos, file_.Bool(kPrefix + "add_eos_token", adds_eos_));
    if (bos && !parts_.bos && file_.Has(kPrefix + "add_bos_token"))
      return Bad("add_bos_token", "true, but there is no bos_token_id");
    if (eos && !parts_.eos && file_.Has(kPrefix + "add_eos_token"))
      return Bad("add_eos_token", "true, but there is no eos_token_id");
    if ((bos || adds_sep_) && parts_.bos) parts_.prefix.push_back(*parts_.bos);
    if (adds_sep_) {
      if (sep_) parts_.suffix.push_back(*sep_);
    } else if (eos && parts_.eos) {
      parts_.suffix.push_back(*parts_.eos);
    }
    return {};
  }

  // White space around added tokens is swallowed by some models, which GGUF files do not say: known by name, as in
  // llama.cpp.
  void CollectAdded() {
    std::string name = file_.String("general.name", "").has_value() ? file_.String("general.name", "").value() : "";
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    const bool phi3 = name.find("phi-3") != std::string::npos || name.find("phi3") != std::string::npos;
    parts_.special.assign(vocabulary_->size(), false);
    for (size_t id = 0; id < vocabulary_->size(); ++id) {
      const bool control = types_[id] == kControl || types_[id] == kUnknown;
      parts_.special[id] = control;
      if (!control && types_[id] != kUserDefined) continue;
      AddedToken token;
      token.id = static_cast<int32_t>(id);
      token.content = vocabulary_->texts[id];
      token.special = control;
      token.rstrip = phi3 && token.content != "<unk>" && token.content != "<s>" && token.content != "<|endoftext|>";
      parts_.added.push_back(std::move(token));
    }
  }

  void CollectEnds() {
    std::vector<bool> control(vocabulary_->size());
    for (size_t id = 0; id < control.size(); ++id) control[id] = types_[id] == kControl;
    for (const int32_t id : WellKnownEndIds(*vocabulary_, control)) parts_.end_ids.push_back(id);
    std::sort(parts_.end_ids.begin(), parts_.end_ids.end());
    parts_.end_ids.erase(std::unique(parts_.end_ids.begin(), parts_.end_ids.end()), parts_.end_ids.end());
  }

  static inline const std::string kPrefix = "tokenizer.ggml.";
  const GgufFile& file_;
  std::string_view force_pre_;
  TokenizerParts parts_;
  std::string model_;
  std::shared_ptr<const Vocabulary> vocabulary_;
  std::vector<GgufTokenType> types_;
  std::vector<double> scores_;
  std::optional<int32_t> sep_;
  bool adds_bos_ = false, adds_eos_ = false, adds_sep_ = false;
};

}  // namespace

Result<TokenizerParts> ReadGgufTokenizer(const GgufFile& file, std::string_view force_pre) {
  return Reader(file, force_pre).Read();
}

Result<std::shared_ptr<const Tokenizer>> Tokenizer::FromGguf(const GgufFile& file, std::string_view force_pre) {
  HONE_TRY(TokenizerParts parts, ReadGgufTokenizer(file, force_pre));
  return std::shared_ptr<const Tokenizer>(std::make_shared<TextTokenizer>(std::move(parts)));
}

}  // namespace hone
