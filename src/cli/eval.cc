// hone eval perplexity | kld | tasks | needle | domains: the quality of a model, by named protocols. What is computed: docs/measure.md.
#include <algorithm>
#include <filesystem>

#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/ledger_flags.h"
#include "cli/loaded_model.h"
#include "cli/model_path.h"
#include "cli/progress.h"
#include "cli/report_page.h"
#include "measure/divergence.h"
#include "measure/domains.h"
#include "measure/ledger/entries.h"
#include "measure/needle.h"
#include "measure/perplexity.h"
#include "measure/tasks.h"
#include "measure/window_scorer.h"

namespace hone {
namespace {

// A model and its tokenizer without an engine: windows are driven directly.
struct EvalModel {
  std::shared_ptr<const Checkpoint> checkpoint;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::unique_ptr<Model> model;
  std::string name;
};

class EvalCommand : public Command {
 public:
  void AddFlags(Flags& flags) override {
    flags.Add("WHAT", what_, "perplexity, kld, tasks, needle or domains")
        ->required()
        ->one_of({"perplexity", "kld", "tasks", "needle", "domains"});
    flags.Add("MODEL", model_, "GGUF file, Hugging Face folder, builtin or builtin-draft")->required();
    flags.Add("FILES", files_, "tasks: JSONL files (default: the tasks of the built-in model); domains: NAME=FILE of each text (default: texts of hone's own)");
    const char* text = "Perplexity and divergence";
    flags.Add("-f,--file", file_, "the text; - is standard input")->group(text);
    protocol_option_ =
        flags.Add("--protocol", protocol_,
                       "llama.cpp (windows of 512, second half scored), gptq (2048, all scored) or sliding; "
                       "--ctx sets the window")
            ->group(text);
    flags.Add("--stride", stride_, "sliding: tokens from one window to the next (default half a window)")
        ->range(1, 1 << 30)
        ->group(text);
    flags.Add("--chunks", chunks_, "stop after so many windows")->range(1, 1 << 30)->group(text);
    flags.AddSwitch("--parse-special", parse_special_, "special tokens written in the text are tokens, not text")
        ->group(text);
    flags.Add("--base", base_, "kld: the model to compare with, or a .kld file of its logits; domains: the model")->group(text);
    flags.Add("--save", save_, "kld: write the base's logits to this file, in llama.cpp's format")->group(text);
    const char* tasks = "Tasks";
    flags.Add("--compare", compare_, "another model on the same items, compared item by item")->group(tasks);
    flags.Add("--shots", format_.shots, "the first N items of each file become examples")
        ->range(0, 1000)
        ->group(tasks);
    flags.Add("--prefix", prefix_file_, "text in front of every question")->group(tasks);
    flags.Add("--frame", format_.frame,
                   "how a question is asked, {} standing for it (default \"Q: {}\\nA:\", for choices \"Question: "
                   "{}\\nAnswer:\")")
        ->group(tasks);
    flags.Add("--max-tokens", task_options_.max_tokens,
                   "longest answer (default 256 for conversations, 64 for questions)")
        ->range(1, 1 << 20)
        ->group(tasks);
    flags.Add("--items", items_file_, "write what came out of each item to this file, as JSON lines")
        ->group(tasks);
    const char* needle = "Needle";
    flags.Add("--lengths", needles_.lengths, "tokens of prompts (default 256,512 ... up to the context)")->delimiter(',')->group(needle);
    flags.Add("--depths", depths_, "where the needle is, in percent of the text (default 0,25,50,75,100)")
        ->delimiter(',')
        ->range(0, 100)
        ->group(needle);
    flags.Add("--needles", needles_.trials, "needles of each length and depth (default 3)")->range(1, 1000)->group(needle);
    AddLedgerFlags(flags, &ledger_);
    AddPageFlag(flags, &html_);
  }

  Result<int> Run(const CommonFlags& flags) override {
    CatchInterrupts();
    HONE_RETURN_IF_ERROR(CheckFlags());
    HONE_RETURN_IF_ERROR(CheckPage(html_, {file_, model_, base_, save_, compare_}));
    if (what_ == "perplexity") return Perplexity(flags);
    if (what_ == "kld") return Divergence(flags);
    if (what_ == "needle") return Needle(flags);
    if (what_ == "domains") return Domains(flags);
    return Tasks(flags);
  }

 private:
  // The exit code of a run whose result is written: also what ended early has one.
  static Result<int> End(bool interrupted, const std::string& failed) {
    if (interrupted) return kExitInterrupted;
    if (!failed.empty()) return Error{ErrorCode::kInternal, failed + "; what was done until then is in the result"};
    return kExitDone;
  }

  Result<void> CheckFlags() const {
    const bool tasks = what_ == "tasks", kld = what_ == "kld";
    const bool domains = what_ == "domains", needle = what_ == "needle";
    if (!needle && (!needles_.lengths.empty() || !depths_.empty())) return UsageError("--lengths, --depths and --needles are for eval needle");
    if (!tasks && !domains && !files_.empty())
      return UsageError("eval " + what_ + " takes its text with -f FILE; '" + files_[0] + "' is too much");
    if (tasks && !file_.empty()) return UsageError("eval tasks takes its files after MODEL, without -f");
    if (what_ == "perplexity" && file_.empty()) return UsageError("no text: give -f FILE");
    if (domains && !file_.empty()) return UsageError("eval domains takes its texts after MODEL, as NAME=FILE, without -f");
    if (domains && (stride_ > 0 || protocol_option_->given() || parse_special_)) return UsageError("eval domains has one protocol, llama.cpp's; --ctx and --chunks can be set");
    if (!kld && !(domains && save_.empty()) && (!base_.empty() || !save_.empty())) return UsageError("--base and --save are for eval kld");
    if (!format_.frame.empty() && format_.frame.find("{}") == std::string::npos)
      return UsageError("--frame '" + format_.frame + "': wanted {} where the question goes");
    if (kld && base_.empty() && save_.empty())
      return UsageError(
          "give --base MODEL-or-FILE.kld to compare with, or --save FILE.kld to write this model's logits");
    if (kld && (stride_ > 0 || protocol_option_->given()))
      return UsageError("eval kld has one protocol, llama.cpp's; --ctx and --chunks can be set");
    if (!tasks && (!compare_.empty() || !items_file_.empty() || format_.shots > 0 || !prefix_file_.empty() ||
                   !format_.frame.empty())) {
      return UsageError("--compare, --items, --shots, --prefix and --frame are for eval tasks");
    }
    return {};
  }

  static Result<EvalModel> Load(const std::string& path, int window, const RuntimeOwner& owner,
                                const CommonFlags& flags) {
    EvalModel loaded;
    HONE_TRY(loaded.checkpoint, OpenModel(path));
    PrintWarnings("eval", *loaded.checkpoint);
    loaded.name = ModelName(path, *loaded.checkpoint);
    HONE_TRY(const ModelConfig config, ReadModelConfig(*loaded.checkpoint));
    if (window > config.context) {
      return UsageError("windows of " + std::to_string(window) + " tokens, but the context of " + loaded.name + " is " +
                        std::to_string(config.context) + "; --ctx sets the window");
    }
    HONE_RETURN_IF_ERROR(CheckMemory(*loaded.checkpoint, 0));
    HONE_TRY(loaded.tokenizer, Tokenizer::FromCheckpoint(*loaded.checkpoint, flags.pre));
    ProgressLine progress("loading " + loaded.name, flags.progress());
    LoadOptions load;
    load.max_rows = kScoreRows;
    load.max_context = window;
    load.exact = flags.exact;
    load.deterministic = flags.deterministic;
    load.packed_cache = flags.packed_cache_folder();
    load.progress = [&](uint64_t done, uint64_t total) { progress.Update(done, total); };
    HONE_TRY(loaded.model, Model::Load(loaded.checkpoint, owner.runtime(), load));
    return loaded;
  }

  // Divergence is of distributions over the same next token: a vocabulary of the same size is not enough.
  static Result<void> CheckSameTokens(const EvalModel& mine, const EvalModel& base, const std::string& text) {
    const std::vector<int32_t> here = mine.tokenizer->Encode(text, {}), there = base.tokenizer->Encode(text, {});
    if (here == there) return {};
    const auto at = std::mismatch(here.begin(), here.end(), there.begin(), there.end()).first - here.begin();
    return InvalidInput("the tokenizers of " + mine.name + " and " + base.name + " make other tokens of this text, from token " + std::to_string(at) +
                        " on; divergence needs the same tokens (eval domains without --base, or eval tasks --compare, can compare such models)");
  }

  Result<int> Perplexity(const CommonFlags& flags) {
    HONE_TRY(const Protocol protocol, ParseProtocol(protocol_));
    HONE_TRY(const ProtocolRules rules, ResolveRules({protocol, flags.ctx, stride_, chunks_}));
    HONE_TRY(const KvType kv, flags.kv_type());
    HONE_TRY(const std::string text, ReadText(file_));
    if (text.empty()) return InvalidInput(file_ + ": is empty");
    HONE_TRY(const auto owner, RuntimeOwner::Create(flags));
    HONE_TRY(const EvalModel loaded, Load(model_, rules.context, *owner, flags));
    const EvalText prepared = PrepareText(*loaded.tokenizer, text, protocol, parse_special_);
    ProgressLine progress("perplexity", flags.progress());
    const EvalCallbacks callbacks{
        [&](double share, double ppl) { progress.Update(share, "so far " + std::to_string(ppl)); },
        [] { return Interrupted(); }};
    HONE_TRY(const PerplexityResult result,
             MeasurePerplexity(*loaded.model, owner->runtime(), kv, *loaded.tokenizer, prepared, rules, callbacks)
                 .Context(file_));
    progress.Clear();
    const std::string json = PerplexityJson(result, loaded.name);
    HONE_RETURN_IF_ERROR(Deliver(flags.json ? json : PerplexityTable(result, loaded.name), html_, ledger_, owner->runtime(),
                                 PerplexityEntry(result, loaded.name, loaded.checkpoint->path(), file_, json)));
    return End(result.interrupted, result.failed);
  }

  Result<int> Divergence(const CommonFlags& flags) {
    HONE_TRY(const KvType kv, flags.kv_type());
    const bool from_file = !base_.empty() && KldFile::IsKld(base_);
    if (from_file && !save_.empty())
      return UsageError("--save writes a base's logits, but --base is a file of them already");
    if (!from_file && file_.empty()) {
      return UsageError("no text: give -f FILE" +
                        (base_.empty() ? "" : " (" + base_ + " is no .kld file, which would hold it)"));
    }
    if (!save_.empty()) HONE_RETURN_IF_ERROR(CheckOutput(save_, {model_, base_, file_}));
    std::unique_ptr<KldFile> kld;
    if (from_file) {
      HONE_TRY(kld, KldFile::Open(base_));
      if (flags.ctx > 0 && flags.ctx != kld->shape().context) {
        return UsageError("--ctx " + std::to_string(flags.ctx) + ", but " + base_ + " has windows of " +
                          std::to_string(kld->shape().context));
      }
    }
    HONE_TRY(const ProtocolRules rules,
             ResolveRules({Protocol::kLlamaCpp, from_file ? kld->shape().context : flags.ctx, 0, chunks_}));
    std::string text;
    if (!file_.empty()) {
      HONE_TRY(text, ReadText(file_));
      if (text.empty()) return InvalidInput(file_ + ": is empty");
    }
    HONE_TRY(const auto owner, RuntimeOwner::Create(flags));
    HONE_TRY(const EvalModel mine, Load(model_, rules.context, *owner, flags));
    EvalText prepared = PrepareText(*mine.tokenizer, text, Protocol::kLlamaCpp, parse_special_);
    if (from_file) HONE_RETURN_IF_ERROR(TakeTokens(*kld, &prepared));
    HONE_TRY(
        const std::vector<Window> windows,
        PlanWindows(rules, static_cast<int64_t>(prepared.tokens.size()), from_file).Context(from_file ? base_ : file_));
    EvalModel other;
    if (!base_.empty() && !from_file) {
      HONE_TRY(other, Load(base_, rules.context, *owner, flags));
      HONE_RETURN_IF_ERROR(CheckSameTokens(mine, other, text));
    }
    std::unique_ptr<KldWriter> writer;
    if (!save_.empty()) {
      const KldShape shape{rules.context, mine.model->config().vocab, static_cast<int>(windows.size())};
      HONE_TRY(writer, KldWriter::Create(save_, shape, prepared.tokens));
    }
    ProgressLine progress(base_.empty() ? "writing logits" : "divergence", flags.progress());
    const EvalCallbacks callbacks{[&](double share, double) { progress.Update(share); }, [] { return Interrupted(); }};
    if (base_.empty()) {
      HONE_RETURN_IF_ERROR(SaveLogits(*mine.model, owner->runtime(), kv, prepared, windows, writer.get(), callbacks));
      progress.Clear();
      if (flags.json) WriteOut(SavedJson(mine.name, windows.size(), rules.context, prepared.digest));
      return kExitDone;
    }
    HONE_TRY(DivergenceResult result, MeasureDivergence(*mine.model, {kld.get(), other.model.get()}, owner->runtime(),
                                                        kv, prepared, windows, writer.get(), callbacks));
    progress.Clear();
    result.base = from_file ? base_ : other.name;
    if (!result.interrupted && result.failed.empty()) result.saved = save_;
    const std::string json = DivergenceJson(result, mine.name);
    HONE_RETURN_IF_ERROR(Deliver(flags.json ? json : DivergenceTable(result, mine.name), html_, ledger_, owner->runtime(),
                                 DivergenceEntry(result, mine.name, mine.checkpoint->path(), file_, json)));
    return End(result.interrupted, result.failed);
  }

  std::string SavedJson(const std::string& name, size_t chunks, int context, const std::string& digest) const {
    const auto quoted = [](const std::string& s) {
      std::string out = "\"";
      for (const char c : s) out += c == '"' || c == '\\' ? std::string("\\") + c : std::string(1, c);
      return out + "\"";
    };
    return "{\"saved\": " + quoted(save_) + ", \"model\": " + quoted(name) + ", \"chunks\": " + std::to_string(chunks) +
           ", \"ctx\": " + std::to_string(context) + ", \"dataset_digest\": \"" + digest + "\"}\n";
  }

  // A .kld file holds the tokens; a text that is given as well must have the same.
  Result<void> TakeTokens(const KldFile& kld, EvalText* prepared) const {
    const std::vector<int32_t> tokens(kld.tokens().begin(), kld.tokens().end());
    if (!file_.empty()) {
      const bool same = prepared->tokens.size() >= tokens.size() &&
                        std::equal(tokens.begin(), tokens.end(), prepared->tokens.begin());
      if (!same)
        return InvalidInput(file_ + ": its tokens are not those of " + base_ +
                            "; the text or the tokenizer is another");
    } else {
      prepared->digest.clear();
    }
    prepared->tokens = tokens;
    return {};
  }

  Result<std::vector<TaskResult>> RunSets(const std::string& model, const std::vector<TaskSet>& sets,
                                          const CommonFlags& flags, std::string* name, std::string* path) {
    EngineOptions options;
    HONE_TRY(LoadedModel loaded, LoadModel(model, flags, options));
    *name = loaded.name;
    *path = loaded.checkpoint->path();
    const TaskModel task_model{loaded.model, loaded.tokenizer, loaded.chat_template, loaded.engine.get()};
    HONE_TRY(const KvType kv, flags.kv_type());
    std::vector<TaskResult> results;
    for (const TaskSet& set : sets) {
      ProgressLine progress(loaded.name + ", " + std::filesystem::path(set.file).stem().string(), flags.progress());
      const TaskProgress report = [&](double share, int right, int done) {
        progress.Update(share, std::to_string(right) + " right of " + std::to_string(done));
      };
      Result<TaskResult> result = RunTasks(set, task_model, loaded.runtime->runtime(), kv, task_options_, report, [] { return Interrupted(); });
      if (!result && results.empty()) return result.error();
      failed_ = result ? result->failed : result.error().message;
      if (result) results.push_back(std::move(*result));
      if (!failed_.empty() || Interrupted()) break;
    }
    return results;
  }

  Result<int> Needle(const CommonFlags& flags) {
    std::string haystack;
    if (!file_.empty()) {
      HONE_TRY(haystack, ReadText(file_));
      if (haystack.empty()) return InvalidInput(file_ + ": is empty");
    }
    for (const int percent : depths_) needles_.depths.push_back(percent / 100.0);
    needles_.seed = flags.seed.value_or(1);
    if (task_options_.max_tokens > 0) needles_.max_tokens = task_options_.max_tokens;
    HONE_TRY(const auto checkpoint, OpenModel(model_));
    HONE_TRY(const ModelConfig config, ReadModelConfig(*checkpoint));
    CommonFlags sized = flags;
    sized.ctx = flags.ctx > 0 ? flags.ctx : std::min(config.context, kMaxDefaultContext);
    for (const int length : needles_.lengths) {  // asked for by name: no need to say --ctx too
      if (flags.ctx == 0) sized.ctx = std::min(config.context, std::max(sized.ctx, length + needles_.max_tokens));
    }
    HONE_TRY(const NeedleOptions needles, ResolveNeedles(needles_, sized.ctx));
    HONE_TRY(LoadedModel loaded, LoadModel(model_, sized, {.max_sequences = 4}));
    const TaskModel model{loaded.model, loaded.tokenizer, loaded.chat_template, loaded.engine.get()};
    HONE_TRY(const KvType kv, flags.kv_type());
    ProgressLine progress(loaded.name + ", needles", flags.progress());
    HONE_TRY(const NeedleReport report,
             RunNeedles(needles, haystack, model, loaded.runtime->runtime(), kv,
                        [&](double share, int right, int done) {
                          progress.Update(share, std::to_string(right) + " found of " + std::to_string(done));
                        },
                        [] { return Interrupted(); }));
    progress.Clear();
    const std::string json = NeedleJson(report, loaded.name, flags.kv_name());
    HONE_RETURN_IF_ERROR(Deliver(flags.json ? json : NeedleTable(report, loaded.name, flags.kv_name()), html_, ledger_, loaded.runtime->runtime(),
                                 NeedleEntry(report, loaded.name, loaded.checkpoint->path(), json)));
    return End(report.interrupted, report.failed);
  }

  Result<int> Domains(const CommonFlags& flags) {
    std::vector<DomainText> texts;
    if (files_.empty()) {
      HONE_TRY(const std::string assets, AssetsFolder());
      HONE_TRY(texts, DefaultDomains(assets));
    }
    for (const std::string& argument : files_) {
      HONE_TRY(DomainText domain, ParseDomain(argument));
      for (const DomainText& other : texts) {
        if (other.name == domain.name) return UsageError("domain '" + domain.name + "' is there twice");
      }
      HONE_TRY(domain.text, ReadText(domain.file));
      if (domain.text.empty()) return InvalidInput(domain.file + ": is empty");
      texts.push_back(std::move(domain));
    }
    HONE_TRY(const KvType kv, flags.kv_type());
    const int context = flags.ctx > 0 ? flags.ctx : 512;
    HONE_TRY(const auto owner, RuntimeOwner::Create(flags));
    HONE_TRY(const EvalModel mine, Load(model_, context, *owner, flags));
    EvalModel base;
    if (!base_.empty()) {
      HONE_TRY(base, Load(base_, context, *owner, flags));
      for (const DomainText& domain : texts) HONE_RETURN_IF_ERROR(CheckSameTokens(mine, base, domain.text).Context(domain.file));
    }
    std::vector<DomainResult> results;
    std::string failed;
    for (const DomainText& domain : texts) {
      if (Interrupted() || !failed.empty()) break;
      ProgressLine progress(domain.name, flags.progress());
      const EvalCallbacks callbacks{[&](double share, double) { progress.Update(share); }, [] { return Interrupted(); }};
      Result<DomainResult> result = MeasureDomain(*mine.model, base.model.get(), owner->runtime(), kv, *mine.tokenizer, domain, context, chunks_, callbacks);
      if (!result && results.empty() && !Interrupted()) return result.error();
      failed = result ? result->failed : Interrupted() ? "" : result.error().message;
      if (result) results.push_back(std::move(*result));
    }
    const std::string json = DomainsJson(results, mine.name, base.name, context, Interrupted(), failed);
    HONE_RETURN_IF_ERROR(Deliver(flags.json ? json : DomainsTable(results, mine.name, base.name, Interrupted(), failed), html_, ledger_, owner->runtime(),
                                 DomainsEntry(results, mine.name, mine.checkpoint->path(), base.name, Interrupted(), failed, json)));
    return End(Interrupted(), failed);
  }

  Result<int> Tasks(const CommonFlags& flags) {
    if (files_.empty()) {
      HONE_TRY(files_, DefaultTasks());
    }
    if (!prefix_file_.empty()) {
      HONE_TRY(format_.prefix, ReadText(prefix_file_));
    }
    if (!compare_.empty()) {  // not after the first model's work
      HONE_TRY(const auto checkpoint, OpenModel(compare_));
      HONE_RETURN_IF_ERROR(ReadModelConfig(*checkpoint));
    }
    std::vector<TaskSet> sets;
    for (const std::string& file : files_) {
      if (!items_file_.empty()) HONE_RETURN_IF_ERROR(CheckOutput(items_file_, {file, model_, compare_, prefix_file_}));
      HONE_TRY(const std::string text, ReadText(file));
      HONE_TRY(TaskSet set, ParseTasks(file, text, format_));
      sets.push_back(std::move(set));
    }
    std::string name, other_name, path, other_path;
    HONE_TRY(const std::vector<TaskResult> results, RunSets(model_, sets, flags, &name, &path));
    std::vector<TaskResult> other;
    if (!compare_.empty() && !Interrupted() && failed_.empty()) {
      Result<std::vector<TaskResult>> second = RunSets(compare_, sets, flags, &other_name, &other_path);
      if (!second) failed_ = second.error().message;  // what the first did stays
      if (second) other = std::move(*second);
    }
    if (Interrupted() || !failed_.empty()) other.clear();  // half a comparison is none
    const std::string json = TasksJson(results, name, other, other_name, failed_);
    HONE_TRY(const auto owner, RuntimeOwner::Create(flags));
    const Result<void> page = Deliver(flags.json ? json : TasksTable(results, name, other, other_name, failed_), html_, ledger_, owner->runtime(),
                                      TasksEntry(results, name, path, other_name, failed_, json));
    if (!items_file_.empty()) HONE_RETURN_IF_ERROR(WriteFile(items_file_, TaskItemsJsonl(results)));
    HONE_RETURN_IF_ERROR(page);
    return End(Interrupted(), failed_);
  }

  static Result<std::vector<std::string>> DefaultTasks() {
    HONE_TRY(const std::string assets, AssetsFolder());
    std::vector<std::string> files;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(assets + "/builtin/tasks", error)) {
      if (entry.path().extension() == ".jsonl") files.push_back(entry.path().string());
    }
    std::sort(files.begin(), files.end());
    if (files.empty()) return NotFound(assets + "/builtin/tasks: has no .jsonl files; name the files to run");
    return files;
  }

  std::string what_, model_, file_, protocol_ = "llama.cpp", base_, save_, compare_, prefix_file_, items_file_, html_, failed_;
  std::vector<std::string> files_;
  LedgerFlags ledger_;
  int stride_ = 0, chunks_ = 0;
  bool parse_special_ = false;
  Flag* protocol_option_ = nullptr;
  TaskFormat format_;
  TaskOptions task_options_;
  NeedleOptions needles_;
  std::vector<int> depths_;
};

}  // namespace

std::unique_ptr<Command> MakeEvalCommand() { return std::make_unique<EvalCommand>(); }

}  // namespace hone
