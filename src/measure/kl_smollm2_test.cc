// Divergence of degraded copies of a real model from the original, row by row, against goldens/eval/kl_smollm2: the
// recipes are repeated here on the file's own weights. The first of the four windows; the figures of all four are sums
// of rows such as these (KldTest holds the sums).
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/sanitizer.h"
#include "base/test_shared.h"
#include "formats/gguf_writer.h"
#include "kernels/dequantize/dequantize.h"
#include "measure/divergence.h"
#include "measure/window_scorer.h"
#include "tensor/float16.h"

namespace hone {
namespace {

constexpr int kContext = 512, kRows = 255;

std::string ReadAll(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::vector<float> Column(const SafetensorsFile& file, const std::string& name) {
  const NamedTensor* tensor = file.FindTensor(name);
  const float* data = reinterpret_cast<const float*>(tensor->view.data);
  return {data, data + tensor->view.shape.elements()};
}

bool IsBlockMatrix(const std::string& name) { return name.starts_with("blk.") && name.find("norm") == std::string::npos; }

// The recipes, word for word from the golden's file.
void Degrade(const std::string& recipe, const std::string& name, bool matrix, std::vector<float>* w) {
  if (recipe == "bf16" && matrix) {
    for (float& x : *w) {
      uint32_t bits;
      std::memcpy(&bits, &x, 4);
      bits = (bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff0000u;  // to nearest, ties to even
      std::memcpy(&x, &bits, 4);
    }
  } else if (recipe == "mlp15zero" && name == "blk.15.ffn_down.weight") {
    std::fill(w->begin(), w->end(), 0.0f);
  } else if (recipe == "rtn3" && IsBlockMatrix(name)) {
    for (size_t group = 0; group < w->size(); group += 32) {
      float most = 0;
      for (size_t i = group; i < group + 32; ++i) most = std::max(most, std::fabs((*w)[i]));
      const float s = most / 3;
      for (size_t i = group; i < group + 32; ++i)
        (*w)[i] = s == 0 ? 0 : std::clamp(std::nearbyint((*w)[i] / s), -3.0f, 3.0f) * s;
    }
  }
}

// The checkpoint with F32 weights, degraded.
void WriteDegraded(const Checkpoint& checkpoint, const std::string& recipe, const std::string& path) {
  std::vector<std::pair<std::string, GgufValue>> metadata;
  for (const auto& [key, value] : checkpoint.gguf()->metadata()) metadata.emplace_back(key, value);
  std::vector<TensorInfo> infos;
  for (const NamedTensor& tensor : checkpoint.tensors()) infos.push_back({tensor.name, DType::kF32, tensor.view.shape});
  auto writer = GgufWriter::Create(path, metadata, infos);
  ASSERT_TRUE(writer) << writer.error().message;
  for (const NamedTensor& tensor : checkpoint.tensors()) {
    std::vector<float> w(tensor.view.shape.elements());
    DequantizeRow(tensor.view.type, tensor.view.data, static_cast<int64_t>(w.size()), w.data());
    Degrade(recipe, tensor.name, tensor.view.shape.rank() == 2, &w);
    ASSERT_TRUE((*writer)->Append(std::as_bytes(std::span<const float>(w))));
  }
  ASSERT_TRUE((*writer)->Commit());
}

class KlSmollm2Test : public testing::Test {
 protected:
  // Logits of the first window's scored rows: [kRows][V].
  std::vector<float> Logits(const std::string& path, std::span<const int32_t> tokens) {
    auto checkpoint = Checkpoint::Open(path);
    EXPECT_TRUE(checkpoint) << checkpoint.error().message;
    LoadOptions load;
    load.exact = true;
    load.max_context = kContext;
    const Runtime runtime{&cpu_, cpu_.best_isa(), &threads_, &log_, &clock_};
    auto model = Model::Load(*checkpoint, runtime, load);
    EXPECT_TRUE(model) << model.error().message;
    const auto vocab = static_cast<size_t>((*model)->config().vocab);
    std::vector<float> logits(kRows * vocab);
    WindowScorer scorer(**model, runtime, KvType::kF32, kContext);
    const Window window{0, kContext, kContext - kRows, kContext};
    scorer.Run(tokens, {&window, 1}, std::nullopt, [&](int, int64_t index, std::span<const float> row) {
      std::copy(row.begin(), row.end(), logits.begin() + index * static_cast<int64_t>(vocab));
    });
    return logits;
  }

  const CpuFacts cpu_ = ReadCpuFacts();
  ThreadPool threads_{2};
  Log log_{LogLevel::kOff};
  Clock clock_;
};

TEST_F(KlSmollm2Test, RowsOfEachRecipe) {
  if (kAddressSanitizer) GTEST_SKIP() << "four passes of a whole model take minutes under sanitizers";
  HONE_NEED_SHARED(folder, "goldens/eval");
  HONE_NEED_SHARED(path, "models/smollm2-135m-instruct-q4_1.gguf");
  const auto checkpoint = Checkpoint::Open(path);
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  const auto tokenizer = Tokenizer::FromCheckpoint(**checkpoint);
  ASSERT_TRUE(tokenizer);
  const EvalText text = PrepareText(**tokenizer, ReadAll(SharedPath("data/text/wiki.test.raw")).substr(0, 65536), Protocol::kLlamaCpp);
  const std::span<const int32_t> tokens = std::span(text.tokens).first(kContext);
  const auto golden = SafetensorsFile::Open(folder + "/kl_smollm2.safetensors");
  ASSERT_TRUE(golden) << golden.error().message;

  const std::vector<float> base = Logits(path, tokens);
  const size_t vocab = base.size() / kRows;
  std::vector<float> base_log_probs(vocab);
  const std::string copy = TestPath("degraded.gguf");
  for (const char* recipe : {"bf16", "mlp15zero", "rtn3"}) {
    ASSERT_NO_FATAL_FAILURE(WriteDegraded(**checkpoint, recipe, copy));
    const std::vector<float> other = Logits(copy, tokens);
    std::filesystem::remove(copy);
    const std::vector<float> kld = Column(**golden, std::string(recipe) + ".kld"), dp = Column(**golden, std::string(recipe) + ".dp");
    for (int row = 0; row < kRows; ++row) {
      const std::span<const float> mine(base.data() + row * vocab, vocab);
      const LogSum sum = LogSumOf(mine);
      for (size_t i = 0; i < vocab; ++i) base_log_probs[i] = static_cast<float>(sum.LogProb(mine[i]));
      const DivergenceRow got = Diverge(base_log_probs, {other.data() + row * vocab, vocab}, tokens[kContext - kRows + row]);
      // Logits are off by up to 2e-4 each (manifest.json): the smallest divergences, those of bf16, by a few millionths.
      ASSERT_NEAR(got.kld, kld[row], 4e-6 + 2e-3 * std::fabs(kld[row])) << recipe << " row " << row;
      ASSERT_NEAR(got.delta_p, dp[row], 2e-5 + 2e-3 * std::fabs(dp[row])) << recipe << " row " << row;
    }
  }
}

}  // namespace
}  // namespace hone
