// Running items: choices through the model directly, answers through the engine, many at once.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "engine/engine_options.h"
#include "measure/model_runner.h"
#include "measure/tasks.h"
#include "measure/window_scorer.h"

namespace hone {
namespace {

constexpr int kChatTokens = 256, kQuestionTokens = 64;

std::vector<int32_t> EncodePrompt(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<int32_t> ids = tokenizer.Encode(text, {.add_special = false, .parse_special = false});
  if (tokenizer.adds_bos() && tokenizer.bos()) ids.insert(ids.begin(), *tokenizer.bos());
  return ids;
}

size_t CommonPrefix(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  size_t n = 0;
  while (n < a.size() && n < b.size() && a[n] == b[n]) ++n;
  return n;
}

// Choices of an item as tokens: [shared prompt | the rest of each choice].
struct ChoiceTokens {
  std::vector<std::vector<int32_t>> whole;  // prompt and choice
  std::vector<size_t> start;                // first token that belongs to the choice
  size_t shared = 0;                        // tokens that all have in common, less one: the last gives the first logits
};

Result<ChoiceTokens> Tokenise(const TaskItem& item, const Tokenizer& tokenizer) {
  ChoiceTokens tokens;
  const std::vector<int32_t> prompt = EncodePrompt(tokenizer, item.prompt);
  tokens.shared = prompt.size();
  for (const std::string& choice : item.choices) {
    tokens.whole.push_back(EncodePrompt(tokenizer, item.prompt + " " + choice));
    // A tokenizer may merge the end of the prompt with the choice: what differs is scored.
    tokens.start.push_back(CommonPrefix(prompt, tokens.whole.back()));
    if (tokens.start.back() < 1) return InvalidInput("the prompt has no tokens that stand before the choice");
    tokens.shared = std::min(tokens.shared, tokens.start.back());
  }
  tokens.shared -= 1;
  return tokens;
}

// Scores choices with one runner; remembers the prompt of the last item, so that common examples are computed once.
class ChoiceScorer {
 public:
  ChoiceScorer(const TaskModel& model, const Runtime& runtime, KvType kv, int sequences, int length)
      : rows_(static_cast<int>(std::clamp<size_t>((size_t{256} << 20) / (sizeof(float) * model.model->config().vocab),
                                                  1, std::min(kScoreRows, model.model->options().max_rows)))),
        runner_(*model.model, runtime, kv, 1 + sequences, length, rows_) {}

  Result<std::vector<double>> Score(const ChoiceTokens& tokens) {
    Advance(std::span(tokens.whole[0]).first(tokens.shared));
    std::vector<double> loglik(tokens.whole.size());
    for (size_t first = 0; first < tokens.whole.size();) {
      std::vector<ModelRunner::Rows> batch;
      int used = 0;
      size_t last = first;
      for (; last < tokens.whole.size(); ++last) {
        const int rows = static_cast<int>(tokens.whole[last].size() - 1 - tokens.shared);
        if (rows > rows_)
          return InvalidInput(fmt::format("choice {} has {} tokens; at most {} are scored", last, rows, rows_));
        if (used + rows > rows_) break;
        used += rows;
        const int sequence = 1 + static_cast<int>(last);
        if (tokens.shared > 0) runner_.Fork(0, sequence, static_cast<int>(tokens.shared));
        batch.push_back({.sequence = sequence,
                         .first_position = static_cast<int>(tokens.shared),
                         .tokens = std::span(tokens.whole[last]).subspan(tokens.shared, static_cast<size_t>(rows)),
                         .logits = rows});
      }
      runner_.Forward(batch);
      int row = 0;
      for (; first < last; ++first) {
        for (size_t target = tokens.shared + 1; target < tokens.whole[first].size(); ++target, ++row) {
          if (target < tokens.start[first]) continue;
          const auto logits = runner_.logits(row);
          loglik[first] += LogSumOf(logits).LogProb(logits[tokens.whole[first][target]]);
        }
        if (!std::isfinite(loglik[first]))
          return Error{ErrorCode::kInternal,
                       "logits are not finite: the model is damaged, or a kernel is wrong (--exact may help)"};
      }
    }
    return loglik;
  }

 private:
  void Advance(std::span<const int32_t> prompt) {
    size_t have = 0;
    while (have < prompt.size() && have < computed_.size() && prompt[have] == computed_[have]) ++have;
    computed_.assign(prompt.begin(), prompt.end());
    while (have < prompt.size()) {
      const size_t count = std::min<size_t>(rows_, prompt.size() - have);
      const ModelRunner::Rows rows{
          .first_position = static_cast<int>(have), .tokens = prompt.subspan(have, count), .logits = 0};
      runner_.Forward({&rows, 1});
      have += count;
    }
  }

  const int rows_;
  ModelRunner runner_;
  std::vector<int32_t> computed_;
};

Result<TaskResult> RunChoices(const TaskSet& set, const TaskModel& model, const Runtime& runtime, KvType kv,
                              const TaskProgress& progress, const std::function<bool()>& stop) {
  TaskResult result{.file = set.file, .kind = set.kind};
  std::vector<ChoiceTokens> tokens;
  size_t longest = 1, most = 1;
  for (size_t i = 0; i < set.items.size(); ++i) {
    if (stop && stop()) {
      result.interrupted = true;
      return result;
    }
    HONE_TRY(ChoiceTokens item,
             Tokenise(set.items[i], *model.tokenizer).Context(fmt::format("{}: item {}", set.file, i + 1)));
    most = std::max(most, item.whole.size());
    for (const auto& whole : item.whole) longest = std::max(longest, whole.size());
    tokens.push_back(std::move(item));
  }
  const int context = model.model->options().max_context;
  if (longest > static_cast<size_t>(context)) {
    return InvalidInput(
        fmt::format("{}: an item has {} tokens, but the context is {}; --ctx sets it", set.file, longest, context));
  }
  ChoiceScorer scorer(model, runtime, kv, static_cast<int>(most), static_cast<int>(longest));
  for (size_t i = 0; i < set.items.size(); ++i) {
    if (stop && stop()) {
      result.interrupted = true;
      break;
    }
    const TaskItem& item = set.items[i];
    TaskOutcome outcome{.item = i};
    Result<std::vector<double>> loglik = scorer.Score(tokens[i]).Context(fmt::format("{}: item {}", set.file, i + 1));
    if (!loglik && result.outcomes.empty()) return loglik.error();
    if (!loglik) {
      result.failed = loglik.error().message;
      break;
    }
    outcome.loglik = std::move(*loglik);
    std::vector<double> by_byte = outcome.loglik;
    for (size_t c = 0; c < by_byte.size(); ++c) by_byte[c] /= static_cast<double>(item.choices[c].size());
    const auto best = [](const std::vector<double>& x) {
      return static_cast<int>(std::max_element(x.begin(), x.end()) - x.begin());
    };
    outcome.got = item.choices[best(outcome.loglik)];
    outcome.right = best(outcome.loglik) == item.right_choice;
    outcome.right_by_byte = best(by_byte) == item.right_choice;
    result.right += outcome.right;
    result.right_by_byte += outcome.right_by_byte;
    result.outcomes.push_back(std::move(outcome));
    if (progress)
      progress(static_cast<double>(i + 1) / static_cast<double>(set.items.size()), result.right,
               static_cast<int>(i + 1));
  }
  return result;
}

Result<std::vector<int32_t>> PromptOf(const TaskItem& item, TaskKind kind, const TaskModel& model) {
  if (kind == TaskKind::kQuestion) return EncodePrompt(*model.tokenizer, item.prompt);
  if (model.chat_template == nullptr)
    return InvalidInput("the items are conversations, but the model has no chat template");
  HONE_TRY(const std::string text,
           model.chat_template->Render({.messages_json = item.messages_json, .tools_json = item.tools_json}));
  return model.tokenizer->Encode(text, {.add_special = false, .parse_special = true});
}

// The answer without the text of an end id and what follows it.
std::string WithoutEnd(std::string text, const Tokenizer& tokenizer) {
  for (const int32_t id : tokenizer.end_ids()) {
    const std::string end = tokenizer.TokenBytes(id).empty() ? tokenizer.TokenText(id) : tokenizer.TokenBytes(id);
    if (const size_t at = end.empty() ? std::string::npos : text.find(end); at != std::string::npos) text.erase(at);
  }
  const size_t begin = text.find_first_not_of(" \n\t\r");
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(" \n\t\r") - begin + 1);
}

bool Matches(const TaskItem& item, TaskKind kind, const std::string& got) {
  if (kind == TaskKind::kQuestion) return NormaliseAnswer(got) == NormaliseAnswer(item.answer);
  const size_t begin = item.answer.find_first_not_of(" \n\t\r");
  return got == (begin == std::string::npos
                     ? ""
                     : item.answer.substr(begin, item.answer.find_last_not_of(" \n\t\r") - begin + 1));
}

struct Answer {
  std::string text;
  bool finished = false, cancelled = false;
};

Result<TaskResult> RunAnswers(const TaskSet& set, const TaskModel& model, const TaskOptions& options,
                              const TaskProgress& progress, const std::function<bool()>& stop) {
  TaskResult result{.file = set.file, .kind = set.kind};
  Engine& engine = *model.engine;
  std::vector<SequenceRequest> requests;  // all are looked at before the first is answered
  for (size_t i = 0; i < set.items.size(); ++i) {
    if (stop && stop()) {
      result.interrupted = true;
      return result;
    }
    const std::string where = fmt::format("{}: item {}", set.file, i + 1);
    SequenceRequest request;
    HONE_TRY(request.prompt, PromptOf(set.items[i], set.kind, model).Context(where));
    request.sampling.temperature = 0;
    request.max_tokens = options.max_tokens > 0        ? options.max_tokens
                         : set.kind == TaskKind::kChat ? kChatTokens
                                                       : kQuestionTokens;
    request.skip_special = false;
    if (set.kind == TaskKind::kQuestion) request.stop = {"\n"};
    HONE_RETURN_IF_ERROR(CheckRequest(request, model.model->config().vocab, engine.options().context).Context(where));
    requests.push_back(std::move(request));
  }
  std::vector<Answer> answers(set.items.size());
  std::map<SequenceId, size_t> running;
  const size_t at_once = static_cast<size_t>(2 * engine.options().max_sequences);
  size_t next = 0, done = 0;
  bool cancelled = false;
  Result<void> failed;
  while (done < set.items.size() && !(running.empty() && (cancelled || !failed))) {
    if (stop && stop() && !cancelled) {
      for (const auto& [id, item] : running) engine.Cancel(id);
      cancelled = true;
    }
    const bool stopping = cancelled || !failed;  // after a failure what runs is ended
    for (; !stopping && next < set.items.size() && running.size() < at_once; ++next) {
      const auto id = engine.Submit(std::move(requests[next]), [&, i = next](const SequenceEvent& event) {
        Answer& answer = answers[i];
        answer.text += event.text;
        if (event.finish == FinishReason::kNone) return;
        answer.finished = true;
        answer.cancelled = event.finish == FinishReason::kCancelled || event.finish == FinishReason::kError;
        if (event.finish == FinishReason::kError && failed) failed = Error{ErrorCode::kInternal, fmt::format("{}: item {}: {}", set.file, i + 1, event.error)};
        running.erase(event.id);
        ++done;
        result.right += !answer.cancelled && Matches(set.items[i], set.kind, WithoutEnd(answer.text, *model.tokenizer));
      });
      if (!id) {
        failed = Error(id.error()).Context(fmt::format("{}: item {}", set.file, next + 1));
        break;
      }
      running[*id] = next;
    }
    engine.Step();
    if (progress)
      progress(static_cast<double>(done) / static_cast<double>(set.items.size()), result.right, static_cast<int>(done));
  }
  result.right = 0;
  for (size_t i = 0; i < answers.size(); ++i) {
    if (!answers[i].finished || answers[i].cancelled) {
      result.interrupted = cancelled;
      continue;
    }
    TaskOutcome outcome{.item = i};
    outcome.got = WithoutEnd(answers[i].text, *model.tokenizer);
    outcome.right = Matches(set.items[i], set.kind, outcome.got);
    result.right += outcome.right;
    result.outcomes.push_back(std::move(outcome));
  }
  if (!failed && result.outcomes.empty() && !cancelled) return failed.error();
  if (!failed) result.failed = failed.error().message;
  return result;
}

}  // namespace

Result<TaskResult> RunTasks(const TaskSet& set, const TaskModel& model, const Runtime& runtime, KvType kv,
                            const TaskOptions& options, const TaskProgress& progress,
                            const std::function<bool()>& stop) {
  if (set.kind == TaskKind::kChoice) return RunChoices(set, model, runtime, kv, progress, stop);
  return RunAnswers(set, model, options, progress, stop);
}

}  // namespace hone
