// hone convert: the written file gives the same logits bit for bit or to rounding, and the tokenizer the same ids.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/test_shared.h"
#include "formats/safetensors.h"

namespace hone {
namespace {

namespace fs = std::filesystem;

int Hone(const std::string& args) {
  const int status = std::system(("'" HONE_PROGRAM "' " + args + " 2>/dev/null").c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

class Convert : public testing::Test {
 protected:
  Convert() : folder_(TestPath("convert/")) { fs::create_directories(folder_); }
  ~Convert() override { fs::remove_all(folder_); }

  // The largest difference of logits of the two models on some ids; infinity if one cannot be had.
  double Difference(const std::string& a, const std::string& b, const std::string& ids) {
    std::ofstream(folder_ + "ids.json") << ids;
    for (const auto& [model, out] : {std::pair(a, "a.st"), std::pair(b, "b.st")}) {
      if (Hone("logits '" + model + "' --ids '" + folder_ + "ids.json' --kv f32 -o '" + folder_ + out + "'") != 0) return INFINITY;
    }
    const auto x = SafetensorsFile::Open(folder_ + "a.st"), y = SafetensorsFile::Open(folder_ + "b.st");
    const TensorView u = (*x)->FindTensor("logits")->view, v = (*y)->FindTensor("logits")->view;
    if (u.shape != v.shape) return INFINITY;
    double most = 0;
    for (int64_t i = 0; i < u.shape.elements(); ++i) most = std::max(most, std::abs(double{u.as<float>()[i]} - v.as<float>()[i]));
    return most;
  }

  std::string folder_;
};

TEST_F(Convert, FoldersToGgufKeepLogits) {
  HONE_NEED_SHARED(goldens, "goldens/models");
  for (const char* name : {"llama", "llama-rope-llama3", "qwen2", "qwen3", "gemma3", "mixtral"}) {
    SCOPED_TRACE(name);
    const std::string in = goldens + "/" + name, out = folder_ + name + ".gguf";
    ASSERT_EQ(Hone("convert '" + in + "' '" + out + "'"), 0);
    // Rows of q and k are permuted and llama3's divisors rounded to F32: the same sums in another order.
    EXPECT_LT(Difference(in, out, "[5, 17, 100, 3, 42, 7, 99, 200, 31]"), 2e-5);
    EXPECT_EQ(Difference(goldens + "/" + name + "/model-f32.gguf", out, "[5, 17, 100, 3, 42, 7, 99, 200, 31]"), 0);
  }
}

TEST_F(Convert, TypesRoundOnPurposeOnly) {
  const std::string model = HONE_SOURCE_DIR "/assets/builtin/main";
  ASSERT_EQ(Hone("convert '" + model + "' '" + folder_ + "f32' --type f32"), 0);
  EXPECT_EQ(Difference(model, folder_ + "f32", "[5, 17, 100, 3]"), 0);              // BF16 to F32 is exact
  ASSERT_EQ(Hone("convert '" + folder_ + "f32' '" + folder_ + "bf16' --type bf16"), 0);
  EXPECT_EQ(Difference(model, folder_ + "bf16", "[5, 17, 100, 3]"), 0);             // and back
  ASSERT_EQ(Hone("convert '" + model + "' '" + folder_ + "m.gguf'"), 0);
  ASSERT_EQ(Hone("convert '" + folder_ + "m.gguf' '" + folder_ + "m16.gguf' --type f16"), 0);
  const double difference = Difference(folder_ + "m.gguf", folder_ + "m16.gguf", "[5, 17, 100, 3]");
  EXPECT_LT(difference, 0.1);
}

// Readers follow an index before model.safetensors: one that stays would give the old weights under the new name.
TEST_F(Convert, ForceLeavesNoOldWeights) {
  HONE_NEED_SHARED(goldens, "goldens/models");
  const std::string out = folder_ + "model", ids = "[5, 17, 100, 3, 42]";
  fs::create_directories(out);
  for (const auto& entry : fs::directory_iterator(goldens + "/llama-sharded")) fs::copy(entry.path(), out + "/" + entry.path().filename().string());
  std::ofstream(out + "/notes.txt") << "mine";
  ASSERT_TRUE(fs::exists(out + "/model.safetensors.index.json"));
  EXPECT_EQ(Hone("convert '" + goldens + "/llama' '" + out + "'"), 2);
  EXPECT_EQ(Difference(goldens + "/llama-sharded", out, ids), 0);
  ASSERT_EQ(Hone("convert '" + goldens + "/llama' '" + out + "/' --force"), 0);
  EXPECT_EQ(Difference(goldens + "/llama", out, ids), 0);
  EXPECT_FALSE(fs::exists(out + "/model-00001-of-00003.safetensors"));
  EXPECT_TRUE(fs::exists(out + "/notes.txt"));
}

TEST_F(Convert, FoldersAppearWholeOrNotAtAll) {
  HONE_NEED_SHARED(goldens, "goldens/models");
  ASSERT_EQ(Hone("convert '" + goldens + "/llama' '" + folder_ + "a/b/'"), 0);
  EXPECT_EQ(Difference(goldens + "/llama", folder_ + "a/b", "[5, 17, 100, 3]"), 0);
  // A limit on the size of files stands for a full disk; a program that ignores its signal sees an error of write().
  const std::string limited = "trap '' XFSZ; ulimit -f 64; '" HONE_PROGRAM "' convert '" + goldens + "/llama' '" + folder_ + "c' 2>/dev/null";
  EXPECT_NE(std::system(limited.c_str()), 0);
  EXPECT_FALSE(fs::exists(folder_ + "c"));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 4) << "temporary files are left";  // a, ids, a.st, b.st
}

TEST_F(Convert, RefusesWhatIsNotExactOrThere) {
  HONE_NEED_SHARED(goldens, "goldens/models");
  // GGUF has no key for query_pre_attn_scalar: the copy would compute something else.
  EXPECT_EQ(Hone("convert '" + goldens + "/gemma3-bf16' '" + folder_ + "g.gguf'"), 3);
  EXPECT_FALSE(fs::exists(folder_ + "g.gguf"));
  EXPECT_TRUE(fs::is_empty(folder_)) << "temporary files are left";
  EXPECT_EQ(Hone("convert '" + goldens + "/llama/model-f32.gguf' '" + folder_ + "back'"), 3);
  std::ofstream(folder_ + "there.gguf") << "x";
  EXPECT_EQ(Hone("convert '" + goldens + "/llama' '" + folder_ + "there.gguf'"), 2);
}

}  // namespace
}  // namespace hone
