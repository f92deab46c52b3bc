// See dataset.h.
#include "measure/load/dataset.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "measure/json_text.h"

namespace hone {
namespace {

using nlohmann::ordered_json;

constexpr int kDefaultOutputTokens = 64;
constexpr int kTraceBlockTokens = 512;  // what one hash id of a Mooncake trace stands for
constexpr size_t kMostItems = 1u << 20;
constexpr int64_t kMostWords = 1 << 27;  // made for one run: about 700 MB of text

constexpr std::pair<DatasetKind, std::string_view> kDatasetNames[] = {
    {DatasetKind::kRandom, "random"}, {DatasetKind::kShared, "shared"}, {DatasetKind::kMultiTurn, "multi-turn"},
    {DatasetKind::kFile, "file"},     {DatasetKind::kTrace, "trace"},
};

// Short frequent words: one token each in most vocabularies.
constexpr const char* kWords[] = {
    "the",   "of",   "and",    "to",      "in",    "is",      "you",   "that",   "it",     "he",     "was",   "for",
    "on",    "are",  "with",   "as",      "his",   "they",    "be",    "at",     "one",    "have",   "this",  "from",
    "or",    "had",  "by",     "hot",     "but",   "some",    "what",  "there",  "we",     "can",    "out",   "other",
    "were",  "all",  "your",   "when",    "up",    "use",     "word",  "how",    "said",   "an",     "each",  "she",
    "which", "do",   "their",  "time",    "if",    "will",    "way",   "about",  "many",   "then",   "them",  "would",
    "write", "like", "so",     "these",   "her",   "long",    "make",  "thing",  "see",    "him",    "two",   "has",
    "look",  "more", "day",    "could",   "go",    "come",    "did",   "my",     "sound",  "no",     "most",  "number",
    "who",   "over", "know",   "water",   "than",  "call",    "first", "people", "may",    "down",   "side",  "been",
    "now",   "find", "any",    "new",     "work",  "part",    "take",  "get",    "place",  "made",   "live",  "where",
    "after", "back", "little", "only",    "round", "man",     "year",  "came",   "show",   "every",  "good",  "me",
    "give",  "our",  "under",  "name",    "very",  "through", "just",  "form",   "much",   "great",  "think", "say",
    "help",  "low",  "line",   "before",  "turn",  "cause",   "same",  "mean",   "move",   "right",  "boy",   "old",
    "too",   "does", "tell",   "set",     "three", "want",    "air",   "well",   "also",   "play",   "small", "end",
    "put",   "home", "read",   "hand",    "port",  "large",   "spell", "add",    "even",   "land",   "here",  "must",
    "big",   "high", "such",   "follow",  "act",   "why",     "ask",   "men",    "change", "went",   "light", "kind",
    "off",   "need", "house",  "picture", "try",   "us",      "again", "animal", "point",  "mother", "world", "near",
};

uint64_t Mix(uint64_t seed, uint64_t with) { return Rng(seed ^ (0x9e3779b97f4a7c15 * (with + 1))).Next(); }

int CountWords(std::string_view text) {
  int words = 0;
  bool in_word = false;
  for (const char c : text) {
    const bool space = c == ' ' || c == '\n' || c == '\t' || c == '\r';
    words += !space && !in_word;
    in_word = !space;
  }
  return words;
}

int WordsFor(double tokens, const WordTokens& rate, int already) {
  return std::max(1, static_cast<int>(std::lround((tokens - rate.base) / rate.slope)) - already);
}

int DrawLength(int length, double range, Rng& rng) {
  if (range <= 0) return length;
  const int low = std::max(1, static_cast<int>(std::floor(length * (1 - range))));
  const int high = std::max(low, static_cast<int>(std::ceil(length * (1 + range))));
  return low + static_cast<int>(rng.Below(static_cast<uint64_t>(high - low + 1)));
}

std::vector<LoadTask> RandomTasks(const DatasetSpec& spec, int n, uint64_t seed) {
  const int output = spec.output_tokens > 0 ? spec.output_tokens : kDefaultOutputTokens;
  std::vector<std::string> prefixes;
  if (spec.shared_words > 0) {
    for (int i = 0; i < std::max(1, spec.prefixes); ++i) {
      Rng rng(Mix(seed, 1'000'000 + static_cast<uint64_t>(i)));
      prefixes.push_back(RandomWords(spec.shared_words, rng));
    }
  }
  Rng rng(Mix(seed, 0));
  std::vector<LoadTask> tasks(static_cast<size_t>(n));
  for (LoadTask& task : tasks) {
    if (!prefixes.empty()) task.system = prefixes[rng.Below(prefixes.size())];
    const int turns = spec.kind == DatasetKind::kMultiTurn ? std::max(1, spec.turns) : 1;
    for (int t = 0; t < turns; ++t) {
      const int shared = t == 0 ? spec.shared_words : 0;
      const double wanted = DrawLength(spec.input_tokens, spec.range, rng);
      LoadTurn turn;
      turn.text = RandomWords(WordsFor(wanted, spec.word_tokens, shared), rng);
      turn.output_tokens = DrawLength(output, spec.range, rng);
      task.turns.push_back(std::move(turn));
    }
  }
  return tasks;
}

// A non-negative whole number under any of `keys`; 0 if there is none.
Result<int> LengthAt(const ordered_json& item, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    const auto it = item.find(key);
    if (it == item.end() || it->is_null()) continue;
    if (!it->is_number() || it->get<double>() < 0 || it->get<double>() > (1 << 24)) {
      return InvalidInput(std::string(key) + ": wanted a number of tokens from 0 to 2^24");
    }
    return static_cast<int>(it->get<double>());
  }
  return 0;
}

std::string TextOf(const ordered_json& content) {
  if (content.is_string()) return content.get<std::string>();
  std::string text;
  if (!content.is_array()) return text;
  for (const ordered_json& part : content) {
    if (!part.is_object()) continue;
    const auto it = part.find("text");
    if (it != part.end() && it->is_string()) text += (text.empty() ? "" : "\n") + it->get<std::string>();
  }
  return text;
}

std::string StringAt(const ordered_json& item, const char* key) {
  const auto it = item.find(key);
  return it != item.end() && it->is_string() ? it->get<std::string>() : "";
}

// {"from", "value"} of ShareGPT or {"role", "content"} of OpenAI.
Result<void> ReadConversation(const ordered_json& messages, const DatasetSpec& spec, LoadTask* task) {
  if (!messages.is_array()) return InvalidInput("conversations: wanted an array of messages");
  for (const ordered_json& message : messages) {
    if (!message.is_object()) return InvalidInput("conversations: wanted objects with \"from\" and \"value\"");
    std::string role = StringAt(message, "role");
    if (role.empty()) role = StringAt(message, "from");
    const char* key = message.contains("content") ? "content" : "value";
    const std::string text = message.contains(key) ? TextOf(message[key]) : "";
    if (role == "system" || role == "developer") {
      task->system = text;
    } else if (role == "human" || role == "user") {
      task->turns.push_back({text, 0});
    } else if ((role == "gpt" || role == "assistant" || role == "bot") && !task->turns.empty()) {
      const double tokens = spec.word_tokens.slope * CountWords(text);
      if (task->turns.back().output_tokens == 0)
        task->turns.back().output_tokens = std::max(1, static_cast<int>(tokens));
    }
  }
  if (task->turns.empty()) return InvalidInput("conversations: no message of a user");
  return {};
}

Result<LoadTask> ReadItem(const ordered_json& item, const DatasetSpec& spec) {
  if (!item.is_object()) return InvalidInput("wanted a JSON object");
  LoadTask task;
  HONE_TRY(const int output, LengthAt(item, {"output_tokens", "output_length", "max_tokens", "output_len"}));
  if (item.contains("conversations")) {
    HONE_RETURN_IF_ERROR(ReadConversation(item["conversations"], spec, &task));
  } else if (item.contains("messages")) {
    HONE_RETURN_IF_ERROR(ReadConversation(item["messages"], spec, &task));
  } else if (const std::string prompt = StringAt(item, "prompt"); !prompt.empty()) {
    task.turns.push_back({prompt, 0});
  } else {
    return InvalidInput("wanted one of \"prompt\" (a text), \"messages\" or \"conversations\"");
  }
  for (LoadTurn& turn : task.turns) {
    if (spec.output_tokens > 0)
      turn.output_tokens = spec.output_tokens;
    else if (output > 0)
      turn.output_tokens = output;
    else if (turn.output_tokens == 0)
      turn.output_tokens = kDefaultOutputTokens;
  }
  return task;
}

// {"timestamp": ms | "time_s": s, "input_length", "output_length", "hash_ids": [...]?, "prompt"?}: hash ids are blocks
// of 512 tokens; equal ids are equal texts, so that a trace keeps its shared prefixes.
struct TraceLine {
  double at_s = 0;
  std::string prompt;  // "": made of words
  int words = 0, output = 0;
  std::vector<int64_t> ids;
};

Result<TraceLine> ReadTraceLine(const ordered_json& item, const DatasetSpec& spec) {
  if (!item.is_object()) return InvalidInput("wanted a JSON object");
  TraceLine line;
  const bool seconds = item.contains("time_s");
  const auto time = item.find(seconds ? "time_s" : "timestamp");
  if (time == item.end() || !time->is_number()) {
    return InvalidInput("timestamp: wanted a number (milliseconds), or time_s in seconds");
  }
  const double at = time->get<double>() * (seconds ? 1 : 1e-3);
  if (!(at >= 0 && at < 1e9)) return InvalidInput("timestamp: wanted a time from 0 on");
  line.at_s = at / spec.speed;
  HONE_TRY(const int input, LengthAt(item, {"input_length", "input_tokens", "prompt_tokens"}));
  HONE_TRY(line.output, LengthAt(item, {"output_length", "output_tokens", "max_tokens", "completion_tokens"}));
  if (spec.output_tokens > 0) line.output = spec.output_tokens;
  if (line.output == 0) line.output = kDefaultOutputTokens;
  line.prompt = StringAt(item, "prompt");
  if (!line.prompt.empty()) return line;
  if (input <= 0) return InvalidInput("input_length: wanted at least 1 token, or a \"prompt\"");
  line.words = WordsFor(input, spec.word_tokens, 0);
  if (const auto ids = item.find("hash_ids"); ids != item.end() && ids->is_array()) {
    for (const ordered_json& id : *ids) {
      if (id.is_number_integer()) line.ids.push_back(id.get<int64_t>());
    }
  }
  return line;
}

std::string TraceText(const TraceLine& line, const DatasetSpec& spec, Rng& rng) {
  if (!line.prompt.empty()) return line.prompt;
  std::string text;
  int words = line.words;
  const int block_words = std::max(1, WordsFor(kTraceBlockTokens + spec.word_tokens.base, spec.word_tokens, 0));
  for (const int64_t id : line.ids) {
    if (words <= 0) break;
    const int take = std::min(words, block_words);
    Rng block(Mix(17, static_cast<uint64_t>(id)));
    text += (text.empty() ? "" : " ") + RandomWords(take, block);
    words -= take;
  }
  if (words > 0) text += (text.empty() ? "" : " ") + RandomWords(words, rng);
  return text;
}

Result<void> CheckWords(int64_t words) {
  if (words <= kMostWords) return {};
  return Error{ErrorCode::kLimit, "prompts of " + std::to_string(words) + " words in one run, at most " +
                                      std::to_string(kMostWords) + " are made; --requests takes fewer"};
}

Result<std::vector<LoadTask>> TraceTasks(const std::vector<ordered_json>& items, const DatasetSpec& spec, int n,
                                         uint64_t seed) {
  std::vector<TraceLine> lines;
  for (size_t i = 0; i < items.size(); ++i) {
    Result<TraceLine> line = ReadTraceLine(items[i], spec);
    if (!line) return std::move(line).error().Context("item " + std::to_string(i + 1));
    lines.push_back(std::move(*line));
  }
  std::stable_sort(lines.begin(), lines.end(), [](const TraceLine& a, const TraceLine& b) { return a.at_s < b.at_s; });
  if (n > 0 && lines.size() > static_cast<size_t>(n)) lines.resize(static_cast<size_t>(n));
  int64_t words = 0;
  for (const TraceLine& line : lines) words += line.words;
  HONE_RETURN_IF_ERROR(CheckWords(words));
  Rng rng(Mix(seed, 2));
  std::vector<LoadTask> tasks;
  for (const TraceLine& line : lines) {
    tasks.push_back({line.at_s - lines.front().at_s, "", {{TraceText(line, spec, rng), line.output}}});
  }
  return tasks;
}

// JSON lines, or one array.
Result<std::vector<ordered_json>> ReadItems(std::string_view text) {
  std::vector<ordered_json> items;
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return InvalidInput("is empty; wanted JSON lines");
  if (text[first] == '[') {
    ordered_json array = ParseJson(text);
    if (!array.is_array()) return InvalidInput("begins with '[' but is no JSON array");
    for (ordered_json& item : array) items.push_back(std::move(item));
    if (items.empty()) return InvalidInput("holds no items");
    return items;
  }
  int line_number = 0;
  for (size_t at = 0; at < text.size() && items.size() < kMostItems;) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    at = end + 1;
    ++line_number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    ordered_json item = ParseJson(line);
    if (item.is_discarded()) return InvalidInput("line " + std::to_string(line_number) + ": is no JSON");
    items.push_back(std::move(item));
  }
  return items;
}

void Shuffle(std::vector<LoadTask>* tasks, uint64_t seed) {
  Rng rng(Mix(seed, 3));
  for (size_t i = tasks->size(); i > 1; --i) std::swap((*tasks)[i - 1], (*tasks)[rng.Below(i)]);
}

}  // namespace

Result<DatasetKind> ParseDatasetKind(std::string_view name) {
  for (const auto& [kind, word] : kDatasetNames) {
    if (name == word) return kind;
  }
  return UsageError("dataset '" + std::string(name) + "' is not known; use random, shared, multi-turn, file or trace");
}

std::string DatasetName(DatasetKind kind) {
  for (const auto& [known, word] : kDatasetNames) {
    if (known == kind) return std::string(word);
  }
  return "";
}

std::string RandomWords(int words, Rng& rng) {
  std::string text;
  for (int i = 0; i < words; ++i) {
    if (i > 0) text += ' ';
    text += kWords[rng.Below(std::size(kWords))];
  }
  return text;
}

Result<std::vector<LoadTask>> MakeTasks(const DatasetSpec& spec, std::string_view text, int n, uint64_t seed) {
  if (spec.kind != DatasetKind::kFile && spec.kind != DatasetKind::kTrace) {
    const int64_t turns = spec.kind == DatasetKind::kMultiTurn ? std::max(1, spec.turns) : 1;
    const int64_t longest = std::max(1, WordsFor(spec.input_tokens * (1 + spec.range), spec.word_tokens, 0));
    HONE_RETURN_IF_ERROR(CheckWords((longest * turns + spec.shared_words) * n));
    HONE_RETURN_IF_ERROR(CheckWords(static_cast<int64_t>(spec.shared_words) * spec.prefixes));
    return RandomTasks(spec, n, seed);
  }
  HONE_TRY(const std::vector<ordered_json> items, ReadItems(text));
  if (spec.kind == DatasetKind::kTrace) return TraceTasks(items, spec, n, seed);
  std::vector<LoadTask> tasks;
  for (size_t i = 0; i < items.size(); ++i) {
    Result<LoadTask> task = ReadItem(items[i], spec);
    if (!task) return std::move(task).error().Context("item " + std::to_string(i + 1));
    tasks.push_back(std::move(*task));
  }
  Shuffle(&tasks, seed);
  const size_t distinct = tasks.size();
  if (n > 0) {
    int64_t bytes = 0;
    for (const LoadTask& task : tasks) {
      bytes += static_cast<int64_t>(task.system.size());
      for (const LoadTurn& turn : task.turns) bytes += static_cast<int64_t>(turn.text.size());
    }
    constexpr int64_t kWordBytes = 6;  // about, with the space
    HONE_RETURN_IF_ERROR(CheckWords(bytes / kWordBytes * (n / static_cast<int64_t>(distinct))));
    tasks.reserve(static_cast<size_t>(n));
    while (tasks.size() < static_cast<size_t>(n)) tasks.push_back(LoadTask(tasks[tasks.size() - distinct]));
    tasks.resize(static_cast<size_t>(n));
  }
  return tasks;
}

}  // namespace hone
