// Bottlenecks of made-up cells, constants found again from made-up steps, energy counters of a made-up system, and a
// profile of the built-in model: what is counted, never how fast.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/random.h"
#include "base/test_shared.h"
#include "measure/profile/energy.h"
#include "measure/profile/profile.h"

namespace hone {
namespace {

CellFacts Facts() {
  CellFacts facts;
  facts.ttft_s = 1, facts.tokenize_s = 0.001, facts.queue_s = 0.01;
  facts.median_gap_s = 0.1, facts.p99_gap_s = 0.12;
  facts.read_bytes_s = 1e9, facts.ops = 1e12;
  facts.decode = {10, 8e9, 1e9, 1e11, 100};
  facts.prefill = {1, 1e8, 0, 5e11, 1};
  return facts;
}

TEST(BottleneckTest, EachByName) {
  CellFacts facts = Facts();
  EXPECT_EQ(NameBottleneck(facts).bottleneck, Bottleneck::kWeightBandwidth);
  facts.decode.kv_bytes = 9e9, facts.decode.weight_bytes = 1e9;
  EXPECT_EQ(NameBottleneck(facts).bottleneck, Bottleneck::kKvBandwidth);
  facts.decode.flops = 9.9e12, facts.decode.kv_bytes = 1e8;
  EXPECT_EQ(NameBottleneck(facts).bottleneck, Bottleneck::kCompute);

  facts = Facts();
  facts.prefill.seconds = 20, facts.prefill.flops = 15e12;
  EXPECT_EQ(NameBottleneck(facts).bottleneck, Bottleneck::kCompute);
  facts = Facts();
  facts.decode.seconds = 1000;  // far from every roof
  EXPECT_EQ(NameBottleneck(facts).bottleneck, Bottleneck::kOverhead);
  facts = Facts();
  facts.p99_gap_s = 0.5;
  EXPECT_EQ(NameBottleneck(facts).bottleneck, Bottleneck::kLongTail);
  facts = Facts();
  facts.tokenize_s = 0.3;
  EXPECT_EQ(NameBottleneck(facts).bottleneck, Bottleneck::kTokenizer);
  facts = Facts();
  facts.queue_s = 0.8, facts.asked_at_once = 8, facts.places = 2, facts.most_running = 2;
  EXPECT_EQ(NameBottleneck(facts).bottleneck, Bottleneck::kQueueing);
  facts.places = 8, facts.most_blocks = 0.95;  // places are free, blocks are not
  EXPECT_EQ(NameBottleneck(facts).bottleneck, Bottleneck::kCapacity);
  facts.most_blocks = 0.3;  // both are free: the wait is for the others' prompts
  EXPECT_EQ(NameBottleneck(facts).bottleneck, Bottleneck::kWeightBandwidth);
  facts.most_blocks = 1, facts.most_running = 8;  // all have a place: the wait is for the others' prompts
  EXPECT_EQ(NameBottleneck(facts).bottleneck, Bottleneck::kWeightBandwidth);
  facts.preemptions = 1;
  EXPECT_EQ(NameBottleneck(facts).bottleneck, Bottleneck::kCapacity);
  EXPECT_NE(NameBottleneck(facts).reason.find("preemption"), std::string::npos);
}

TEST(BottleneckTest, ThresholdsAtTheirEdges) {
  CellFacts facts = Facts();
  facts.p99_gap_s = kTailRatio * facts.median_gap_s;
  EXPECT_NE(NameBottleneck(facts).bottleneck, Bottleneck::kLongTail);
  facts.tokenize_s = 0.25 * facts.ttft_s;  // a fifth of both together
  EXPECT_NE(NameBottleneck(facts).bottleneck, Bottleneck::kTokenizer);
  facts.tokenize_s *= 1.01;
  EXPECT_EQ(NameBottleneck(facts).bottleneck, Bottleneck::kTokenizer);
  EXPECT_EQ(NameBottleneck({}).bottleneck, Bottleneck::kOverhead);  // nothing was measured: nothing is divided by it
}

TEST(FitEfficiencyTest, FindsTheConstantsOfMadeUpSteps) {
  Hardware machine;
  machine.read_bytes_s = 20e9, machine.ops_16bit = 2e12;
  std::vector<MeasuredStep> steps;
  for (int i = 1; i <= 40; ++i) {
    const double bytes = 1e8 * i, flops = 1e10 * i;
    steps.push_back({bytes, 1e6, false, 0.0005 + bytes / (0.7 * 20e9)});
    steps.push_back({1e6, flops, true, 0.0005 + flops / (0.4 * 2e12)});
  }
  const Efficiency fit = FitEfficiency(steps, machine, *FindWeightFormat("bf16"), AssumedEfficiency(machine));
  EXPECT_NEAR(fit.read_share, 0.7, 1e-6);
  EXPECT_NEAR(fit.step_overhead_s, 0.0005, 1e-9);
  EXPECT_NEAR(fit.compute_share, 0.4, 1e-6);
  EXPECT_EQ(fit.decode_share, AssumedEfficiency(machine).decode_share);  // one sequence never shows it
  EXPECT_LT(fit.many_rows_reads, 1e-6);
  EXPECT_FALSE(fit.overlapped);
  // Eight at once read once and compute for seven more; prompts unpack the weights, which costs three readings.
  std::vector<MeasuredStep> more;
  for (int i = 1; i <= 20; ++i) {
    const double bytes = 1e9 + 1e8 * i, flops = 1e10 * i;
    more.push_back({bytes, 4e9, false, 0.0005 + bytes / (0.7 * 20e9)});
    more.push_back({bytes, 32e9, false, 0.0005 + bytes / (0.7 * 20e9) + 28e9 / (0.1 * 2e12), 8});
    more.push_back({1e9 + 2e7 * i, flops, true, 0.0005 + 2e7 * i / (0.7 * 20e9) + 3 * 1e9 / 20e9 + flops / (0.4 * 2e12), 1, 2e7 * i});
  }
  for (int outliers = 0; outliers < 2; ++outliers) {
    const Efficiency found = FitEfficiency(more, machine, *FindWeightFormat("bf16"), AssumedEfficiency(machine));
    EXPECT_NEAR(found.read_share, 0.7, 1e-5);
    EXPECT_NEAR(found.decode_share, 0.1, 1e-5);
    EXPECT_NEAR(found.step_overhead_s, 0.0005, 1e-5);
    EXPECT_NEAR(found.compute_share, 0.4, 1e-4);
    EXPECT_NEAR(found.many_rows_reads, 3, 1e-4);
    EXPECT_EQ(found.few_rows, 8);
    for (int i = 0; i < 8; ++i) more[7 * i].seconds *= 5;  // something else ran meanwhile
  }
  // Steps that are all alike cannot tell a share from an overhead: all is put down to the share.
  const std::vector<MeasuredStep> alike(5, {1e9, 1e6, false, 0.1});
  const Efficiency flat = FitEfficiency(alike, machine, *FindWeightFormat("bf16"), AssumedEfficiency(machine));
  EXPECT_NEAR(flat.read_share, 0.5, 1e-9);
  EXPECT_EQ(flat.step_overhead_s, 0);
  EXPECT_EQ(flat.compute_share, AssumedEfficiency(machine).compute_share);
  EXPECT_EQ(FitEfficiency({}, machine, *FindWeightFormat("bf16"), AssumedEfficiency(machine)).read_share,
            AssumedEfficiency(machine).read_share);
}

TEST(FittedFileTest, KeptForEachMachineAndType) {
  const std::string path = TestPath("state/fitted.json");
  Efficiency efficiency{0.5, 0.25, 0.2, 1e-4, 0, "", 2.5, false, 6}, other{0.9, 0.9, 0.9, 0, 0, ""};
  EXPECT_FALSE(LoadFitted(path, "box", "Q4_K", &efficiency));
  ASSERT_TRUE(SaveFitted(path, "box", "Q4_K", efficiency));
  ASSERT_TRUE(SaveFitted(path, "box", "BF16", other));
  Efficiency read{1, 1, 1, 1, 7, "assumed"};
  ASSERT_TRUE(LoadFitted(path, "box", "Q4_K", &read));
  EXPECT_EQ(read.read_share, 0.5);
  EXPECT_EQ(read.compute_share, 0.25);
  EXPECT_EQ(read.decode_share, 0.2);
  EXPECT_EQ(read.link_latency_s, 7);
  EXPECT_EQ(read.many_rows_reads, 2.5);
  EXPECT_EQ(read.few_rows, 6);
  EXPECT_FALSE(read.overlapped);
  Efficiency bf16;
  ASSERT_TRUE(LoadFitted(path, "box", "BF16", &bf16));
  EXPECT_TRUE(bf16.overlapped);
  EXPECT_LT(bf16.many_rows_reads, 0);
  EXPECT_EQ(read.source, "fitted by hone profile");
  EXPECT_FALSE(LoadFitted(path, "another box", "Q4_K", &read));
  efficiency.read_share = 0.6;
  ASSERT_TRUE(SaveFitted(path, "box", "Q4_K", efficiency));
  ASSERT_TRUE(LoadFitted(path, "box", "Q4_K", &read));
  EXPECT_EQ(read.read_share, 0.6);
  for (const char* damage : {"", "{", "[1, null, {\"machine\": \"box\", \"weights\": \"Q4_K\", \"read_share\": \"x\"}]"}) {
    std::ofstream(path) << damage;
    EXPECT_FALSE(LoadFitted(path, "box", "Q4_K", &read)) << damage;
  }
  EXPECT_EQ(read.read_share, 0.6);
  std::filesystem::remove_all(std::filesystem::path(path).parent_path());
}

TEST(EnergyTest, SumsPackagesAndSurvivesAWrap) {
  const std::string root = TestPath("rapl");
  const auto write = [&](const std::string& zone, const char* file, double value) {
    std::filesystem::create_directories(root + "/sys/class/powercap/" + zone);
    std::ofstream(root + "/sys/class/powercap/" + zone + "/" + file) << static_cast<int64_t>(value);
  };
  EXPECT_FALSE(EnergyMeter(root).readable());
  EXPECT_FALSE(EnergyMeter(root).why_not().empty());
  for (const char* zone : {"intel-rapl:0", "intel-rapl:1", "intel-rapl:0:0"}) {
    write(zone, "energy_uj", 1e6);
    write(zone, "max_energy_range_uj", 100e6);
  }
  EnergyMeter meter(root);
  ASSERT_TRUE(meter.readable());
  write("intel-rapl:0", "energy_uj", 4e6);
  write("intel-rapl:0:0", "energy_uj", 50e6);  // part of package 0
  EXPECT_DOUBLE_EQ(*meter.Joules(), 3);
  write("intel-rapl:1", "energy_uj", 0);  // wrapped
  EXPECT_DOUBLE_EQ(*meter.Joules(), 99);
  EXPECT_DOUBLE_EQ(*meter.Joules(), 0);
  std::filesystem::remove_all(root);
}

TEST(ProfilePlanTest, GridAndWhatDoesNotFit) {
  EXPECT_EQ(PlanProfile({}, 4096)->size(), 4u);
  EXPECT_EQ(PlanProfile({}, 512)->size(), 2u);  // the long prompts are left out
  EXPECT_EQ(PlanProfile({.input = {8, 16}, .output = {4}, .concurrency = {1, 2, 3}}, 64)->size(), 6u);
  for (const ProfileOptions& bad : {ProfileOptions{.input = {4096}}, ProfileOptions{.input = {0}}, ProfileOptions{.output = {1}},
                                    ProfileOptions{.concurrency = {0}}}) {
    const auto cells = PlanProfile(bad, 2048);
    ASSERT_FALSE(cells);
    EXPECT_EQ(cells.error().code, ErrorCode::kUsage);
  }
  EXPECT_FALSE(PlanProfile({}, 100));
}

TEST(BootstrapMedianTest, ContainsTheMedianAndNarrows) {
  const std::vector<double> five = {5, 1, 4, 2, 3};
  const Interval interval = BootstrapMedian(five, 0.95, 1000, 1);
  EXPECT_EQ(interval.value, 3);
  EXPECT_GE(interval.low, 1);
  EXPECT_LE(interval.high, 5);
  EXPECT_LE(interval.low, 3);
  EXPECT_GE(interval.high, 3);
  std::vector<double> many;
  for (int i = 0; i < 500; ++i) many.push_back(i % 101);
  const Interval narrow = BootstrapMedian(many, 0.95, 1000, 1);
  EXPECT_LT(narrow.high - narrow.low, 20);
  EXPECT_EQ(BootstrapMedian(many, 0.95, 1000, 1).low, narrow.low);  // seeded
}

// Skewed rounds with a known median: the interval holds it about as often as it says, also when the rounds are few.
TEST(BootstrapMedianTest, CoversAsOftenAsItSays) {
  Rng rng(11);
  for (const int n : {3, 5, 7, 8, 15}) {
    constexpr int kRepeats = 600;
    int inside = 0;
    double promised = 0;
    for (int repeat = 0; repeat < kRepeats; ++repeat) {
      std::vector<double> x(n);
      for (double& v : x) v = -std::log(1 - rng.Uniform());
      const Interval interval = BootstrapMedian(x, 0.95, 200, repeat);
      promised = interval.confidence;
      inside += interval.low <= M_LN2 && M_LN2 <= interval.high;
    }
    EXPECT_GE(static_cast<double>(inside) / kRepeats, promised - 0.03) << n;  // three standard errors
    EXPECT_EQ(promised < 0.95, n < 6) << n;
  }
}

// The 99th percentile of a round of 101 gaps is the second largest; the median of that over rounds has a closed form, and the
// interval over rounds holds it as often as it says.
TEST(BootstrapMedianTest, CoversTheTailOfRoundsAsOftenAsItSays) {
  constexpr int kGaps = 101, kRepeats = 600;
  double low = 0, high = 1;  // of u = F(x): the second largest is below x when at most one of 101 is above
  for (int i = 0; i < 60; ++i) {
    const double u = 0.5 * (low + high);
    (BinomialCdf(1, kGaps, 1 - u) < 0.5 ? low : high) = u;
  }
  const double truth = -std::log1p(-low);
  Rng rng(12);
  for (const int rounds : {3, 5, 8, 15}) {
    int inside = 0;
    double promised = 0;
    for (int repeat = 0; repeat < kRepeats; ++repeat) {
      std::vector<double> tails;
      for (int round = 0; round < rounds; ++round) {
        std::vector<double> gaps(kGaps);
        for (double& gap : gaps) gap = -std::log1p(-rng.Uniform());
        tails.push_back(Quantile(gaps, 0.99));
      }
      const Interval interval = BootstrapMedian(tails, 0.95, 200, repeat);
      promised = interval.confidence;
      inside += interval.low <= truth && truth <= interval.high;
    }
    EXPECT_GE(static_cast<double>(inside) / kRepeats, promised - 0.03) << rounds;  // three standard errors
    EXPECT_LT(inside, kRepeats) << rounds;
  }
}

TEST(ProfileTest, OfTheBuiltinModel) {
  const auto checkpoint = Checkpoint::Open(std::string(HONE_SOURCE_DIR) + "/assets/builtin/main");
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  const CpuFacts cpu = ReadCpuFacts();
  ThreadPool threads(2);
  Log log(LogLevel::kOff);
  Clock clock;
  const Runtime runtime{&cpu, cpu.best_isa(), &threads, &log, &clock};
  std::vector<ProfileModel> variants(2);
  ProfileModel& model = variants[0];
  model.name = "builtin";
  model.kv = "bf16";
  model.before = AssumedEfficiency({.cpu = true});
  model.checkpoint = *checkpoint;
  LoadOptions load;
  load.max_context = 128;
  auto loaded = Model::Load(*checkpoint, runtime, load);
  ASSERT_TRUE(loaded) << loaded.error().message;
  model.model = std::move(*loaded);
  auto tokenizer = Tokenizer::FromCheckpoint(**checkpoint);
  ASSERT_TRUE(tokenizer);
  model.tokenizer = *tokenizer;
  EngineOptions options;
  options.context = 128;
  options.max_sequences = 3;
  options.max_queue = 8;
  options.prefix_cache = false;
  auto engine = Engine::Create(model.model, model.tokenizer, runtime, options);
  ASSERT_TRUE(engine) << engine.error().message;
  model.engine = engine->get();
  options.kv = KvType::kI8;  // the same weights with another cache beside it
  auto int8 = Engine::Create(model.model, model.tokenizer, runtime, options);
  ASSERT_TRUE(int8) << int8.error().message;
  variants[1] = model;
  variants[1].kv = "int8";
  variants[1].engine = int8->get();
  Roof roof;
  roof.threads = 2, roof.isa = runtime.isa;
  roof.read_gbs[2] = {20, 18};
  for (const ComputeUnit unit : kComputeUnits) roof.gops[unit] = {1000, 900};

  const ProfileOptions asked{.input = {20, 40}, .output = {6}, .concurrency = {1, 3}, .rounds = 2};
  const auto cells = PlanProfile(asked, 128);
  ASSERT_TRUE(cells);
  const std::vector<ProfileReport> reports = RunProfile(variants, *cells, asked, roof, runtime, {});
  ASSERT_EQ(reports.size(), 2u);
  const ProfileReport* report = &reports[0];
  EXPECT_EQ(report->failed, "");
  ASSERT_EQ(report->cells.size(), 4u);
  ASSERT_EQ(reports[1].cells.size(), 4u);
  EXPECT_LT(reports[1].cells[3].kv_bytes, report->cells[3].kv_bytes);
  for (const CellResult& cell : report->cells) {
    EXPECT_EQ(cell.rounds, 2);
    EXPECT_EQ(cell.requests, 2 * cell.cell.concurrency);
    EXPECT_EQ(cell.errors, 0) << cell.first_error;
    EXPECT_GT(cell.ttft_s.value, 0);
    EXPECT_GT(cell.tpot_s.value, 0);
    EXPECT_GT(cell.kv_bytes, 0);
    EXPECT_EQ(cell.facts.most_running, cell.cell.concurrency);
    // Every step is in one phase, and its ops are at most its time.
    EXPECT_GE(cell.prefill.facts.steps, 2);
    EXPECT_GE(cell.decode.facts.steps, 2);
    for (const PhaseTimes* phase : {&cell.prefill, &cell.decode}) {
      const double ops = std::accumulate(phase->op_s.begin(), phase->op_s.end(), 0.0);
      EXPECT_NEAR(ops, phase->facts.seconds, 1e-6 + 0.01 * phase->facts.seconds);
      EXPECT_GT(phase->op_s[static_cast<int>(Op::kFfn)], 0);
      EXPECT_GT(phase->op_s[static_cast<int>(Op::kAttention)], 0);
      EXPECT_GT(phase->op_s[static_cast<int>(Op::kOutput)], 0);
      EXPECT_GT(phase->facts.flops, 0);
    }
    EXPECT_GT(cell.predicted_ttft_s, 0);
    EXPECT_GT(cell.fitted_tpot_s, 0);
  }
  // Twice the requests and tokens are twice the arithmetic.
  EXPECT_NEAR(report->cells[1].prefill.facts.flops / report->cells[0].prefill.facts.flops, 2, 0.3);
  EXPECT_EQ(model.model->op_times(), nullptr);
  EXPECT_EQ(model.engine->stats().running, 0);
  double prompt_tokens = 0;
  for (const auto& step : report->steps) prompt_tokens += step[1];
  EXPECT_EQ(prompt_tokens, 2 * (20 + 40) * (1 + 3));
  const nlohmann::json json = nlohmann::json::parse(ProfileJson(std::span(reports).first(1), runtime));
  for (const char* key : {"model", "cells", "roof", "constants", "steps", "energy", "prefix_cache", "environment"})
    EXPECT_TRUE(json.contains(key)) << key;
  EXPECT_EQ(json["cells"].size(), 4u);
  const nlohmann::json both = nlohmann::json::parse(ProfileJson(reports, runtime));
  ASSERT_EQ(both["variants"].size(), 2u);
  EXPECT_EQ(both["variants"][1]["kv"], "int8");
  const LedgerEntry entry = ProfileEntry(reports, "", both.dump());
  const auto named = [&](const std::string& name) {
    return std::any_of(entry.figures.begin(), entry.figures.end(), [&](const Figure& figure) { return figure.name == name; });
  };
  EXPECT_TRUE(named("ttft_ms.p50[model=builtin,kv=int8,input=20,output=6,concurrency=3]"));
  EXPECT_TRUE(named("ttft_ms.p99[model=builtin,kv=bf16,input=40,output=6,concurrency=3]"));
  EXPECT_FALSE(named("ttft_ms.p99[model=builtin,kv=bf16,input=40,output=6,concurrency=1]"));  // of one request
  EXPECT_TRUE(named("output_tok_s[model=builtin,kv=bf16,input=40,output=6,concurrency=1]"));
  EXPECT_NE(ProfileTable(reports).find("side by side"), std::string::npos);
  const std::string table = ProfileTable(std::span(reports).first(1));
  EXPECT_NE(table.find("where the time goes"), std::string::npos);
  EXPECT_NE(table.find("TTFT, output 6"), std::string::npos) << "a heat map of input by requests at once\n" << table;
}

}  // namespace
}  // namespace hone
