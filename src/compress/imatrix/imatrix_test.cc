// Against an importance matrix that llama.cpp reads (data/quant), and bad files.
#include "compress/imatrix/imatrix.h"

#include <cmath>
#include <fstream>

#include "base/test_shared.h"

namespace hone {
namespace {

void Put(std::ofstream& out, auto value) { out.write(reinterpret_cast<const char*>(&value), sizeof(value)); }
void PutText(std::ofstream& out, const std::string& text) {
  Put(out, static_cast<int32_t>(text.size()));
  out << text;
}

std::string ReadAll(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(ImatrixFile, ReadsAndWritesLlamaFiles) {
  HONE_NEED_SHARED(path, "data/quant/imatrix.gguf");
  const auto imatrix = ReadImatrix(path);
  ASSERT_TRUE(imatrix) << imatrix.error().message;
  EXPECT_EQ(imatrix->entries.size(), 7u);
  EXPECT_EQ(imatrix->chunks, 1u);
  EXPECT_EQ(imatrix->chunk_tokens, 128u);
  EXPECT_EQ(imatrix->datasets, std::vector<std::string>{"synthetic"});
  EXPECT_EQ(imatrix->entries.at("blk.0.ffn_down.weight").columns, 512);
  const std::string copy = TestPath("imatrix.gguf");
  ASSERT_TRUE(WriteImatrix(copy, *imatrix));
  const auto back = ReadImatrix(copy);
  ASSERT_TRUE(back);
  for (const auto& [name, entry] : imatrix->entries) {
    EXPECT_EQ(back->entries.at(name).sums, entry.sums);
    EXPECT_EQ(back->entries.at(name).counts, entry.counts);
  }
}

TEST(ImatrixFile, ReadsTheOldForm) {
  const std::string path = TestPath("imatrix.dat");
  {
    std::ofstream out(path, std::ios::binary);
    Put(out, int32_t{1});
    PutText(out, "blk.0.attn_q.weight");
    Put(out, int32_t{4}), Put(out, int32_t{3});
    for (const float value : {4.0f, 8.0f, 2.0f}) Put(out, value);
    Put(out, int32_t{4});
    PutText(out, "wiki.txt");
  }
  const auto imatrix = ReadImatrix(path);
  ASSERT_TRUE(imatrix) << imatrix.error().message;
  EXPECT_EQ(Imatrix::Importance(imatrix->entries.at("blk.0.attn_q.weight")), (std::vector<float>{1, 2, 0.5f}));
  EXPECT_EQ(imatrix->datasets, std::vector<std::string>{"wiki.txt"});
  // Cut anywhere, it is an error, but for the end of the entries, where the oldest files stop.
  const std::string whole = ReadAll(path);
  for (size_t size = 1; size < whole.size(); ++size) {
    std::ofstream(path, std::ios::binary) << whole.substr(0, size);
    const bool oldest = size == whole.size() - 4 - 4 - 8;
    EXPECT_EQ(ReadImatrix(path).has_value(), oldest) << size;
  }
}

TEST(ImatrixFile, MatricesWithoutTokensCountEvenly) {
  EXPECT_EQ(Imatrix::Importance({2, {6, 9, 0, 0}, {3, 0}}), (std::vector<float>{2, 3, 1, 1}));
}

TEST(ImatrixFile, RefusesBadNumbersByName) {
  for (const float bad : {-1.0f, std::nanf(""), INFINITY}) {
    Imatrix imatrix;
    imatrix.entries["blk.1.ffn_up.weight"] = {2, {1, bad}, {1}};
    const std::string path = TestPath("bad.gguf");
    ASSERT_TRUE(WriteImatrix(path, imatrix));
    const auto read = ReadImatrix(path);
    ASSERT_FALSE(read);
    EXPECT_NE(read.error().message.find("blk.1.ffn_up.weight"), std::string::npos) << read.error().message;
  }
  EXPECT_FALSE(ReadImatrix(TestPath("not-there")));
}

}  // namespace
}  // namespace hone
