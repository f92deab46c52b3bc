// Reading GGUF: what a good file gives, and the one clear error of each bad one.
#include "formats/gguf.h"

#include <functional>

#include "base/memory.h"
#include "base/random.h"
#include "base/test_shared.h"
#include "formats/gguf_part.h"
#include "formats/test_bytes.h"

namespace hone {
namespace {

// A GGUF file in pieces, so that a test can spoil one of them.
struct Parts {
  std::string magic = "GGUF";
  uint32_t version = 3;
  uint64_t tensor_count = 0, key_count = 0;
  Bytes keys, tensors, data;
  size_t alignment = 32;

  Parts& Key(std::string_view name, uint32_t type) {
    keys.Str(name).U32(type);
    ++key_count;
    return *this;
  }
  Parts& Tensor(std::string_view name, const std::vector<int64_t>& sizes, uint32_t type, uint64_t offset) {
    tensors.Str(name).U32(static_cast<uint32_t>(sizes.size()));
    for (const int64_t size : sizes) tensors.Put<int64_t>(size);
    tensors.U32(type).U64(offset);
    ++tensor_count;
    return *this;
  }
  std::string Build() const {
    Bytes out;
    out.Raw(magic).U32(version).U64(tensor_count).U64(key_count).Raw(keys.text()).Raw(tensors.text());
    if (tensor_count > 0) out.Pad(alignment);
    return out.Raw(data.text()).text();
  }
};

// All value types, and two tensors: F32 of ne [3, 2] and Q8_0 of ne [32].
Parts Good() {
  Parts p;
  p.Key("general.architecture", 8).keys.Str("llama");
  p.Key("a.u8", 0).keys.U8(200);
  p.Key("a.i8", 1).keys.Put<int8_t>(-3);
  p.Key("a.u16", 2).keys.U16(65535);
  p.Key("a.i16", 3).keys.Put<int16_t>(-300);
  p.Key("a.u32", 4).keys.U32(4000000000u);
  p.Key("a.i32", 5).keys.Put<int32_t>(-70000);
  p.Key("a.f32", 6).keys.Put<float>(0.1f);
  p.Key("a.bool", 7).keys.U8(1);
  p.Key("a.u64", 10).keys.U64(~uint64_t{0});
  p.Key("a.i64", 11).keys.Put<int64_t>(-5000000000);
  p.Key("a.f64", 12).keys.Put<double>(0.1);
  p.Key("a.strings", 9).keys.U32(8).U64(2).Str("a\xff").Str("");
  p.Key("a.bools", 9).keys.U32(7).U64(3).U8(1).U8(0).U8(1);
  p.Key("a.i32s", 9).keys.U32(5).U64(2).Put<int32_t>(-1).Put<int32_t>(7);
  p.Key("a.u8s", 9).keys.U32(0).U64(2).U8(1).U8(255);
  p.Key("a.f32s", 9).keys.U32(6).U64(1).Put<float>(2.5f);
  p.Key("a.empty", 9).keys.U32(4).U64(0);
  p.Tensor("first", {3, 2}, 0, 0);
  p.Tensor("second", {32}, 8, 32);
  for (int i = 0; i < 6; ++i) p.data.Put<float>(static_cast<float>(i));
  p.data.Pad(32).U16(0x3c00);
  for (int i = 0; i < 32; ++i) p.data.U8(static_cast<uint8_t>(i));
  p.data.Pad(32);
  return p;
}

Result<std::shared_ptr<const GgufFile>> OpenBytes(std::string_view bytes, std::string_view name = "x.gguf") {
  const TempFolder folder;  // the mapping outlives the name
  return GgufFile::Open(folder.Write(name, bytes));
}

TEST(Gguf, ReadsEveryTypeAndTensors) {
  const auto opened = OpenBytes(Good().Build());
  ASSERT_TRUE(opened) << opened.error().message;
  const GgufFile& file = **opened;
  EXPECT_EQ(file.version(), 3u);
  EXPECT_EQ(file.alignment(), 32u);
  EXPECT_EQ(file.metadata().size(), 18u);
  EXPECT_EQ(file.metadata()[1].first, "a.u8");
  EXPECT_EQ(file.Int("a.u8").value(), 200);
  EXPECT_EQ(file.Int("a.i8").value(), -3);
  EXPECT_EQ(file.Int("a.u16").value(), 65535);
  EXPECT_EQ(file.Int("a.i16").value(), -300);
  EXPECT_EQ(file.Int("a.u32").value(), 4000000000);
  EXPECT_EQ(file.Int("a.i32").value(), -70000);
  EXPECT_EQ(file.Int("a.i64").value(), -5000000000);
  EXPECT_EQ(file.Number("a.f32").value(), double{0.1f});
  EXPECT_EQ(file.Number("a.f64").value(), 0.1);
  EXPECT_EQ(file.Number("a.i32").value(), -70000.0);
  EXPECT_EQ(file.Number("a.u8").value(), 200.0);
  EXPECT_TRUE(file.Bool("a.bool", false).value());
  EXPECT_TRUE(file.Bool("absent", true).value());
  EXPECT_EQ(file.String("general.architecture").value(), "llama");
  EXPECT_EQ(file.String("absent", "x").value(), "x");
  EXPECT_EQ(file.Int("absent", 7).value(), 7);
  EXPECT_EQ(file.Number("absent", 1.5).value(), 1.5);
  ASSERT_EQ(file.Strings("a.strings").value().size(), 2u);
  EXPECT_EQ(file.Strings("a.strings").value()[0], "a\xff");
  EXPECT_EQ(file.Ints("a.bools").value(), (std::vector<int64_t>{1, 0, 1}));
  EXPECT_EQ(file.Ints("a.i32s").value(), (std::vector<int64_t>{-1, 7}));
  EXPECT_EQ(file.Ints("a.u8s").value(), (std::vector<int64_t>{1, 255}));
  EXPECT_EQ(file.Numbers("a.f32s").value(), (std::vector<double>{2.5}));
  EXPECT_EQ(file.Numbers("a.i32s").value(), (std::vector<double>{-1, 7}));
  EXPECT_TRUE(file.Ints("a.empty").value().empty());
  EXPECT_EQ(file.Find("a.u16")->type, GgufType::kU16);
  EXPECT_TRUE(file.warnings().empty());

  ASSERT_EQ(file.tensors().size(), 2u);
  const NamedTensor* first = file.FindTensor("first");
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->view.shape, (Shape{2, 3}));
  EXPECT_EQ(first->view.as<float>()[5], 5.0f);
  const NamedTensor* second = file.FindTensor("second");
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(second->view.type, DType::kQ8_0);
  EXPECT_EQ(second->view.bytes(), 34u);
  EXPECT_EQ(static_cast<int>(second->view.data[33]), 31);
  EXPECT_EQ(file.FindTensor("third"), nullptr);
  file.Release(first->view);
  EXPECT_EQ(first->view.as<float>()[5], 5.0f);
}

TEST(Gguf, WrongTypesAndAbsentKeysAreNamed) {
  const auto opened = OpenBytes(Good().Build());
  ASSERT_TRUE(opened) << opened.error().message;
  const GgufFile& file = **opened;
  EXPECT_ERROR(file.Int("absent"), "no key 'absent'");
  EXPECT_ERROR(file.Int("a.f32"), "key 'a.f32' is of type f32, wanted an integer");
  EXPECT_ERROR(file.Int("a.u64"), "wanted less than 2^63");
  EXPECT_ERROR(file.Int("general.architecture", 1), "is of type string, wanted an integer");
  EXPECT_ERROR(file.Number("a.bool"), "is of type bool, wanted a number");
  EXPECT_ERROR(file.Bool("a.u8", false), "is of type u8, wanted bool");
  EXPECT_ERROR(file.String("a.u8"), "wanted string");
  EXPECT_ERROR(file.Ints("a.f32s"), "is of type array of f32, wanted an array of integers");
  EXPECT_ERROR(file.Numbers("a.strings"), "array of string, wanted an array of numbers");
  EXPECT_ERROR(file.Strings("a.bools"), "array of bool, wanted an array of strings");
  EXPECT_ERROR(file.Strings("absent"), "no key");
}

TEST(Gguf, VersionTwoAndNoTensorsAreFine) {
  Parts p;
  p.version = 2;
  p.Key("general.architecture", 8).keys.Str("llama");
  const auto opened = OpenBytes(p.Build());
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_EQ((*opened)->version(), 2u);
  EXPECT_TRUE((*opened)->tensors().empty());
  EXPECT_TRUE(OpenBytes(Parts().Build()));  // nothing at all in it
}

TEST(Gguf, ScalarsAndEmptyTensors) {
  Parts p;
  p.Tensor("scalar", {}, 0, 0).Tensor("none", {0, 4}, 0, 32).Tensor("last", {1}, 24, 32);
  p.data.Put<float>(4.5f).Pad(32).U8(9);  // the last padding may be missing
  const auto opened = OpenBytes(p.Build());
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_EQ((*opened)->tensors()[0].view.shape.rank(), 0);
  EXPECT_EQ(*(*opened)->tensors()[0].view.as<float>(), 4.5f);
  EXPECT_EQ((*opened)->tensors()[1].view.bytes(), 0u);
  EXPECT_EQ(*(*opened)->tensors()[2].view.as<int8_t>(), 9);
}

TEST(Gguf, EveryAlignmentAndMisalignedDataIsCopied) {
  for (uint32_t alignment = 1; alignment <= 4096; alignment *= 2) {
    Parts p;
    p.alignment = alignment;
    p.Key("general.alignment", 4).keys.U32(alignment);
    const uint64_t second = (3 + alignment - 1) / alignment * alignment;
    p.Tensor("bytes", {3}, 24, 0).Tensor("floats", {2}, 0, second);
    p.data.U8(1).U8(2).U8(3).Pad(alignment).Put<float>(1.0f).Put<float>(2.0f);
    const auto opened = OpenBytes(p.Build());
    ASSERT_TRUE(opened) << opened.error().message;
    EXPECT_EQ((*opened)->alignment(), alignment);
    const TensorView& floats = (*opened)->FindTensor("floats")->view;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(floats.data) % 4, 0u) << alignment;
    EXPECT_EQ(floats.as<float>()[1], 2.0f) << alignment;
    (*opened)->Release(floats);
  }
}

TEST(Gguf, ForeignFilesAreRecognised) {
  const struct {
    std::string_view bytes;
    const char* message;
  } kCases[] = {
      {"<!DOCTYPE html><html><body>404</body></html>", "web page (HTML)"},
      {"\n <HTML>", "web page (HTML)"},
      {"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n", "Git LFS pointer"},
      {std::string_view("PK\x03\x04rest", 8), "zip archive"},
      {"\x80\x02}q\x01", "pickle"},
      {std::string_view("\x02\0\0\0\0\0\0\0{}", 10), "its first bytes are"},  // header as long as the rest: not quite
      {std::string_view("\x02\0\0\0\0\0\0\0{}....", 14), "safetensors"},
      {"tjgg\x03", "GGJT"},
      {"lmgg", "older than GGUF"},
      {"FUGG....................", "big-endian"},
      {std::string_view("\0\0\0\0\0\0", 6), "all zero"},
      {"{\"a\": 1}", "JSON"},
      {"\x1f\x8b\x08", "gzip"},
      {"_logits_", "base logits"},
      {"ABCDEFGHIJ", "41 42 43 44 45 46 47 48"},
      {"GGU", "47 47 55"},
  };
  for (const auto& c : kCases) {
    const auto opened = OpenBytes(c.bytes);
    if (std::string_view(c.message) == "its first bytes are" && c.bytes.size() == 10) {
      EXPECT_ERROR(opened, "not a GGUF file");
      continue;
    }
    EXPECT_ERROR(opened, c.message);
    EXPECT_ERROR(opened, "x.gguf: not a GGUF file");
  }
  EXPECT_ERROR(OpenBytes(""), "empty");
  EXPECT_ERROR(GgufFile::Open("/nowhere/x.gguf"), "/nowhere/x.gguf: cannot open");
}

struct Spoiled {
  const char* message;
  std::function<void(Parts*)> spoil;
};

TEST(Gguf, EachFaultHasItsError) {
  const std::vector<Spoiled> cases = {
      {"GGUF version 1, wanted 2 or 3", [](Parts* p) { p->version = 1; }},
      {"GGUF version 0", [](Parts* p) { p->version = 0; }},
      {"GGUF version 4, wanted 2 or 3", [](Parts* p) { p->version = 4; }},
      {"big-endian", [](Parts* p) { p->version = 0x03000000; }},
      {"18446744073709551615 tensors", [](Parts* p) { p->tensor_count = ~uint64_t{0}; }},
      {"1000000 tensors", [](Parts* p) { p->tensor_count = 1000000; }},
      {"9223372036854775808 metadata keys", [](Parts* p) { p->key_count = uint64_t{1} << 63; }},
      {"1000000 metadata keys", [](Parts* p) { p->key_count = 1000000; }},
      {"key 'a.u8' is there twice", [](Parts* p) { p->Key("a.u8", 0).keys.U8(1); }},
      {"metadata key 19 of 19 is empty", [](Parts* p) { p->Key("", 0).keys.U8(1); }},
      {"key 'k' has value type 13, wanted 0 to 12", [](Parts* p) { p->Key("k", 13).keys.U8(1); }},
      {"key 'k' is a bool of value 2", [](Parts* p) { p->Key("k", 7).keys.U8(2); }},
      {"key 'k' is an array of arrays", [](Parts* p) { p->Key("k", 9).keys.U32(9).U64(0); }},
      {"elements of type 13", [](Parts* p) { p->Key("k", 9).keys.U32(13).U64(0); }},
      {"an array of 4294967296 elements, wanted at most 2^30",
       [](Parts* p) { p->Key("k", 9).keys.U32(0).U64(uint64_t{1} << 32); }},
      {"inside key 'k', an array of 1000000 elements", [](Parts* p) { p->Key("k", 9).keys.U32(8).U64(1000000); }},
      {"element 1 is a bool of value 7", [](Parts* p) { p->Key("k", 9).keys.U32(7).U64(2).U8(1).U8(7); }},
      {"key 'k' says it is 9223372036854775807 bytes long",
       [](Parts* p) { p->Key("k", 8).keys.U64(~uint64_t{0} >> 1); }},
      {"inside key 'k'", [](Parts* p) { p->Key("k", 8).keys.U64(100000); }},
      {"string of its array) says", [](Parts* p) { p->Key("k", 9).keys.U32(8).U64(1).U64(~uint64_t{0}); }},
      {"'general.alignment' is of type u64, wanted u32",
       [](Parts* p) { p->Key("general.alignment", 10).keys.U64(32); }},
      {"'general.alignment' is 48, wanted a power of two",
       [](Parts* p) { p->Key("general.alignment", 4).keys.U32(48); }},
      {"'general.alignment' is 0, wanted a power of two", [](Parts* p) { p->Key("general.alignment", 4).keys.U32(0); }},
      {"tensor 'first' is there twice", [](Parts* p) { p->Tensor("first", {1}, 0, 96); }},
      {"the name of tensor 3 of 3 is empty", [](Parts* p) { p->Tensor("", {1}, 0, 96); }},
      {"a name of 64 bytes, wanted at most 63", [](Parts* p) { p->Tensor(std::string(64, 'n'), {1}, 0, 96); }},
      {"'t' has 5 dimensions, wanted at most 4",
       [](Parts* p) {
         p->Tensor("t", {1, 1, 1, 1, 1}, 0, 96);
       }},
      {"'t' has dimension 1 of size -1",
       [](Parts* p) {
         p->Tensor("t", {1, -1}, 0, 96);
       }},
      {"more than 2^63 bytes",
       [](Parts* p) {
         p->Tensor("t", {int64_t{1} << 32, int64_t{1} << 32}, 0, 96);
       }},
      {"more than 2^63 bytes",
       [](Parts* p) {
         p->Tensor("t", {int64_t{1} << 32, int64_t{1} << 32, 0}, 0, 96);
       }},
      {"more than 2^63 bytes", [](Parts* p) { p->Tensor("t", {int64_t{1} << 62}, 28, 96); }},
      {"rows of 33 elements, wanted a multiple of 32, the block of Q8_0",
       [](Parts* p) { p->Tensor("t", {33}, 8, 96); }},
      {"rows of 1 elements, wanted a multiple of 256, the block of Q4_K", [](Parts* p) { p->Tensor("t", {}, 12, 96); }},
      {"type id 99, which hone does not know", [](Parts* p) { p->Tensor("t", {1}, 99, 96); }},
      {"type id 4, a format that GGUF has removed", [](Parts* p) { p->Tensor("t", {1}, 4, 96); }},
      {"type id 37, a format that GGUF has removed", [](Parts* p) { p->Tensor("t", {1}, 37, 96); }},
      {"'t' has data offset 128, wanted 96", [](Parts* p) { p->Tensor("t", {1}, 0, 128); }},
      {"'t' has data offset 97, wanted 96", [](Parts* p) { p->Tensor("t", {1}, 0, 97); }},
      {"larger than 2^64 bytes",
       [](Parts* p) {
         const int64_t huge = int64_t{1} << 62;
         for (uint64_t i = 0; i < 4; ++i) p->Tensor("t" + std::to_string(i), {huge}, 24, 96 + i * huge);
       }},
      {"ends inside or before tensor 't'", [](Parts* p) { p->Tensor("t", {1}, 0, 96); }},
      {"ends inside or before tensor 't'", [](Parts* p) { p->Tensor("t", {int64_t{1} << 40}, 0, 96); }},
  };
  for (const Spoiled& c : cases) {
    Parts p = Good();
    c.spoil(&p);
    const auto opened = OpenBytes(p.Build());
    EXPECT_ERROR(opened, c.message);
    EXPECT_ERROR(opened, "x.gguf: ");
  }
}

TEST(Gguf, AllowsNamesOf63BytesAndWarnsOfUnusedBytes) {
  Parts p = Good();
  p.Tensor(std::string(63, 'n'), {1}, 24, 96);
  p.data.U8(1).Pad(32).Raw("extra");
  const auto opened = OpenBytes(p.Build());
  ASSERT_TRUE(opened) << opened.error().message;
  ASSERT_EQ((*opened)->warnings().size(), 1u);
  EXPECT_NE((*opened)->warnings()[0].find("5 bytes after the last tensor"), std::string::npos);
}

TEST(Gguf, WideningCannotBlowUpMemory) {
  // Sparse: 300 MB of u8 would take 2.4 GB widened. Refused before a byte of it is allocated.
  const TempFolder folder;
  Parts p;
  p.Key("k", 9).keys.U32(0).U64(300000000);
  const std::string path = folder.Write("big.gguf", p.Build());
  std::filesystem::resize_file(path, 400000000);
  const size_t before = PeakResidentBytes();
  EXPECT_ERROR(GgufFile::Open(path), "more than 1 GiB");
  EXPECT_LT(PeakResidentBytes() - before, size_t{64} << 20);
}

TEST(Gguf, EveryTruncationIsAnError) {
  const std::string good = Good().Build();
  ASSERT_TRUE(OpenBytes(good));
  const size_t needed = good.size() - 30;  // the padding after the last tensor (34 of 64 bytes) may be missing
  for (size_t length = 1; length < good.size(); ++length) {
    const auto opened = GgufFile::Open(MemoryFile(std::string_view(good).substr(0, length)).path());
    EXPECT_EQ(opened.has_value(), length >= needed) << length;
    EXPECT_TRUE(opened || opened.error().message.find("/proc/self/fd/") != std::string::npos);
  }
}

TEST(Gguf, SpoiledBytesNeverCrash) {
  const std::string good = Good().Build();
  Rng rng(7);
  size_t opened_count = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string bytes = good;
    for (uint64_t n = 1 + rng.Below(4); n > 0; --n) {
      static constexpr char kNasty[] = {'\0', '\x01', '\x7f', '\x80', '\xff'};
      bytes[rng.Below(bytes.size())] = rng.Below(2) == 0 ? kNasty[rng.Below(5)] : static_cast<char>(rng.Below(256));
    }
    const auto opened = GgufFile::Open(MemoryFile(bytes).path());
    if (!opened) continue;
    ++opened_count;
    for (const NamedTensor& tensor : (*opened)->tensors()) {  // every byte that a view claims can be read
      unsigned sum = 0;
      for (size_t i = 0; i < tensor.view.bytes(); ++i) sum += static_cast<unsigned>(tensor.view.data[i]);
      EXPECT_LE(sum, 255u * tensor.view.bytes());
    }
  }
  EXPECT_GT(opened_count, 100u);
}

// Part `no` of `count` with one tensor each.
std::string Part(uint16_t no, uint16_t count, int32_t tensors, std::string_view tensor) {
  Parts p;
  if (no == 0) p.Key("general.architecture", 8).keys.Str("llama");
  p.Key("split.no", 2).keys.U16(no);
  p.Key("split.count", 2).keys.U16(count);
  p.Key("split.tensors.count", 5).keys.Put<int32_t>(tensors);
  p.Tensor(tensor, {4}, 0, 0);
  p.data.Put<float>(no).Pad(32);
  return p.Build();
}

TEST(GgufSplit, OpensAllPartsThroughTheFirst) {
  const TempFolder folder;
  const std::string first = folder.Write("m-00001-of-00003.gguf", Part(0, 3, 3, "a"));
  folder.Write("m-00002-of-00003.gguf", Part(1, 3, 3, "b"));
  folder.Write("m-00003-of-00003.gguf", Part(2, 3, 3, "c"));
  const auto opened = GgufFile::Open(first);
  ASSERT_TRUE(opened) << opened.error().message;
  ASSERT_EQ((*opened)->tensors().size(), 3u);
  EXPECT_EQ(*(*opened)->FindTensor("c")->view.as<float>(), 2.0f);
  EXPECT_EQ((*opened)->metadata().size(), 4u);
  EXPECT_EQ((*opened)->file_bytes(), ReadBytes(first).size() + 2 * Part(1, 3, 3, "b").size());
  (*opened)->Release((*opened)->FindTensor("b")->view);

  const auto second = GgufFile::Open(folder / "m-00002-of-00003.gguf");
  EXPECT_ERROR(second, "this is part 2 of 3");
  EXPECT_ERROR(second, first);
}

TEST(GgufSplit, EachFaultHasItsError) {
  const TempFolder folder;
  const std::string first = folder.Write("m-00001-of-00003.gguf", Part(0, 3, 3, "a"));
  EXPECT_ERROR(GgufFile::Open(first), "2 of the 3 parts of this split are missing");
  folder.Write("m-00002-of-00003.gguf", Part(1, 3, 3, "b"));
  EXPECT_ERROR(GgufFile::Open(first), "1 of the 3 parts");
  EXPECT_ERROR(GgufFile::Open(first), "m-00003-of-00003.gguf");

  folder.Write("m-00003-of-00003.gguf", Part(1, 3, 3, "c"));
  EXPECT_ERROR(GgufFile::Open(first), "wanted part 3 of 3");
  folder.Write("m-00003-of-00003.gguf", Part(2, 4, 3, "c"));
  EXPECT_ERROR(GgufFile::Open(first), "say part 3 of 4");
  folder.Write("m-00003-of-00003.gguf", Good().Build());
  EXPECT_ERROR(GgufFile::Open(first), "say part 1 of 0");
  folder.Write("m-00003-of-00003.gguf", Part(2, 3, 3, "a"));
  EXPECT_ERROR(GgufFile::Open(first), "tensor 'a' is in two parts");
  folder.Write("m-00003-of-00003.gguf", "rubbish");
  EXPECT_ERROR(GgufFile::Open(first), "m-00003-of-00003.gguf: not a GGUF file");

  folder.Write("m-00003-of-00003.gguf", Part(2, 3, 4, "c"));
  EXPECT_ERROR(GgufFile::Open(first), "with 4 tensors in all");
  for (int no = 0; no < 3; ++no) {
    folder.Write("n-0000" + std::to_string(no + 1) + "-of-00003.gguf",
                 Part(static_cast<uint16_t>(no), 3, 9, std::string(1, static_cast<char>('a' + no))));
  }
  EXPECT_ERROR(GgufFile::Open(folder / "n-00001-of-00003.gguf"), "'split.tensors.count' is 9, but the 3 parts hold 3");

  EXPECT_ERROR(GgufFile::Open(folder.Write("renamed.gguf", Part(0, 3, 3, "a"))),
               "its name must end in '-00001-of-00003.gguf'");
  EXPECT_ERROR(OpenBytes(Part(5, 3, 3, "a")), "'split.no' is 5, wanted less than split.count, 3");
  Parts p;
  p.Key("split.count", 4).keys.U32(2);
  EXPECT_ERROR(OpenBytes(p.Build()), "'split.count' is of type u32, wanted u16");
  Parts q;
  q.Key("split.count", 2).keys.U16(2);
  EXPECT_ERROR(OpenBytes(q.Build()), "without 'split.no'");
  Parts r;
  r.Key("split.no", 2).keys.U16(1);
  EXPECT_ERROR(OpenBytes(r.Build()), "'split.count' is absent or 0");
  EXPECT_TRUE(OpenBytes(Part(0, 1, 1, "a")));
  EXPECT_ERROR(OpenBytes(Part(0, 1, 2, "a")), "'split.tensors.count' is 2");
}

TEST(GgufShared, ReadsEveryFile) {
  HONE_NEED_SHARED(quant, "data/quant");
  HONE_NEED_SHARED(tokenizers, "data/tokenizers");
  size_t files = 0;
  for (const std::string& folder : {quant, tokenizers}) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().extension() != ".gguf") continue;
      const auto opened = GgufFile::Open(entry.path());
      ASSERT_TRUE(opened) << opened.error().message;
      EXPECT_TRUE((*opened)->warnings().empty()) << (*opened)->warnings()[0];
      ++files;
    }
  }
  EXPECT_GE(files, 30u);
  const auto base = GgufFile::Open(quant + "/base.gguf");
  ASSERT_TRUE(base);
  EXPECT_EQ((*base)->String("general.architecture").value(), "llama");
  const auto spm = GgufFile::Open(tokenizers + "/llama-spm.gguf");
  ASSERT_TRUE(spm);
  EXPECT_EQ((*spm)->Strings("tokenizer.ggml.tokens").value().size(), 32000u);
  EXPECT_EQ((*spm)->Numbers("tokenizer.ggml.scores").value().size(), 32000u);
}

TEST(GgufShared, TensorsEqualThoseOfSafetensors) {
  HONE_NEED_SHARED(folder, "goldens/models/qwen3");
  const auto gguf = GgufFile::Open(folder + "/model-f32.gguf");
  ASSERT_TRUE(gguf) << gguf.error().message;
  const NamedTensor* embed = (*gguf)->FindTensor("token_embd.weight");
  ASSERT_NE(embed, nullptr);
  EXPECT_EQ(embed->view.shape.rank(), 2);
  EXPECT_EQ(embed->view.shape[1], (*gguf)->Int("qwen3.embedding_length").value());
  EXPECT_EQ(embed->view.shape[0], static_cast<int64_t>((*gguf)->Strings("tokenizer.ggml.tokens").value().size()));
}

}  // namespace
}  // namespace hone
