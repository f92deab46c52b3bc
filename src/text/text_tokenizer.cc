// See text_tokenizer.h.
#include "text/text_tokenizer.h"

#include <algorithm>

#include "text/stream_decoder.h"
#include "text/utf8.h"

namespace hone {

TextTokenizer::TextTokenizer(TokenizerParts parts) : parts_(std::move(parts)) {
  std::vector<AddedToken> raw, normalized;
  for (AddedToken& token : parts_.added) {
    if (!token.normalized || parts_.normalizer == nullptr) {
      raw.push_back(token);
      continue;
    }
    AddedToken copy = token;
    copy.content = ToValidUtf8(copy.content);
    parts_.normalizer->Apply(&copy.content);
    parts_.decode_texts[static_cast<size_t>(copy.id)] = copy.content;
    if (!copy.content.empty()) normalized.push_back(std::move(copy));
  }
  has_normalized_added_ = !normalized.empty();
  raw_added_ = AddedTokenFinder(std::move(raw));
  normalized_added_ = AddedTokenFinder(std::move(normalized));
}

std::vector<int32_t> TextTokenizer::Encode(std::string_view text, const EncodeOptions& options) const {
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 4 + 8);
  if (options.add_special) ids = parts_.prefix;
  std::string replaced;
  if (parts_.malformed == TokenizerParts::Malformed::kReplaced && !IsValidUtf8(text)) {
    replaced = ToValidUtf8(text);
    text = replaced;
  }
  std::vector<TextPart> split;
  raw_added_.Split(text, options.parse_special, &split);
  Scratch scratch;
  for (const TextPart& part : split) {
    if (part.id >= 0) {
      ids.push_back(part.id);
    } else {
      EncodeStretch(part.text, part.text.data() == text.data(), options.parse_special, &scratch, &ids);
    }
  }
  if (options.add_special) ids.insert(ids.end(), parts_.suffix.begin(), parts_.suffix.end());
  return ids;
}

void TextTokenizer::EncodeStretch(std::string_view text, bool at_start, bool parse_special, Scratch* scratch,
                                  std::vector<int32_t>* ids) const {
  std::string normalized;
  if (parts_.normalizer != nullptr) {
    normalized = text;
    parts_.normalizer->Apply(&normalized);
    text = normalized;
  }
  if (!has_normalized_added_) return EncodePieces(text, at_start, scratch, ids);
  std::vector<TextPart> split;
  normalized_added_.Split(text, parse_special, &split);
  for (const TextPart& part : split) {
    if (part.id >= 0) {
      ids->push_back(part.id);
    } else {
      EncodePieces(part.text, at_start && part.text.data() == text.data(), scratch, ids);
    }
  }
}

void TextTokenizer::EncodePieces(std::string_view text, bool at_start, Scratch* scratch,
                                 std::vector<int32_t>* ids) const {
  const auto encode = [&](std::string_view stretch, bool start) {
    if (parts_.pre_tokenizer == nullptr) return parts_.model->Encode(stretch, scratch, ids);
    Pieces pieces(stretch, start);
    parts_.pre_tokenizer->Apply(&pieces);
    for (const TextRange& range : pieces.ranges()) parts_.model->Encode(pieces.At(range), scratch, ids);
  };
  if (text.empty()) return;
  if (parts_.malformed != TokenizerParts::Malformed::kOwnPieces) return encode(text, at_start);
  while (!text.empty()) {
    const size_t good = ValidUtf8Prefix(text);
    if (good > 0) encode(text.substr(0, good), at_start);
    size_t bad = good;
    while (bad < text.size()) {
      const Utf8Char c = Utf8At(text, bad);
      if (c.valid) break;
      bad += c.bytes;
    }
    if (bad > good) parts_.model->Encode(text.substr(good, bad - good), scratch, ids);
    text.remove_prefix(bad);
    at_start = false;
  }
}

class TextTokenizer::DecodingStream final : public Tokenizer::Stream {
 public:
  DecodingStream(const TextTokenizer& tokenizer, bool skip_special, bool mid_text)
      : tokenizer_(tokenizer), skip_special_(skip_special), stream_(tokenizer.parts_.decoder, mid_text) {}
  void Push(int32_t id, std::string* out) override {
    if (!tokenizer_.IsValid(id) || (skip_special_ && tokenizer_.IsSpecial(id))) return;
    stream_.Push(tokenizer_.parts_.decode_texts[static_cast<size_t>(id)], out);
  }
  void Finish(std::string* out) override { stream_.Finish(out); }

 private:
  const TextTokenizer& tokenizer_;
  bool skip_special_;
  DecoderStream stream_;
};

std::unique_ptr<Tokenizer::Stream> TextTokenizer::OpenStream(bool skip_special, bool mid_text) const {
  return std::make_unique<DecodingStream>(*this, skip_special, mid_text);
}

std::string TextTokenizer::Decode(std::span<const int32_t> ids, bool skip_special) const {
  DecodingStream stream(*this, skip_special, false);
  std::string out;
  for (const int32_t id : ids) stream.Push(id, &out);
  stream.Finish(&out);
  return out;
}

bool TextTokenizer::IsValid(int32_t id) const {
  return id >= 0 && static_cast<size_t>(id) < parts_.vocabulary->size() &&
         parts_.vocabulary->valid[static_cast<size_t>(id)];
}

std::optional<int32_t> TextTokenizer::TokenId(std::string_view text) const {
  const int32_t id = parts_.vocabulary->Find(text);
  return id < 0 ? std::nullopt : std::optional(id);
}

std::string TextTokenizer::TokenText(int32_t id) const {
  return IsValid(id) ? parts_.vocabulary->texts[static_cast<size_t>(id)] : std::string();
}

std::string TextTokenizer::TokenBytes(int32_t id) const {
  if (!IsValid(id)) return {};
  std::string token = parts_.decode_texts[static_cast<size_t>(id)];
  for (const auto& stage : parts_.decoder) stage->MidStream(&token);
  return token;
}

bool TextTokenizer::adds_bos() const {
  return parts_.bos && !parts_.prefix.empty() && parts_.prefix.front() == *parts_.bos;
}
bool TextTokenizer::adds_eos() const {
  return parts_.eos && !parts_.suffix.empty() && parts_.suffix.back() == *parts_.eos;
}

std::vector<int32_t> WellKnownEndIds(const Vocabulary& vocabulary, const std::vector<bool>& is_candidate) {
  static constexpr std::string_view kTexts[] = {
      "<|eot_id|>",
      "<|im_end|>",
      "<|end|>",
      "<|return|>",
      "<|call|>",
      "<|flush|>",
      "<|calls|>",
      "<end_of_turn>",
      "<|endoftext|>",
      "</s>",
      "<|eom_id|>",
      "<EOT>",
      "_<EOT>",
      "[EOT]",
      "[EOS]",
      "<|end_of_text|>",
      "<end_of_utterance>",
      "<eos>",
      "<turn|>",
      "<|tool_response>",
      "<\xEF\xBD\x9C"
      "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>",
      "[e~[",
      "<|END_OF_TURN_TOKEN|>",
      "<|eot|>",
      "[|endofturn|]",
  };
  std::vector<int32_t> ids;
  const auto find = [&](std::string_view text) {
    const int32_t id = vocabulary.Find(text);
    return id >= 0 && is_candidate[static_cast<size_t>(id)] ? id : -1;
  };
  // Where these mark the end of a message, <|end|> and </s> only end a part of one.
  const bool harmony = find("<|call|>") >= 0 || find("<|calls|>") >= 0;
  const bool parts = harmony && (find("<|return|>") >= 0 || find("<|flush|>") >= 0);
  const bool tools = find("<|tool_response>") >= 0;
  for (const std::string_view text : kTexts) {
    const int32_t id = find(text);
    if (id < 0 || (parts && text == "<|end|>") || (tools && text == "</s>")) continue;
    ids.push_back(id);
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

}  // namespace hone
