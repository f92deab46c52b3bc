// One function a component type list; an unknown type is an error that names it.
#include "text/hf_parts.h"

#include <algorithm>
#include <array>

namespace hone {
namespace {

// The elements of field[key], an array, visited in order.
template <typename Visit>
Result<void> ForEach(const JsonField& field, std::string_view key, int depth, Visit&& visit) {
  if (depth >= kMaxSequenceDepth) {
    return Unsupported(field.path.substr(0, 100) + ": Sequence nested deeper than " +
                       std::to_string(kMaxSequenceDepth));
  }
  HONE_TRY(const JsonField list, field[key].Array());
  for (size_t i = 0; i < list.size(); ++i) HONE_RETURN_IF_ERROR(visit(list[i]));
  return {};
}

// {"String": text} or {"Regex": pattern}; an old file has the text alone.
struct Pattern {
  std::string text;
  std::optional<Regex> regex;
};
Result<Pattern> ReadPattern(const JsonField& field) {
  Pattern pattern;
  if (field.present() && field.value->is_string()) {
    HONE_TRY(pattern.text, field.String());
  } else if (field["Regex"].present()) {
    HONE_TRY(const std::string source, field["Regex"].String());
    HONE_TRY(pattern.regex, Regex::Compile(source).Context(field.path + ".Regex"));
    return pattern;
  } else {
    HONE_TRY(pattern.text, field["String"].String());
  }
  if (pattern.text.empty()) return InvalidInput(field.path + ": an empty pattern");
  return pattern;
}

Result<std::string> DecodeBase64(const JsonField& field) {
  HONE_TRY(const std::string text, field.String());
  std::string out;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    if (c == '=') break;
    const int value = c >= 'A' && c <= 'Z'   ? c - 'A'
                      : c >= 'a' && c <= 'z' ? c - 'a' + 26
                      : c >= '0' && c <= '9' ? c - '0' + 52
                      : c == '+'             ? 62
                      : c == '/'             ? 63
                                             : -1;
    if (value < 0) return field.Wanted("Base64 text");
    bits = bits << 6 | static_cast<uint32_t>(value);
    if ((count += 6) >= 8) out.push_back(static_cast<char>(bits >> (count -= 8)));
  }
  return out;
}

Result<SplitBehavior> ReadBehavior(const JsonField& field, SplitBehavior fallback) {
  if (!field.present()) return fallback;
  HONE_TRY(const std::string name, field.String());
  static constexpr std::pair<std::string_view, SplitBehavior> kNames[] = {
      {"Removed", SplitBehavior::kRemoved},
      {"Isolated", SplitBehavior::kIsolated},
      {"Contiguous", SplitBehavior::kContiguous},
      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      {"MergedWithNext", SplitBehavior::kMergedWithNext},
  };
  for (const auto& [known, behavior] : kNames) {
    if (name == known) return behavior;
  }
  return Unsupported(field.path + ": '" + name.substr(0, 100) + "' is not a known behavior");
}

// The replacement and prepend scheme of Metaspace, new and old spelling.
struct MetaspaceFields {
  std::string replacement;
  PrependScheme scheme = PrependScheme::kAlways;
};
Result<MetaspaceFields> ReadMetaspace(const JsonField& field) {
  MetaspaceFields fields;
  HONE_TRY(fields.replacement, field["replacement"].String("\xE2\x96\x81"));
  if (fields.replacement.empty()) return InvalidInput(field.path + ".replacement: empty");
  HONE_TRY(const bool prefix, field["add_prefix_space"].Bool(true));
  HONE_TRY(const std::string scheme, field["prepend_scheme"].String(prefix ? "always" : "never"));
  if (scheme == "first") {
    fields.scheme = PrependScheme::kFirst;
  } else if (scheme == "never") {
    fields.scheme = PrependScheme::kNever;
  } else if (scheme != "always") {
    return Unsupported(field.path + ".prepend_scheme: '" + scheme.substr(0, 100) + "'; known are always, first, never");
  }
  return fields;
}

Result<std::unique_ptr<Normalizer>> ReadBertNormalizer(const JsonField& field) {
  BertNormalizerOptions options;
  HONE_TRY(options.clean_text, field["clean_text"].Bool(true));
  HONE_TRY(options.handle_chinese_chars, field["handle_chinese_chars"].Bool(true));
  HONE_TRY(options.lowercase, field["lowercase"].Bool(true));
  HONE_TRY(options.strip_accents, field["strip_accents"].Bool(options.lowercase));
  return MakeBertNormalizer(options);
}

Result<void> ReadPreTokenizers(const JsonField& field, bool byte_level_model, bool last, int depth,
                               std::vector<std::unique_ptr<PreTokenizer>>* out) {
  HONE_TRY(const std::string type, field.Type());
  if (type == "Sequence") {
    HONE_TRY(const JsonField list, field["pretokenizers"].Array());
    size_t index = 0;
    return ForEach(field, "pretokenizers", depth, [&](const JsonField& part) {
      const bool is_last = last && ++index == list.size();
      return ReadPreTokenizers(part, byte_level_model, is_last, depth + 1, out);
    });
  }
  if (type == "ByteLevel") {
    ByteLevelOptions options;
    HONE_TRY(options.add_prefix_space, field["add_prefix_space"].Bool(true));
    HONE_TRY(options.use_regex, field["use_regex"].Bool(true));
    options.map_bytes = !(last && byte_level_model);
    out->push_back(MakeByteLevel(options));
  } else if (type == "Split") {
    HONE_TRY(Pattern pattern, ReadPattern(field["pattern"]));
    HONE_TRY(const SplitBehavior behavior, ReadBehavior(field["behavior"], SplitBehavior::kIsolated));
    HONE_TRY(const bool invert, field["invert"].Bool(false));
    out->push_back(pattern.regex ? MakeRegexSplit(std::move(*pattern.regex), behavior, invert)
                                 : MakeTextSplit(std::move(pattern.text), behavior, invert));
  } else if (type == "Metaspace") {
    HONE_TRY(const MetaspaceFields fields, ReadMetaspace(field));
    HONE_TRY(const bool split, field["split"].Bool(true));
    out->push_back(MakeMetaspace(fields.replacement, fields.scheme, split));
  } else if (type == "Digits") {
    HONE_TRY(const bool individual, field["individual_digits"].Bool(false));
    out->push_back(MakeDigits(individual));
  } else if (type == "Punctuation") {
    HONE_TRY(const SplitBehavior behavior, ReadBehavior(field["behavior"], SplitBehavior::kIsolated));
    out->push_back(MakePunctuation(behavior));
  } else if (type == "Whitespace") {
    out->push_back(MakeWhitespace());
  } else if (type == "WhitespaceSplit") {
    out->push_back(MakeWhitespaceSplit());
  } else if (type == "BertPreTokenizer") {
    out->push_back(MakeBertPreTokenizer());
  } else if (type == "CharDelimiterSplit") {
    HONE_TRY(std::string delimiter, field["delimiter"].String());
    if (delimiter.empty()) return InvalidInput(field.path + ".delimiter: empty");
    out->push_back(MakeTextSplit(std::move(delimiter), SplitBehavior::kRemoved, false));
  } else if (type == "FixedLength") {
    HONE_TRY(const int64_t length, field["length"].Count(1 << 20));
    if (length == 0) return InvalidInput(field.path + ".length: 0");
    out->push_back(MakeFixedLength(static_cast<size_t>(length)));
  } else {
    return UnknownType(
        field, type,
        "ByteLevel, Split, Metaspace, Digits, Punctuation, Whitespace, WhitespaceSplit, BertPreTokenizer, "
        "CharDelimiterSplit, FixedLength, Sequence");
  }
  return {};
}

Result<void> ReadDecoders(const JsonField& field, int depth, DecoderChain* chain) {
  HONE_TRY(const std::string type, field.Type());
  if (type == "Sequence") {
    return ForEach(field, "decoders", depth,
                   [&](const JsonField& part) { return ReadDecoders(part, depth + 1, chain); });
  }
  if (type == "ByteLevel") {
    chain->push_back(MakeByteLevelDecoder());
  } else if (type == "ByteFallback") {
    chain->push_back(MakeByteFallbackDecoder());
  } else if (type == "Fuse") {
    chain->push_back(MakeFuseDecoder());
  } else if (type == "Strip") {
    HONE_TRY(const std::string content, field["content"].String());
    if (content.empty()) return InvalidInput(field.path + ".content: empty");
    HONE_TRY(const int64_t start, field["start"].Count(1 << 20));
    HONE_TRY(const int64_t stop, field["stop"].Count(1 << 20));
    chain->push_back(MakeStripDecoder(content, static_cast<size_t>(start), static_cast<size_t>(stop)));
  } else if (type == "Replace") {
    HONE_TRY(Pattern pattern, ReadPattern(field["pattern"]));
    HONE_TRY(const std::string content, field["content"].String());
    chain->push_back(pattern.regex ? MakeRegexReplaceDecoder(std::move(*pattern.regex), content)
                                   : MakeReplaceDecoder(std::move(pattern.text), content));
  } else if (type == "Metaspace") {
    HONE_TRY(const MetaspaceFields fields, ReadMetaspace(field));
    chain->push_back(MakeMetaspaceDecoder(fields.replacement, fields.scheme != PrependScheme::kNever));
  } else if (type == "WordPiece") {
    HONE_TRY(const std::string prefix, field["prefix"].String("##"));
    HONE_TRY(const bool cleanup, field["cleanup"].Bool(true));
    chain->push_back(MakeWordPieceDecoder(prefix, cleanup));
  } else if (type == "BPEDecoder") {
    HONE_TRY(const std::string suffix, field["suffix"].String("</w>"));
    chain->push_back(MakeBpeSuffixDecoder(suffix));
  } else if (type == "CTC") {
    HONE_TRY(const std::string pad, field["pad_token"].String("<pad>"));
    HONE_TRY(const std::string delimiter, field["word_delimiter_token"].String("|"));
    HONE_TRY(const bool cleanup, field["cleanup"].Bool(true));
    chain->push_back(MakeCtcDecoder(pad, delimiter, cleanup));
  } else {
    return UnknownType(
        field, type, "ByteLevel, ByteFallback, Fuse, Strip, Replace, Metaspace, WordPiece, BPEDecoder, CTC, Sequence");
  }
  return {};
}

// ["text", id] of BertProcessing and RobertaProcessing.
Result<int32_t> ReadTokenPair(const JsonField& field) {
  HONE_TRY(const JsonField pair, field.Array());
  if (pair.size() != 2) return field.Wanted("[text, id]");
  HONE_TRY(const int64_t id, pair[1].Count(INT32_MAX));
  return static_cast<int32_t>(id);
}

Result<TokensAround> ReadTemplate(const JsonField& field, const std::function<int32_t(std::string_view)>& find_token) {
  TokensAround result;
  bool text_seen = false;
  HONE_TRY(const JsonField single, field["single"].Array());
  for (size_t i = 0; i < single.size(); ++i) {
    const JsonField item = single[i];
    if (item["Sequence"].present()) {
      if (text_seen) return Unsupported(item.path + ": the text a second time in one template");
      text_seen = true;
      continue;
    }
    HONE_TRY(const std::string name, item["SpecialToken"]["id"].String());
    std::vector<int32_t>& side = text_seen ? result.suffix : result.prefix;
    const JsonField ids = field["special_tokens"][name]["ids"];
    if (!ids.present()) {
      const int32_t id = find_token(name);
      if (id < 0) return InvalidInput(item.path + ": the token '" + name.substr(0, 100) + "' is not in special_tokens");
      side.push_back(id);
      continue;
    }
    HONE_TRY(const JsonField list, ids.Array());
    for (size_t k = 0; k < list.size(); ++k) {
      HONE_TRY(const int64_t id, list[k].Count(INT32_MAX));
      side.push_back(static_cast<int32_t>(id));
    }
  }
  if (!text_seen) return InvalidInput(single.path + ": no Sequence: the text has no place");
  return result;
}

Result<void> ReadPostProcessors(const JsonField& field, const std::function<int32_t(std::string_view)>& find_token,
                                int depth, TokensAround* out) {
  HONE_TRY(const std::string type, field.Type());
  if (type == "Sequence") {
    return ForEach(field, "processors", depth,
                   [&](const JsonField& part) { return ReadPostProcessors(part, find_token, depth + 1, out); });
  }
  TokensAround around;
  if (type == "TemplateProcessing") {
    HONE_TRY(around, ReadTemplate(field, find_token));
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    HONE_TRY(const int32_t cls, ReadTokenPair(field["cls"]));
    HONE_TRY(const int32_t sep, ReadTokenPair(field["sep"]));
    around = {{cls}, {sep}};
  } else if (type != "ByteLevel") {
    return UnknownType(field, type, "TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel, Sequence");
  }
  out->prefix.insert(out->prefix.begin(), around.prefix.begin(), around.prefix.end());
  out->suffix.insert(out->suffix.end(), around.suffix.begin(), around.suffix.end());
  return {};
}

}  // namespace

Result<std::unique_ptr<Normalizer>> ReadNormalizer(const JsonField& field, int depth) {
  HONE_TRY(const std::string type, field.Type());
  if (type == "Sequence") {
    std::vector<std::unique_ptr<Normalizer>> parts;
    HONE_RETURN_IF_ERROR(ForEach(field, "normalizers", depth, [&](const JsonField& part) -> Result<void> {
      HONE_TRY(auto normalizer, ReadNormalizer(part, depth + 1));
      parts.push_back(std::move(normalizer));
      return {};
    }));
    return MakeSequenceNormalizer(std::move(parts));
  }
  if (type == "NFC") return MakeFormNormalizer(NormalForm::kNfc);
  if (type == "NFD") return MakeFormNormalizer(NormalForm::kNfd);
  if (type == "NFKC") return MakeFormNormalizer(NormalForm::kNfkc);
  if (type == "NFKD") return MakeFormNormalizer(NormalForm::kNfkd);
  if (type == "Lowercase") return MakeLowercaseNormalizer();
  if (type == "StripAccents") return MakeStripAccentsNormalizer();
  if (type == "Nmt") return MakeNmtNormalizer();
  if (type == "ByteLevel") return MakeByteLevelNormalizer();
  if (type == "BertNormalizer") return ReadBertNormalizer(field);
  if (type == "Strip") {
    HONE_TRY(const bool left, field["strip_left"].Bool(true));
    HONE_TRY(const bool right, field["strip_right"].Bool(true));
    return MakeStripNormalizer(left, right);
  }
  if (type == "Prepend") {
    HONE_TRY(std::string prefix, field["prepend"].String());
    return MakePrependNormalizer(std::move(prefix));
  }
  if (type == "Replace") {
    HONE_TRY(Pattern pattern, ReadPattern(field["pattern"]));
    HONE_TRY(std::string content, field["content"].String());
    if (pattern.regex) return MakeRegexReplaceNormalizer(std::move(*pattern.regex), std::move(content));
    return MakeReplaceNormalizer(std::move(pattern.text), std::move(content));
  }
  if (type == "Precompiled") {
    HONE_TRY(std::string blob, DecodeBase64(field["precompiled_charsmap"]));
    HONE_TRY(CharsMap map, CharsMap::Parse(std::move(blob)).Context(field.path + ".precompiled_charsmap"));
    return MakePrecompiledNormalizer(std::move(map));
  }
  return UnknownType(
      field, type,
      "NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, Replace, Prepend, BertNormalizer, Precompiled, Nmt, "
      "ByteLevel, Sequence");
}

bool EndsInByteLevel(const JsonField& pre_tokenizer) {
  const Json* at = pre_tokenizer.value;
  for (int depth = 0; at != nullptr && at->is_object() && depth <= kMaxSequenceDepth; ++depth) {
    const auto type = at->find("type");
    if (type == at->end() || !type->is_string()) return false;
    if (*type == "ByteLevel") return true;
    const auto parts = at->find("pretokenizers");
    if (*type != "Sequence" || parts == at->end() || !parts->is_array() || parts->empty()) return false;
    at = &parts->back();
  }
  return false;
}

Result<std::unique_ptr<PreTokenizer>> ReadPreTokenizer(const JsonField& field, bool byte_level_model) {
  std::vector<std::unique_ptr<PreTokenizer>> parts;
  HONE_RETURN_IF_ERROR(ReadPreTokenizers(field, byte_level_model, true, 0, &parts));
  return MakeSequencePreTokenizer(std::move(parts));
}

Result<DecoderChain> ReadDecoder(const JsonField& field) {
  DecoderChain chain;
  HONE_RETURN_IF_ERROR(ReadDecoders(field, 0, &chain));
  return chain;
}

Result<TokensAround> ReadPostProcessor(const JsonField& field, const std::function<int32_t(std::string_view)>& find_token) {
  TokensAround result;
  HONE_RETURN_IF_ERROR(ReadPostProcessors(field, find_token, 0, &result));
  return result;
}

}  // namespace hone
