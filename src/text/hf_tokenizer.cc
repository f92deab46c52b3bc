// The model, vocabulary, merges and added tokens of tokenizer.json; components are in hf_parts.cc. Truncation and
// padding of the file are not applied: an engine decides on lengths itself. `dropout` belongs to training and is not
// applied either.
#include "text/hf_tokenizer.h"

#include <algorithm>

#include "text/hf_json.h"
#include "text/hf_parts.h"

namespace hone {
namespace {

constexpr size_t kMaxAddedTokenBytes = 4096;

Result<Json> ParseJson(std::string_view text, std::string_view what) {
  try {
    return Json::parse(text);
  } catch (const Json::exception& e) {
    return InvalidInput(std::string(what) + ": not JSON: " + std::string(e.what()).substr(0, 300));
  } catch (const std::bad_alloc&) {
    return InvalidInput(std::string(what) + ": too large");
  }
}

class HfReader {
 public:
  HfReader(const Json& document, const Json& config) : root_{&document, ""}, config_{&config, "tokenizer_config.json"} {}

  Result<TokenizerParts> Read() {
    if (!root_.value->is_object())
      return InvalidInput("wanted a JSON object, found " + std::string(root_.value->type_name()));
    HONE_TRY(const JsonField model, root_["model"].Object());
    HONE_TRY(const std::string type, ModelType(model));
    HONE_RETURN_IF_ERROR(ReadVocabulary(model, type));
    HONE_RETURN_IF_ERROR(ReadAddedTokens());
    HONE_RETURN_IF_ERROR(BuildVocabulary());
    if (root_["normalizer"].present()) {
      HONE_TRY(parts_.normalizer, ReadNormalizer(root_["normalizer"]));
    }
    HONE_RETURN_IF_ERROR(ReadModel(model, type));
    if (root_["decoder"].present()) {
      HONE_TRY(parts_.decoder, ReadDecoder(root_["decoder"]));
    } else {
      parts_.decoder.push_back(MakeSpaceJoinDecoder());
    }
    if (root_["post_processor"].present()) {
      HONE_TRY(TokensAround around, ReadPostProcessor(root_["post_processor"],
                                                  [&](std::string_view text) { return vocabulary_->Find(text); }));
      for (const auto* ids : {&around.prefix, &around.suffix}) {
        for (const int32_t id : *ids) {
          if (static_cast<size_t>(id) >= vocabulary_->size()) {
            return InvalidInput("post_processor: id " + std::to_string(id) + " is not in the vocabulary");
          }
        }
      }
      parts_.prefix = std::move(around.prefix);
      parts_.suffix = std::move(around.suffix);
    }
    HONE_RETURN_IF_ERROR(ReadConfig());
    return std::move(parts_);
  }

 private:
  static Result<std::string> ModelType(const JsonField& model) {
    if (model["type"].present()) return model["type"].String();
    // Old files leave the type out.
    if (model["merges"].present()) return std::string("BPE");
    if (model["vocab"].present() && model["vocab"].value->is_array()) return std::string("Unigram");
    if (model["continuing_subword_prefix"].present()) return std::string("WordPiece");
    return std::string("WordLevel");
  }

  Result<void> Add(const std::string& text, int64_t id, const std::string& path) {
    const auto place = static_cast<size_t>(id);
    if (place >= texts_.size()) {
      texts_.resize(place + 1);
      valid_.resize(place + 1);
    }
    if (valid_[place] && texts_[place] != text) {
      return InvalidInput(path + ": id " + std::to_string(id) + " is given to '" + texts_[place].substr(0, 100) +
                          "' and to '" + text.substr(0, 100) + "'");
    }
    texts_[place] = text;
    valid_[place] = true;
    return {};
  }

  Result<void> ReadVocabulary(const JsonField& model, const std::string& type) {
    const JsonField vocab = model["vocab"];
    if (type == "Unigram") {
      HONE_TRY(const JsonField list, vocab.Array());
      for (size_t i = 0; i < list.size(); ++i) {
        HONE_TRY(const JsonField pair, list[i].Array());
        if (pair.size() != 2) return pair.Wanted("[text, score]");
        HONE_TRY(const std::string text, pair[0].String());
        HONE_TRY(const double score, pair[1].Number());
        HONE_RETURN_IF_ERROR(Add(text, static_cast<int64_t>(i), list.path));
        scores_.push_back(score);
      }
      return {};
    }
    HONE_TRY(const JsonField object, vocab.Object());
    // Ids may have holes, but not more of them than tokens by far: memory follows the largest id.
    const auto most = static_cast<int64_t>(object.size() * 4 + 65536);
    for (const auto& [text, id] : object.value->items()) {
      const JsonField field{&id, object.path + "['" + text.substr(0, 100) + "']"};
      HONE_TRY(const int64_t number, field.Count(most));
      HONE_RETURN_IF_ERROR(Add(text, number, object.path));
    }
    return {};
  }

  Result<void> ReadAddedTokens() {
    const JsonField field = root_["added_tokens"];
    if (!field.present()) return {};
    HONE_TRY(const JsonField list, field.Array());
    const auto most = static_cast<int64_t>((texts_.size() + list.size()) * 4 + 65536);
    for (size_t i = 0; i < list.size(); ++i) {
      const JsonField item = list[i];
      AddedToken token;
      HONE_TRY(const int64_t id, item["id"].Count(most));
      token.id = static_cast<int32_t>(id);
      HONE_TRY(token.content, item["content"].String());
      HONE_TRY(token.single_word, item["single_word"].Bool(false));
      HONE_TRY(token.lstrip, item["lstrip"].Bool(false));
      HONE_TRY(token.rstrip, item["rstrip"].Bool(false));
      HONE_TRY(token.special, item["special"].Bool(false));
      HONE_TRY(token.normalized, item["normalized"].Bool(!token.special));
      if (token.content.size() > kMaxAddedTokenBytes) {
        return InvalidInput(item.path + ".content: " + std::to_string(token.content.size()) + " bytes; at most " +
                            std::to_string(kMaxAddedTokenBytes));
      }
      if (token.content.empty()) continue;  // the library leaves them out too
      HONE_RETURN_IF_ERROR(Add(token.content, id, item.path));
      parts_.added.push_back(std::move(token));
    }
    return {};
  }

  Result<void> BuildVocabulary() {
    if (texts_.empty()) return InvalidInput("model.vocab: no tokens");
    auto vocabulary = std::make_shared<Vocabulary>();
    vocabulary->texts = std::move(texts_);
    vocabulary->valid = std::move(valid_);
    size_t bytes = 0;
    for (const std::string& text : vocabulary->texts) bytes += text.size();
    vocabulary->ids.Reserve(vocabulary->size(), bytes);
    for (size_t id = 0; id < vocabulary->size(); ++id) {
      if (vocabulary->valid[id]) vocabulary->ids.Set(vocabulary->texts[id], static_cast<int32_t>(id));
    }
    parts_.special.assign(vocabulary->size(), false);
    for (const AddedToken& token : parts_.added) parts_.special[static_cast<size_t>(token.id)] = token.special;
    parts_.decode_texts = vocabulary->texts;
    vocabulary_ = vocabulary;
    parts_.vocabulary = vocabulary;
    return {};
  }

  Result<int32_t> UnkId(const JsonField& field) {
    if (!field.present()) return -1;
    HONE_TRY(const std::string text, field.String());
    const int32_t id = vocabulary_->Find(text);
    if (id < 0) return InvalidInput(field.path + ": the token '" + text.substr(0, 100) + "' is not in the vocabulary");
    return id;
  }

  Result<void> ReadModel(const JsonField& model, const std::string& type) {
    const JsonField pre_tokenizer = root_["pre_tokenizer"];
    bool byte_level = false;
    if (type == "BPE") {
      HONE_TRY(byte_level, ReadBpe(model, EndsInByteLevel(pre_tokenizer)));
    } else if (type == "Unigram") {
      HONE_RETURN_IF_ERROR(ReadUnigram(model));
    } else if (type == "WordPiece") {
      WordPieceOptions options;
      HONE_TRY(options.unk, UnkId(model["unk_token"]));
      HONE_TRY(options.continuing_prefix, model["continuing_subword_prefix"].String("##"));
      if (model["max_input_chars_per_word"].present()) {
        HONE_TRY(const int64_t most, model["max_input_chars_per_word"].Count(1 << 20));
        options.max_characters = static_cast<size_t>(most);
      }
      parts_.model = MakeWordPieceModel(vocabulary_, options);
    } else if (type == "WordLevel") {
      HONE_TRY(const int32_t unk, UnkId(model["unk_token"]));
      parts_.model = MakeWordLevelModel(vocabulary_, unk);
    } else {
      return UnknownType(model, type, "BPE, Unigram, WordPiece, WordLevel");
    }
    if (pre_tokenizer.present()) {
      HONE_TRY(parts_.pre_tokenizer, ReadPreTokenizer(pre_tokenizer, byte_level));
    }
    const bool keeps_bytes = byte_level && parts_.normalizer == nullptr;
    parts_.malformed = keeps_bytes ? TokenizerParts::Malformed::kOwnPieces : TokenizerParts::Malformed::kReplaced;
    if (parts_.model->unk() >= 0) parts_.unk = parts_.model->unk();
    return {};
  }

  // Whether the model works on bytes.
  Result<bool> ReadBpe(const JsonField& model, bool byte_pieces) {
    BpeOptions options;
    HONE_TRY(options.unk, UnkId(model["unk_token"]));
    HONE_TRY(options.fuse_unk, model["fuse_unk"].Bool(false));
    HONE_TRY(options.byte_fallback, model["byte_fallback"].Bool(false));
    HONE_TRY(options.ignore_merges, model["ignore_merges"].Bool(false));
    HONE_TRY(options.continuing_prefix, model["continuing_subword_prefix"].String(""));
    HONE_TRY(options.end_suffix, model["end_of_word_suffix"].String(""));
    options.byte_level =
        byte_pieces && options.continuing_prefix.empty() && options.end_suffix.empty() && !options.byte_fallback;
    std::vector<std::pair<std::string, std::string>> merges;
    HONE_TRY(const JsonField list, model["merges"].Array());
    merges.reserve(list.size());
    for (const Json& entry : *list.value) {
      if (entry.is_string()) {
        const auto& line = entry.get_ref<const std::string&>();
        const size_t space = line.find(' ');
        if (space != std::string::npos && line.find(' ', space + 1) == std::string::npos) {
          merges.emplace_back(line.substr(0, space), line.substr(space + 1));
          continue;
        }
      } else if (entry.is_array() && entry.size() == 2 && entry[0].is_string() && entry[1].is_string()) {
        merges.emplace_back(entry[0].get_ref<const std::string&>(), entry[1].get_ref<const std::string&>());
        continue;
      }
      return InvalidInput(list.path + "[" + std::to_string(merges.size()) +
                          "]: wanted \"left right\" or [\"left\", \"right\"]");
    }
    const bool byte_level = options.byte_level;
    HONE_TRY(parts_.model, MakeBpeModel(vocabulary_, merges, std::move(options)).Context(list.path));
    return byte_level;
  }

  Result<void> ReadUnigram(const JsonField& model) {
    UnigramOptions options;
    if (model["unk_id"].present()) {
      HONE_TRY(const int64_t unk, model["unk_id"].Count(INT32_MAX));
      if (static_cast<size_t>(unk) >= scores_.size()) {
        return InvalidInput(model.path + ".unk_id: " + std::to_string(unk) + " is not in the vocabulary");
      }
      options.unk = static_cast<int32_t>(unk);
    }
    HONE_TRY(options.byte_fallback, model["byte_fallback"].Bool(false));
    options.joined_unknowns = true;
    double lowest = 0;
    for (const double score : scores_) lowest = std::min(lowest, score);
    if (!scores_.empty()) lowest = *std::min_element(scores_.begin(), scores_.end());
    parts_.model = MakeUnigramModel(vocabulary_, scores_, {}, lowest, options);
    return {};
  }

  // A token that tokenizer_config.json names: a string, or an object with "content". Unknown tokens are no error.
  std::optional<int32_t> ConfiguredToken(std::string_view key) const {
    JsonField field = config_[key];
    if (field.present() && field.value->is_object()) field = field["content"];
    if (!field.present() || !field.value->is_string()) return std::nullopt;
    const int32_t id = vocabulary_->Find(field.value->get_ref<const std::string&>());
    return id < 0 ? std::nullopt : std::optional(id);
  }

  Result<void> ReadConfig() {
    if (!config_.value->is_object() && !config_.value->is_null()) return config_.Wanted("an object");
    parts_.bos = ConfiguredToken("bos_token");
    parts_.eos = ConfiguredToken("eos_token");
    parts_.pad = ConfiguredToken("pad_token");
    if (!parts_.unk) parts_.unk = ConfiguredToken("unk_token");
    if (!parts_.bos) parts_.bos = ConfiguredToken("cls_token");
    if (!parts_.bos && !parts_.prefix.empty()) parts_.bos = parts_.prefix.front();
    if (!parts_.eos) parts_.eos = ConfiguredToken("sep_token");
    if (!parts_.eos && !parts_.suffix.empty()) parts_.eos = parts_.suffix.back();
    std::vector<bool> added(vocabulary_->size(), false);
    for (const AddedToken& token : parts_.added) added[static_cast<size_t>(token.id)] = true;
    parts_.end_ids = WellKnownEndIds(*vocabulary_, added);
    if (!parts_.eos && parts_.end_ids.size() == 1) parts_.eos = parts_.end_ids[0];
    if (parts_.eos && std::find(parts_.end_ids.begin(), parts_.end_ids.end(), *parts_.eos) == parts_.end_ids.end()) {
      parts_.end_ids.push_back(*parts_.eos);
      std::sort(parts_.end_ids.begin(), parts_.end_ids.end());
    }
    return {};
  }

  JsonField root_, config_;
  TokenizerParts parts_;
  std::vector<std::string> texts_;
  std::vector<bool> valid_;
  std::vector<double> scores_;
  std::shared_ptr<const Vocabulary> vocabulary_;
};

}  // namespace

Result<TokenizerParts> ReadHuggingFaceTokenizer(std::string_view tokenizer_json,
                                                std::string_view tokenizer_config_json) {
  HONE_TRY(const Json document, ParseJson(tokenizer_json, "tokenizer.json"));
  Json config;
  if (!tokenizer_config_json.empty()) {
    HONE_TRY(config, ParseJson(tokenizer_config_json, "tokenizer_config.json"));
  }
  return HfReader(document, config).Read();
}

Result<std::shared_ptr<const Tokenizer>> Tokenizer::FromJson(std::string_view tokenizer_json,
                                                             std::string_view tokenizer_config_json,
                                                             std::string origin) {
  HONE_TRY(TokenizerParts parts, ReadHuggingFaceTokenizer(tokenizer_json, tokenizer_config_json).Context(origin));
  return std::shared_ptr<const Tokenizer>(std::make_shared<TextTokenizer>(std::move(parts)));
}

}  // namespace hone
