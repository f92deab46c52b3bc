// See needle.h.
#include "measure/needle.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/random.h"

namespace hone {
namespace {

using nlohmann::ordered_json;

constexpr int kLeastLength = 64, kMostTrials = 1000;
const std::vector<double> kDepths = {0, 0.25, 0.5, 0.75, 1};
constexpr const char* kPlaces[] = {"Lisbon", "Oslo", "Quito", "Hanoi", "Dakar", "Minsk", "Perth", "Lima", "Turin", "Kyoto", "Derby", "Sofia"};
constexpr const char* kWho[] = {"The gardener", "A neighbour", "The teacher", "My cousin", "The baker", "A sailor", "The librarian", "Her uncle"};
constexpr const char* kDid[] = {"walked along", "painted", "photographed", "measured", "swept", "described", "visited", "repaired"};
constexpr const char* kWhat[] = {"the old bridge", "a quiet street", "the river bank", "the market hall", "a stone wall", "the railway station", "a small garden", "the harbour"};
constexpr const char* kWhen[] = {"in the early morning", "after the rain", "before lunch", "on a windy day", "late in autumn", "while the bells rang", "without any hurry", "with great care"};

// One of 4096 plain sentences.
std::string PlainSentence(Rng& rng) {
  return fmt::format("{} {} {} {}. ", kWho[rng.Below(8)], kDid[rng.Below(8)], kWhat[rng.Below(8)], kWhen[rng.Below(8)]);
}

// A text cut after full stops and line ends, so that a needle stands between sentences.
std::vector<std::string> Sentences(const std::string& text) {
  std::vector<std::string> sentences;
  size_t begin = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool stop = text[i] == '\n' || (text[i] == '.' && i + 1 < text.size() && text[i + 1] == ' ');
    if (!stop && i + 1 < text.size()) continue;
    const size_t end = std::min(text.size(), text[i] == '.' ? i + 2 : i + 1);
    sentences.push_back(text.substr(begin, end - begin));
    begin = i = end;
    --i;
  }
  return sentences;
}

struct Needle {
  std::string place, number;
  std::string Sentence() const { return fmt::format("The secret number of {} is {}. ", place, number); }
};

TaskItem MakeItem(const std::string& text, const Needle& needle, bool chat) {
  TaskItem item;
  item.answer = needle.number;
  if (!chat) {
    item.prompt = fmt::format("{}\n\nQ: What is the secret number of {}?\nA: The secret number of {} is", text, needle.place, needle.place);
    return item;
  }
  const std::string content = fmt::format("{}\n\nWhat is the secret number of {}? Answer with the number only.", text, needle.place);
  item.messages_json = ordered_json::array({{{"role", "user"}, {"content", content}}}).dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  item.tools_json = "";
  return item;
}

int TokensOf(const Tokenizer& tokenizer, const std::string& text) { return static_cast<int>(tokenizer.Encode(text, {}).size()); }

char Shade(double share) { return " .:-=+*#%@"[std::clamp(static_cast<int>(share * 9 + 0.5), 0, 9)]; }

}  // namespace

Interval NeedleReport::accuracy() const {
  int64_t right = 0, of = 0;
  for (const NeedleCell& cell : cells) right += cell.right, of += cell.of;
  return of > 0 ? WilsonInterval(right, of, 0.95) : Interval{};
}

Result<NeedleOptions> ResolveNeedles(NeedleOptions options, int context) {
  const int room = context - options.max_tokens;
  if (options.trials < 1 || options.trials > kMostTrials) return UsageError(fmt::format("{} needles a cell: wanted 1 to {}", options.trials, kMostTrials));
  if (options.lengths.empty()) {
    for (int length = 256; length <= room && options.lengths.size() < 6; length *= 2) options.lengths.push_back(length);
    if (options.lengths.empty()) options.lengths.push_back(room);
  }
  if (options.depths.empty()) options.depths = kDepths;
  for (const int length : options.lengths) {
    if (length < kLeastLength || length > room) {
      return UsageError(fmt::format("prompts of {} tokens: wanted {} to {} (the context of {} less {} for the answer); --ctx sets the context",
                                    length, kLeastLength, room, context, options.max_tokens));
    }
  }
  for (const double depth : options.depths) {
    if (!(depth >= 0 && depth <= 1)) return UsageError(fmt::format("depth {}: wanted 0 (beginning) to 1 (end)", depth));
  }
  return options;
}

TaskSet MakeNeedles(const NeedleOptions& options, int length, const std::string& haystack, const Tokenizer& tokenizer, bool chat,
                    std::vector<int>* tokens) {
  TaskSet set;
  set.file = fmt::format("needles in {} tokens", length);
  set.kind = chat ? TaskKind::kChat : TaskKind::kQuestion;
  Rng rng(options.seed);
  std::vector<std::string> given = Sentences(haystack);
  // Sentences until the length is surely reached; the template of a chat takes some too.
  const Needle sample{"Lisbon", "12345"};
  const TaskItem frame = MakeItem(sample.Sentence(), sample, chat);
  const int outside = TokensOf(tokenizer, chat ? frame.messages_json : frame.prompt) + (chat ? 40 : 2);
  std::vector<std::string> hay;
  int have = outside;
  for (size_t i = 0;; ++i) {
    std::string sentence = given.empty() ? PlainSentence(rng) : given[i % given.size()];
    const int count = std::max(1, TokensOf(tokenizer, sentence));
    if (have + count > length) break;
    have += count;
    hay.push_back(std::move(sentence));
  }
  for (const double depth : options.depths) {
    const auto at = static_cast<size_t>(std::lround(depth * static_cast<double>(hay.size())));
    for (int trial = 0; trial < options.trials; ++trial) {
      const Needle needle{kPlaces[rng.Below(std::size(kPlaces))], std::to_string(10000 + rng.Below(90000))};
      std::string text;
      for (size_t i = 0; i < hay.size(); ++i) {
        if (i == at) text += needle.Sentence();
        text += hay[i];
      }
      if (at >= hay.size()) text += needle.Sentence();
      set.items.push_back(MakeItem(text, needle, chat));
      if (tokens != nullptr) tokens->push_back(TokensOf(tokenizer, chat ? set.items.back().messages_json : set.items.back().prompt));
    }
  }
  return set;
}

Result<NeedleReport> RunNeedles(const NeedleOptions& options, const std::string& haystack, const TaskModel& model, const Runtime& runtime,
                                KvType kv, const std::function<void(double share, int right, int done)>& progress,
                                const std::function<bool()>& stop) {
  NeedleReport report;
  report.lengths = options.lengths, report.depths = options.depths;
  int right = 0, done = 0;
  const double all = static_cast<double>(options.lengths.size());
  for (const int length : options.lengths) {
    const size_t first = report.cells.size();
    for (const double depth : options.depths) report.cells.push_back({.length = length, .depth = depth});
    if (report.interrupted || !report.failed.empty()) continue;  // thousands of long prompts take seconds to make
    std::vector<int> tokens;
    const TaskSet set = MakeNeedles(options, length, haystack, *model.tokenizer, model.chat_template != nullptr, &tokens);
    const double before = static_cast<double>(first / options.depths.size()) / all;
    const Result<TaskResult> ran = RunTasks(set, model, runtime, kv, {.max_tokens = options.max_tokens},
                                            [&](double share, int, int items) { if (progress) progress(before + share / all, right, done + items); }, stop);
    if (!ran && done == 0) return ran.error();
    report.failed = ran ? ran->failed : ran.error().message;
    if (!ran) continue;
    report.interrupted = ran->interrupted;
    for (const TaskOutcome& outcome : ran->outcomes) {
      NeedleCell& cell = report.cells[first + outcome.item / static_cast<size_t>(options.trials)];
      const bool found = outcome.got.find(set.items[outcome.item].answer) != std::string::npos;
      cell.right += found, right += found;
      cell.tokens += (tokens[outcome.item] - cell.tokens) / ++cell.of;
      ++done;
    }
  }
  return report;
}

std::string NeedleJson(const NeedleReport& report, const std::string& model, const std::string& kv) {
  const Interval accuracy = report.accuracy();
  ordered_json json = {{"model", model}, {"kv", kv}, {"accuracy", accuracy.value}, {"low", accuracy.low}, {"high", accuracy.high},
                       {"lengths", report.lengths}, {"depths", report.depths}, {"cells", ordered_json::array()}};
  for (const NeedleCell& cell : report.cells) {
    json["cells"].push_back({{"length", cell.length}, {"depth", cell.depth}, {"right", cell.right}, {"of", cell.of}, {"tokens", std::round(cell.tokens)}});
  }
  json["interrupted"] = report.interrupted;
  json["failed"] = report.failed;
  return json.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

LedgerEntry NeedleEntry(const NeedleReport& report, const std::string& model, const std::string& model_path, const std::string& json) {
  LedgerEntry entry{.kind = "eval needle", .model = model, .model_digest = ModelDigest(model_path)};
  entry.outcome = report.interrupted ? "interrupted" : report.failed.empty() ? "done" : "failed";
  if (!report.failed.empty()) entry.failures.push_back({"ended early", "", report.failed, 1});
  entry.figures.push_back({"needles_found", report.accuracy(), Direction::kHigher});
  for (const NeedleCell& cell : report.cells) {
    if (cell.of > 0)
      entry.figures.push_back({fmt::format("needles_found[length={},depth={}]", cell.length, cell.depth), WilsonInterval(cell.right, cell.of, 0.95), Direction::kHigher});
  }
  entry.result = json;
  return entry;
}

std::string NeedleTable(const NeedleReport& report, const std::string& model, const std::string& kv) {
  const Interval accuracy = report.accuracy();
  std::string out = fmt::format("{}, kv {}: {:.1f} % of the needles found ({:.1f} - {:.1f})\n\n{:>8}", model, kv, 100 * accuracy.value,
                                100 * accuracy.low, 100 * accuracy.high, "depth");
  for (const int length : report.lengths) out += fmt::format(" {:>9}", length);
  out += " tokens\n";
  for (size_t d = 0; d < report.depths.size(); ++d) {
    out += fmt::format("{:>6.0f} %", 100 * report.depths[d]);
    for (size_t l = 0; l < report.lengths.size(); ++l) {
      const NeedleCell& cell = report.cells[l * report.depths.size() + d];
      const double share = cell.of > 0 ? static_cast<double>(cell.right) / cell.of : 0;
      out += cell.of > 0 ? fmt::format(" {:>5.0f} % {}", 100 * share, std::string(1, Shade(share)) + Shade(share)).substr(0, 10) : fmt::format(" {:>9}", "-");
    }
    out += "\n";
  }
  if (report.interrupted) out += "INTERRUPTED: of the needles that were asked for\n";
  if (!report.failed.empty()) out += "ENDED EARLY: of the needles that were asked for\n";
  return out;
}

}  // namespace hone
