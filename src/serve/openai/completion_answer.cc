// Text completions as JSON, with the legacy shape of log-probabilities: parallel arrays and offsets in characters.
#include "serve/openai/completion_answer.h"

#include <algorithm>
#include <numeric>

#include "serve/http_text.h"
#include "serve/openai/answer_parts.h"

namespace hone {
namespace {

// The four parallel arrays of legacy logprobs, as JSON elements without brackets.
struct LegacyLogprobs {
  JsonWriter tokens, token_logprobs, top_logprobs, text_offset;
  bool empty() const { return tokens.text().empty(); }
};

class CompletionAnswer final : public AnswerShape {
 public:
  CompletionAnswer(std::shared_ptr<ServedModel> model, AnswerHead head, CompletionAnswerOptions options)
      : model_(std::move(model)),
        head_(std::move(head)),
        options_(std::move(options)),
        choices_(static_cast<size_t>(options_.choices)) {}

  std::string Opening(int, const SequenceEvent&) override { return ""; }

  std::string Delta(int choice, const SequenceEvent& event) override {
    LegacyLogprobs logprobs;
    so_far_ = UsageOf(event);
    const std::string text = Take(choice, event, logprobs);
    if (text.empty() && logprobs.empty()) return "";
    return Chunk(choice, text, options_.logprobs ? &logprobs : nullptr, FinishReason::kNone, 0);
  }

  std::string Closing(int choice, const SequenceEvent& event) override {
    so_far_ = UsageOf(event);
    return Chunk(choice, "", nullptr, event.finish, event.seed);
  }

  std::string End(const Usage& usage) override {
    std::string out;
    if (options_.include_usage) {
      JsonWriter json;
      WriteHead(json, head_, head_.object);
      json.Key("choices").BeginArray().EndArray();
      WriteUsage(json, usage);
      json.EndObject();
      out = Sse(std::move(json).text());
    }
    return out + "data: [DONE]\n\n";
  }

  void Add(int choice, const SequenceEvent& event) override {
    Choice& c = choices_[static_cast<size_t>(choice)];
    c.text += Take(choice, event, c.logprobs);
    for (const TokenResult& token : event.tokens) {
      c.logprob_sum += static_cast<double>(token.logprob);
      ++c.token_count;
    }
    if (!event.prompt_logprobs.empty()) c.prompt_logprobs = event.prompt_logprobs;
    if (event.finish != FinishReason::kNone) c.finish = event.finish;
    c.seed = event.seed;
  }

  std::string Whole(const Usage& usage) override {
    JsonWriter json;
    WriteHead(json, head_, head_.object);
    json.Key("choices").BeginArray();
    int index = 0;
    for (const size_t i : Best()) {
      const Choice& c = choices_[i];
      WriteChoice(json, index++, c.text, options_.logprobs ? &c.logprobs : nullptr, c.finish, c.seed, &c);
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
    std::vector<TokenResult> prompt_logprobs;
    int64_t characters = 0;  // text_offset of the next token
    double logprob_sum = 0;
    int token_count = 0;
    bool echoed = false;
    FinishReason finish = FinishReason::kNone;
    uint64_t seed = 0;
    double per_token() const { return token_count == 0 ? 0 : logprob_sum / token_count; }
  };

  // The choices that are sent: of each prompt the n with the highest log-probability a token, the best first.
  std::vector<size_t> Best() const {
    std::vector<size_t> best;
    const size_t made = static_cast<size_t>(options_.best_of), n = static_cast<size_t>(options_.n);
    for (size_t first = 0; first < choices_.size(); first += made) {
      std::vector<size_t> order(std::min(made, choices_.size() - first));
      std::iota(order.begin(), order.end(), first);
      if (made > n) {
        std::stable_sort(order.begin(), order.end(),
                         [&](size_t a, size_t b) { return choices_[a].per_token() > choices_[b].per_token(); });
      }
      best.insert(best.end(), order.begin(), order.begin() + static_cast<std::ptrdiff_t>(std::min(n, order.size())));
    }
    return best;
  }

  // The text of an event, and its tokens' log-probabilities; the prompt's first where it is echoed.
  std::string Take(int choice, const SequenceEvent& event, LegacyLogprobs& logprobs) {
    Choice& c = choices_[static_cast<size_t>(choice)];
    std::string text;
    if (!options_.echo.empty() && !c.echoed) {
      c.echoed = true;
      const size_t prompt = static_cast<size_t>(choice / options_.best_of);
      text = options_.echo[prompt];
      if (options_.logprobs) AddPrompt(c, options_.echo_ids[prompt], event.prompt_logprobs, logprobs);
    }
    if (options_.logprobs) {
      for (const TokenResult& token : event.tokens) AddToken(c, token, false, logprobs);
    }
    return text + event.text;
  }

  void AddPrompt(Choice& c, const std::vector<int32_t>& ids, const std::vector<TokenResult>& rest,
                 LegacyLogprobs& out) {
    if (ids.empty()) return;
    AddToken(c, {.id = ids.front(), .bytes = TextOf(ids.front())}, true, out);
    for (TokenResult token : rest) {
      token.bytes = TextOf(token.id);
      AddToken(c, token, false, out);
    }
  }

  // As the echoed text has it: special tokens leave none.
  std::string TextOf(int32_t id) const {
    return model_->tokenizer().IsSpecial(id) ? "" : model_->tokenizer().TokenBytes(id);
  }

  void AddToken(Choice& c, const TokenResult& token, bool first_of_prompt, LegacyLogprobs& out) {
    out.tokens.String(token.bytes);
    if (first_of_prompt) {
      out.token_logprobs.Null();
      out.top_logprobs.Null();
    } else {
      out.token_logprobs.Double(JsonLogprob(token.logprob));
      out.top_logprobs.BeginObject();
      std::vector<std::string> seen;  // two ids may have the same text: the first, more likely, stays
      for (const TokenLogprob& top : token.top) {
        std::string bytes = RepairUtf8(model_->tokenizer().TokenBytes(top.id));
        if (std::find(seen.begin(), seen.end(), bytes) != seen.end()) continue;
        out.top_logprobs.Key(bytes).Double(JsonLogprob(top.logprob));
        seen.push_back(std::move(bytes));
      }
      // The token itself is always there, so one more than were asked for where it is not among the best.
      const auto is_token = [&](const TokenLogprob& top) { return top.id == token.id; };
      const std::string own = RepairUtf8(token.bytes);
      if (std::none_of(token.top.begin(), token.top.end(), is_token) && std::find(seen.begin(), seen.end(), own) == seen.end()) {
        out.top_logprobs.Key(own).Double(JsonLogprob(token.logprob));
      }
      out.top_logprobs.EndObject();
    }
    out.text_offset.Int(c.characters);
    for (const char b : token.bytes) c.characters += (static_cast<unsigned char>(b) & 0xC0) != 0x80;
  }

  std::string Chunk(int choice, std::string_view text, const LegacyLogprobs* logprobs, FinishReason finish,
                    uint64_t seed) {
    JsonWriter json;
    WriteHead(json, head_, head_.object);
    json.Key("choices").BeginArray();
    WriteChoice(json, choice, text, logprobs, finish, seed, nullptr);
    json.EndArray();
    if (options_.include_usage) WriteChunkUsage(json, options_.continuous_usage, so_far_);
    json.EndObject();
    return Sse(std::move(json).text());
  }

  void WriteChoice(JsonWriter& json, int index, std::string_view text, const LegacyLogprobs* logprobs,
                   FinishReason finish, uint64_t seed, const Choice* whole) {
    json.BeginObject().Field("text", text).Field("index", index);
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
      json.Field("finish_reason", FinishText(options_.prompt_only ? FinishReason::kLength : finish));
      WriteSeed(json, seed);
    }
    if (whole != nullptr && options_.prompt_logprobs)
      WritePromptLogprobs(json, model_->tokenizer(), whole->prompt_logprobs);
    json.EndObject();
  }

  const std::shared_ptr<ServedModel> model_;
  const AnswerHead head_;
  const CompletionAnswerOptions options_;
  std::vector<Choice> choices_;
  Usage so_far_;  // of the event that chunks are made of
};

}  // namespace

std::unique_ptr<AnswerShape> MakeCompletionAnswer(std::shared_ptr<ServedModel> model, CompletionAnswerOptions options) {
  AnswerHead head{RandomId("cmpl-"), "text_completion", options.model, model->fingerprint, UnixNow()};
  return std::make_unique<CompletionAnswer>(std::move(model), std::move(head), std::move(options));
}

}  // namespace hone
