// Writing GGUF: bytes equal to those of other writers, reading back equal, nothing left behind on failure.
#include <sys/stat.h>

#include <cmath>
#include <limits>

#include "base/random.h"
#include "base/test_shared.h"
#include "formats/gguf.h"
#include "formats/gguf_writer.h"
#include "formats/test_bytes.h"

namespace hone {
namespace {

void ExpectSameTensors(const std::vector<NamedTensor>& a, const std::vector<NamedTensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].name, b[i].name);
    ASSERT_EQ(a[i].view.type, b[i].view.type) << a[i].name;
    ASSERT_EQ(a[i].view.shape, b[i].view.shape) << a[i].name;
    EXPECT_EQ(std::memcmp(a[i].view.data, b[i].view.data, a[i].view.bytes()), 0) << a[i].name;
  }
}

// Tensors over one buffer of random bytes.
struct Random {
  explicit Random(uint64_t seed) {
    Rng rng(seed);
    static constexpr DType kTypes[] = {DType::kF32,  DType::kQ4_0, DType::kI8,
                                       DType::kQ6_K, DType::kBF16, DType::kMXFP4};
    for (int i = 0; i < 12; ++i) {
      const DType type = kTypes[rng.Below(6)];
      Shape shape;
      for (uint64_t rank = rng.Below(4); rank > 0; --rank) shape.Append(static_cast<int64_t>(rng.Below(4)));
      if (shape.rank() > 0 || IsBlock(type))
        shape.Append(Info(type).block_elements * static_cast<int64_t>(rng.Below(3)));
      contents.tensors.push_back({"t" + std::to_string(i), {type, shape, nullptr}});
    }
    size_t total = 0;
    for (const NamedTensor& tensor : contents.tensors) total += tensor.view.bytes();
    bytes.resize(total + 1);
    for (std::byte& b : bytes) b = static_cast<std::byte>(rng.Below(256));
    size_t at = 0;
    for (NamedTensor& tensor : contents.tensors) {
      tensor.view.data = bytes.data() + at;
      at += tensor.view.bytes();
    }
    const GgufValue values[] = {GgufValue::U16(9),
                                GgufValue::U32(1u << 31),
                                GgufValue::U64(~uint64_t{0}),
                                GgufValue::I32(-5),
                                GgufValue::F32(0.25f),
                                GgufValue::Bool(true),
                                GgufValue::String("a\xfe\n"),
                                GgufValue::Strings({"x", "", "y"}),
                                GgufValue::I32s({-1, 2}),
                                GgufValue::U32s({7}),
                                GgufValue::F32s({0.5, -std::numeric_limits<double>::infinity()}),
                                {GgufType::kArray, GgufType::kBool, std::vector<bool>{true, false}},
                                {GgufType::kI8, GgufType::kU32, int64_t{-128}},
                                {GgufType::kF64, GgufType::kU32, 1e300},
                                {GgufType::kArray, GgufType::kU64, std::vector<uint64_t>()}};
    for (const GgufValue& value : values)
      contents.metadata.emplace_back("k" + std::to_string(contents.metadata.size()), value);
  }
  std::vector<std::byte> bytes;
  GgufContents contents;
};

TEST(GgufWrite, ReadingBackGivesTheSame) {
  const TempFolder folder;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Random random(seed);
    const uint32_t alignment = 1u << (seed % 13);
    if (seed % 3 != 0) random.contents.metadata.emplace_back("general.alignment", GgufValue::U32(alignment));
    ASSERT_TRUE(WriteGguf(folder / "x.gguf", random.contents));
    const auto opened = GgufFile::Open(folder / "x.gguf");
    ASSERT_TRUE(opened) << opened.error().message;
    EXPECT_EQ((*opened)->metadata(), random.contents.metadata);
    EXPECT_EQ((*opened)->alignment(), seed % 3 != 0 ? alignment : 32u);
    ExpectSameTensors((*opened)->tensors(), random.contents.tensors);
    EXPECT_EQ(folder.FileCount(), 1u);
  }
}

TEST(GgufWrite, ReproducesFilesOfOtherWriters) {
  HONE_NEED_SHARED(quant, "data/quant");
  HONE_NEED_SHARED(tokenizers, "data/tokenizers");
  HONE_NEED_SHARED(models, "goldens/models");
  const TempFolder folder;
  size_t same = 0;
  for (const std::string& source : {quant, tokenizers, models + "/llama", models + "/mixtral", models + "/gemma3"}) {
    for (const auto& entry : std::filesystem::directory_iterator(source)) {
      if (entry.path().extension() != ".gguf") continue;
      const auto opened = GgufFile::Open(entry.path());
      ASSERT_TRUE(opened) << opened.error().message;
      const std::string copy = folder / "copy.gguf";
      ASSERT_TRUE(WriteGguf(copy, {(*opened)->metadata(), (*opened)->tensors()}));
      std::string wanted = ReadBytes(entry.path()), found = ReadBytes(copy);
      if ((*opened)->version() == 2) wanted[4] = 3;
      EXPECT_TRUE(wanted == found) << entry.path();
      same += wanted == found;
    }
  }
  EXPECT_GE(same, 35u);
}

TEST(GgufWrite, RefusesWhatNoReaderWouldTake) {
  const TempFolder folder;
  const float data[64] = {};
  const auto write = [&](std::vector<std::pair<std::string, GgufValue>> metadata, std::vector<NamedTensor> tensors) {
    return WriteGguf(folder / "x.gguf", {std::move(metadata), std::move(tensors)});
  };
  const auto tensor = [&](std::string name, DType type, Shape shape) {
    return NamedTensor{std::move(name), {type, shape, reinterpret_cast<const std::byte*>(data)}};
  };
  EXPECT_ERROR(write({{"", GgufValue::U32(1)}}, {}), "a metadata key is empty");
  EXPECT_ERROR(write({{"a", GgufValue::U32(1)}, {"a", GgufValue::U32(2)}}, {}), "key 'a' is given twice");
  EXPECT_ERROR(write({{"a", {GgufType::kU8, GgufType::kU32, uint64_t{256}}}}, {}), "does not fit its type, u8");
  EXPECT_ERROR(write({{"a", {GgufType::kI8, GgufType::kU32, int64_t{-129}}}}, {}), "does not fit its type, i8");
  EXPECT_ERROR(write({{"a", {GgufType::kF32, GgufType::kU32, 1e300}}}, {}), "does not fit its type, f32");
  EXPECT_ERROR(write({{"a", {GgufType::kU32, GgufType::kU32, std::string("x")}}}, {}), "does not fit");
  EXPECT_ERROR(write({{"a", GgufValue::I32s({int64_t{1} << 31})}}, {}), "does not fit its type, array of i32");
  EXPECT_ERROR(write({{"a", {GgufType::kArray, GgufType::kArray, std::vector<uint64_t>()}}}, {}), "nested arrays");
  EXPECT_ERROR(write({{"general.alignment", GgufValue::U32(3)}}, {}), "power of two");
  EXPECT_ERROR(write({{"general.alignment", GgufValue::U64(32)}}, {}), "power of two");
  EXPECT_ERROR(write({}, {tensor("", DType::kF32, {1})}), "name is empty");
  EXPECT_ERROR(write({}, {tensor("a", DType::kF32, {1}), tensor("a", DType::kF32, {1})}), "given twice");
  EXPECT_ERROR(write({}, {tensor(std::string(64, 'n'), DType::kF32, {1})}), "64 bytes, GGUF allows 63");
  EXPECT_ERROR(write({}, {tensor("a", DType::kU8, {1})}), "GGUF has no type U8");
  EXPECT_ERROR(write({}, {tensor("a", DType::kF32, {1, 1, 1, 1, 1})}), "four dimensions");
  EXPECT_ERROR(write({}, {tensor("a", DType::kQ4_0, {2, 16})}), "no whole blocks of Q4_0");
  EXPECT_ERROR(WriteGguf(folder / "none/x.gguf", {}), "make its folder first");
  EXPECT_ERROR(WriteGguf(folder.path(), {}), "wanted the name of a file");
  EXPECT_EQ(folder.FileCount(), 0u);
}

TEST(GgufWrite, NothingIsNamedBeforeCommit) {
  const TempFolder folder;
  folder.Write("x.gguf", "old");
  {
    auto writer = GgufWriter::Create(folder / "x.gguf", {},
                                     {{"a", DType::kI8, {0}}, {"b", DType::kI8, {2, 3}}, {"c", DType::kI8, {0}}});
    ASSERT_TRUE(writer) << writer.error().message;
    const std::byte bytes[6] = {};
    ASSERT_TRUE((*writer)->Append({bytes, 4}));
    EXPECT_EQ(folder.FileCount(), 2u);
  }
  EXPECT_EQ(folder.FileCount(), 1u);
  EXPECT_EQ(ReadBytes(folder / "x.gguf"), "old");
  auto writer = GgufWriter::Create(folder / "x.gguf", {},
                                   {{"a", DType::kI8, {0}}, {"b", DType::kI8, {2, 3}}, {"c", DType::kI8, {0}}});
  ASSERT_TRUE(writer);
  const std::byte bytes[6] = {std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}, std::byte{5}, std::byte{6}};
  ASSERT_TRUE((*writer)->Append({bytes, 4}));
  ASSERT_TRUE((*writer)->Append({bytes + 4, 2}));
  ASSERT_TRUE((*writer)->Commit());
  const auto opened = GgufFile::Open(folder / "x.gguf");
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_EQ((*opened)->FindTensor("b")->view.data[5], std::byte{6});
}

TEST(GgufWrite, ReplacesFilesOnly) {
  const TempFolder folder;
  const std::string pipe = folder / "pipe.gguf", nested = folder / "folder.gguf", link = folder / "null.gguf";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  std::filesystem::create_directory(nested);
  std::filesystem::create_symlink("/dev/null", link);  // root could put a file in the place of the device
  for (const std::string& path : {pipe, nested, link}) {
    EXPECT_ERROR(GgufWriter::Create(path, {}, {}), "wanted the name of a file");
  }
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
  EXPECT_EQ(folder.FileCount(), 3u);
}

TEST(GgufWrite, MayReplaceTheFileItReadsFrom) {
  const TempFolder folder;
  const Random random(3);
  ASSERT_TRUE(WriteGguf(folder / "x.gguf", random.contents));
  const auto opened = GgufFile::Open(folder / "x.gguf");
  ASSERT_TRUE(opened);
  GgufContents changed{(*opened)->metadata(), (*opened)->tensors()};
  changed.metadata.emplace_back("extra", GgufValue::String(std::string(5000, 'x')));
  ASSERT_TRUE(WriteGguf(folder / "x.gguf", changed));
  ExpectSameTensors((*opened)->tensors(), random.contents.tensors);
  ExpectSameTensors((*GgufFile::Open(folder / "x.gguf"))->tensors(), random.contents.tensors);
}

TEST(GgufWriteSplit, PartsReadBackAsOne) {
  const TempFolder folder;
  const Random random(5);
  const struct {
    GgufSplitLimits limits;
    size_t parts;  // 0: more than one
  } kCases[] = {{{}, 1}, {{0, 5}, 3}, {{0, 1}, 12}, {{1000, 0}, 0}, {{1, 0}, 0}, {{1000, 2}, 0}};
  for (const auto& c : kCases) {
    const auto paths = WriteGgufSplit(folder / "m", random.contents, c.limits);
    ASSERT_TRUE(paths) << paths.error().message;
    EXPECT_TRUE(c.parts > 0 ? paths->size() == c.parts : paths->size() > 1u) << paths->size();
    const auto opened = GgufFile::Open((*paths)[0]);
    ASSERT_TRUE(opened) << opened.error().message;
    ExpectSameTensors((*opened)->tensors(), random.contents.tensors);
    EXPECT_EQ((*opened)->metadata().size(), random.contents.metadata.size() + 3);

    // Written again as one file, it is no split any more; split again, it is the same split.
    ASSERT_TRUE(WriteGguf(folder / "one.gguf", {(*opened)->metadata(), (*opened)->tensors()}));
    const auto one = GgufFile::Open(folder / "one.gguf");
    ASSERT_TRUE(one) << one.error().message;
    ExpectSameTensors((*one)->tensors(), random.contents.tensors);
    EXPECT_EQ((*one)->metadata(), paths->size() > 1 ? random.contents.metadata : (*opened)->metadata());
    for (const std::string& path : *paths) std::filesystem::remove(path);
    std::filesystem::remove(folder / "one.gguf");
    EXPECT_EQ(folder.FileCount(), 0u);
  }
  GgufContents twice = random.contents;
  twice.tensors.push_back(twice.tensors[0]);
  EXPECT_ERROR(WriteGgufSplit(folder / "m", twice, {0, 1}), "given twice");
  EXPECT_EQ(folder.FileCount(), 0u);
}

}  // namespace
}  // namespace hone
