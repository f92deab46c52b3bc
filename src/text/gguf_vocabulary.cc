// See gguf_vocabulary.h. Layout of the keys: docs/formats/gguf.md.
#include "text/gguf_vocabulary.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "text/gguf_token_types.h"
#include "text/pre_tokenizer.h"

namespace hone {
namespace {

using Json = nlohmann::json;

// Whether a component of this type stands anywhere below `part`.
bool Uses(const Json& part, std::string_view type) {
  if (part.is_object() && part.contains("type") && part["type"] == type) return true;
  if (!part.is_structured()) return false;
  return std::any_of(part.begin(), part.end(), [&](const Json& child) { return Uses(child, type); });
}

// "a b" for each merge, whichever way the file writes it.
Result<std::vector<std::string>> Merges(const Json& model, std::string_view origin) {
  std::vector<std::string> merges;
  if (!model.contains("merges") || !model["merges"].is_array()) {
    return InvalidInput(std::string(origin) + ": model.merges is not an array");
  }
  for (const Json& merge : model["merges"]) {
    if (merge.is_string()) {
      merges.push_back(merge.get<std::string>());
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      merges.push_back(merge[0].get<std::string>() + " " + merge[1].get<std::string>());
    } else {
      return InvalidInput(std::string(origin) + ": an entry of model.merges is neither \"a b\" nor [\"a\", \"b\"]");
    }
  }
  return merges;
}

// Texts on which pre-tokenizer kinds differ: contractions in both cases, digit runs, spaces and line ends, punctuation next to
// letters, other scripts, emoji. All in NFC: GGUF holds no Unicode normalisation.
const char* const kProbes[] = {
    "Hello world", " Hello  World   3 spaces\n\n\nlines \t tabs\r\n end  ", "I'm you're WE'LL they'D 'tis it's-'S",
    "1 12 123 1234 12345 1234567 3.14159 1,000,000 x2 2x 10km", "foo_bar(baz[0], \"qux\") != 'a'; // ok?\n\treturn x->y;\n",
    "\xc3\x84pfel caf\xc3\xa9 na\xc3\xafve \xe2\x80\x99s \xc2\xbd \xd9\xa1\xd9\xa2\xd9\xa3", "\xe4\xbd\xa0\xe5\xa5\xbd\xef\xbc\x8c\xe4\xb8\x96\xe7\x95\x8c\xe3\x80\x82 \xe3\x81\x93\xe3\x82\x93\xe3\x81\xab\xe3\x81\xa1\xe3\x81\xaf",
    "\xd0\x9f\xd1\x80\xd0\xb8\xd0\xb2\xd0\xb5\xd1\x82 \xce\xb3\xce\xb5\xce\xb9\xce\xac \xd7\xa9\xd7\x9c\xd7\x95\xd7\x9d \xe0\xa4\xa8\xe0\xa4\xae\xe0\xa4\xb8\xe0\xa5\x8d\xe0\xa4\xa4\xe0\xa5\x87", "\xf0\x9f\x98\x80\xf0\x9f\x9a\x80 ok \xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x92\xbb\xe2\x80\xa6!!!???...",
    "CamelCaseHTTPServer ABC def's", "    indented\n        more\n\n  \n x", "=====-----//////\n\n###", "\n", " ", "a", ""};

// The text on which the two part, or nullptr.
const char* FirstDifference(const Tokenizer& a, const Tokenizer& b) {
  for (const char* text : kProbes) {
    if (a.Encode(text) != b.Encode(text)) return text;
  }
  return nullptr;
}

}  // namespace

bool Normalises(const Tokenizer& tokenizer) { return tokenizer.Encode("e\xcc\x81") == tokenizer.Encode("\xc3\xa9"); }

Result<std::vector<std::pair<std::string, GgufValue>>> GgufVocabulary(std::string_view tokenizer_json, std::string_view origin,
                                                                     const Tokenizer& tokenizer, int vocab) {
  const Json root = Json::parse(tokenizer_json, nullptr, false);
  if (!root.is_object() || !root.contains("model") || !root["model"].is_object()) {
    return InvalidInput(std::string(origin) + ": no model object");
  }
  const Json& model = root["model"];
  if (tokenizer.kind() != "bpe") {
    return Unsupported(std::string(origin) + ": a " + std::string(tokenizer.kind()) +
                       " tokenizer cannot be written to GGUF by hone; byte-level and SentencePiece-like BPE can");
  }
  HONE_TRY(std::vector<std::string> merges, Merges(model, origin));
  const bool byte_level = Uses(root.value("pre_tokenizer", Json()), "ByteLevel") || Uses(root.value("decoder", Json()), "ByteLevel");

  std::unordered_map<int32_t, bool> added;  // id: special
  for (const Json& token : root.value("added_tokens", Json::array())) {
    if (token.is_object() && token.contains("id") && token["id"].is_number_integer()) {
      added[token["id"].get<int32_t>()] = token.value("special", false);
    }
  }
  std::vector<std::string> tokens;
  std::vector<int64_t> types;
  const int size = std::max(vocab, tokenizer.vocab_size());
  for (int32_t id = 0; id < size; ++id) {
    const std::string text = tokenizer.IsValid(id) ? tokenizer.TokenText(id) : "[PAD" + std::to_string(id) + "]";
    const auto it = added.find(id);
    const bool byte = !byte_level && text.size() == 6 && text.starts_with("<0x") && text.ends_with(">");
    types.push_back(!tokenizer.IsValid(id)                                ? kUnused
                    : tokenizer.unk() == id && !byte_level                ? kUnknown
                    : it != added.end()                                   ? (it->second ? kControl : kUserDefined)
                    : byte                                                ? kByte
                                                                          : kNormal);
    tokens.push_back(text);
  }

  std::vector<std::pair<std::string, GgufValue>> metadata;
  const auto put = [&](const char* key, GgufValue value) { metadata.emplace_back(std::string("tokenizer.ggml.") + key, std::move(value)); };
  put("model", {GgufType::kString, GgufType::kU32, std::string(byte_level ? "gpt2" : "llama")});
  if (!byte_level) {
    // SentencePiece merges by score: the earlier a merge is learned, the higher the score of what it makes.
    std::unordered_map<std::string, size_t> rank;
    for (size_t i = 0; i < merges.size(); ++i) {
      std::string made = merges[i];
      made.erase(made.find(' '), 1);
      rank.emplace(made, i);
    }
    std::vector<double> scores;
    for (size_t id = 0; id < tokens.size(); ++id) {
      const auto it = rank.find(tokens[id]);
      scores.push_back(types[id] != kNormal ? 0 : it != rank.end() ? -static_cast<double>(it->second) : -static_cast<double>(merges.size() + id));
    }
    put("scores", {GgufType::kArray, GgufType::kF32, std::move(scores)});
    // A tokenizer that puts a mark before the text gives "a" and the written-out mark with "a" the same ids.
    const bool prefix = tokenizer.Encode("a") == tokenizer.Encode("\xe2\x96\x81" "a") ||
                        Uses(root.value("normalizer", Json()), "Prepend");
    put("add_space_prefix", {GgufType::kBool, GgufType::kU32, prefix});
  }
  put("tokens", {GgufType::kArray, GgufType::kString, std::move(tokens)});
  put("token_type", {GgufType::kArray, GgufType::kI32, std::move(types)});
  if (byte_level) put("merges", {GgufType::kArray, GgufType::kString, std::move(merges)});
  const std::pair<const char*, std::optional<int32_t>> ids[] = {{"bos_token_id", tokenizer.bos()}, {"eos_token_id", tokenizer.eos()},
                                                                {"unknown_token_id", tokenizer.unk()}, {"padding_token_id", tokenizer.pad()}};
  for (const auto& [key, id] : ids) {
    if (id) put(key, {GgufType::kU32, GgufType::kU32, static_cast<uint64_t>(*id)});
  }
  put("add_bos_token", {GgufType::kBool, GgufType::kU32, tokenizer.adds_bos()});
  put("add_eos_token", {GgufType::kBool, GgufType::kU32, tokenizer.adds_eos()});
  return metadata;
}

Result<std::string> FindGgufPreKind(const GgufFile& file, const Tokenizer& tokenizer) {
  HONE_TRY(const std::string model, file.String("tokenizer.ggml.model"));
  if (model != "gpt2") return std::string();
  // Many kinds share their patterns; the first of each pattern set is tried, in the order of the table.
  std::vector<const PreKind*> tried;
  for (const std::string_view name : PreKindNames()) {
    const PreKind* kind = FindPreKind(name);
    const bool known = std::any_of(tried.begin(), tried.end(), [&](const PreKind* other) {
      return other->patterns == kind->patterns && other->ignore_merges == kind->ignore_merges;
    });
    if (known || kind->space_mark) continue;
    tried.push_back(kind);
    const auto candidate = Tokenizer::FromGguf(file, name);
    if (candidate && FirstDifference(**candidate, tokenizer) == nullptr) return std::string(name);
  }
  return Unsupported("none of GGUF's pre-tokenizer kinds cuts text as this tokenizer.json does");
}

Result<void> CheckSameIds(const Tokenizer& a, const Tokenizer& b) {
  if (const char* text = FirstDifference(a, b)) {
    return Unsupported("the tokenizer cannot be said in GGUF exactly: '" + std::string(text) + "' gets other ids");
  }
  std::string special;
  for (int32_t id = 0; id < std::min(a.vocab_size(), b.vocab_size()); ++id) {
    if (a.IsSpecial(id)) special += a.TokenText(id) + "x";
  }
  const EncodeOptions options{.add_special = true, .parse_special = true};
  if (a.Encode(special, options) != b.Encode(special, options)) {
    return Unsupported("the tokenizer cannot be said in GGUF exactly: special tokens get other ids");
  }
  return {};
}

}  // namespace hone
