// Tasks: questions with known answers, from JSONL files. Multiple choice by log-likelihood, exact match of a greedy
// answer.
//
// A line is one item, of one of these kinds (all of a file of the same):
//   {"messages": [...], "tools": [...]?, "answer": "text"}           a conversation through the chat template; exact
//   match
//   {"question": "...", "choices": ["..."], "answer": 0 | "text"}    multiple choice
//   {"question": "...", "answer" | "expected": "text"}               a question; the greedy answer up to a newline is
//   matched
//   {"prompt": ...} in place of "question": the text as it is, without the question's frame
// Other keys are ignored. Choices follow the prompt after a space.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/runtime.h"
#include "engine/engine.h"
#include "measure/statistics.h"
#include "models/model.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace hone {

enum class TaskKind { kChat, kChoice, kQuestion };

struct TaskItem {
  std::string messages_json, tools_json;  // kChat
  std::string prompt;                     // kChoice, kQuestion: with the frame
  std::vector<std::string> choices;
  int right_choice = -1;
  std::string answer;
};

struct TaskSet {
  std::string file;
  TaskKind kind = TaskKind::kChat;
  std::vector<TaskItem> items;
};

// `frame`: "{}" stands for the question; "" takes "Question: {}\nAnswer:" for choices and "Q: {}\nA:" for others. The
// first `shots` items become examples in front of every other item (choices and questions only). Errors name file, line
// and field.
struct TaskFormat {
  int shots = 0;
  std::string prefix;  // in front of everything, as it is
  std::string frame;
};
Result<TaskSet> ParseTasks(const std::string& file, std::string_view text, const TaskFormat& format);

// What a model did with an item.
struct TaskOutcome {
  bool right = false;
  std::string got;             // the text, or the choice
  std::vector<double> loglik;  // kChoice: of each choice
  bool right_by_byte = false;  // kChoice: with log-likelihoods divided by the choice's bytes
  size_t item = 0;             // its place in the set
};

struct TaskResult {
  std::string file;
  TaskKind kind = TaskKind::kChat;
  std::vector<TaskOutcome> outcomes;  // of the items that were done, in their order
  int right = 0, right_by_byte = 0;
  bool interrupted = false;
  std::string failed;          // why it ended early, if it did
  Interval accuracy() const;  // Wilson, 95 %
};

// A model with what answering needs.
struct TaskModel {
  std::shared_ptr<Model> model;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const ChatTemplate> chat_template;  // nullptr: conversations are an error
  Engine* engine = nullptr;                           // generates; idle before and after
};

struct TaskOptions {
  int max_tokens = 0;  // of an answer; 0: 256 for conversations, 64 for questions
};

using TaskProgress = std::function<void(double share, int right, int done)>;

// Errors: no chat template, an item too long for the context, logits that are not finite; each names file and item. Once an
// item is done, an error ends the run early with what there is (TaskResult::failed).
Result<TaskResult> RunTasks(const TaskSet& set, const TaskModel& model, const Runtime& runtime, KvType kv,
                            const TaskOptions& options, const TaskProgress& progress,
                            const std::function<bool()>& stop);

// "strip, drop trailing dots, strip, lower case": how answers to questions are compared.
std::string NormaliseAnswer(std::string_view text);

// Two models on the same items: who was right where the other was not.
struct PairedTasks {
  int both = 0, only_a = 0, only_b = 0, neither = 0;
  double p = 1;         // exact McNemar
  Interval difference;  // of the accuracies a - b: bootstrap over items, 95 %
  std::string verdict;  // "better", "worse" (a), "no difference"
};
PairedTasks ComparePairedTasks(std::span<const TaskResult> a, std::span<const TaskResult> b);

// `failed`: why the run ended early, "" if it did not.
std::string TasksJson(std::span<const TaskResult> results, const std::string& model, std::span<const TaskResult> other,
                      const std::string& other_name, const std::string& failed);
std::string TasksTable(std::span<const TaskResult> results, const std::string& model, std::span<const TaskResult> other,
                       const std::string& other_name, const std::string& failed);
// One JSON object a line: file, item, right, got.
std::string TaskItemsJsonl(std::span<const TaskResult> results);

}  // namespace hone
