// --lora as people give it: an adapter changes what the built-in model says, one that does not fit is an error with a reason.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "e2e/program.h"
#include "formats/safetensors.h"

namespace hone::e2e {
namespace {

// A PEFT folder for the first q_proj of the built-in model; all of B is `value`.
std::string WriteAdapter(const std::string& name, float value, int64_t inputs = 256) {
  const std::string folder = TempPath(name);
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/adapter_config.json") << R"({"peft_type":"LORA","r":2,"lora_alpha":2})";
  const std::vector<float> a(static_cast<size_t>(2 * inputs), 0.02f), b(512, value);
  const auto view = [](const std::vector<float>& numbers, Shape shape) {
    return TensorView{DType::kF32, shape, reinterpret_cast<const std::byte*>(numbers.data())};
  };
  const std::string module = "base_model.model.model.layers.0.self_attn.q_proj";
  const auto written = WriteSafetensors(folder + "/adapter_model.safetensors",
                                        {{module + ".lora_A.weight", view(a, Shape{2, inputs})},
                                         {module + ".lora_B.weight", view(b, Shape{256, 2})}}, {});
  EXPECT_TRUE(written.has_value());
  return folder;
}

std::vector<float> Logits(const std::string& more) {
  const std::string ids = WriteTemp("adapter_ids.json", "[5, 17, 42, 99, 7, 300, 12, 8]"), out = TempPath("adapter_logits");
  const Outcome outcome = Hone("logits builtin --ids " + ids + " -o " + out + " " + more);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const auto file = SafetensorsFile::Open(out);
  if (!file.has_value()) return {};
  const TensorView view = (*file)->FindTensor("logits")->view;
  return {view.as<float>(), view.as<float>() + view.shape.elements()};
}

TEST(Adapter, ChangesTheLogits) {
  const std::vector<float> base = Logits("");
  ASSERT_FALSE(base.empty());
  EXPECT_EQ(Logits("--lora " + WriteAdapter("adapter_zero", 0)), base) << "B of zeros";
  const std::vector<float> adapted = Logits("--lora name=" + WriteAdapter("adapter_half", 0.5f));
  EXPECT_EQ(adapted.size(), base.size());
  EXPECT_NE(adapted, base);
}

TEST(Adapter, RunTakesOne) {
  const std::string line = "run builtin -p 'Tell me a story.' -n 8 --temperature 0 --quiet ";
  const Outcome base = Hone(line), zero = Hone(line + "--lora " + WriteAdapter("adapter_zero", 0));
  EXPECT_EQ(zero.code, 0) << zero.err;
  EXPECT_EQ(zero.out, base.out);
}

TEST(Adapter, OneThatDoesNotFitSaysWhy) {
  const std::string wrong = WriteAdapter("adapter_wrong", 0, 128);
  for (const std::string& command : {"run builtin -p x --lora " + wrong, "serve builtin --port 0 --lora a=" + wrong}) {
    const Outcome outcome = Hone(command);
    EXPECT_EQ(outcome.code, 3) << outcome.err;
    EXPECT_TRUE(Contains(outcome.err, "q_proj")) << outcome.err;
    EXPECT_TRUE(Contains(outcome.err, "--lora")) << outcome.err;
  }
  EXPECT_NE(Hone("run builtin -p x --lora /no/such/adapter").code, 0);
}

}  // namespace
}  // namespace hone::e2e
