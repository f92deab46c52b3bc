// Chat completions as JSON: chunks of a stream, or one object whose parts are gathered event by event.
#include "serve/openai/chat_answer.h"

#include "serve/http_text.h"
#include "serve/openai/answer_parts.h"

namespace hone {
namespace {

class ChatAnswer final : public AnswerShape {
 public:
  ChatAnswer(const Tokenizer& tokenizer, AnswerHead head, int choices, bool include_usage, bool logprobs)
      : tokenizer_(tokenizer), head_(std::move(head)), choices_(static_cast<size_t>(choices)), include_usage_(include_usage),
        logprobs_(logprobs) {}

  std::string Opening(int choice) override {
    JsonWriter json;
    BeginChunk(json, choice);
    json.Key("delta").BeginObject().Field("role", "assistant").Field("content", "").EndObject();
    json.NullField("logprobs").NullField("finish_reason");
    return EndChunk(json);
  }

  std::string Delta(int choice, const SequenceEvent& event) override {
    const bool tokens = logprobs_ && !event.tokens.empty();
    if (event.text.empty() && !tokens) return "";
    JsonWriter json;
    BeginChunk(json, choice);
    json.Key("delta").BeginObject().Field("content", event.text).EndObject();
    if (tokens) {
      JsonWriter content;
      WriteTokens(content, event);
      WriteLogprobs(json, content.text());
    } else {
      json.NullField("logprobs");
    }
    json.NullField("finish_reason");
    return EndChunk(json);
  }

  std::string Closing(int choice, const SequenceEvent& event) override {
    JsonWriter json;
    BeginChunk(json, choice);
    json.Key("delta").BeginObject().EndObject().NullField("logprobs").Field("finish_reason", FinishText(event.finish));
    WriteSeed(json, event.seed);
    return EndChunk(json);
  }

  std::string UsageChunk(const Usage& usage) override {
    JsonWriter json;
    WriteHead(json, head_, head_.object + ".chunk");
    json.Key("choices").BeginArray().EndArray();
    WriteUsage(json, usage);
    json.EndObject();
    return std::move(json).text();
  }

  void Add(int choice, const SequenceEvent& event) override {
    Choice& c = choices_[static_cast<size_t>(choice)];
    c.text += event.text;
    if (logprobs_) WriteTokens(c.logprobs, event);
    if (event.finish != FinishReason::kNone) c.finish = event.finish;
    c.seed = event.seed;
  }

  std::string Whole(const Usage& usage) override {
    JsonWriter json;
    WriteHead(json, head_, head_.object);
    json.Key("choices").BeginArray();
    for (size_t i = 0; i < choices_.size(); ++i) {
      json.BeginObject().Field("index", static_cast<int>(i));
      json.Key("message").BeginObject().Field("role", "assistant").Field("content", choices_[i].text);
      json.NullField("refusal").EndObject();
      if (logprobs_) WriteLogprobs(json, choices_[i].logprobs.text());
      else json.NullField("logprobs");
      json.Field("finish_reason", FinishText(choices_[i].finish));
      WriteSeed(json, choices_[i].seed);
      json.EndObject();
    }
    json.EndArray();
    WriteUsage(json, usage);
    json.EndObject();
    return std::move(json).text();
  }

 private:
  struct Choice {
    std::string text;
    JsonWriter logprobs;  // the elements, without brackets
    FinishReason finish = FinishReason::kNone;
    uint64_t seed = 0;
  };

  void BeginChunk(JsonWriter& json, int choice) {
    WriteHead(json, head_, head_.object + ".chunk");
    json.Key("choices").BeginArray().BeginObject().Field("index", choice);
  }
  std::string EndChunk(JsonWriter& json) {
    json.EndObject().EndArray();
    if (include_usage_) json.NullField("usage");
    json.EndObject();
    return std::move(json).text();
  }

  static void WriteLogprobs(JsonWriter& json, std::string_view elements) {
    json.Key("logprobs").BeginObject().Key("content").BeginArray();
    if (!elements.empty()) json.Raw(elements);
    json.EndArray().NullField("refusal").EndObject();
  }

  static void WriteToken(JsonWriter& json, std::string_view bytes, float logprob) {
    json.Field("token", bytes).Key("logprob").Double(JsonLogprob(logprob)).Key("bytes").BeginArray();
    for (const char c : bytes) json.Int(static_cast<unsigned char>(c));
    json.EndArray();
  }

  void WriteTokens(JsonWriter& json, const SequenceEvent& event) {
    for (const TokenResult& token : event.tokens) {
      json.BeginObject();
      WriteToken(json, token.bytes, token.logprob);
      json.Key("top_logprobs").BeginArray();
      for (const TokenLogprob& top : token.top) {
        json.BeginObject();
        WriteToken(json, tokenizer_.TokenBytes(top.id), top.logprob);
        json.EndObject();
      }
      json.EndArray().EndObject();
    }
  }

  const Tokenizer& tokenizer_;
  const AnswerHead head_;
  std::vector<Choice> choices_;
  const bool include_usage_, logprobs_;
};

}  // namespace

std::unique_ptr<AnswerShape> MakeChatAnswer(const ServeContext& context, int choices, const GenerationRequest& request,
                                            bool logprobs) {
  AnswerHead head{RandomId("chatcmpl-"), "chat.completion", context.options.name, UnixNow()};
  return std::make_unique<ChatAnswer>(context.tokenizer(), std::move(head), choices, request.stream && request.include_usage,
                                      logprobs);
}

}  // namespace hone
