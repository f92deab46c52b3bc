// hone convert: the written file gives the same logits bit for bit or to rounding, and the tokenizer the same ids.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
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
  double Difference(const std::string& a, const std::string& b, const std::string& ids, const std::string& flags = "") {
    std::ofstream(folder_ + "ids.json") << ids;
    for (const auto& [model, out] : {std::pair(a, "a.st"), std::pair(b, "b.st")}) {
      if (Hone("logits '" + model + "' --ids '" + folder_ + "ids.json' --kv f32 " + flags + " -o '" + folder_ + out + "'") != 0) return INFINITY;
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

// Quantised folders. ------------------------------------------------------------------------------------------------

std::string ReadText(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

// All tensors alike, to the byte.
void ExpectSameTensors(const std::string& a, const std::string& b, std::string_view but = "/") {
  const auto x = SafetensorsFile::OpenFolder(a), y = SafetensorsFile::OpenFolder(b);
  ASSERT_TRUE(x.has_value() && y.has_value());
  EXPECT_EQ((*x)->tensors().size(), (*y)->tensors().size());
  for (const NamedTensor& tensor : (*x)->tensors()) {
    if (tensor.name.find(but) != std::string::npos) continue;
    const NamedTensor* other = (*y)->FindTensor(tensor.name);
    ASSERT_NE(other, nullptr) << tensor.name;
    ASSERT_EQ(tensor.view.type, other->view.type) << tensor.name;
    ASSERT_EQ(tensor.view.shape, other->view.shape) << tensor.name;
    EXPECT_EQ(std::memcmp(tensor.view.data, other->view.data, tensor.view.bytes()), 0) << tensor.name;
  }
}

struct Conversion {
  const char* folder;   // that a real tool wrote
  const char* exact;    // the formats that hold it
};
constexpr const char* kFormats[] = {"gptq", "gptq-v2", "awq", "compressed-tensors", "safetensors"};
constexpr Conversion kConversions[] = {
    {"gptq-v1-b4-g32-sym", "gptq gptq-v2 awq compressed-tensors safetensors"},
    {"gptq-v1-b4-g32-sym-act", "gptq gptq-v2 safetensors"},
    {"gptq-v1-b4-gall-asym", "gptq gptq-v2 awq compressed-tensors safetensors"},
    {"gptq-v1-b3-g32-sym", "gptq gptq-v2 compressed-tensors safetensors"},
    {"gptq-v1-b8-gall-sym", "gptq gptq-v2 compressed-tensors safetensors"},
    {"gptq-v2-b2-g32-asym", "gptq-v2 compressed-tensors safetensors"},  // has zero points of 0
    {"gptq-v2-b3-g32-asym-act", "gptq gptq-v2 safetensors"},
    {"gptq-v2-b4-g32-asym-act", "gptq gptq-v2 safetensors"},
    {"awq-gemm-g32-asym", "gptq gptq-v2 awq compressed-tensors safetensors"},
    {"ct-pack-w4a16-asym", "gptq gptq-v2 awq compressed-tensors safetensors"},
    {"ct-pack-w4a16-gptq-weight-order", "gptq gptq-v2 awq compressed-tensors safetensors"},
    {"ct-pack-w4a16-gidx", "gptq gptq-v2 safetensors"},
    {"ct-pack-w3a16-sym", "gptq gptq-v2 compressed-tensors safetensors"},
    {"ct-int8-channel-token", "safetensors"},
    {"ct-fp8-channel-token", "safetensors"},
    {"ct-fp8-block", "safetensors"},
    {"ct-nvfp4a16", "safetensors"},
    {"ct-mxfp4a16", "safetensors"},
    {"bnb-nf4-dq", "safetensors"},
    {"bnb-int8", "compressed-tensors safetensors"},
};

class ConvertQuantized : public Convert, public testing::WithParamInterface<Conversion> {};

TEST_P(ConvertQuantized, KeepsEveryNumberOrRefuses) {
  HONE_NEED_SHARED(goldens, "goldens/compress/quant/foreign");
  const std::string in = goldens + "/" + GetParam().folder, ids = "[5, 17, 100, 3, 42, 7, 99, 200, 31]";
  const std::string exact = std::string(" ") + GetParam().exact + " ";
  for (const std::string format : kFormats) {
    SCOPED_TRACE(format);
    const std::string out = folder_ + format, back = out + "-back";
    if (exact.find(" " + format + " ") == std::string::npos) {
      EXPECT_EQ(Hone("convert '" + in + "' '" + out + "' --format " + format), 3);
      EXPECT_FALSE(fs::exists(out));
      continue;
    }
    ASSERT_EQ(Hone("convert '" + in + "' '" + out + "' --format " + format), 0);
    EXPECT_EQ(fs::exists(out + "/quantize_config.json"), format.starts_with("gptq"));
    EXPECT_EQ(ReadText(out + "/config.json").find("quantization_config") == std::string::npos, format == "safetensors");
    if (format == "safetensors") {
      // The same numbers in another type: sums in another order.
      EXPECT_LT(Difference(in, out, ids, "--exact"), 2e-5);
      continue;
    }
    EXPECT_EQ(Difference(in, out, ids), 0);
    // There and back again, to the byte.
    const std::string name = GetParam().folder;
    const std::string home = name.starts_with("gptq-v1") ? "gptq" : name.starts_with("gptq-v2") ? "gptq-v2" : name.starts_with("awq") ? "awq"
                             : name.starts_with("ct-pack") && exact.find("compressed-tensors") != std::string::npos ? "compressed-tensors"
                                                                                                                    : "";
    if (home.empty()) continue;
    ASSERT_EQ(Hone("convert '" + out + "' '" + back + "' --format " + home), 0);
    ExpectSameTensors(in, back);
  }
}

// And quantised again, by a method that does not look at types: as the dequantised model is.
TEST_P(ConvertQuantized, CanBeQuantisedAgain) {
  HONE_NEED_SHARED(goldens, "goldens/compress/quant/foreign");
  const std::string in = goldens + "/" + GetParam().folder, plain = folder_ + "plain", out = folder_ + "again", wanted = folder_ + "wanted";
  const std::string nf4 = " --method nf4 --no-measure";
  EXPECT_EQ(Hone("quantize '" + in + "' '" + out + "'" + nf4), 3);
  ASSERT_EQ(Hone("quantize '" + in + "' '" + out + "'" + nf4 + " --allow-requantize"), 0);
  ASSERT_EQ(Hone("convert '" + in + "' '" + plain + "' --format safetensors"), 0);
  ASSERT_EQ(Hone("quantize '" + plain + "' '" + wanted + "'" + nf4), 0);
  ExpectSameTensors(wanted, out, "quant_state");
  const std::string config = ReadText(out + "/config.json");
  EXPECT_EQ(config.find("quant_method"), config.rfind("quant_method"));
  EXPECT_FALSE(fs::exists(out + "/quantize_config.json"));
}

INSTANTIATE_TEST_SUITE_P(RealTools, ConvertQuantized, testing::ValuesIn(kConversions), [](const auto& one) {
  std::string name = one.param.folder;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

// Other tools go by the configuration: what is not quantised must be named there.
TEST_F(Convert, QuantisedFoldersNameWhatIsKept) {
  HONE_NEED_SHARED(goldens, "goldens");
  // Routers are kept.
  const std::string experts = folder_ + "experts", ids = "[5, 17, 100, 3]";
  ASSERT_EQ(Hone("quantize '" + goldens + "/models/mixtral' '" + experts +
                 "' --method rtn --format awq --bits 4 --group 16 --asym --no-measure --ledger off"), 0);
  EXPECT_EQ(Hone("convert '" + experts + "' '" + folder_ + "none' --format gptq-v2"), 3) << "48 columns are no whole words of GPTQ";
  // And here one matrix is.
  const std::string foreign = goldens + "/compress/quant/foreign/gptq-v1-b4-g32-sym", mixed = folder_ + "mixed", plain = folder_ + "plain";
  const std::string module = "model.layers.1.self_attn.k_proj";
  ASSERT_EQ(Hone("convert '" + foreign + "' '" + plain + "' --type f16"), 0);
  fs::copy(foreign, mixed);
  {
    const auto from = SafetensorsFile::OpenFolder(foreign), dequantised = SafetensorsFile::OpenFolder(plain);
    std::vector<NamedTensor> tensors = {*(*dequantised)->FindTensor(module + ".weight")};
    for (const NamedTensor& tensor : (*from)->tensors()) {
      if (!tensor.name.starts_with(module)) tensors.push_back(tensor);
    }
    fs::remove(mixed + "/model.safetensors");
    ASSERT_TRUE(WriteSafetensors(mixed + "/model.safetensors", tensors, {{"format", "pt"}}));
  }
  const auto names = [&](const std::string& in, const std::string& format, const std::string& wanted) {
    SCOPED_TRACE(format);
    const std::string out = in + "-" + format;
    ASSERT_EQ(Hone("convert '" + in + "' '" + out + "' --format " + format), 0);
    EXPECT_NE(ReadText(out + "/config.json").find(wanted), std::string::npos);
    EXPECT_EQ(Difference(in, out, ids), 0);
  };
  for (const std::string format : {"compressed-tensors", "awq"}) {
    names(experts, format, "\"model.layers.1.block_sparse_moe.gate\"");
    names(mixed, format, "\"" + module + "\"");
  }
  names(mixed, "gptq-v2", R"("-:^model\\.layers\\.1\\.self_attn\\.k_proj$")");
}

TEST_F(Convert, DequantisesToAType) {
  HONE_NEED_SHARED(goldens, "goldens/compress/quant/foreign");
  const std::string in = goldens + "/bnb-nf4-dq", out = folder_ + "plain";
  ASSERT_EQ(Hone("convert '" + in + "' '" + out + "' --type bf16"), 0);
  EXPECT_NE(ReadText(out + "/config.json").find("\"bfloat16\""), std::string::npos);
  EXPECT_LT(Difference(in, out, "[5, 17, 100, 3]", "--exact"), 0.2);
  EXPECT_EQ(Hone("convert '" + out + "' '" + folder_ + "again' --format awq"), 3) << "nothing is quantised";
  EXPECT_EQ(Hone("convert '" + in + "' '" + folder_ + "m.gguf' --format awq"), 2);
  EXPECT_EQ(Hone("convert '" + in + "' '" + folder_ + "other' --format awq --type f16"), 2);
  EXPECT_EQ(Hone("convert '" + in + "' '" + folder_ + "other'"), 3) << "into what";
  EXPECT_FALSE(fs::exists(folder_ + "other"));
}

// A number that is none, in scales or where they come from, is refused by every target, and nothing is left behind.
TEST_F(Convert, RefusesScalesThatAreNoNumbers) {
  HONE_NEED_SHARED(goldens, "goldens/compress/quant/foreign");
  for (const auto& [name, tensor] : {std::pair("gptq-v1-b4-g32-sym", "model.layers.1.mlp.up_proj.scales"),
                                     std::pair("awq-gemm-g32-asym", "model.layers.0.self_attn.o_proj.scales"),
                                     std::pair("ct-pack-w4a16-asym", "model.layers.1.mlp.down_proj.weight_scale")}) {
    const std::string in = folder_ + name;
    fs::copy(goldens + "/" + name, in);
    const std::string file = in + "/model.safetensors";
    fs::permissions(file, fs::perms::owner_all);
    size_t at = 0;
    {
      const auto opened = SafetensorsFile::Open(file);
      const std::string bytes = ReadText(file);
      const TensorView view = (*opened)->FindTensor(tensor)->view;
      at = bytes.find(std::string(reinterpret_cast<const char*>(view.data), view.bytes()));
      ASSERT_NE(at, std::string::npos);
    }
    std::fstream(file, std::ios::in | std::ios::out | std::ios::binary).seekp(static_cast<std::streamoff>(at) + 10).write("\x00\x7e", 2);
    for (const std::string format : kFormats) {
      EXPECT_EQ(Hone("convert '" + in + "' '" + folder_ + "out' --format " + format), 3) << name << " " << format;
      EXPECT_FALSE(fs::exists(folder_ + "out"));
    }
  }
}

}  // namespace
}  // namespace hone
