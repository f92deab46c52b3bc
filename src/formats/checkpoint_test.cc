// Checkpoint: what a path is, and the one clear error when it is no model.
#include "formats/checkpoint.h"

#include <sys/stat.h>

#include "base/test_shared.h"
#include "formats/test_bytes.h"

namespace hone {
namespace {

std::string EmptyGguf() { return Bytes().Raw("GGUF").U32(3).U64(0).U64(0).text(); }
std::string OneTensor() { return SafetensorsBytes(R"({"t":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 2); }

TEST(Checkpoint, OpensAFolder) {
  const TempFolder folder;
  folder.Write("config.json", R"({"model_type":"llama"})");
  folder.Write("generation_config.json", R"({"eos_token_id":[1,2]})");
  folder.Write("model.safetensors", OneTensor());
  folder.Write("model-f32.gguf", EmptyGguf());  // weights in safetensors count first
  const auto opened = Checkpoint::Open(folder.path());
  ASSERT_TRUE(opened) << opened.error().message;
  const Checkpoint& c = **opened;
  EXPECT_TRUE(c.is_folder());
  EXPECT_EQ(c.gguf(), nullptr);
  EXPECT_EQ(c.config()->String("model_type").value(), "llama");
  EXPECT_EQ(c.generation_config()->Ints("eos_token_id").value().size(), 2u);
  EXPECT_EQ(c.tensors().size(), 1u);
  EXPECT_EQ(c.FindTensor("t")->view.data[1], std::byte{1});
  EXPECT_EQ(c.FindTensor("u"), nullptr);
  EXPECT_EQ(c.file_bytes(), OneTensor().size());
  EXPECT_TRUE(c.warnings().empty());
  EXPECT_EQ(c.name(), std::filesystem::path(folder.path()).filename());
  EXPECT_EQ((*Checkpoint::Open(folder.path() + "/"))->name(), c.name());
  c.Release(c.tensors()[0].view);
}

TEST(Checkpoint, OpensGguf) {
  const TempFolder folder;
  const std::string path = folder.Write("tiny-q4.gguf", EmptyGguf());
  for (const std::string& given : {path, folder.path()}) {
    const auto opened = Checkpoint::Open(given);
    ASSERT_TRUE(opened) << opened.error().message;
    EXPECT_FALSE((*opened)->is_folder());
    EXPECT_EQ((*opened)->path(), given);
    EXPECT_EQ((*opened)->name(), "tiny-q4");
    EXPECT_EQ((*opened)->config(), nullptr);
    EXPECT_TRUE((*opened)->tensors().empty());
    EXPECT_EQ((*opened)->FindTensor("t"), nullptr);
    EXPECT_EQ((*opened)->file_bytes(), EmptyGguf().size());
  }
  folder.Write("config.json", "{}");  // beside a GGUF file, without weights of its own
  EXPECT_NE((*Checkpoint::Open(folder.path()))->gguf(), nullptr);
}

TEST(Checkpoint, OpensASplitInAFolder) {
  const TempFolder folder;
  for (uint16_t no = 0; no < 2; ++no) {
    Bytes bytes;
    bytes.Raw("GGUF").U32(3).U64(0).U64(3).Str("split.no").U32(2).U16(no).Str("split.count").U32(2).U16(2);
    bytes.Str("split.tensors.count").U32(5).U32(0);
    folder.Write("big-0000" + std::to_string(no + 1) + "-of-00002.gguf", bytes.text());
  }
  const auto opened = Checkpoint::Open(folder.path());
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_EQ((*opened)->name(), "big");
}

TEST(Checkpoint, WeightsNeedNotBeThere) {
  const TempFolder folder;
  folder.Write("tokenizer.json", "{}");
  const auto opened = Checkpoint::Open(folder.path());
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_TRUE((*opened)->is_folder());
  EXPECT_EQ((*opened)->config(), nullptr);
  EXPECT_TRUE((*opened)->tensors().empty());
  EXPECT_EQ((*opened)->file_bytes(), 0u);
  EXPECT_TRUE((*opened)->warnings().empty());
}

TEST(Checkpoint, PathsThatAreNotThere) {
  const TempFolder folder;
  folder.Write("llama-3-8b.gguf", EmptyGguf());
  EXPECT_ERROR(Checkpoint::Open(folder / "lama-3-8b.gguf"), "did you mean " + (folder / "llama-3-8b.gguf"));
  EXPECT_ERROR(Checkpoint::Open(folder / "llama-3"), "did you mean");
  EXPECT_ERROR(Checkpoint::Open(folder / "zzz"), "no such file or folder; give a GGUF file");
  EXPECT_ERROR(Checkpoint::Open(folder / "owner/name"), "there is no folder");
  EXPECT_EQ(Checkpoint::Open(folder / "zzz").error().code, ErrorCode::kNotFound);
  EXPECT_ERROR(Checkpoint::Open(""), "no such file");
  EXPECT_ERROR(Checkpoint::Open(folder / "llama-3-8b.gguf/inner"), "no such file");
  EXPECT_ERROR(Checkpoint::Open(folder / std::string(300, 'n')), "cannot open");
  std::filesystem::create_symlink("blobs/gone", folder / "link.gguf");
  EXPECT_ERROR(Checkpoint::Open(folder / "link.gguf"), "a link to blobs/gone, which is not there");
  const std::string pipe = folder / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_ERROR(Checkpoint::Open(pipe), "neither a file nor a folder");
}

TEST(Checkpoint, FoldersThatAreNoModel) {
  const TempFolder folder;
  EXPECT_ERROR(Checkpoint::Open(folder.path()), "no config.json, no tokenizer.json and no .gguf");
  std::filesystem::create_directories(folder / "snapshots/abc");
  folder.Write("snapshots/abc/config.json", "{}");
  EXPECT_ERROR(Checkpoint::Open(folder.path()), "did you mean " + (folder / "snapshots/abc"));
  folder.Write("a.gguf", EmptyGguf());
  folder.Write("b.gguf", EmptyGguf());
  EXPECT_ERROR(Checkpoint::Open(folder.path()),
               "2 GGUF files in this folder, wanted one; name the file: a.gguf, b.gguf");

  const TempFolder adapter;
  adapter.Write("adapter_config.json", "{}");
  adapter.Write("adapter_model.safetensors", OneTensor());
  EXPECT_ERROR(Checkpoint::Open(adapter.path()), "this is an adapter");
}

TEST(Checkpoint, WeightsInOtherForms) {
  const TempFolder folder;
  folder.Write("config.json", "{}");
  folder.Write("pytorch_model-00001-of-00002.bin", "x");
  EXPECT_ERROR(Checkpoint::Open(folder.path()), "convert them to safetensors");
  const std::string file = folder.Write("model.safetensors", OneTensor());
  EXPECT_TRUE(Checkpoint::Open(folder.path()));
  EXPECT_ERROR(Checkpoint::Open(file), "give the folder that holds it and its config.json: " + folder.path());
  std::filesystem::remove(folder / "config.json");
  EXPECT_ERROR(Checkpoint::Open(folder.path()), ".safetensors files but no config.json");
  EXPECT_ERROR(Checkpoint::Open(folder / "pytorch_model-00001-of-00002.bin"), "not a GGUF file");
}

TEST(Checkpoint, ErrorsOfItsFilesComeThrough) {
  const TempFolder folder;
  folder.Write("config.json", "{");
  EXPECT_ERROR(Checkpoint::Open(folder.path()), "config.json: not valid JSON");
  folder.Write("config.json", "{}");
  folder.Write("generation_config.json", "[]");
  EXPECT_ERROR(Checkpoint::Open(folder.path()), "generation_config.json: JSON array");
  std::filesystem::remove(folder / "generation_config.json");
  folder.Write("model.safetensors", "version https://git-lfs.github.com/spec/v1\n");
  EXPECT_ERROR(Checkpoint::Open(folder.path()), "model.safetensors: not a safetensors file");
  folder.Write("model.safetensors", "");
  EXPECT_ERROR(Checkpoint::Open(folder.path()), "empty");
}

// Two files of the same shape differ by what is in them, wherever they lie.
TEST(Checkpoint, DigestsTellWeightsApart) {
  const auto write = [](const TempFolder& folder, const char* name, double eps, size_t changed) {
    std::vector<float> numbers(40000, 0.5f);
    if (changed < numbers.size()) {
      for (size_t i = changed; i < std::min(changed + 4000, numbers.size()); ++i) numbers[i] = 0.25f;
    }
    const TensorView view{DType::kF32, Shape{200, 200}, reinterpret_cast<const std::byte*>(numbers.data())};
    const auto written = WriteGguf(folder / name, {.metadata = {{"general.architecture", GgufValue::String("llama")},
                                                                {"llama.attention.layer_norm_rms_epsilon", GgufValue::F32(static_cast<float>(eps))}},
                                                   .tensors = {{"t", view}}});
    EXPECT_TRUE(written.has_value());
    return (*Checkpoint::Open(folder / name))->Digest();
  };
  const TempFolder folder;
  const std::string digest = write(folder, "a.gguf", 1e-5, 1u << 20);
  EXPECT_EQ(digest.size(), 32u);
  EXPECT_EQ(write(folder, "another name.gguf", 1e-5, 1u << 20), digest);
  EXPECT_NE(write(folder, "b.gguf", 1e-6, 1u << 20), digest);
  for (const size_t changed : {0u, 100u, 17000u, 36001u, 39999u}) EXPECT_NE(write(folder, "c.gguf", 1e-5, changed), digest) << changed;
  folder.Write("config.json", R"({"model_type":"llama"})");
  folder.Write("model.safetensors", OneTensor());
  const std::string of_folder = (*Checkpoint::Open(folder.path()))->Digest();
  folder.Write("config.json", R"({"model_type":"qwen2"})");
  EXPECT_NE((*Checkpoint::Open(folder.path()))->Digest(), of_folder);
}

TEST(Checkpoint, OpensEverySharedModel) {
  HONE_NEED_SHARED(models, "goldens/models");
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(models)) {
    if (!entry.is_directory()) continue;
    const auto opened = Checkpoint::Open(entry.path());
    ASSERT_TRUE(opened) << opened.error().message;
    EXPECT_TRUE((*opened)->is_folder());
    EXPECT_GT((*opened)->tensors().size(), 10u) << entry.path();
    EXPECT_TRUE((*opened)->warnings().empty()) << (*opened)->warnings()[0];
    ++count;
    if (!std::filesystem::exists(entry.path() / "model-f32.gguf")) continue;
    const auto gguf = Checkpoint::Open(entry.path() / "model-f32.gguf");
    ASSERT_TRUE(gguf) << gguf.error().message;
    EXPECT_NE((*gguf)->FindTensor("token_embd.weight"), nullptr);
  }
  EXPECT_GT(count, 25u);
}

TEST(Checkpoint, OpensTheSharedRealModels) {
  HONE_NEED_SHARED(models, "models");
  const auto gguf = Checkpoint::Open(models + "/smollm2-135m-instruct-q4_1.gguf");
  ASSERT_TRUE(gguf) << gguf.error().message;
  EXPECT_EQ((*gguf)->tensors().size(), 272u);
  const auto folder = Checkpoint::Open(models + "/builtin/main");
  ASSERT_TRUE(folder) << folder.error().message;
  EXPECT_NE((*folder)->config(), nullptr);
  EXPECT_NE((*folder)->generation_config(), nullptr);
}

}  // namespace
}  // namespace hone
