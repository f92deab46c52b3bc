// Divergence of degraded copies of a real model from the original, row by row, against goldens/eval/kl_smollm2: the
// recipes are repeated here on the file's own weights. The first scored rows of the first window: KldTest holds how rows
// become figures.
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

constexpr int kFirst = 257, kRows = 64, kContext = kFirst + kRows;  // targets from the middle of a window of 512 on

std::string WholeFile(const std::string& path) {
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

// The recipes, word for word from the golden's file. Each copy is written in the smallest type that holds its weights.

// mlp15zero: blk.15.ffn_down.weight := 0. A block of Q4_1 without scale and minimum is zero.
void WriteWithoutMlp15(const Checkpoint& checkpoint, const std::string& path) {
  const TensorView& view = checkpoint.FindTensor("blk.15.ffn_down.weight")->view;
  ASSERT_EQ(view.type, DType::kQ4_1);
  std::string bytes(std::filesystem::file_size(checkpoint.path()), 0);
  std::ifstream(checkpoint.path(), std::ios::binary).read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  const size_t at = bytes.find(std::string(reinterpret_cast<const char*>(view.data), 4096));
  ASSERT_NE(at, std::string::npos);
  std::fill_n(bytes.begin() + static_cast<int64_t>(at), view.bytes(), '\0');
  std::ofstream(path, std::ios::binary) << bytes;
}

// bf16: every matrix rounded to nearest, ties to even; norms untouched.
void RoundToBf16(const std::vector<float>& w, std::vector<uint16_t>* out) {
  out->resize(w.size());
  for (size_t i = 0; i < w.size(); ++i) {
    uint32_t bits;
    std::memcpy(&bits, &w[i], 4);
    (*out)[i] = static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
  }
}

// rtn3: groups of 32: s = max|w| / 3, q = clamp(rint(w / s), -3, 3), w' = q * s.
void RoundToSevenLevels(std::vector<float>* w) {
  for (float *x = w->data(), *end = x + w->size(); x < end; x += 32) {
    float most = 0;
    for (int i = 0; i < 32; ++i) most = most < std::fabs(x[i]) ? std::fabs(x[i]) : most;
    const float s = most / 3;
    for (int i = 0; i < 32; ++i) x[i] = s == 0 ? 0 : std::nearbyint(x[i] / s) * s;  // never beyond 3
  }
}

void WriteRounded(const Checkpoint& checkpoint, bool bf16, const std::string& path) {
  std::vector<std::pair<std::string, GgufValue>> metadata;
  for (const auto& [key, value] : checkpoint.gguf()->metadata()) metadata.emplace_back(key, value);
  const auto changes = [&](const NamedTensor& tensor) { return bf16 ? tensor.view.shape.rank() == 2 : IsBlockMatrix(tensor.name); };
  std::vector<TensorInfo> infos;
  for (const NamedTensor& tensor : checkpoint.tensors())
    infos.push_back({tensor.name, !changes(tensor) ? tensor.view.type : bf16 ? DType::kBF16 : DType::kF32, tensor.view.shape});
  auto writer = GgufWriter::Create(path, metadata, infos);
  ASSERT_TRUE(writer) << writer.error().message;
  std::vector<uint16_t> halves;
  for (const NamedTensor& tensor : checkpoint.tensors()) {
    std::span<const std::byte> bytes(tensor.view.data, tensor.view.bytes());
    std::vector<float> w;
    if (changes(tensor)) {
      w.resize(tensor.view.shape.elements());
      DequantizeRow(tensor.view.type, tensor.view.data, static_cast<int64_t>(w.size()), w.data());
      if (bf16) {
        RoundToBf16(w, &halves);
        bytes = std::as_bytes(std::span<const uint16_t>(halves));
      } else {
        RoundToSevenLevels(&w);
        bytes = std::as_bytes(std::span<const float>(w));
      }
    }
    ASSERT_TRUE((*writer)->Append(bytes));
  }
  ASSERT_TRUE((*writer)->Commit());
}

void WriteDegraded(const Checkpoint& checkpoint, const std::string& recipe, const std::string& path) {
  if (recipe == "mlp15zero") return WriteWithoutMlp15(checkpoint, path);
  WriteRounded(checkpoint, recipe == "bf16", path);
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
    const Window window{0, kContext, kFirst, kContext};
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
  if (kSanitizer) GTEST_SKIP() << "four passes of a whole model take minutes under sanitizers";
  HONE_NEED_SHARED(folder, "goldens/eval");
  HONE_NEED_SHARED(path, "models/smollm2-135m-instruct-q4_1.gguf");
  const auto checkpoint = Checkpoint::Open(path);
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  const auto tokenizer = Tokenizer::FromCheckpoint(**checkpoint);
  ASSERT_TRUE(tokenizer);
  const EvalText text = PrepareText(**tokenizer, WholeFile(SharedPath("data/text/wiki.test.raw")).substr(0, 65536), Protocol::kLlamaCpp);
  const std::span<const int32_t> tokens = std::span(text.tokens).first(kContext);
  const auto golden = SafetensorsFile::Open(folder + "/kl_smollm2.safetensors");
  ASSERT_TRUE(golden) << golden.error().message;

  const std::vector<float> base = Logits(path, tokens);
  const size_t vocab = base.size() / kRows;
  std::vector<float> base_log_probs(base.size());
  for (int row = 0; row < kRows; ++row) {
    const std::span<const float> logits(base.data() + row * vocab, vocab);
    const LogSum sum = LogSumOf(logits);
    for (size_t i = 0; i < vocab; ++i) base_log_probs[row * vocab + i] = static_cast<float>(sum.LogProb(logits[i]));
  }
  const std::string copy = TestPath("degraded.gguf");
  for (const char* recipe : {"bf16", "mlp15zero", "rtn3"}) {
    ASSERT_NO_FATAL_FAILURE(WriteDegraded(**checkpoint, recipe, copy));
    const std::vector<float> other = Logits(copy, tokens);
    std::filesystem::remove(copy);
    const std::vector<float> kld = Column(**golden, std::string(recipe) + ".kld"), dp = Column(**golden, std::string(recipe) + ".dp");
    for (int row = 0; row < kRows; ++row) {
      const DivergenceRow got = Diverge({base_log_probs.data() + row * vocab, vocab}, {other.data() + row * vocab, vocab}, tokens[kFirst + row]);
      // Logits are off by up to 2e-4 each (manifest.json): the smallest divergences, those of bf16, by a few millionths.
      ASSERT_NEAR(got.kld, kld[row], 4e-6 + 2e-3 * std::fabs(kld[row])) << recipe << " row " << row;
      ASSERT_NEAR(got.delta_p, dp[row], 2e-5 + 2e-3 * std::fabs(dp[row])) << recipe << " row " << row;
    }
  }
}

}  // namespace
}  // namespace hone
