// Chat completions as JSON: chunks of a stream, or one object whose parts are gathered event by event. Text goes
// through one OutputParser a choice, so reasoning and tool calls come out alike in both.
#include "serve/openai/chat_answer.h"

#include "serve/http_text.h"
#include "serve/openai/answer_parts.h"

namespace hone {
namespace {

class ChatAnswer final : public AnswerShape {
 public:
  ChatAnswer(std::shared_ptr<ServedModel> model, AnswerHead head, ChatAnswerOptions options)
      : model_(std::move(model)), head_(std::move(head)), options_(std::move(options)) {
    for (int i = 0; i < options_.choices; ++i) choices_.emplace_back(options_.format);
  }

  std::string Opening(int choice, const SequenceEvent& first) override {
    so_far_ = UsageOf(first);
    so_far_.completion_tokens = 0;
    JsonWriter json;
    BeginChunk(json, choice);
    json.Key("delta").BeginObject().Field("role", "assistant").Field("content", "").EndObject();
    json.NullField("logprobs").NullField("finish_reason");
    return EndChunk(json);
  }

  std::string Delta(int choice, const SequenceEvent& event) override {
    Choice& c = choices_[static_cast<size_t>(choice)];
    std::vector<OutputPiece> pieces;
    so_far_ = UsageOf(event);
    Take(c, event, &pieces);
    JsonWriter tokens;
    if (options_.logprobs) WriteTokens(tokens, event);
    // Log-probabilities go with the first chunk of the event, which they may need for themselves.
    if (pieces.empty() && !tokens.text().empty())
      pieces.push_back({c.parser.thinking() ? OutputPiece::Kind::kReasoning : OutputPiece::Kind::kContent, "", 0});
    return Chunks(choice, pieces, tokens.text());
  }

  std::string Closing(int choice, const SequenceEvent& event) override {
    Choice& c = choices_[static_cast<size_t>(choice)];
    std::vector<OutputPiece> pieces;
    c.parser.Finish(&pieces);
    c.finish = event.finish;
    so_far_ = UsageOf(event);
    std::string out = Chunks(choice, pieces, "");
    JsonWriter json;
    BeginChunk(json, choice);
    json.Key("delta").BeginObject().EndObject().NullField("logprobs").Field("finish_reason", FinishOf(c));
    WriteSeed(json, event.seed);
    return out + EndChunk(json);
  }

  std::string End(const Usage& usage) override {
    std::string out;
    if (options_.include_usage) {
      JsonWriter json;
      WriteHead(json, head_, head_.object + ".chunk");
      json.Key("choices").BeginArray().EndArray();
      WriteUsage(json, WithReasoning(usage));
      json.EndObject();
      out = Sse(std::move(json).text());
    }
    return out + "data: [DONE]\n\n";
  }

  void Add(int choice, const SequenceEvent& event) override {
    Choice& c = choices_[static_cast<size_t>(choice)];
    std::vector<OutputPiece> pieces;
    Take(c, event, &pieces);
    if (event.finish != FinishReason::kNone) c.parser.Finish(&pieces);
    for (OutputPiece& piece : pieces) {
      switch (piece.kind) {
        case OutputPiece::Kind::kContent:
          c.content += piece.text;
          break;
        case OutputPiece::Kind::kReasoning:
          c.reasoning += piece.text;
          break;
        case OutputPiece::Kind::kCall:
          c.calls.push_back({RandomId("call_"), std::move(piece.text), ""});
          break;
        case OutputPiece::Kind::kArguments:
          c.calls[static_cast<size_t>(piece.call)].arguments += piece.text;
          break;
      }
    }
    if (options_.logprobs) WriteTokens(c.logprobs, event);
    if (!event.prompt_logprobs.empty()) prompt_logprobs_ = event.prompt_logprobs;
    if (event.finish != FinishReason::kNone) c.finish = event.finish;
    c.seed = event.seed;
  }

  std::string Whole(const Usage& usage) override {
    JsonWriter json;
    WriteHead(json, head_, head_.object);
    json.Key("choices").BeginArray();
    for (size_t i = 0; i < choices_.size(); ++i) {
      const Choice& c = choices_[i];
      json.BeginObject().Field("index", static_cast<int>(i));
      WriteMessage(json, c);
      if (options_.logprobs)
        WriteLogprobs(json, c.logprobs.text());
      else
        json.NullField("logprobs");
      json.Field("finish_reason", FinishOf(c));
      WriteSeed(json, c.seed);
      json.EndObject();
    }
    json.EndArray();
    if (options_.prompt_logprobs) WritePromptLogprobs(json, model_->tokenizer(), prompt_logprobs_);
    WriteUsage(json, WithReasoning(usage));
    json.EndObject();
    return std::move(json).text();
  }

  bool CalledTools(int choice) const override { return CalledTools(choices_[static_cast<size_t>(choice)]); }

 private:
  struct Call {
    std::string id, name, arguments;
  };
  struct Choice {
    explicit Choice(const OutputFormat& format) : parser(format) {}
    OutputParser parser;
    std::string content, reasoning;
    std::vector<Call> calls;
    JsonWriter logprobs;  // the elements, without brackets
    FinishReason finish = FinishReason::kNone;
    uint64_t seed = 0;
  };

  void Take(Choice& c, const SequenceEvent& event, std::vector<OutputPiece>* pieces) {
    if (c.parser.thinking()) reasoning_tokens_ += static_cast<int64_t>(event.tokens.size());
    c.parser.Feed(event.text, pieces);
  }

  static bool CalledTools(const Choice& c) { return c.parser.calls() > 0 && c.finish == FinishReason::kStop; }
  static const char* FinishOf(const Choice& c) { return CalledTools(c) ? "tool_calls" : FinishText(c.finish); }

  Usage WithReasoning(Usage usage) const {
    if (!options_.format.think_open.empty()) usage.reasoning_tokens = reasoning_tokens_;
    return usage;
  }

  static void WriteMessage(JsonWriter& json, const Choice& c) {
    json.Key("message").BeginObject().Field("role", "assistant");
    if (c.content.empty() && !c.calls.empty())
      json.NullField("content");
    else
      json.Field("content", c.content);
    json.NullField("refusal");
    if (!c.reasoning.empty()) json.Field("reasoning_content", c.reasoning);
    if (!c.calls.empty()) {
      json.Key("tool_calls").BeginArray();
      for (const Call& call : c.calls) {
        json.BeginObject().Field("id", call.id).Field("type", "function").Key("function").BeginObject();
        json.Field("name", call.name).Field("arguments", call.arguments).EndObject().EndObject();
      }
      json.EndArray();
    }
    json.EndObject();
  }

  // One chunk a piece.
  std::string Chunks(int choice, const std::vector<OutputPiece>& pieces, std::string_view tokens) {
    std::string out;
    for (const OutputPiece& piece : pieces) {
      JsonWriter json;
      BeginChunk(json, choice);
      json.Key("delta").BeginObject();
      switch (piece.kind) {
        case OutputPiece::Kind::kContent:
          json.Field("content", piece.text);
          break;
        case OutputPiece::Kind::kReasoning:
          json.Field("reasoning_content", piece.text);
          break;
        case OutputPiece::Kind::kCall:
          json.Key("tool_calls").BeginArray().BeginObject().Field("index", piece.call).Field("id", RandomId("call_"));
          json.Field("type", "function").Key("function").BeginObject().Field("name", piece.text).Field("arguments", "");
          json.EndObject().EndObject().EndArray();
          break;
        case OutputPiece::Kind::kArguments:
          json.Key("tool_calls").BeginArray().BeginObject().Field("index", piece.call);
          json.Key("function").BeginObject().Field("arguments", piece.text).EndObject().EndObject().EndArray();
          break;
      }
      json.EndObject();
      if (tokens.empty())
        json.NullField("logprobs");
      else
        WriteLogprobs(json, tokens);
      tokens = {};
      json.NullField("finish_reason");
      out += EndChunk(json);
    }
    return out;
  }

  void BeginChunk(JsonWriter& json, int choice) {
    WriteHead(json, head_, head_.object + ".chunk");
    json.Key("choices").BeginArray().BeginObject().Field("index", choice);
  }
  std::string EndChunk(JsonWriter& json) {
    json.EndObject().EndArray();
    if (options_.include_usage) WriteChunkUsage(json, options_.continuous_usage, so_far_);
    json.EndObject();
    return Sse(std::move(json).text());
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
        WriteToken(json, model_->tokenizer().TokenBytes(top.id), top.logprob);
        json.EndObject();
      }
      json.EndArray().EndObject();
    }
  }

  const std::shared_ptr<ServedModel> model_;
  const AnswerHead head_;
  const ChatAnswerOptions options_;
  std::vector<Choice> choices_;
  std::vector<TokenResult> prompt_logprobs_;
  int64_t reasoning_tokens_ = 0;
  Usage so_far_;  // of the event that chunks are made of
};

}  // namespace

std::unique_ptr<AnswerShape> MakeChatAnswer(std::shared_ptr<ServedModel> model, ChatAnswerOptions options) {
  AnswerHead head{RandomId("chatcmpl-"), "chat.completion", options.model, model->fingerprint, UnixNow()};
  return std::make_unique<ChatAnswer>(std::move(model), std::move(head), std::move(options));
}

}  // namespace hone
