// The sums against plain loops; GPTQ through whole small models: better than rounding, the same bytes after every kind
// of stop, experts that saw nothing named.
#include "compress/layerwise/layer_quantizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/random.h"
#include "base/test_runtime.h"
#include "base/test_shared.h"
#include "compress/folder/quantize_folder.h"
#include "compress/gguf/gptq_gguf.h"
#include "compress/layerwise/layerwise_time.h"

namespace hone {
namespace {

namespace fs = std::filesystem;

class LayerwiseTest : public RuntimeTest {
 protected:

  static CalibrationText Text(int vocab, int chunks, int chunk = 64) {
    Rng rng(3);
    CalibrationText text{.chunk_tokens = chunk};
    for (int i = 0; i < chunks * chunk; ++i)
      text.tokens.push_back(static_cast<int32_t>(rng.Uniform() * rng.Uniform() * vocab));
    return text;
  }
  static std::string Bytes(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static std::string Fresh(const std::string& name) {
    const std::string path = TestPath(name);
    fs::remove_all(path);
    return path;
  }

  Result<FolderReport> Quantize(const std::string& in, const LinearScheme& scheme, const CalibrationText& text,
                                const std::string& out, LayerwiseOptions options = {}, bool resume = false) {
    HONE_TRY(const auto checkpoint, Checkpoint::Open(in));
    HONE_TRY(const auto format, MakeLinearFormat(scheme));
    HONE_TRY(const FolderPlan plan, PlanFolder(*checkpoint, *format));
    HONE_TRY(const auto walk, LayerWalk::Open(checkpoint, runtime_, text.chunk_tokens));
    const FolderGptq gptq{walk.get(), &text, options};
    return QuantizeFolder(*checkpoint, *format, scheme, plan, out, {.resume = resume, .gptq = &gptq}, runtime_);
  }
  static double Mean(const LayerwiseReport& report) {
    double sum = 0;
    for (const UnitReport& unit : report.units) sum += unit.output_error;
    return sum / static_cast<double>(report.units.size());
  }

};

TEST_F(LayerwiseTest, SecondMomentsAreTheSumsOfProducts) {
  Rng rng(4);
  for (const int64_t columns : {40, 1056}) {
    const int64_t tokens = columns == 40 ? 5000 : 300, stride = columns + 3;
    std::vector<float> x(tokens * stride);
    for (float& v : x) v = static_cast<float>(rng.Uniform() - 0.3);
    for (const Isa isa : AllIsas()) {
      if (!cpu_.Supports(isa)) continue;
      Runtime runtime = runtime_;
      runtime.isa = isa;
      SecondMoments moments(columns, runtime);
      for (int64_t t = 0; t < tokens; t += 71) moments.Add(&x[t * stride], stride, std::min<int64_t>(71, tokens - t));
      moments.Finish();
      EXPECT_EQ(moments.tokens(), static_cast<uint64_t>(tokens));
      EXPECT_TRUE(moments.finite());
      for (int64_t i = 0; i < columns; i += 13) {
        for (int64_t j = 0; j <= i; j += 7) {
          double sum = 0;
          for (int64_t t = 0; t < tokens; ++t) sum += double{x[t * stride + i]} * double{x[t * stride + j]};
          ASSERT_NEAR(moments.h()[i * columns + j], sum, 4e-3 * static_cast<double>(tokens) * 0.1)
              << IsaName(isa) << " " << i << " " << j;
        }
      }
    }
  }
}

TEST_F(LayerwiseTest, GptqBeatsRoundingInEveryFormatAndOrder) {
  HONE_NEED_SHARED(base, "goldens/compress/quant/foreign/base");
  const CalibrationText text = Text(288, 12);
  for (const char* format : {"gptq", "compressed-tensors", "awq"}) {
    for (const char* order : {"group", "static", "activation", "natural"}) {
      if (std::string(order) == "activation" && std::string(format) != "gptq") continue;
      const LinearScheme scheme{"gptq", format, 4, 32, std::string(format) != "awq", order};
      const auto swept = Quantize(base, scheme, text, Fresh("layerwise_swept"));
      ASSERT_TRUE(swept) << swept.error().message;
      // Damping without end passes no error on.
      const auto rounded = Quantize(base, scheme, text, Fresh("layerwise_rounded"), {.damping = 1e6});
      ASSERT_TRUE(rounded) << rounded.error().message;
      EXPECT_LT(Mean(swept->layerwise), 0.85 * Mean(rounded->layerwise)) << format << " " << order;
      EXPECT_EQ(swept->layerwise.tokens, text.tokens.size());
    }
  }
}

TEST_F(LayerwiseTest, AJobStoppedAnywhereGoesOnToTheSameBytes) {
  HONE_NEED_SHARED(base, "goldens/compress/quant/foreign/base");
  const CalibrationText text = Text(288, 4);
  for (const bool matrix_by_matrix : {false, true}) {
    const LinearScheme scheme{"gptq", "gptq", 3, 64, false, "group"};
    LayerwiseOptions options{.matrix_by_matrix = matrix_by_matrix};
    const std::string whole = Fresh("layerwise_whole"), path = Fresh("layerwise_stopped");
    int steps = 0;
    options.progress = [&](double, const std::string&) { return ++steps > 0; };
    ASSERT_TRUE(Quantize(base, scheme, text, whole, options));
    ASSERT_GT(steps, 20);
    const int all = steps;
    for (int stop = 1; stop < all; stop += all / 5) {
      fs::remove_all(path);
      steps = 0;
      options.progress = [&](double, const std::string&) { return ++steps < stop; };
      const auto stopped = Quantize(base, scheme, text, path, options);
      ASSERT_FALSE(stopped);
      EXPECT_EQ(stopped.error().code, ErrorCode::kCancelled);
      options.progress = nullptr;
      const auto report = Quantize(base, scheme, text, path, options, true);
      ASSERT_TRUE(report) << report.error().message;
      EXPECT_TRUE(Bytes(path + "/model.safetensors") == Bytes(whole + "/model.safetensors")) << stop;
    }
    // Another text is another job.
    fs::remove_all(path);
    options.progress = [&](double, const std::string&) { return false; };
    ASSERT_FALSE(Quantize(base, scheme, text, path, options));
    EXPECT_NE(Quantize(base, scheme, Text(288, 5), path, {}, true).error().message.find("of another job"),
              std::string::npos);
  }
}

TEST_F(LayerwiseTest, LittleMemoryMakesTheSameBytes) {
  HONE_NEED_SHARED(base, "goldens/compress/quant/foreign/base");
  const CalibrationText text = Text(288, 4);
  const LinearScheme scheme{"gptq", "gptq", 4, 32, true, "group"};
  const std::string file = "/model.safetensors";
  ASSERT_TRUE(Quantize(base, scheme, text, Fresh("layerwise_one_pass")));
  // One input at a time, the text's streams in a file.
  const std::string streams = TestPath("layerwise_streams");
  ASSERT_TRUE(Quantize(base, scheme, text, Fresh("layerwise_passes"), {.moments_bytes = 1, .stream_file = streams}));
  EXPECT_FALSE(Bytes(TestPath("layerwise_passes") + file).empty());
  EXPECT_TRUE(Bytes(TestPath("layerwise_passes") + file) == Bytes(TestPath("layerwise_one_pass") + file));
  for (const auto& entry : fs::directory_iterator(fs::path(streams).parent_path()))
    EXPECT_EQ(entry.path().string().find(streams), std::string::npos) << entry.path();
  // Matrices that see those before them quantised are another matter.
  ASSERT_TRUE(Quantize(base, scheme, text, Fresh("layerwise_true"), {.matrix_by_matrix = true}));
  EXPECT_FALSE(Bytes(TestPath("layerwise_true") + file) == Bytes(TestPath("layerwise_one_pass") + file));
  const auto refused = Quantize(base, scheme, text, Fresh("layerwise_refused"), {.stream_file = "/no/such/folder/x"});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kIo);
}

TEST_F(LayerwiseTest, APlanFitsWhatItIsGivenOrSaysWhatItNeeds) {
  HONE_NEED_SHARED(base, "goldens/compress/quant/foreign/base");
  const auto checkpoint = Checkpoint::Open(base);
  ASSERT_TRUE(checkpoint);
  const auto walk = LayerWalk::Open(*checkpoint, runtime_, 64);
  ASSERT_TRUE(walk);
  const auto units = ListLayerUnits((*walk)->map(), false);
  const CalibrationText text = Text(288, 4000);
  LayerwiseOptions options;
  const uint64_t free = FitLayerwise((*walk)->config(), units, text, UINT64_MAX, "s", &options);
  EXPECT_TRUE(options.stream_file.empty() && options.moments_bytes == 0);
  const uint64_t less = FitLayerwise((*walk)->config(), units, text, free - 1, "s", &options);
  EXPECT_EQ(options.stream_file, "s");
  EXPECT_EQ(options.moments_bytes, 0u);
  EXPECT_LT(less, free);
  LayerwiseOptions tight;
  EXPECT_LE(FitLayerwise((*walk)->config(), units, text, less - 1, "s", &tight), less - 1);
  EXPECT_GT(tight.moments_bytes, 0u);
  LayerwiseOptions none;
  EXPECT_GT(FitLayerwise((*walk)->config(), units, text, 1, "s", &none), 1u);
}

TEST_F(LayerwiseTest, WorkIsCountedForPlans) {
  std::vector<LayerUnit> units(3);
  for (LayerUnit& unit : units) unit.view.shape = Shape{4, 10};
  units[0].input = units[1].input = "qkv";
  units[0].parts = units[2].parts = {"blk.0.attn_q.weight"};
  units[1].parts = {"blk.0.ffn_down.weight"};
  units[2].input = "o";
  units[2].expert = true;
  const LayerwiseWork work = CountLayerwiseWork(units, 100);
  EXPECT_EQ(work.forward, (2 + 1) * (100 * 4 * 10));  // the last once
  EXPECT_EQ(work.moments, 100 * 100 / 2);
  EXPECT_EQ(work.rounded, 3 * 4 * 10);
  EXPECT_EQ(work.factors, 2 * 1000);
  EXPECT_EQ(work.sweeps, 3 * 4 * 100 / 2);
  EXPECT_GT(EstimateLayerwiseSeconds(units, 100, runtime_), 0);
}

TEST_F(LayerwiseTest, ExpertsThatSawLittleAreRoundedAndNamed) {
  HONE_NEED_SHARED(mixtral, "goldens/models/mixtral");
  const auto checkpoint = Checkpoint::Open(mixtral);
  ASSERT_TRUE(checkpoint);
  const auto config = ReadModelConfig(**checkpoint);
  ASSERT_TRUE(config);
  const CalibrationText text = Text(config->vocab, 1, 24);
  const auto report = Quantize(mixtral, {"gptq", "compressed-tensors", 4, 16, true, "group"}, text, Fresh("layerwise_experts"));
  ASSERT_TRUE(report) << report.error().message;
  int few = 0;
  for (const UnitReport& unit : report->layerwise.units) {
    few += unit.fallback == UnitFallback::kFewTokens;
    if (unit.tokens >= 16) {
      EXPECT_NE(unit.fallback, UnitFallback::kFewTokens);
    }
  }
  EXPECT_GT(few, 0);
  int named = 0, columns = 0;
  for (const std::string& warning : report->layerwise.warnings) {
    named += warning.find("rounded to nearest") != std::string::npos;
    columns += warning.find("more text would tell more") != std::string::npos;
  }
  EXPECT_EQ(named, few);
  EXPECT_GT(columns, 0);
}

TEST_F(LayerwiseTest, GgufRowsLieInTheirPlaces) {
  HONE_NEED_SHARED(models, "goldens/models");
  for (const char* name : {"llama", "phi3", "qwen3"}) {
    const auto checkpoint = Checkpoint::Open(models + "/" + name);
    ASSERT_TRUE(checkpoint);
    const auto config = ReadModelConfig(**checkpoint);
    ASSERT_TRUE(config) << config.error().message;
    const auto source = SourceFromFolder(*checkpoint, {});
    ASSERT_TRUE(source);
    QuantizeOptions options{.file_type = *FindGgufFileType("Q4_0")};
    const auto plan = PlanQuantize(**source, options, runtime_);
    ASSERT_TRUE(plan);
    const CalibrationText text = Text(config->vocab, 4);
    const auto walk = LayerWalk::Open(*checkpoint, runtime_, text.chunk_tokens);
    ASSERT_TRUE(walk);
    const std::string out = Fresh("layerwise.gguf");
    const auto gptq = GptqGguf::Make(**walk, *plan, out);
    ASSERT_TRUE(gptq) << gptq.error().message;
    const auto report = (*gptq)->Run(text, {}, false, runtime_);
    ASSERT_TRUE(report) << report.error().message;
    options.given = [&](const std::string& tensor, int64_t row) { return (*gptq)->Row(tensor, row); };
    const auto written = QuantizeToGguf(**source, *plan, out, options, {}, runtime_);
    ASSERT_TRUE(written) << written.error().message;
    // Rows out of place would be far from the source's.
    for (size_t i = 0; i < plan->tensors.size(); ++i)
      EXPECT_LT(written->tensors[i].relative_error, 0.3) << name << " " << plan->tensors[i].name;
    (*gptq)->Remove();
    EXPECT_FALSE(fs::exists(GptqGguf::WorkPath(out)));
  }
}

}  // namespace
}  // namespace hone
