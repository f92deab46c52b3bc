// --lora as people give it: an adapter changes what the built-in model says, one that does not fit is an error with a reason.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "e2e/peft_folder.h"
#include "formats/safetensors.h"

namespace hone::e2e {
namespace {

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
