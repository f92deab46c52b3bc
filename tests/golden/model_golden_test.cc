// Every core family against exact results (float64 transformers; see the README of goldens/models), from Hugging Face
// folders and from GGUF files, at every ISA of this machine; and the reference against the same.
//
// Prefill and decoding are held to the manifest's tolerances: that of F32 arithmetic, and that of BF16 activations for the
// many rows that AMX multiplies. In deterministic mode any other cut of the same tokens (chunks, one by one, batched with
// others) must give the same bits.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/test_shared.h"
#include "formats/safetensors.h"
#include "golden/driver.h"
#include "reference/reference.h"

namespace hone::golden {
namespace {

struct Case {
  std::string name;             // "llama_gguf", "phi3_longrope_short": a test's name
  std::string model;            // path of the folder or GGUF file
  std::string golden;           // path of the expected results
  double logits_tolerance = 0;  // largest absolute error
  double hidden_tolerance = 0;  // relative to the largest hidden number
  double bf16_tolerance = 0;    // BF16 activations: rms error of the logits over their standard deviation
};
void PrintTo(const Case& one, std::ostream* out) { *out << one.name; }

std::vector<Case> ReadCases() {
  std::vector<Case> cases;
  const std::string root = SharedPath("goldens/models");
  if (root.empty()) return cases;
  std::ifstream file(root + "/manifest.json");
  const nlohmann::json manifest = nlohmann::json::parse(file);
  // Of the later group: what the families here read too.
  const std::vector<std::string> also = {"qwen2-moe"};
  for (const nlohmann::json& entry : manifest["cases"]) {
    const std::string name = entry["name"], folder = root + "/" + std::string(entry["folder"]);
    if (entry["group"] != "core" && std::find(also.begin(), also.end(), name) == also.end()) continue;
    for (const nlohmann::json& golden : entry["goldens"]) {
      const std::string golden_file = golden["file"];
      Case one;
      one.name = name + (golden_file == "golden-short.safetensors" ? "_short" : "");
      std::replace(one.name.begin(), one.name.end(), '-', '_');
      one.model = folder;
      one.golden = folder + "/" + golden_file;
      one.logits_tolerance = entry["tolerance"]["float32_compute_logits_max_abs"];
      one.hidden_tolerance = entry["tolerance"]["float32_compute_hidden_rel_to_absmax"];
      // Where swapped experts dominate, the manifest gives no bound: transformers' own run in BF16, twice.
      const nlohmann::json& bf16 = entry["tolerance"]["bf16_activations_logits_rms_rel_to_std"];
      one.bf16_tolerance = bf16.is_number() ? double{bf16} : 2 * double{entry["bfloat16_run"]["logits_rms_rel_to_std"]};
      cases.push_back(one);
      if (!entry.contains("gguf") || entry["gguf"].is_null()) continue;
      one.name += "_gguf";
      one.model = folder + "/" + std::string(entry["gguf"]["file"]);
      cases.push_back(one);
    }
  }
  return cases;
}

// The expected results of one case.
struct Golden {
  std::vector<int32_t> prompt, greedy;
  std::shared_ptr<const SafetensorsFile> file;

  static Golden Read(const std::string& path) {
    Golden golden;
    auto file = SafetensorsFile::Open(path);
    EXPECT_TRUE(file.has_value());
    golden.file = *file;
    golden.prompt = golden.Ids("input_ids");
    golden.greedy = golden.Ids("greedy.ids");
    return golden;
  }
  std::vector<int32_t> Ids(const std::string& name) const {
    const NamedTensor* tensor = file->FindTensor(name);
    const int32_t* data = tensor->view.as<int32_t>();
    return {data, data + tensor->view.shape.elements()};
  }
  const float* Row(const std::string& name, size_t row) const {
    const NamedTensor* tensor = file->FindTensor(name);
    EXPECT_NE(tensor, nullptr) << name;
    return tensor->view.as<float>() + static_cast<int64_t>(row) * tensor->view.shape.back();
  }
  int final_length() const { return static_cast<int>(prompt.size() + greedy.size()); }
};

template <typename Row>
double LargestError(const Row& got, const float* wanted) {
  double error = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double difference = std::abs(double{got[i]} - double{wanted[i]});
    if (!(difference <= error)) error = difference;  // NaN counts
  }
  return error;
}

double LargestNumber(const float* values, size_t count) {
  double largest = 0;
  for (size_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(double{values[i]}));
  return largest;
}

std::string StateName(int index, int layers) {
  if (index == 0) return "hidden.embed";
  return index <= layers ? "hidden.layer." + std::to_string(index - 1) : "hidden.norm";
}

class ModelGolden : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override { golden_ = Golden::Read(GetParam().golden); }

  void ExpectLogits(const std::vector<std::vector<float>>& logits, const std::string& name, size_t first = 0) const {
    for (size_t i = 0; i < logits.size(); ++i) {
      const float* wanted = golden_.Row(name, first + i);
      ASSERT_LE(LargestError(logits[i], wanted), GetParam().logits_tolerance) << name << " row " << first + i;
      ASSERT_EQ(ArgMax(logits[i]), ArgMax(std::vector<float>(wanted, wanted + logits[i].size())))
          << name << " row " << first + i;
    }
  }

  // Prompt and greedy tokens but the last, in one step; the last prompt row onwards chose the greedy ids.
  std::vector<int32_t> AllTokens() const {
    std::vector<int32_t> tokens = golden_.prompt;
    tokens.insert(tokens.end(), golden_.greedy.begin(), golden_.greedy.end() - 1);
    return tokens;
  }

  Golden golden_;
  Machine machine_;
};

TEST_P(ModelGolden, ReferenceMatches) {
  auto checkpoint = Checkpoint::Open(GetParam().model);
  ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().message;
  auto model = reference::ReferenceModel::Load(**checkpoint);
  ASSERT_TRUE(model.has_value()) << model.error().message;
  const reference::Pass pass = model->Run(AllTokens(), golden_.final_length());
  const int layers = model->config().layers;
  const size_t prompt = golden_.prompt.size();
  for (int index = 0; index < layers + 2; ++index) {
    const std::string name = StateName(index, layers);
    const double largest = LargestNumber(golden_.Row(name, 0), prompt * model->config().width);
    for (size_t i = 0; i < prompt; ++i) {
      ASSERT_LE(LargestError(pass.states[index][i], golden_.Row(name, i)), 1e-6 * largest) << name << " row " << i;
    }
  }
  for (size_t i = 0; i < prompt; ++i)
    ASSERT_LE(LargestError(pass.logits[i], golden_.Row("logits", i)), 1e-5) << "row " << i;
  for (size_t i = 0; i < golden_.greedy.size(); ++i) {
    ASSERT_LE(LargestError(pass.logits[prompt - 1 + i], golden_.Row("greedy.logits", i)), 1e-5) << "greedy row " << i;
  }
}

// With AMX or AVX-512 BF16, exact mode: by default they round activations to BF16, which is the next test's.
TEST_P(ModelGolden, PrefillAndDecodingMatch) {
  for (const Isa isa : machine_.isas()) {
    SCOPED_TRACE(IsaName(isa));
    const std::unique_ptr<Model> model = LoadModel(GetParam().model, machine_.runtime(isa), {.exact = isa >= Isa::kBf16});
    ASSERT_NE(model, nullptr);
    const int layers = model->config().layers, width = model->config().width;
    int observed = 0;
    const StateObserver observer = [&](int index, const float* rows) {
      EXPECT_EQ(index, observed++);
      const std::string name = StateName(index, layers);
      const size_t count = golden_.prompt.size() * width;
      const std::vector<float> got(rows, rows + count);
      const double largest = LargestNumber(golden_.Row(name, 0), count);
      EXPECT_LE(LargestError(got, golden_.Row(name, 0)), GetParam().hidden_tolerance * largest) << name;
    };
    Sequences sequences(*model, 8);
    sequences.SetFinalLength(0, golden_.final_length());
    std::vector<std::vector<float>> logits = sequences.Feed({{0, golden_.prompt}}, &observer);
    EXPECT_EQ(observed, layers + 2);
    ExpectLogits(logits, "logits");
    for (size_t i = 0; i < golden_.greedy.size(); ++i) {
      ASSERT_EQ(ArgMax(logits.back()), golden_.greedy[i]) << "greedy step " << i;
      ExpectLogits({logits.back()}, "greedy.logits", i);
      logits = sequences.Feed({{0, {golden_.greedy[i]}}});
    }
  }
}

TEST_P(ModelGolden, Bf16ActivationsStayNear) {
  const Isa isa = machine_.isas().back();
  if (isa < Isa::kBf16) GTEST_SKIP() << "no AMX, no fast AVX-512 BF16";
  const std::unique_ptr<Model> model = LoadModel(GetParam().model, machine_.runtime(isa));
  ASSERT_NE(model, nullptr);
  Sequences sequences(*model, 8, KvType::kBF16);
  sequences.SetFinalLength(0, golden_.final_length());
  const std::vector<std::vector<float>> logits = sequences.Feed({{0, golden_.prompt}});
  const size_t vocab = logits[0].size();
  double error = 0, sum = 0, squares = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    const float* wanted = golden_.Row("logits", i);
    for (size_t v = 0; v < vocab; ++v) {
      error += std::pow(double{logits[i][v]} - wanted[v], 2);
      sum += wanted[v];
      squares += double{wanted[v]} * wanted[v];
    }
  }
  const double count = static_cast<double>(logits.size() * vocab), mean = sum / count;
  const double deviation = std::sqrt(squares / count - mean * mean);
  EXPECT_LE(std::sqrt(error / count) / deviation, GetParam().bf16_tolerance);
}

TEST_P(ModelGolden, AnyCutAndCompanyGivesTheSameBits) {
  const std::vector<int32_t> tokens = AllTokens();
  for (const Isa isa : machine_.isas()) {
    SCOPED_TRACE(IsaName(isa));
    const std::unique_ptr<Model> model = LoadModel(GetParam().model, machine_.runtime(isa), {.deterministic = true});
    ASSERT_NE(model, nullptr);
    const auto fresh = [&] {
      auto sequences = std::make_unique<Sequences>(*model, 16);
      for (int i = 0; i < 3; ++i) sequences->SetFinalLength(i, golden_.final_length());
      return sequences;
    };
    const std::vector<std::vector<float>> whole = fresh()->Feed({{0, tokens}});

    auto one_by_one = fresh();
    for (size_t i = 0; i < tokens.size(); ++i)
      ASSERT_EQ(one_by_one->Feed({{0, {tokens[i]}}})[0], whole[i]) << "row " << i;

    auto chunked = fresh();
    const size_t cuts[] = {5, 1, 13, 2, 17, 3, 1000};
    size_t begin = 0;
    for (const size_t cut : cuts) {
      const size_t end = std::min(tokens.size(), begin + cut);
      if (begin == end) break;
      const auto part = chunked->Feed({{0, {tokens.begin() + begin, tokens.begin() + end}}});
      for (size_t i = begin; i < end; ++i) ASSERT_EQ(part[i - begin], whole[i]) << "row " << i;
      begin = end;
    }

    // Between two other sequences, one of them in the middle of decoding, and with the logits of two rows only.
    auto batched = fresh();
    const std::vector<int32_t> other(tokens.rbegin(), tokens.rbegin() + 11);
    batched->Feed({{1, other}});
    const size_t split = tokens.size() / 2;
    batched->Feed({{1, {other[3]}}, {0, {tokens.begin(), tokens.begin() + split}}, {2, other}});
    const int first = 2, last = static_cast<int>(tokens.size() - split) + 1;
    const auto pair =
        batched->Feed({{2, {other[0]}}, {1, {other[5]}}, {0, {tokens.begin() + split, tokens.end()}}}, {first, last});
    ASSERT_EQ(pair[0], whole[split]);
    ASSERT_EQ(pair[1], whole.back());
  }
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ModelGolden);
INSTANTIATE_TEST_SUITE_P(Models, ModelGolden, testing::ValuesIn(ReadCases()),
                         [](const testing::TestParamInfo<Case>& one) { return one.param.name; });

TEST(ModelGoldens, AreAllThere) {
  HONE_NEED_SHARED(root, "goldens/models");
  EXPECT_GE(ReadCases().size(), 30u);
}

}  // namespace
}  // namespace hone::golden
