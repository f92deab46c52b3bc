// Text completions as JSON, with the legacy shape of log-probabilities: parallel arrays and offsets in characters.
#include "serve/openai/completion_answer.h"

#include <algorithm>

#include "serve/http_text.h"
#include "serve/openai/answer_parts.h"

namespace hone {
namespace {

// The four parallel arrays of legacy logprobs, as JSON elements without brackets.
struct LegacyLogprobs {
  JsonWriter tokens, token_logprobs, top_logprobs, text_offset;
};

class CompletionAnswer final : public AnswerShape {
 public:
  CompletionAnswer(const Tokenizer& tokenizer, AnswerHead head, int choices, bool include_usage, bool logprobs)
      : tokenizer_(tokenizer), head_(std::move(head)), choices_(static_cast<size_t>(choices)), include_usage_(include_usage),
        logprobs_(logprobs) {}

  std::string Opening(int) override { return ""; }

  std::string Delta(int choice, const SequenceEvent& event) override {
    if (event.text.empty() && !(logprobs_ && !event.tokens.empty())) return "";
    LegacyLogprobs logprobs;
    if (logprobs_) AddTokens(choice, event, logprobs);
    return Chunk(choice, event.text, logprobs_ ? &logprobs : nullptr, FinishReason::kNone, 0);
  }

  std::string Closing(int choice, const SequenceEvent& event) override {
    return Chunk(choice, "", nullptr, event.finish, event.seed);
  }

  std::string UsageChunk(const Usage& usage) override {
    JsonWriter json;
    WriteHead(json, head_, head_.object);
    json.Key("choices").BeginArray().EndArray();
    WriteUsage(json, usage);
    json.EndObject();
    return std::move(json).text();
  }

  void Add(int choice, const SequenceEvent& event) override {
    Choice& c = choices_[static_cast<size_t>(choice)];
    c.text += event.text;
    if (logprobs_) AddTokens(choice, event, c.logprobs);
    if (event.finish != FinishReason::kNone) c.finish = event.finish;
    c.seed = event.seed;
  }

  std::string Whole(const Usage& usage) override {
    JsonWriter json;
    WriteHead(json, head_, head_.object);
    json.Key("choices").BeginArray();
    for (size_t i = 0; i < choices_.size(); ++i) {
      const Choice& c = choices_[i];
      WriteChoice(json, static_cast<int>(i), c.text, logprobs_ ? &c.logprobs : nullptr, c.finish, c.seed);
    }
    json.EndArray();
    WriteUsage(json, usage);
    json.EndObject();
    return std::move(json).text();
  }

 private:
  struct Choice {
    std::string text;
    LegacyLogprobs logprobs;
    int64_t characters = 0;  // text_offset of the next token
    FinishReason finish = FinishReason::kNone;
    uint64_t seed = 0;
  };

  std::string Chunk(int choice, std::string_view text, const LegacyLogprobs* logprobs, FinishReason finish, uint64_t seed) {
    JsonWriter json;
    WriteHead(json, head_, head_.object);
    json.Key("choices").BeginArray();
    WriteChoice(json, choice, text, logprobs, finish, seed);
    json.EndArray();
    if (include_usage_) json.NullField("usage");
    json.EndObject();
    return std::move(json).text();
  }

  static void WriteChoice(JsonWriter& json, int choice, std::string_view text, const LegacyLogprobs* logprobs,
                          FinishReason finish, uint64_t seed) {
    json.BeginObject().Field("text", text).Field("index", choice);
    if (logprobs == nullptr) {
      json.NullField("logprobs");
    } else {
      const auto array = [&](std::string_view name, const JsonWriter& elements) {
        json.Key(name).BeginArray();
        if (!elements.text().empty()) json.Raw(elements.text());
        json.EndArray();
      };
      json.Key("logprobs").BeginObject();
      array("tokens", logprobs->tokens);
      array("token_logprobs", logprobs->token_logprobs);
      array("top_logprobs", logprobs->top_logprobs);
      array("text_offset", logprobs->text_offset);
      json.EndObject();
    }
    if (finish == FinishReason::kNone) {
      json.NullField("finish_reason");
    } else {
      json.Field("finish_reason", FinishText(finish));
      WriteSeed(json, seed);
    }
    json.EndObject();
  }

  void AddTokens(int choice, const SequenceEvent& event, LegacyLogprobs& out) {
    for (const TokenResult& token : event.tokens) {
      out.tokens.String(token.bytes);
      out.token_logprobs.Double(JsonLogprob(token.logprob));
      out.top_logprobs.BeginObject();
      std::vector<std::string> seen;  // two ids may have the same text: the first, more likely, stays
      for (const TokenLogprob& top : token.top) {
        std::string bytes = RepairUtf8(tokenizer_.TokenBytes(top.id));
        if (std::find(seen.begin(), seen.end(), bytes) != seen.end()) continue;
        out.top_logprobs.Key(bytes).Double(JsonLogprob(top.logprob));
        seen.push_back(std::move(bytes));
      }
      out.top_logprobs.EndObject();
      int64_t& characters = choices_[static_cast<size_t>(choice)].characters;
      out.text_offset.Int(characters);
      for (const char c : token.bytes) characters += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
    }
  }

  const Tokenizer& tokenizer_;
  const AnswerHead head_;
  std::vector<Choice> choices_;
  const bool include_usage_, logprobs_;
};

}  // namespace

std::unique_ptr<AnswerShape> MakeCompletionAnswer(const ServeContext& context, int choices, const GenerationRequest& request,
                                                  bool logprobs) {
  AnswerHead head{RandomId("cmpl-"), "text_completion", context.options.name, UnixNow()};
  return std::make_unique<CompletionAnswer>(context.tokenizer(), std::move(head), choices,
                                            request.stream && request.include_usage, logprobs);
}

}  // namespace hone
