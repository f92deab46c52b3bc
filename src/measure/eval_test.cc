// Perplexity, divergence and tasks against other implementations' results (goldens/eval), and bad input.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/sanitizer.h"
#include "base/test_shared.h"
#include "formats/checkpoint.h"
#include "formats/safetensors.h"
#include "measure/divergence.h"
#include "measure/kld_file.h"
#include "measure/perplexity.h"
#include "measure/protocol.h"
#include "measure/sha256.h"
#include "measure/tasks.h"

namespace hone {
namespace {

using nlohmann::json;

std::string ReadAll(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::vector<float> Floats(const SafetensorsFile& file, const std::string& name) {
  const NamedTensor* tensor = file.FindTensor(name);
  const float* data = reinterpret_cast<const float*>(tensor->view.data);
  return {data, data + tensor->view.shape.elements()};
}

TEST(Sha256Test, VectorsOfTheStandard) {
  EXPECT_EQ(Sha256Hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha256Hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Sha256Hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(Sha256Hex(std::string(1000000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(ProtocolTest, WindowsOfEachProtocol) {
  auto windows = PlanWindows({Protocol::kGptq, 4}, 11);
  ASSERT_TRUE(windows);
  ASSERT_EQ(windows->size(), 2u);  // the tail of 3 is dropped
  EXPECT_EQ((*windows)[1].begin, 4);
  EXPECT_EQ((*windows)[1].first_target, 5);
  EXPECT_EQ((*windows)[1].targets(), 3);

  windows = PlanWindows({Protocol::kLlamaCpp, 8}, 17);
  ASSERT_TRUE(windows);
  ASSERT_EQ(windows->size(), 2u);
  EXPECT_EQ((*windows)[1].first_target, 8 + 5);
  EXPECT_EQ((*windows)[1].last_target, 16);
  EXPECT_EQ((*windows)[0].targets(), 8 - 8 / 2 - 1);

  windows = PlanWindows({Protocol::kSliding, 4, 2}, 9);
  ASSERT_TRUE(windows);
  int64_t next = 1;
  for (const Window& window : *windows) {  // every target once, in order
    EXPECT_EQ(window.first_target, next);
    EXPECT_GT(window.first_target, window.begin);
    next = window.last_target;
  }
  EXPECT_EQ(next, 9);
  EXPECT_EQ(PlanWindows({Protocol::kSliding, 4, 2, 2}, 9)->size(), 2u);
}

TEST(ProtocolTest, TooShortATextSaysSo) {
  EXPECT_FALSE(PlanWindows({Protocol::kGptq, 4}, 3));
  EXPECT_FALSE(PlanWindows({Protocol::kLlamaCpp, 8}, 15));
  EXPECT_TRUE(PlanWindows({Protocol::kLlamaCpp, 8}, 8, true));
  const auto empty = PlanWindows({Protocol::kSliding, 4, 2}, 0);
  ASSERT_FALSE(empty);
  EXPECT_EQ(empty.error().code, ErrorCode::kInvalidInput);
  EXPECT_NE(empty.error().message.find("has 0 tokens"), std::string::npos);
  EXPECT_FALSE(ResolveRules({Protocol::kGptq, 1}));
  EXPECT_FALSE(ResolveRules({Protocol::kGptq, 8, 4}));
  EXPECT_FALSE(ResolveRules({Protocol::kSliding, 8, 9}));
  EXPECT_EQ(ResolveRules({Protocol::kSliding, 8})->stride, 4);
  EXPECT_FALSE(ParseProtocol("papers"));
}

class EvalTest : public testing::Test {
 protected:
  Runtime runtime() { return {&cpu_, cpu_.best_isa(), &threads_, &log_, &clock_}; }

  void Load(const std::string& path, int context, std::shared_ptr<Model>* model) {
    auto opened = Checkpoint::Open(path);
    ASSERT_TRUE(opened) << opened.error().message;
    LoadOptions load;
    load.exact = true;
    load.max_context = context;
    auto loaded = Model::Load(*opened, runtime(), load);
    ASSERT_TRUE(loaded) << loaded.error().message;
    *model = std::move(*loaded);
    auto tokenizer = Tokenizer::FromCheckpoint(**opened);
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    tokenizer_ = *tokenizer;
  }

  const CpuFacts cpu_ = ReadCpuFacts();
  ThreadPool threads_{2};
  Log log_{LogLevel::kOff};
  Clock clock_;
  std::shared_ptr<const Tokenizer> tokenizer_;
};

TEST_F(EvalTest, PerplexityAsTheReferenceSays) {
  HONE_NEED_SHARED(golden_path, "goldens/eval/perplexity.json");
  const std::string text = ReadAll(SharedPath("data/text/wiki.test.raw")).substr(0, 65536);
  std::shared_ptr<Model> model;
  Load(SharedPath("models/smollm2-135m-instruct-q4_1.gguf"), 512, &model);
  ASSERT_NE(model, nullptr);
  const auto rows = SafetensorsFile::Open(SharedPath("goldens/eval/perplexity_nll.safetensors"));
  ASSERT_TRUE(rows);
  int checked = 0;
  const json all = json::parse(ReadAll(golden_path));
  for (const json& golden : all["results"]) {
    const std::string name = golden["protocol"];
    if (golden["text_bytes"] != 65536 || golden["text_offset"] != 0 || name == "gptq-1024") continue;
    if (kSanitizer && name != "sliding-512-256") continue;  // a minute each
    ProtocolRules rules{Protocol::kGptq, 512, 0, 1};
    if (name == "llama.cpp-512") rules.protocol = Protocol::kLlamaCpp;
    if (name == "sliding-512-256") rules = {Protocol::kSliding, 512, 256, 2};
    const EvalText prepared = PrepareText(*tokenizer_, text, rules.protocol);
    EXPECT_EQ(prepared.digest, golden["text_sha256"]);
    EXPECT_EQ(prepared.tokens.size(), golden["tokens"]);
    EXPECT_EQ(prepared.bos_rule, "none");
    EXPECT_EQ(PlanWindows({rules.protocol, 512, rules.stride}, golden["tokens"])->size(), golden["windows"]);
    const auto result = MeasurePerplexity(*model, runtime(), KvType::kF32, *tokenizer_, prepared, rules, {});
    ASSERT_TRUE(result) << result.error().message;
    ASSERT_EQ(result->windows, rules.chunks);
    for (int w = 0; w < rules.chunks; ++w)
      EXPECT_NEAR(result->window_nll[w], golden["window_nll_sums"][w].get<double>(), 0.1) << name;
    if (rows->get()->FindTensor(name) != nullptr) {
      const std::vector<float> nll = Floats(**rows, name);
      for (size_t i = 0; i < result->nll.size(); ++i)
        ASSERT_NEAR(result->nll[i], nll[i], 1e-3) << name << " token " << i;
    }
    const json out = json::parse(PerplexityJson(*result, "m"));
    for (const char* key :
         {"nll_sum", "tokens_scored", "windows", "ppl", "ppl_stderr", "bits_per_byte", "protocol", "dataset_digest"}) {
      EXPECT_TRUE(out.contains(key)) << key;
    }
    ++checked;
  }
  EXPECT_EQ(checked, kSanitizer ? 1 : 3);
}

// measured.json: PyTorch in float32, windows of 512 of held-out.txt with its special tokens parsed.
TEST_F(EvalTest, PerplexityOfTheBuiltinDraftAsMeasured) {
  if (kSanitizer) GTEST_SKIP() << "a whole text takes minutes under sanitizers";
  const std::string folder = HONE_SOURCE_DIR "/assets/builtin/";
  std::shared_ptr<Model> model;
  Load(folder + "draft", 512, &model);
  ASSERT_NE(model, nullptr);
  const json want = json::parse(ReadAll(folder + "draft/measured.json"))["perplexity_512"];
  const EvalText text = PrepareText(*tokenizer_, ReadAll(folder + "tasks/held-out.txt"), Protocol::kGptq, true);
  const auto result = MeasurePerplexity(*model, runtime(), KvType::kF32, *tokenizer_, text, {Protocol::kGptq, 512}, {});
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->tokens_scored, want["tokens"]);
  EXPECT_NEAR(result->ppl, want["ppl"].get<double>(), 1e-4 * want["ppl"].get<double>());
}

TEST(MeanErrorTest, IsLlamaCppsFormula) {
  const std::vector<double> x = {1, 2, 4};
  const MeanError got = MeanAndError(x);
  EXPECT_DOUBLE_EQ(got.mean, 7.0 / 3);
  EXPECT_DOUBLE_EQ(got.error, std::sqrt((21.0 / 3 - 49.0 / 9) / 2));
}

// The tiny model's .kld file, written by llama-perplexity itself, and that tool's report on the other model.
class KldTest : public EvalTest {
 protected:
  void SetUp() override {
    folder_ = SharedPath("goldens/eval");
    if (folder_.empty()) GTEST_SKIP() << "needs goldens/eval of the shared folder (set HONE_SHARED)";
    golden_ = json::parse(ReadAll(folder_ + "/kld.json"));
    auto file = KldFile::Open(folder_ + "/kld_tiny.kld");
    ASSERT_TRUE(file) << file.error().message;
    file_ = std::move(*file);
  }
  void ExpectFigures(const DivergenceFigures& f, const json& want) {
    const auto near = [&](double got, const std::string& key) {
      EXPECT_NEAR(got, want[key].get<double>(), 2e-6 + 1e-3 * std::fabs(want[key].get<double>())) << key;
    };
    near(f.kld.mean, "kld_mean"), near(f.kld.error, "kld_stderr"), near(f.kld.max, "kld_max"),
        near(f.kld.min, "kld_min");
    near(f.delta_p.mean, "dp_mean"), near(f.delta_p.error, "dp_mean_stderr"), near(f.delta_p_rms, "dp_rms");
    near(f.delta_p_rms_error, "dp_rms_stderr"), near(f.delta_p.max, "dp_max"), near(f.delta_p.min, "dp_min");
    near(f.same_top, "same_top1"), near(f.same_top_error, "same_top1_stderr");
    near(f.ppl, "ppl"), near(f.ppl_error, "ppl_stderr"), near(f.ppl_base, "ppl_base"),
        near(f.ppl_base_error, "ppl_base_stderr");
    near(f.ln_ratio, "ln_ppl_ratio"), near(f.ln_ratio_error, "ln_ppl_ratio_stderr"),
        near(f.ln_correlation, "ln_ppl_correlation");
    const std::pair<const char*, double> percentiles[] = {
        {"99.9", f.kld.p999}, {"99", f.kld.p99}, {"95", f.kld.p95}, {"90", f.kld.p90},  {"50", f.kld.median},
        {"10", f.kld.p10},    {"5", f.kld.p05},  {"1", f.kld.p01},  {"0.1", f.kld.p001}};
    for (const auto& [percent, got] : percentiles) {
      const double value = want["kld_percentiles"][percent];
      EXPECT_NEAR(got, value, 2e-6 + 1e-3 * value) << percent;
    }
  }
  EvalText StoredText() {
    EvalText text;
    text.tokens.assign(file_->tokens().begin(), file_->tokens().end());
    return text;
  }

  std::string folder_;
  json golden_;
  std::unique_ptr<KldFile> file_;
};

TEST_F(KldTest, ReadsTheToolsFile) {
  EXPECT_TRUE(KldFile::IsKld(folder_ + "/kld_tiny.kld"));
  EXPECT_FALSE(KldFile::IsKld(folder_ + "/kld.json"));
  EXPECT_EQ(file_->shape().context, golden_["n_ctx"]);
  EXPECT_EQ(file_->shape().vocab, golden_["n_vocab"]);
  EXPECT_EQ(file_->shape().chunks, golden_["n_chunk"]);
  EXPECT_EQ(file_->shape().rows_per_chunk(), golden_["rows_per_chunk"]);
  EXPECT_EQ(file_->shape().row_u16(), golden_["row_u16"]);
  std::vector<float> row(301);
  ASSERT_TRUE(file_->Row(0, 0, row));
  const json& first = golden_["first_row"];
  for (int i = 0; i < 8; ++i) {
    EXPECT_NEAR(
        row[i],
        first["scale"].get<double>() * first["q_first_8"][i].get<double>() + first["min_log_prob"].get<double>(), 2e-6);
  }
}

TEST_F(KldTest, DivergenceFromTheFileAndFromTheModel) {
  std::shared_ptr<Model> base, other;
  Load(folder_ + "/kld_tiny_base.gguf", 64, &base);
  Load(folder_ + "/kld_tiny_other.gguf", 64, &other);
  ASSERT_TRUE(base != nullptr && other != nullptr);
  const EvalText text = StoredText();
  const auto windows = PlanWindows({Protocol::kLlamaCpp, 64}, static_cast<int64_t>(text.tokens.size()), true);
  ASSERT_TRUE(windows);
  auto result = MeasureDivergence(*other, {file_.get(), nullptr}, runtime(), KvType::kF32, text, *windows, nullptr, {});
  ASSERT_TRUE(result) << result.error().message;
  ExpectFigures(FiguresOf(result->rows), golden_["against_stored_base"]);
  const auto rows = SafetensorsFile::Open(folder_ + "/kld_rows.safetensors");
  ASSERT_TRUE(rows);
  const std::vector<float> kld = Floats(**rows, "kld_stored_base"), delta = Floats(**rows, "dp_stored_base");
  ASSERT_EQ(kld.size(), result->rows.size());
  for (size_t i = 0; i < kld.size(); ++i) {
    EXPECT_NEAR(result->rows[i].kld, kld[i], 2e-6 + 1e-3 * kld[i]) << i;
    EXPECT_NEAR(result->rows[i].delta_p, delta[i], 2e-6 + 1e-3 * std::fabs(delta[i])) << i;
  }
  const json out = json::parse(DivergenceJson(*result, "other"));
  for (const char* key :
       {"mean", "stderr", "max", "p999", "p99", "p95", "p90", "median", "p10", "p05", "p01", "p001"}) {
    EXPECT_TRUE(out["kld"].contains(key)) << key;
  }
  EXPECT_TRUE(out["delta_p"].contains("mean") && out["delta_p"].contains("rms"));
  EXPECT_NEAR(out["same_top"]["percent"].get<double>(), 90.029, 1e-3);
  EXPECT_TRUE(out["same_top"].contains("stderr") && out.contains("ppl") && out.contains("ppl_base"));

  result = MeasureDivergence(*other, {nullptr, base.get()}, runtime(), KvType::kF32, text, *windows, nullptr, {});
  ASSERT_TRUE(result) << result.error().message;
  ExpectFigures(FiguresOf(result->rows), golden_["exact"]);
}

TEST_F(KldTest, WritesWhatTheToolWrites) {
  std::shared_ptr<Model> base;
  Load(folder_ + "/kld_tiny_base.gguf", 64, &base);
  ASSERT_NE(base, nullptr);
  // From the text: the tokens must come out as the tool's.
  const EvalText text = PrepareText(*tokenizer_, ReadAll(folder_ + "/kld_tiny.txt"), Protocol::kLlamaCpp);
  const auto windows = PlanWindows({Protocol::kLlamaCpp, 64}, static_cast<int64_t>(text.tokens.size()));
  ASSERT_TRUE(windows);
  ASSERT_EQ(static_cast<int>(windows->size()), file_->shape().chunks);
  const std::string path = TestPath("own.kld");
  auto writer = KldWriter::Create(path, file_->shape(), text.tokens);
  ASSERT_TRUE(writer);
  const auto saved = SaveLogits(*base, runtime(), KvType::kF32, text, *windows, writer->get(), {});
  ASSERT_TRUE(saved) << saved.error().message;
  auto own = KldFile::Open(path);
  ASSERT_TRUE(own) << own.error().message;
  EXPECT_TRUE(
      std::equal(file_->tokens().begin(), file_->tokens().end(), (*own)->tokens().begin(), (*own)->tokens().end()));
  std::vector<float> a(301), b(301);
  for (int chunk = 0; chunk < file_->shape().chunks; ++chunk) {
    for (int row = 0; row < file_->shape().rows_per_chunk(); ++row) {
      ASSERT_TRUE(file_->Row(chunk, row, a) && (*own)->Row(chunk, row, b));
      for (int i = 0; i < 301; ++i)
        ASSERT_NEAR(a[i], b[i], 6e-4) << chunk << " " << row << " " << i;  // one step of the codes is 2.4e-4
    }
  }
  std::filesystem::remove(path);
}

TEST_F(KldTest, DamagedFilesAreRefused) {
  const std::string whole = ReadAll(folder_ + "/kld_tiny.kld"), path = TestPath("bad.kld");
  const auto refused = [&](const std::string& bytes, const std::string& part) {
    std::ofstream(path, std::ios::binary) << bytes;
    const auto file = KldFile::Open(path);
    ASSERT_FALSE(file) << part;
    EXPECT_EQ(file.error().code, ErrorCode::kInvalidInput);
    EXPECT_NE(file.error().message.find(part), std::string::npos) << file.error().message;
  };
  refused(whole.substr(0, 10), "_logits_");
  refused("_LOGITS_" + whole.substr(8), "_logits_");
  refused(whole.substr(0, whole.size() - 2), "written to its end");
  refused(whole + "x", "written to its end");
  std::string changed = whole;
  changed[20] = '\x7f', changed[21] = '\x7f';
  refused(changed, "outside of the vocabulary");
  changed = whole;
  changed[11] = '\x7f';
  refused(changed, "make no sense");
  std::filesystem::remove(path);
  EXPECT_FALSE(KldFile::Open(path));
  // A writer that is given up leaves nothing.
  { ASSERT_TRUE(KldWriter::Create(path, {8, 3, 1}, std::vector<int32_t>(8))); }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(KldTest, VocabulariesMustAgree) {
  std::shared_ptr<Model> tiny, builtin;
  Load(folder_ + "/kld_tiny_base.gguf", 64, &tiny);
  Load(HONE_SOURCE_DIR "/assets/builtin/draft", 64, &builtin);
  ASSERT_TRUE(tiny != nullptr && builtin != nullptr);
  const auto result = MeasureDivergence(*builtin, {nullptr, tiny.get()}, runtime(), KvType::kF32, StoredText(),
                                        {{0, 64, 33, 64}}, nullptr, {});
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().message.find("vocabularies differ"), std::string::npos);
}

TEST(EncodeKldRowTest, KeepsSixteenBelowTheBestAndNothingElse) {
  const std::vector<float> logits = {0, -1, -40, 2};
  std::vector<uint16_t> row(8);
  EncodeKldRow(logits, row);
  float head[2];
  std::memcpy(head, row.data(), 8);
  EXPECT_FLOAT_EQ(head[0], 16 / 65535.0f);
  EXPECT_EQ(row[4 + 3], 65535);
  EXPECT_EQ(row[4 + 2], 0);
  const double log_sum = std::log(std::exp(-2.0) + std::exp(-3.0) + 1);
  EXPECT_NEAR(head[0] * row[4] + head[1], -2 - log_sum, 2e-4);
  EXPECT_NEAR(head[1], -16 - log_sum, 1e-5);
  std::vector<uint16_t> flat(6);
  EncodeKldRow(std::vector<float>{3, 3}, flat);  // no spread: all codes 0, each half
  std::memcpy(head, flat.data(), 8);
  EXPECT_EQ(head[0], 0);
  EXPECT_NEAR(head[1], -std::log(2.0), 1e-6);
}

TEST(TasksTest, KindsAndBadLines) {
  const std::string chat = R"({"messages": [{"role": "user", "content": "Hi"}], "answer": "Ho"})";
  const std::string choice = R"({"question": "Up?", "choices": ["no", "yes"], "answer": "yes"})";
  const std::string question = R"({"question": "1+1?", "expected": "2"})";
  EXPECT_EQ(ParseTasks("f", chat + "\n\n" + chat + "\n", {})->items.size(), 2u);
  const auto choices = ParseTasks("f", choice + "\r\n" + choice, {.shots = 1, .prefix = "P: "});
  ASSERT_TRUE(choices) << choices.error().message;
  ASSERT_EQ(choices->items.size(), 1u);
  EXPECT_EQ(choices->items[0].prompt, "P: Question: Up?\nAnswer: yes\n\nQuestion: Up?\nAnswer:");
  EXPECT_EQ(choices->items[0].right_choice, 1);
  EXPECT_EQ(ParseTasks("f", question, {})->items[0].prompt, "Q: 1+1?\nA:");
  EXPECT_EQ(ParseTasks("f", question, {.frame = "<{}>"})->items[0].prompt, "<1+1?>");
  EXPECT_EQ(ParseTasks("f", R"({"prompt": "2+2=", "answer": "4"})", {})->items[0].prompt, "2+2=");
  for (const std::string& bad :
       {std::string(), std::string("\n \n"),
        std::string("{\"messages\": ") + std::string(100000, '[') + std::string(100000, ']') + ", \"answer\": \"x\"}",
        std::string("{"), std::string("[1]"), std::string("{}"), chat + "\n" + question,
        std::string(R"({"question": 3, "answer": "x"})"), std::string(R"({"question": "x"})"),
        std::string(R"({"messages": [], "answer": "x"})"),
        std::string(R"({"question": "x", "choices": ["a"], "answer": 0})"),
        std::string(R"({"question": "x", "choices": ["a", "b"], "answer": 2})"),
        std::string(R"({"question": "x", "choices": ["a", "b"], "answer": "c"})"),
        std::string(R"({"question": "x", "choices": ["a", 1], "answer": 0})")}) {
    const auto set = ParseTasks("f.jsonl", bad, {});
    ASSERT_FALSE(set) << bad;
    EXPECT_EQ(set.error().code, ErrorCode::kInvalidInput);
    EXPECT_NE(set.error().message.find("f.jsonl"), std::string::npos);
  }
  EXPECT_EQ(ParseTasks("f", chat, {.shots = 1}).error().code, ErrorCode::kUsage);
  EXPECT_EQ(ParseTasks("f", question, {.shots = 1}).error().code, ErrorCode::kUsage);
  EXPECT_EQ(NormaliseAnswer(" Tokyo.. \n"), "tokyo");
}

TEST(TasksTest, PairedComparison) {
  const auto results = [](const std::string& pattern) {
    TaskResult result{.file = "f"};
    for (const char c : pattern) result.outcomes.push_back({.right = c == '1'}), result.right += c == '1';
    return std::vector<TaskResult>{result};
  };
  const auto a = results(std::string(20, '1') + std::string(10, '0')),
             b = results(std::string(8, '1') + std::string(22, '0'));
  PairedTasks paired = ComparePairedTasks(a, b);
  EXPECT_EQ(paired.both, 8);
  EXPECT_EQ(paired.only_a, 12);
  EXPECT_EQ(paired.only_b, 0);
  EXPECT_EQ(paired.neither, 10);
  EXPECT_NEAR(paired.p, 2 * std::pow(0.5, 12), 1e-12);
  EXPECT_DOUBLE_EQ(paired.difference.value, 0.4);
  EXPECT_GT(paired.difference.low, 0);
  EXPECT_EQ(paired.verdict, "better");
  paired = ComparePairedTasks(b, a);
  EXPECT_EQ(paired.verdict, "worse");
  EXPECT_EQ(ComparePairedTasks(a, a).verdict, "no difference");
  const json out = json::parse(TasksJson(a, "m", b, "n", ""));
  for (const char* key : {"right", "of", "accuracy", "low", "high", "files", "compare"})
    EXPECT_TRUE(out.contains(key)) << key;
  for (const char* key : {"right", "of", "accuracy", "low", "high"}) EXPECT_TRUE(out["files"][0].contains(key)) << key;
  EXPECT_EQ(out["files"][0]["right"], 20);
}

TEST_F(EvalTest, ChoicesAndAnswersAsTheReferenceSays) {
  HONE_NEED_SHARED(folder, "goldens/eval");
  std::shared_ptr<Model> model;
  Load(SharedPath("models/smollm2-135m-instruct-q4_1.gguf"), 512, &model);
  ASSERT_NE(model, nullptr);
  EngineOptions options;
  options.context = 512, options.kv = KvType::kF32, options.kv_bytes = uint64_t{256} << 20;
  auto engine = Engine::Create(model, tokenizer_, runtime(), options);
  ASSERT_TRUE(engine) << engine.error().message;
  const TaskModel task_model{model, tokenizer_, nullptr, engine->get()};
  const json golden = json::parse(ReadAll(folder + "/tasks.json"));

  const std::string choice_text = ReadAll(folder + "/tasks_mc.jsonl");
  auto set = ParseTasks("mc", choice_text, {.prefix = golden["mc"]["few_shot_prompt"]});
  ASSERT_TRUE(set) << set.error().message;
  const auto choices = RunTasks(*set, task_model, runtime(), KvType::kF32, {}, nullptr, nullptr);
  ASSERT_TRUE(choices) << choices.error().message;
  EXPECT_EQ(choices->right, golden["mc"]["correct"]["raw"]);
  EXPECT_EQ(choices->right_by_byte, golden["mc"]["correct"]["per_byte"]);
  std::istringstream lines(choice_text);
  size_t item = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.size() < 3) continue;
    const json scores = json::parse(line)["scores"];
    for (size_t c = 0; c < scores.size(); ++c)
      EXPECT_NEAR(choices->outcomes[item].loglik[c], scores[c]["loglik"].get<double>(), 2e-3) << item;
    ++item;
  }
  EXPECT_EQ(item, choices->outcomes.size());

  set = ParseTasks("gen", ReadAll(folder + "/tasks_gen.jsonl"), {.prefix = golden["gen"]["few_shot_prompt"]});
  ASSERT_TRUE(set) << set.error().message;
  const auto answers = RunTasks(*set, task_model, runtime(), KvType::kF32, {.max_tokens = 16}, nullptr, nullptr);
  ASSERT_TRUE(answers) << answers.error().message;
  EXPECT_EQ(answers->right, golden["gen"]["correct"]);

  set = ParseTasks("chat", R"({"messages": [{"role": "user", "content": "Hi"}], "answer": "Ho"})", {});
  EXPECT_FALSE(RunTasks(*set, task_model, runtime(), KvType::kF32, {}, nullptr, nullptr))
      << "no chat template was given";
  set = ParseTasks(
      "long", json({{"prompt", std::string(5000, 'a') + "x y z"}, {"choices", {"a", "b"}}, {"answer", 0}}).dump(), {});
  ASSERT_TRUE(set);
  std::string many;
  for (int i = 0; i < 3000; ++i) many += " word" + std::to_string(i);
  set->items[0].prompt = many;
  EXPECT_FALSE(RunTasks(*set, task_model, runtime(), KvType::kF32, {}, nullptr, nullptr)) << "longer than the context";
}

}  // namespace
}  // namespace hone
