// safetensors: one file, folders with an index, the writer; each bad header has its error.
#include "formats/safetensors.h"

#include <algorithm>

#include "base/random.h"
#include "base/test_shared.h"
#include "formats/safetensors_header.h"
#include "formats/safetensors_writer.h"
#include "formats/test_bytes.h"

namespace hone {
namespace {

using Metadata = std::map<std::string, std::string>;

Result<std::shared_ptr<const SafetensorsFile>> OpenSafetensors(std::string_view bytes) {
  const TempFolder folder;  // the mapping outlives the name
  return SafetensorsFile::Open(folder.Write("x.safetensors", bytes));
}

std::string Entry(std::string_view name, std::string_view dtype, std::string_view shape, size_t begin, size_t end) {
  return "\"" + std::string(name) + "\":{\"dtype\":\"" + std::string(dtype) + "\",\"shape\":[" + std::string(shape) +
         "],\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(end) + "]}";
}

TEST(Safetensors, ReadsTensorsInFileOrder) {
  const std::string header = "{" + Entry("b", "U8", "2,2", 8, 12) + "," + Entry("none", "F32", "0,7", 8, 8) + "," +
                             Entry("a", "F32", "2", 0, 8) + "," + Entry("scalar", "I16", "", 12, 14) +
                             ",\"__metadata__\":{\"format\":\"pt\",\"x\":\"\\u00e9\"}}  ";
  const auto opened = OpenSafetensors(SafetensorsBytes(header, 14));
  ASSERT_TRUE(opened) << opened.error().message;
  const SafetensorsFile& file = **opened;
  ASSERT_EQ(file.tensors().size(), 4u);
  EXPECT_EQ(file.tensors()[0].name, "a");
  EXPECT_EQ(file.tensors()[1].name, "none");
  EXPECT_EQ(file.tensors()[1].view.shape, (Shape{0, 7}));
  EXPECT_EQ(file.tensors()[2].name, "b");
  EXPECT_EQ(file.tensors()[2].view.data[3], std::byte{11});
  EXPECT_EQ(file.FindTensor("scalar")->view.shape.rank(), 0);
  EXPECT_EQ(*file.FindTensor("scalar")->view.as<int16_t>(), 0x0d0c);
  EXPECT_EQ(file.FindTensor("c"), nullptr);
  EXPECT_EQ(file.metadata(), (Metadata{{"format", "pt"}, {"x", "\xc3\xa9"}}));
  EXPECT_EQ(file.file_bytes(), 8 + header.size() + 14);
  file.Release(file.tensors()[0].view);
}

TEST(Safetensors, EveryDType) {
  static constexpr const char* kNames[] = {
      "BOOL", "F4",  "F6_E2M3", "F6_E3M2", "U8",  "I8",  "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ",
      "I16",  "U16", "F16",     "BF16",    "I32", "U32", "F32",     "C64",     "F64",     "I64",         "U64"};
  static constexpr size_t kBits[] = {8, 4, 6, 6, 8, 8, 8, 8, 8, 8, 8, 16, 16, 16, 16, 32, 32, 32, 64, 64, 64, 64};
  for (size_t i = 0; i < std::size(kNames); ++i) {
    const size_t bytes = 2 * 4 * kBits[i] / 8;
    const auto opened = OpenSafetensors(SafetensorsBytes("{" + Entry("t", kNames[i], "2,4", 0, bytes) + "}", bytes));
    ASSERT_TRUE(opened) << opened.error().message;
    const TensorView& view = (*opened)->tensors()[0].view;
    EXPECT_EQ(Info(view.type).name, kNames[i]);
    EXPECT_EQ(view.bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(view.data) % std::max<size_t>(1, std::min<size_t>(kBits[i] / 8, 4)), 0u);
    EXPECT_EQ(view.data[bytes - 1], static_cast<std::byte>(bytes - 1));
  }
}

TEST(Safetensors, MisalignedDataIsCopiedAndSaidSo) {
  for (size_t padding = 0; padding < 8; ++padding) {
    const std::string header = "{" + Entry("a", "F32", "2", 0, 8) + "}" + std::string(padding, ' ');
    const auto opened = OpenSafetensors(SafetensorsBytes(header, 8));
    ASSERT_TRUE(opened) << opened.error().message;
    const TensorView& view = (*opened)->tensors()[0].view;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(view.data) % 4, 0u);
    EXPECT_EQ(view.as<uint32_t>()[1], 0x07060504u);
    EXPECT_EQ((*opened)->warnings().size(), header.size() % 4 == 0 ? 0u : 1u);
  }
}

TEST(Safetensors, EachFaultHasItsError) {
  const auto one = [](std::string_view dtype, std::string_view shape, size_t begin, size_t end) {
    return "{" + Entry("t", dtype, shape, begin, end) + "}";
  };
  const std::string deep(20, '[');
  const struct {
    std::string header;
    size_t buffer;
    const char* message;
  } kCases[] = {
      {one("F32", "2", 0, 4), 4, "tensor 't' of type F32 and shape [2] has 4 bytes, wanted 8"},
      {one("F32", "2", 8, 0), 8, "data_offsets [8, 0], wanted begin <= end"},
      {one("F32", "2", 4, 12), 12, "begins at byte 4 of the data, wanted 0 (a hole)"},
      {"{" + Entry("a", "F32", "2", 0, 8) + "," + Entry("b", "F32", "2", 4, 12) + "}", 12,
       "wanted 8 (tensors overlap)"},
      {"{" + Entry("a", "F32", "2", 0, 8) + "," + Entry("b", "F32", "2", 0, 8) + "}", 8, "wanted 8 (tensors overlap)"},
      {one("F32", "2", 0, 8), 7, "the tensors need 8 bytes, the file has 7 after its header; it is cut off"},
      {one("F32", "2", 0, 8), 9, "1 bytes after the last tensor, wanted none"},
      {"{}", 3, "3 bytes after the last tensor"},
      {one("F4", "3", 0, 2), 2, "rows that do not fill whole bytes, wanted a last dimension that is a multiple of 2"},
      {one("F6_E2M3", "2,2", 0, 3), 3, "multiple of 4"},
      {one("Q4_0", "32", 0, 18), 18, "is 'Q4_0', wanted one that safetensors has"},
      {one("NF4", "32", 0, 18), 18, "is 'NF4', wanted one that safetensors has"},
      {one("F33", "1", 0, 4), 4, "dtype of tensor 't' is 'F33'"},
      {one("F32", "4294967296,4294967296", 0, 8), 8, "more than 2^63 bytes"},
      {one("F32", "4294967296,4294967296,0", 0, 0), 0, "more than 2^63 bytes"},
      {one("F32", "9223372036854775808", 0, 8), 8, "shape of tensor 't' holds the number 9223372036854775808"},
      {one("F32", "-1", 0, 8), 8, "holds a negative number, wanted an array of whole numbers"},
      {one("F32", "2.0", 0, 8), 8, "holds the number 2.0"},
      {one("F32", "\"2\"", 0, 8), 8, "holds a string"},
      {one("F32", "[2]", 0, 8), 8, "holds an array"},
      {one("F32", "1,1,1,1,1,1,1,1,1", 0, 4), 4, "more than 8 dimensions"},
      {"{" + Entry("t", "U8", "1", 0, 1) + "," + Entry("t", "U8", "1", 1, 2) + "}", 2, "entry 't' is there twice"},
      {R"({"t":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1, "has its dtype twice"},
      {R"({"t":{"dtype":"U8","shape":[1],"shape":[1],"data_offsets":[0,1]}})", 1, "has its shape twice"},
      {R"({"t":{"dtype":"U8","shape":[1]}})", 1, "has no data_offsets"},
      {R"({"t":{"shape":[1],"data_offsets":[0,1]}})", 1, "has no dtype"},
      {R"({"t":{"dtype":"U8","data_offsets":[0,1]}})", 1, "has no shape"},
      {R"({"t":{"dtype":5,"shape":[1],"data_offsets":[0,1]}})", 1,
       "dtype of tensor 't' holds the number 5, wanted a string"},
      {R"({"t":{"dtype":"U8","shape":1,"data_offsets":[0,1]}})", 1, "shape of tensor 't' holds the number 1"},
      {R"({"t":{"dtype":"U8","shape":null,"data_offsets":[0,1]}})", 1, "holds null"},
      {R"({"t":{"dtype":"U8","shape":{},"data_offsets":[0,1]}})", 1, "holds an object"},
      {R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[0]}})", 1, "has 1 numbers, wanted two"},
      {R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1,2]}})", 1, "more than two numbers"},
      {R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1e3]}})", 1,
       "data_offsets of tensor 't' holds the number 1e3"},
      {R"({"t":[1]})", 1, "entry 't' holds an array, wanted an object"},
      {R"({"t":5})", 1, "entry 't' holds the number 5"},
      {R"({"t":null})", 1, "entry 't' holds null"},
      {R"({"__metadata__":{"a":1}})", 0, "__metadata__ key 'a' holds the number 1, wanted a string"},
      {R"({"__metadata__":{"a":"1","a":"2"}})", 0, "__metadata__ key 'a' is there twice"},
      {R"({"__metadata__":{"a":{}}})", 0, "__metadata__ key 'a' holds an object"},
      {R"({"__metadata__":{},"__metadata__":{}})", 0, "entry '__metadata__' is there twice"},
      {R"({"__metadata__":["a"]})", 0, "holds an array"},
      {R"({"t":{"dtype":"U8")", 0, "not valid JSON"},
      {"{} x", 0, "not valid JSON"},
      {"{\"\xff\":{}}", 0, "not valid JSON"},
      {R"({"t":{"extra":)" + deep, 0, "nested too deep"},
  };
  for (const auto& c : kCases) {
    const auto opened = OpenSafetensors(SafetensorsBytes(c.header, c.buffer));
    EXPECT_ERROR(opened, c.message);
    EXPECT_ERROR(opened, "x.safetensors: ");
  }
}

TEST(Safetensors, UnknownFieldsAndNullMetadataAreSkipped) {
  const auto opened = OpenSafetensors(SafetensorsBytes(
      R"({"__metadata__":null,"t":{"dtype":"U8","more":{"a":[1,{"b":null}],"dtype":"x"},"shape":[1],)"
      R"("data_offsets":[0,1],"last":-1.5}})",
      1));
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_EQ((*opened)->tensors()[0].view.shape, Shape{1});
  EXPECT_TRUE(OpenSafetensors(SafetensorsBytes("{}", 0)));
}

TEST(Safetensors, ForeignFilesAreRecognised) {
  EXPECT_ERROR(OpenSafetensors("1234567"), "it has 7 bytes");
  EXPECT_ERROR(OpenSafetensors("version https://git-lfs.github.com/spec/v1\n"), "Git LFS pointer");
  EXPECT_ERROR(OpenSafetensors("<!DOCTYPE html><html></html>"), "web page");
  EXPECT_ERROR(OpenSafetensors(Bytes().Raw("GGUF").U32(3).U64(0).text()), "GGUF file");
  EXPECT_ERROR(OpenSafetensors(std::string_view("PK\3\4........", 12)), "zip archive");
  EXPECT_ERROR(OpenSafetensors(Bytes().U64(100000001).Raw("{}").text()), "length is 100000001, wanted at most 100000000");
  EXPECT_ERROR(OpenSafetensors(Bytes().U64(~uint64_t{0}).Raw("{}").text()), "wanted at most 100000000");
  EXPECT_ERROR(OpenSafetensors(Bytes().U64(50).Raw("{}").text()), "it is cut off");
  EXPECT_ERROR(SafetensorsFile::Open("/nowhere/x.safetensors"), "cannot open");
}

TEST(Safetensors, EveryTruncationIsAnError) {
  const std::string good =
      SafetensorsBytes("{" + Entry("a", "F32", "2", 0, 8) + "," + Entry("b", "U8", "3", 8, 11) + "}", 11);
  for (size_t length = 1; length <= good.size(); ++length) {
    const auto opened = SafetensorsFile::Open(MemoryFile(std::string_view(good).substr(0, length)).path());
    EXPECT_EQ(opened.has_value(), length == good.size()) << length;
  }
}

TEST(Safetensors, SpoiledBytesNeverCrash) {
  const std::string good =
      SafetensorsBytes("{" + Entry("a", "F32", "2", 0, 8) + "," + Entry("b", "U8", "3", 8, 11) + "}", 11);
  Rng rng(11);
  for (int round = 0; round < 3000; ++round) {
    std::string bytes = good;
    for (uint64_t n = 1 + rng.Below(3); n > 0; --n) {
      static constexpr std::string_view kNasty = "{}[]\",:0-9e.\\\xff";
      bytes[rng.Below(bytes.size())] = kNasty[rng.Below(kNasty.size())];
    }
    const auto opened = SafetensorsFile::Open(MemoryFile(bytes).path());
    if (!opened) continue;
    uint64_t total = 0;
    for (const NamedTensor& tensor : (*opened)->tensors()) total += tensor.view.bytes();
    EXPECT_EQ(total, 11u);
  }
}

// Two shards and their index.
struct Sharded {
  Sharded() {
    folder.Write("model-00001-of-00002.safetensors", SafetensorsBytes("{" + Entry("a", "U8", "1", 0, 1) + "}", 1));
    folder.Write("model-00002-of-00002.safetensors",
                 SafetensorsBytes("{" + Entry("b", "U8", "1", 0, 1) + "," + Entry("c", "U8", "1", 1, 2) + "}", 2));
    Index(
        R"("a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors",)"
        R"("c":"model-00002-of-00002.safetensors")");
  }
  void Index(const std::string& map) const {
    IndexText("{\"metadata\":{\"total_size\":3.0,\"x\":[{}]},\"weight_map\":{" + map + "}}");
  }
  void IndexText(const std::string& text) const { folder.Write("model.safetensors.index.json", text); }
  auto Open() const { return SafetensorsFile::OpenFolder(folder.path()); }
  TempFolder folder;
};

TEST(SafetensorsFolder, ReadsShardsThroughTheIndex) {
  const Sharded s;
  const auto opened = s.Open();
  ASSERT_TRUE(opened) << opened.error().message;
  ASSERT_EQ((*opened)->tensors().size(), 3u);
  EXPECT_EQ((*opened)->FindTensor("c")->view.data[0], std::byte{1});
  EXPECT_TRUE((*opened)->warnings().empty());
  (*opened)->Release((*opened)->FindTensor("c")->view);
}

TEST(SafetensorsFolder, WarnsOfWhatTheIndexDoesNotName) {
  const Sharded s;
  s.folder.Write("model-00003-of-00003.safetensors", "stale");
  s.folder.Write("consolidated.00.safetensors", "other form");
  s.folder.Write("golden.safetensors", "no shard");
  s.Index(R"("a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors")");
  const auto opened = s.Open();
  ASSERT_TRUE(opened) << opened.error().message;
  ASSERT_EQ((*opened)->warnings().size(), 2u);
  EXPECT_NE((*opened)->warnings()[0].find("1 tensors of the shards are not in it (first: 'c')"), std::string::npos);
  EXPECT_NE((*opened)->warnings()[1].find("model-00003-of-00003.safetensors is not"), std::string::npos);
  EXPECT_NE((*opened)->FindTensor("c"), nullptr);
}

TEST(SafetensorsFolder, TheIndexDecidesBetweenTwoCopies) {
  const Sharded s;
  s.folder.Write("model-00001-of-00002.safetensors",
                 SafetensorsBytes("{" + Entry("a", "U8", "1", 0, 1) + "," + Entry("b", "U8", "1", 1, 2) + "}", 2));
  const auto opened = s.Open();
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_EQ((*opened)->FindTensor("b")->view.data[0], std::byte{0});
  ASSERT_EQ((*opened)->warnings().size(), 1u);
  s.Index(R"("a":"model-00001-of-00002.safetensors","c":"model-00002-of-00002.safetensors")");
  EXPECT_ERROR(s.Open(), "tensor 'b' is in two shards");
}

TEST(SafetensorsFolder, EachFaultHasItsError) {
  const Sharded s;
  const struct {
    const char* index;
    const char* message;
  } kCases[] = {
      {"[1]", "holds an array, wanted an object"},
      {"{", "not valid JSON"},
      {"{}", "no key 'weight_map'"},
      {R"({"weight_map":{}})", "'weight_map' is empty"},
      {R"({"weight_map":[]})", "holds an array, wanted an object"},
      {R"({"weight_map":"x"})", "holds a string, wanted an object"},
      {R"({"weight_map":{"a":1}})", "weight_map key 'a' holds the number 1, wanted the name of a file"},
      {R"({"weight_map":{"a":{}}})", "weight_map key 'a' holds an object"},
      {R"({"weight_map":{"a":null}})", "weight_map key 'a' holds null"},
      {R"({"weight_map":{"a":"x.safetensors","a":"y.safetensors"}})", "weight_map key 'a' is there twice"},
      {R"({"weight_map":{"a":"x.safetensors"},"weight_map":{"b":"x.safetensors"}})", "'weight_map' is there twice"},
      {R"({"weight_map":{"a":"../x.safetensors"}})", "wanted a plain name"},
      {R"({"weight_map":{"a":"/etc/x.safetensors"}})", "wanted a plain name"},
      {R"({"weight_map":{"a":"sub/x.safetensors"}})", "wanted a plain name"},
      {R"({"weight_map":{"a":"sub\\x.safetensors"}})", "wanted a plain name"},
      {R"({"weight_map":{"a":"x\u0000.safetensors"}})", "wanted a plain name"},
      {R"({"weight_map":{"a":""}})", "wanted a plain name"},
      {R"({"weight_map":{"a":".safetensors"}})", "wanted a plain name"},
      {R"({"weight_map":{"a":"pytorch_model.bin"}})", "wanted a plain name ending in .safetensors"},
      {R"({"weight_map":{"a":"m-1.safetensors","b":"m-2.safetensors"}})",
       "2 of its 2 shards are missing from the folder: m-1.safetensors, m-2"},
      {R"({"weight_map":{"z":"model-00001-of-00002.safetensors"}})", "model-00001-of-00002.safetensors: no tensor 'z'"},
      {R"({"weight_map":{"b":"model-00001-of-00002.safetensors"}})", "no tensor 'b'"},
  };
  for (const auto& c : kCases) {
    s.IndexText(c.index);
    EXPECT_ERROR(s.Open(), c.message);
  }
}

TEST(SafetensorsFolder, WithoutAnIndex) {
  const TempFolder folder;
  EXPECT_ERROR(SafetensorsFile::OpenFolder(folder.path()), "no model.safetensors.index.json and no model.safetensors");
  const std::string one = SafetensorsBytes("{" + Entry("a", "U8", "1", 0, 1) + "}", 1);
  folder.Write("adapter_model.safetensors", one);
  EXPECT_ERROR(SafetensorsFile::OpenFolder(folder.path()), "no model.safetensors");
  folder.Write("gptq_model-4bit.safetensors", one);
  EXPECT_EQ(SafetensorsFile::OpenFolder(folder.path()).value()->path(), folder / "gptq_model-4bit.safetensors");
  folder.Write("model-00002-of-00002.safetensors", one);
  EXPECT_ERROR(SafetensorsFile::OpenFolder(folder.path()), "2 .safetensors files");
  folder.Write("model.safetensors", one);
  const auto opened = SafetensorsFile::OpenFolder(folder.path());
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_EQ((*opened)->path(), folder / "model.safetensors");
  EXPECT_EQ((*opened)->warnings().size(), 1u);
}

TEST(SafetensorsWrite, ReproducesFilesOfTheReferenceWriter) {
  HONE_NEED_SHARED(models, "goldens/models");
  const TempFolder folder;
  size_t files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(models)) {
    if (entry.path().extension() != ".safetensors") continue;
    const auto opened = SafetensorsFile::Open(entry.path());
    ASSERT_TRUE(opened) << opened.error().message;
    EXPECT_TRUE((*opened)->warnings().empty());
    ASSERT_TRUE(WriteSafetensors(folder / "copy", (*opened)->tensors(), (*opened)->metadata()));
    EXPECT_TRUE(ReadBytes(entry.path()) == ReadBytes(folder / "copy")) << entry.path();
    ++files;
  }
  EXPECT_GT(files, 50u);
}

TEST(SafetensorsWrite, FoldersReadBackEqual) {
  HONE_NEED_SHARED(source, "goldens/models/llama-sharded");
  const auto opened = SafetensorsFile::OpenFolder(source);
  ASSERT_TRUE(opened) << opened.error().message;
  for (const uint64_t shard_bytes : {uint64_t{1}, uint64_t{40000}, uint64_t{1} << 30}) {
    const TempFolder folder;
    ASSERT_TRUE(WriteSafetensorsFolder(folder / "out", (*opened)->tensors(), {{"format", "pt"}}, shard_bytes));
    const auto copy = SafetensorsFile::OpenFolder(folder / "out");
    ASSERT_TRUE(copy) << copy.error().message;
    EXPECT_TRUE((*copy)->warnings().empty());
    EXPECT_EQ((*copy)->metadata(), (Metadata{{"format", "pt"}}));
    EXPECT_EQ(std::filesystem::exists(folder / "out/model.safetensors"), shard_bytes > 1000000);
    ASSERT_EQ((*copy)->tensors().size(), (*opened)->tensors().size());
    for (const NamedTensor& tensor : (*opened)->tensors()) {
      const NamedTensor* found = (*copy)->FindTensor(tensor.name);
      ASSERT_NE(found, nullptr) << tensor.name;
      EXPECT_EQ(found->view.shape, tensor.view.shape);
      EXPECT_EQ(std::memcmp(found->view.data, tensor.view.data, tensor.view.bytes()), 0);
    }
    // Other numbers of shards beside these would mix with them.
    const auto again = WriteSafetensorsFolder(folder / "out", (*opened)->tensors(), {}, 100000);
    EXPECT_ERROR(again, "already holds other weights");
  }
}

TEST(SafetensorsWrite, EscapesNamesAndRefusesWhatReadersRefuse) {
  const TempFolder folder;
  const std::byte bytes[16] = {};
  const auto tensor = [&](std::string name, DType type, Shape shape) {
    return NamedTensor{std::move(name), {type, shape, bytes}};
  };
  const std::string path = folder / "x.safetensors";
  const std::string odd = "a\"b\\c\n\x01\xc3\xa9";
  ASSERT_TRUE(WriteSafetensors(path, {tensor(odd, DType::kU8, {2}), tensor("s", DType::kF32, {})}, {{odd, odd}}));
  const auto opened = SafetensorsFile::Open(path);
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_NE((*opened)->FindTensor(odd), nullptr);
  EXPECT_EQ((*opened)->metadata(), (Metadata{{odd, odd}}));
  EXPECT_EQ((*opened)->tensors()[0].name, "s");  // larger elements come first
  std::filesystem::remove(path);

  EXPECT_ERROR(WriteSafetensors(path, {tensor("a", DType::kQ4_0, {32})}, {}), "safetensors has no type Q4_0");
  EXPECT_ERROR(WriteSafetensors(path, {tensor("a", DType::kF4, {3})}, {}), "do not fill whole bytes");
  EXPECT_ERROR(WriteSafetensors(path, {tensor("a", DType::kU8, {1}), tensor("a", DType::kU8, {1})}, {}), "given twice");
  EXPECT_ERROR(WriteSafetensors(path, {tensor("__metadata__", DType::kU8, {1})}, {}), "reserved");
  for (const char* bad : {"\xff", "\xc3", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xc0\xaf"}) {
    EXPECT_ERROR(WriteSafetensors(path, {tensor(bad, DType::kU8, {1})}, {}), "not UTF-8");
    EXPECT_ERROR(WriteSafetensors(path, {}, {{"k", bad}}), "not UTF-8");
  }
  EXPECT_ERROR(
      WriteSafetensorsFolder(folder.path(), {tensor("a", DType::kU8, {1}), tensor("a", DType::kU8, {1})}, {}, 1),
      "given twice");
  EXPECT_EQ(folder.FileCount(), 0u);
}

TEST(SafetensorsWrite, PiecesAndAbandonedFiles) {
  const TempFolder folder;
  const std::byte bytes[8] = {};
  {
    auto writer = SafetensorsWriter::Create(folder / "x", {{"a", DType::kU8, {4}}, {"b", DType::kF32, {1}}}, {});
    ASSERT_TRUE(writer) << writer.error().message;
    EXPECT_EQ((*writer)->order()[0].name, "b");
    ASSERT_TRUE((*writer)->Append({bytes, 4}));
  }
  EXPECT_EQ(folder.FileCount(), 0u);
  auto writer = SafetensorsWriter::Create(
      folder / "x", {{"a", DType::kU8, {4}}, {"z", DType::kF32, {0}}, {"b", DType::kF32, {1}}}, {});
  ASSERT_TRUE(writer);
  for (const size_t piece : {3, 1, 2, 2}) ASSERT_TRUE((*writer)->Append({bytes, piece}));
  ASSERT_TRUE((*writer)->Commit());
  EXPECT_TRUE(SafetensorsFile::Open(folder / "x"));
}

}  // namespace
}  // namespace hone
