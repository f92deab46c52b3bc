// Items from JSONL, comparison of two models, results as JSON and tables. Running items: task_runner.cc.
#include "measure/tasks.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "measure/json_text.h"

namespace hone {
namespace {

using nlohmann::ordered_json;

constexpr size_t kMostChoices = 64;
constexpr size_t kMostItems = 1000000;
constexpr int kResamples = 2000;
constexpr uint64_t kBootstrapSeed = 1;

std::string Strip(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \n\t\r");
  return begin == std::string_view::npos
             ? ""
             : std::string(text.substr(begin, text.find_last_not_of(" \n\t\r") - begin + 1));
}

const char* KindName(TaskKind kind) {
  switch (kind) {
    case TaskKind::kChat: return "chat";
    case TaskKind::kChoice: return "choice";
    case TaskKind::kQuestion: return "question";
  }
  return "?";
}

std::string Framed(const std::string& frame, const std::string& question) {
  const size_t at = frame.find("{}");
  return at == std::string::npos ? frame + question : frame.substr(0, at) + question + frame.substr(at + 2);
}

std::string Dump(const ordered_json& json) { return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace); }

// A string member; an error if it is there and no string. `found` says whether it is there.
Result<std::string> Text(const ordered_json& item, const char* key, bool* found) {
  const auto it = item.find(key);
  *found = it != item.end();
  if (!*found) return std::string();
  if (!it->is_string()) return InvalidInput(fmt::format("'{}' is no string", key));
  return it->get<std::string>();
}

Result<void> ReadChoices(const ordered_json& json, TaskItem* item) {
  const auto& choices = json["choices"];
  if (!choices.is_array() || choices.size() < 2 || choices.size() > kMostChoices) {
    return InvalidInput(fmt::format("'choices' must be a list of 2 to {} strings", kMostChoices));
  }
  for (const ordered_json& choice : choices) {
    if (!choice.is_string() || choice.get<std::string>().empty())
      return InvalidInput("'choices' must be strings that are not empty");
    item->choices.push_back(choice.get<std::string>());
  }
  const auto answer = json.find("answer");
  if (answer == json.end()) return InvalidInput("'answer' is missing: the number or the text of the right choice");
  if (answer->is_number_integer() && !answer->is_number_float()) {
    const int64_t index = answer->get<int64_t>();
    if (index < 0 || index >= static_cast<int64_t>(item->choices.size())) {
      return InvalidInput(
          fmt::format("'answer' is {}, but there are {} choices (counted from 0)", index, item->choices.size()));
    }
    item->right_choice = static_cast<int>(index);
  } else if (answer->is_string()) {
    const auto at = std::find(item->choices.begin(), item->choices.end(), answer->get<std::string>());
    if (at == item->choices.end()) return InvalidInput("'answer' is none of the choices");
    item->right_choice = static_cast<int>(at - item->choices.begin());
  } else {
    return InvalidInput("'answer' must be the number or the text of the right choice");
  }
  item->answer = item->choices[item->right_choice];
  return {};
}

Result<TaskItem> ReadItem(const ordered_json& json, TaskKind* kind, const std::string& frame) {
  if (!json.is_object()) return InvalidInput("is no JSON object");
  TaskItem item;
  bool found = false;
  if (json.contains("messages")) {
    *kind = TaskKind::kChat;
    if (!json["messages"].is_array() || json["messages"].empty())
      return InvalidInput("'messages' must be a list that is not empty");
    item.messages_json = Dump(json["messages"]);
    if (json.contains("tools") && !json["tools"].is_null()) item.tools_json = Dump(json["tools"]);
    HONE_TRY(item.answer, Text(json, "answer", &found));
    if (!found) return InvalidInput("'answer' is missing");
    return item;
  }
  *kind = json.contains("choices") ? TaskKind::kChoice : TaskKind::kQuestion;
  bool has_prompt = false;
  HONE_TRY(item.prompt, Text(json, "prompt", &has_prompt));
  HONE_TRY(const std::string question, Text(json, "question", &found));
  if (!found && !has_prompt) return InvalidInput("has neither 'messages' nor 'question' nor 'prompt'");
  if (!has_prompt) {
    item.prompt = Framed(!frame.empty()               ? frame
                         : *kind == TaskKind::kChoice ? "Question: {}\nAnswer:"
                                                      : "Q: {}\nA:",
                         question);
  }
  if (*kind == TaskKind::kChoice) {
    HONE_RETURN_IF_ERROR(ReadChoices(json, &item));
    return item;
  }
  HONE_TRY(item.answer, Text(json, "answer", &found));
  if (!found) {
    HONE_TRY(item.answer, Text(json, "expected", &found));
  }
  if (!found) return InvalidInput("'answer' is missing");
  return item;
}

}  // namespace

std::string NormaliseAnswer(std::string_view text) {
  std::string answer = Strip(text);
  while (answer.ends_with('.')) answer.pop_back();
  answer = Strip(answer);
  std::transform(answer.begin(), answer.end(), answer.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return answer;
}

Result<TaskSet> ParseTasks(const std::string& file, std::string_view text, const TaskFormat& format) {
  TaskSet set{.file = file};
  int line_number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    ++line_number;
    if (Strip(line).empty()) continue;
    const auto where = [&] { return fmt::format("{}: line {}", file, line_number); };
    const ordered_json json = ParseJson(line);
    if (json.is_discarded())
      return InvalidInput(where() + ": is no JSON, or nested deeper than 64; wanted one object a line");
    TaskKind kind = TaskKind::kChat;
    HONE_TRY(TaskItem item, ReadItem(json, &kind, format.frame).Context(where()));
    if (!set.items.empty() && kind != set.kind)
      return InvalidInput(where() + ": items of one file must be of one kind");
    set.kind = kind;
    if (set.items.size() >= kMostItems) return InvalidInput(fmt::format("{}: more than {} items", file, kMostItems));
    set.items.push_back(std::move(item));
  }
  if (set.items.empty()) return InvalidInput(file + ": has no items");
  if (format.shots > 0 || !format.prefix.empty()) {
    if (set.kind == TaskKind::kChat)
      return UsageError(file + ": examples (--shots, --prefix) are for questions and choices, not for conversations");
    if (format.shots >= static_cast<int>(set.items.size())) {
      return UsageError(fmt::format("{}: {} items, but {} are to be examples", file, set.items.size(), format.shots));
    }
    std::string before = format.prefix;
    for (int i = 0; i < format.shots; ++i) before += set.items[i].prompt + " " + set.items[i].answer + "\n\n";
    set.items.erase(set.items.begin(), set.items.begin() + format.shots);
    for (TaskItem& item : set.items) item.prompt.insert(0, before);
  }
  return set;
}

Interval TaskResult::accuracy() const {
  return outcomes.empty() ? Interval{} : WilsonInterval(right, static_cast<int64_t>(outcomes.size()), 0.95);
}

PairedTasks ComparePairedTasks(std::span<const TaskResult> a, std::span<const TaskResult> b) {
  PairedTasks paired;
  std::vector<double> differences;
  for (size_t f = 0; f < std::min(a.size(), b.size()); ++f) {
    for (size_t i = 0; i < std::min(a[f].outcomes.size(), b[f].outcomes.size()); ++i) {
      const bool right_a = a[f].outcomes[i].right, right_b = b[f].outcomes[i].right;
      (right_a ? right_b ? paired.both : paired.only_a : right_b ? paired.only_b : paired.neither) += 1;
      differences.push_back((right_a ? 1.0 : 0.0) - (right_b ? 1.0 : 0.0));
    }
  }
  if (differences.empty()) return paired;
  paired.p = McNemarExact(paired.only_a, paired.only_b);
  paired.difference = BootstrapMean(differences, 0.95, kResamples, kBootstrapSeed);
  paired.verdict = paired.p >= 0.05 ? "no difference" : paired.only_a > paired.only_b ? "better" : "worse";
  return paired;
}

namespace {

ordered_json ResultAsJson(int right, size_t of, const Interval& accuracy) {
  return {{"right", right}, {"of", of}, {"accuracy", accuracy.value}, {"low", accuracy.low}, {"high", accuracy.high}};
}

struct Total {
  int right = 0;
  size_t of = 0;
  Interval accuracy() const { return of == 0 ? Interval{} : WilsonInterval(right, static_cast<int64_t>(of), 0.95); }
};

Total TotalOf(std::span<const TaskResult> results) {
  Total total;
  for (const TaskResult& result : results) total.right += result.right, total.of += result.outcomes.size();
  return total;
}

}  // namespace

std::string TasksJson(std::span<const TaskResult> results, const std::string& model, std::span<const TaskResult> other,
                      const std::string& other_name, const std::string& failed) {
  const Total total = TotalOf(results);
  ordered_json json = ResultAsJson(total.right, total.of, total.accuracy());
  json["model"] = model;
  json["interrupted"] = std::any_of(results.begin(), results.end(), [](const TaskResult& r) { return r.interrupted; });
  json["failed"] = failed;
  ordered_json& files = json["files"] = ordered_json::array();
  for (size_t i = 0; i < results.size(); ++i) {
    ordered_json file = {{"file", results[i].file}, {"kind", KindName(results[i].kind)}};
    file.update(ResultAsJson(results[i].right, results[i].outcomes.size(), results[i].accuracy()));
    if (results[i].kind == TaskKind::kChoice) file["right_by_byte"] = results[i].right_by_byte;
    if (i < other.size()) {
      const PairedTasks paired = ComparePairedTasks(results.subspan(i, 1), other.subspan(i, 1));
      file["other"] = ResultAsJson(other[i].right, other[i].outcomes.size(), other[i].accuracy());
      file["p"] = paired.p;
    }
    files.push_back(std::move(file));
  }
  if (!other.empty()) {
    const PairedTasks paired = ComparePairedTasks(results, other);
    const Total total_other = TotalOf(other);
    json["compare"] = {{"with", other_name},
                       {"both", paired.both},
                       {"only_this", paired.only_a},
                       {"only_other", paired.only_b},
                       {"neither", paired.neither},
                       {"p", paired.p},
                       {"difference", paired.difference.value},
                       {"low", paired.difference.low},
                       {"high", paired.difference.high},
                       {"verdict", paired.verdict},
                       {"other", ResultAsJson(total_other.right, total_other.of, total_other.accuracy())}};
  }
  return json.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::string TasksTable(std::span<const TaskResult> results, const std::string& model, std::span<const TaskResult> other,
                       const std::string& other_name, const std::string& failed) {
  std::string out = fmt::format("{}\n{:<24} {:>11} {:>10} {:>20}  {}\n", model, "task", "right", "accuracy",
                                "95 % interval", other.empty() ? "" : other_name);
  const auto line = [&](const std::string& name, int right, size_t of, const Interval& accuracy,
                        const std::string& more) {
    out += fmt::format("{:<24} {:>11} {:>8.1f} % {:>20}  {}\n", name, fmt::format("{} of {}", right, of),
                       100 * accuracy.value, fmt::format("{:.1f} - {:.1f} %", 100 * accuracy.low, 100 * accuracy.high),
                       more);
  };
  for (size_t i = 0; i < results.size(); ++i) {
    std::string more;
    if (i < other.size()) {
      more = fmt::format("{} of {}, p = {:.3g}", other[i].right, other[i].outcomes.size(),
                         ComparePairedTasks(results.subspan(i, 1), other.subspan(i, 1)).p);
    } else if (results[i].kind == TaskKind::kChoice) {
      more = fmt::format("{} by length", results[i].right_by_byte);
    }
    line(std::filesystem::path(results[i].file).stem().string(), results[i].right, results[i].outcomes.size(),
         results[i].accuracy(), more);
  }
  const Total total = TotalOf(results);
  if (results.size() > 1) line("all", total.right, total.of, total.accuracy(), "");
  if (std::any_of(results.begin(), results.end(), [](const TaskResult& r) { return r.interrupted; }))
    out += "INTERRUPTED: of the items that were done\n";
  if (!failed.empty()) out += "ENDED EARLY: of the items that were done\n";
  if (other.empty()) return out;
  const PairedTasks paired = ComparePairedTasks(results, other);
  return out + fmt::format(
                   "against {}: {} only here, {} only there, McNemar p = {:.3g}, difference {:+.1f} % ({:+.1f} to "
                   "{:+.1f}): {}\n",
                   other_name, paired.only_a, paired.only_b, paired.p, 100 * paired.difference.value,
                   100 * paired.difference.low, 100 * paired.difference.high, paired.verdict);
}

std::string TaskItemsJsonl(std::span<const TaskResult> results) {
  std::string out;
  for (const TaskResult& result : results) {
    for (const TaskOutcome& outcome : result.outcomes) {
      ordered_json line = {{"file", result.file}, {"item", outcome.item}, {"right", outcome.right}, {"got", outcome.got}};
      if (!outcome.loglik.empty()) line["loglik"] = outcome.loglik;
      out += Dump(line) + "\n";
    }
  }
  return out;
}

}  // namespace hone
