// Responses as JSON. The output is a list of items (reasoning, message, function call), built piece by piece; each step
// of the building is an event of the stream. A whole answer is what the items are in the end.
#include "serve/openai/responses_answer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "serve/http_text.h"
#include "serve/json_writer.h"
#include "serve/openai/answer_parts.h"

namespace hone {
namespace {

class ResponsesAnswer final : public AnswerShape {
 public:
  ResponsesAnswer(std::shared_ptr<ServedModel> model, std::string name, const ResponsesRequest& request,
                  OutputFormat format)
      : model_(std::move(model)),
        name_(std::move(name)),
        id_(RandomId("resp_")),
        created_(UnixNow()),
        instructions_(request.instructions_json),
        tools_(request.tools_json),
        tool_choice_(request.tool_choice_json),
        metadata_(request.metadata_json),
        effort_(request.effort_json),
        user_(request.user_json),
        format_(request.format_json),
        max_output_tokens_(request.max_output_tokens),
        parallel_(request.parallel_tool_calls),
        temperature_(request.chat.fields.sequence.sampling.temperature),
        top_p_(request.chat.fields.sequence.sampling.top_p),
        top_logprobs_(request.chat.fields.sequence.logprobs),
        parser_(std::move(format)) {}

  std::string Begin() override {
    const std::string created = WithResponse("response.created", "in_progress", {});
    return created + WithResponse("response.in_progress", "in_progress", {});
  }
  std::string Opening(int, const SequenceEvent&) override { return ""; }
  std::string Delta(int, const SequenceEvent& event) override { return Take(event); }
  std::string Closing(int, const SequenceEvent& event) override { return Finish(event); }
  std::string End(const Usage& usage) override {
    const bool whole = finish_ != FinishReason::kLength;
    return WithResponse(whole ? "response.completed" : "response.incomplete", whole ? "completed" : "incomplete",
                        usage);
  }
  std::string Failed(const ApiError& error) override {
    // It may be asked for before it is needed, for the end of the server: nothing changes here.
    const int64_t number = sequence_number_;
    error_ = error;
    JsonWriter json;
    BeginEvent(json, "error");
    json.Field("code", error.code).Field("message", error.message).NullField("param").EndObject();
    const std::string out = NamedSse("error", json.text()) + WithResponse("response.failed", "failed", {});
    error_.reset();
    sequence_number_ = number;
    return out;
  }

  void Add(int, const SequenceEvent& event) override {
    (void)Take(event);
    if (event.finish != FinishReason::kNone) (void)Finish(event);
  }
  std::string Whole(const Usage& usage) override {
    JsonWriter json;
    WriteResponse(json, finish_ == FinishReason::kLength ? "incomplete" : "completed", usage);
    return std::move(json).text();
  }
  bool CalledTools(int) const override { return parser_.calls() > 0 && finish_ == FinishReason::kStop; }

 private:
  enum class Kind { kReasoning, kMessage, kCall };
  struct Item {
    Kind kind = Kind::kMessage;
    std::string id, call_id, name, text;
    JsonWriter logprobs;  // elements without brackets
    bool done = false;
  };

  std::string Take(const SequenceEvent& event) {
    if (parser_.thinking())
      reasoning_tokens_ += static_cast<int64_t>(event.tokens.size());
    else if (top_logprobs_ >= 0)
      WriteTokens(waiting_logprobs_, event);
    std::vector<OutputPiece> pieces;
    parser_.Feed(event.text, &pieces);
    return Build(pieces);
  }

  std::string Finish(const SequenceEvent& event) {
    finish_ = event.finish;
    seed_ = event.seed;
    std::vector<OutputPiece> pieces;
    parser_.Finish(&pieces);
    std::string out = Build(pieces);
    if (items_.empty()) out += OpenItem(Kind::kMessage, "");  // an answer without text has an empty one
    return out + CloseItem(finish_ == FinishReason::kLength ? "incomplete" : "completed");
  }

  std::string Build(const std::vector<OutputPiece>& pieces) {
    std::string out;
    for (const OutputPiece& piece : pieces) {
      const Kind kind = piece.kind == OutputPiece::Kind::kReasoning ? Kind::kReasoning
                        : piece.kind == OutputPiece::Kind::kContent ? Kind::kMessage
                                                                    : Kind::kCall;
      const bool open = !items_.empty() && !items_.back().done && items_.back().kind == kind;
      if (piece.kind == OutputPiece::Kind::kCall || !open) {
        out += CloseItem();
        out += OpenItem(kind, piece.kind == OutputPiece::Kind::kCall ? piece.text : "");
      }
      if (piece.kind == OutputPiece::Kind::kCall) continue;
      Item& item = items_.back();
      item.text += piece.text;
      const std::string_view name = kind == Kind::kReasoning ? "response.reasoning_text.delta"
                                    : kind == Kind::kMessage ? "response.output_text.delta"
                                                             : "response.function_call_arguments.delta";
      JsonWriter json;
      BeginItemEvent(json, name);
      if (kind != Kind::kCall) json.Field("content_index", 0);
      json.Field("delta", piece.text);
      if (kind == Kind::kMessage) {
        WriteArray(json, "logprobs", waiting_logprobs_);
        if (!waiting_logprobs_.text().empty()) item.logprobs.Raw(waiting_logprobs_.text());
        waiting_logprobs_ = {};
      }
      json.EndObject();
      out += NamedSse(name, json.text());
    }
    return out;
  }

  std::string OpenItem(Kind kind, const std::string& name) {
    items_.push_back({.kind = kind,
                      .id = RandomId(kind == Kind::kReasoning ? "rs_"
                                     : kind == Kind::kMessage ? "msg_"
                                                              : "fc_"),
                      .call_id = RandomId("call_"),
                      .name = name});
    std::string out = ItemEvent("response.output_item.added", "in_progress");
    if (kind != Kind::kCall) out += PartEvent("response.content_part.added", "");
    return out;
  }

  std::string CloseItem(std::string_view status = "completed") {
    if (items_.empty() || items_.back().done) return "";
    Item& item = items_.back();
    item.done = true;
    const std::string_view name = item.kind == Kind::kReasoning ? "response.reasoning_text.done"
                                  : item.kind == Kind::kMessage ? "response.output_text.done"
                                                                : "response.function_call_arguments.done";
    JsonWriter json;
    BeginItemEvent(json, name);
    if (item.kind == Kind::kCall) {
      json.Field("name", item.name).Field("arguments", item.text);
    } else {
      json.Field("content_index", 0).Field("text", item.text);
    }
    if (item.kind == Kind::kMessage) WriteArray(json, "logprobs", item.logprobs);
    json.EndObject();
    std::string out = NamedSse(name, json.text());
    if (item.kind != Kind::kCall) out += PartEvent("response.content_part.done", item.text);
    return out + ItemEvent("response.output_item.done", status);
  }

  void BeginEvent(JsonWriter& json, std::string_view type) {
    json.BeginObject().Field("type", type).Field("sequence_number", sequence_number_++);
  }
  void BeginItemEvent(JsonWriter& json, std::string_view type) {
    BeginEvent(json, type);
    json.Field("item_id", items_.back().id).Field("output_index", static_cast<int>(items_.size()) - 1);
  }
  std::string ItemEvent(std::string_view type, std::string_view status) {
    JsonWriter json;
    BeginEvent(json, type);
    json.Field("output_index", static_cast<int>(items_.size()) - 1).Key("item");
    WriteItem(json, items_.back(), status);
    json.EndObject();
    return NamedSse(type, json.text());
  }
  std::string PartEvent(std::string_view type, std::string_view text) {
    JsonWriter json;
    BeginItemEvent(json, type);
    json.Field("content_index", 0).Key("part");
    WritePart(json, items_.back(), text);
    json.EndObject();
    return NamedSse(type, json.text());
  }
  std::string WithResponse(std::string_view type, std::string_view status, const std::optional<Usage>& usage) {
    JsonWriter json;
    BeginEvent(json, type);
    json.Key("response");
    WriteResponse(json, status, usage);
    json.EndObject();
    return NamedSse(type, json.text());
  }

  static void WriteArray(JsonWriter& json, std::string_view name, const JsonWriter& elements) {
    json.Key(name).BeginArray();
    if (!elements.text().empty()) json.Raw(elements.text());
    json.EndArray();
  }

  static void WritePart(JsonWriter& json, const Item& item, std::string_view text) {
    json.BeginObject()
        .Field("type", item.kind == Kind::kReasoning ? "reasoning_text" : "output_text")
        .Field("text", text);
    if (item.kind == Kind::kMessage) {
      json.Key("annotations").BeginArray().EndArray();
      if (text.empty())
        json.Key("logprobs").BeginArray().EndArray();
      else
        WriteArray(json, "logprobs", item.logprobs);
    }
    json.EndObject();
  }

  static void WriteItem(JsonWriter& json, const Item& item, std::string_view status) {
    json.BeginObject().Field("id", item.id);
    if (item.kind == Kind::kCall) {
      json.Field("type", "function_call").Field("status", status).Field("call_id", item.call_id);
      json.Field("name", item.name).Field("arguments", item.text).EndObject();
      return;
    }
    json.Field("type", item.kind == Kind::kReasoning ? "reasoning" : "message").Field("status", status);
    if (item.kind == Kind::kReasoning)
      json.Key("summary").BeginArray().EndArray();
    else
      json.Field("role", "assistant");
    json.Key("content").BeginArray();
    if (item.done) WritePart(json, item, item.text);
    json.EndArray().EndObject();
  }

  void WriteResponse(JsonWriter& json, std::string_view status, const std::optional<Usage>& usage) {
    json.BeginObject()
        .Field("id", id_)
        .Field("object", "response")
        .Field("created_at", created_)
        .Field("status", status);
    json.Field("background", false);
    if (error_) {
      json.Key("error").BeginObject().Field("code", error_->status == 429 ? "rate_limit_exceeded" : "server_error");
      json.Field("message", error_->message).EndObject();
    } else {
      json.NullField("error");
    }
    if (status == "incomplete")
      json.Key("incomplete_details").BeginObject().Field("reason", "max_output_tokens").EndObject();
    else
      json.NullField("incomplete_details");
    json.Key("instructions").Raw(instructions_).Key("max_output_tokens");
    if (max_output_tokens_ > 0)
      json.Int(max_output_tokens_);
    else
      json.Null();
    json.NullField("max_tool_calls").Field("model", name_).Key("output").BeginArray();
    for (const Item& item : items_) {
      if (item.done)
        WriteItem(json, item, status == "incomplete" && &item == &items_.back() ? "incomplete" : "completed");
    }
    json.EndArray()
        .Field("parallel_tool_calls", parallel_)
        .NullField("previous_response_id")
        .NullField("prompt_cache_key");
    json.Key("reasoning").BeginObject().Key("effort").Raw(effort_).NullField("summary").EndObject();
    json.NullField("safety_identifier").Field("service_tier", "default").Field("store", false);
    json.Key("temperature").Float(temperature_);
    json.Key("text").BeginObject().Key("format").Raw(format_).EndObject();
    json.Key("tool_choice")
        .Raw(tool_choice_)
        .Key("tools")
        .Raw(tools_)
        .Field("top_logprobs", std::max(0, top_logprobs_));
    json.Key("top_p").Float(top_p_).Field("truncation", "disabled");
    WriteResponseUsage(json, usage);
    json.Key("user").Raw(user_).Key("metadata").Raw(metadata_);
    json.Field("system_fingerprint", model_->fingerprint);
    if (usage) WriteSeed(json, seed_);
    json.EndObject();
  }

  void WriteResponseUsage(JsonWriter& json, const std::optional<Usage>& usage) const {
    if (!usage) {
      json.NullField("usage");
      return;
    }
    json.Key("usage").BeginObject().Field("input_tokens", usage->prompt_tokens);
    json.Key("input_tokens_details")
        .BeginObject()
        .Field("cached_tokens", usage->cached_tokens)
        .Field("cache_write_tokens", 0);
    json.EndObject();
    json.Field("output_tokens", usage->completion_tokens);
    json.Key("output_tokens_details").BeginObject().Field("reasoning_tokens", reasoning_tokens_).EndObject();
    json.Field("total_tokens", usage->prompt_tokens + usage->completion_tokens).EndObject();
  }

  void WriteTokens(JsonWriter& json, const SequenceEvent& event) {
    const auto write = [&](std::string_view bytes, float logprob) {
      json.BeginObject().Field("token", bytes).Key("logprob").Double(JsonLogprob(logprob)).Key("bytes").BeginArray();
      for (const char c : bytes) json.Int(static_cast<unsigned char>(c));
      json.EndArray();
    };
    for (const TokenResult& token : event.tokens) {
      write(token.bytes, token.logprob);
      json.Key("top_logprobs").BeginArray();
      for (const TokenLogprob& top : token.top) {
        write(model_->tokenizer().TokenBytes(top.id), top.logprob);
        json.EndObject();
      }
      json.EndArray().EndObject();
    }
  }

  const std::shared_ptr<ServedModel> model_;
  const std::string name_, id_;
  const int64_t created_;
  const std::string instructions_, tools_, tool_choice_, metadata_, effort_, user_, format_;
  const int max_output_tokens_;
  const bool parallel_;
  const float temperature_, top_p_;
  const int top_logprobs_;  // -1: no log-probabilities
  OutputParser parser_;
  std::vector<Item> items_;
  JsonWriter waiting_logprobs_;  // elements for the next delta: the text of their tokens is held back yet
  std::optional<ApiError> error_;
  int64_t sequence_number_ = 0, reasoning_tokens_ = 0;
  FinishReason finish_ = FinishReason::kNone;
  uint64_t seed_ = 0;
};

}  // namespace

std::unique_ptr<AnswerShape> MakeResponsesAnswer(std::shared_ptr<ServedModel> model,
                                                 const ResponsesRequest& request, OutputFormat format) {
  return std::make_unique<ResponsesAnswer>(std::move(model), request.chat.fields.model, request, std::move(format));
}

}  // namespace hone
