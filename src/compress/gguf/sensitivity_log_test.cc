// What is in the file comes back to the bit; files of other jobs and of something else are refused; whatever happens to its
// bytes, a group comes back as it was or not at all.
#include "compress/gguf/sensitivity_log.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/random.h"
#include "base/test_shared.h"

namespace hone {
namespace {

using Names = std::vector<std::string>;

const SensitivityKey kKey{"a1", "b2", "none", "d4"};
const std::vector<std::pair<Names, double>> kGroups = {
    {{"blk.0.attn_q.weight"}, 0.1}, {{"blk.0.ffn_up.weight", "blk.1.ffn_up.weight"}, 1.0 / 3}, {{"token_embd.weight"}, 5e-324}, {{"output.weight"}, 0}};

std::string Bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class SensitivityLogTest : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = TestPath("log");
    std::filesystem::remove(path_);
    const auto log = SensitivityLog::Open(path_, kKey);
    ASSERT_TRUE(log) << log.error().message;
    EXPECT_EQ((*log)->groups(), 0u);
    for (const auto& [names, divergence] : kGroups) ASSERT_TRUE((*log)->Add(names, divergence));
    whole_ = Bytes(path_);
  }
  void Put(const std::string& bytes) const { std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes; }

  std::string path_, whole_;
};

TEST_F(SensitivityLogTest, EveryGroupComesBackToTheBit) {
  const auto log = SensitivityLog::Open(path_, kKey);
  ASSERT_TRUE(log);
  EXPECT_EQ((*log)->groups(), kGroups.size());
  for (const auto& [names, divergence] : kGroups) EXPECT_EQ((*log)->Find(names), divergence);
  EXPECT_FALSE((*log)->Find({"blk.0.ffn_up.weight"}));
  EXPECT_EQ(Bytes(path_), whole_);
}

TEST_F(SensitivityLogTest, OtherJobsAreNamed) {
  const std::pair<SensitivityKey, const char*> others[] = {{{"x", "b2", "none", "d4"}, "model"},
                                                           {{"a1", "x", "none", "d4"}, "text"},
                                                           {{"a1", "b2", "x", "d4"}, "importance"},
                                                           {{"a1", "b2", "none", "x"}, "way of measuring"}};
  for (const auto& [key, what] : others) {
    for (const auto& opened : {SensitivityLog::Open(path_, key), SensitivityLog::Read(path_, key)}) {
      ASSERT_FALSE(opened) << what;
      EXPECT_NE(opened.error().message.find(what), std::string::npos) << opened.error().message;
      EXPECT_EQ(opened.error().message.find(path_), 0u) << opened.error().message;
    }
  }
  for (const char* bytes : {"\n", "GGUF\3", "hone sensitivities 2 model=a1"}) {
    Put(bytes);
    const auto opened = SensitivityLog::Open(path_, kKey);
    ASSERT_FALSE(opened) << bytes;
    EXPECT_EQ(Bytes(path_), bytes);  // somebody else's file stays as it is
  }
  // What is no regular file is refused, not waited for, filled or emptied.
  const std::string pipe = path_ + "-pipe", link = path_ + "-link";
  for (const std::string& path : {pipe, link}) std::filesystem::remove(path);
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  std::filesystem::create_symlink(pipe, link);
  for (const std::string& special : {pipe, link, std::filesystem::path(path_).parent_path().string(), std::string("/dev/null"), std::string("/dev/zero")}) {
    for (const auto& opened : {SensitivityLog::Open(special, kKey), SensitivityLog::Read(special, kKey)}) {
      ASSERT_FALSE(opened) << special;
      EXPECT_EQ(opened.error().code, ErrorCode::kUsage) << special;
      EXPECT_NE(opened.error().message.find("name a new one"), std::string::npos) << opened.error().message;
    }
  }
  EXPECT_FALSE(SensitivityLog::Read(path_ + "-not-there", kKey));
  EXPECT_FALSE(std::filesystem::exists(path_ + "-not-there"));
}

// Cut anywhere, as a killed process or a full disk leaves it: whole lines count, and what is added afterwards does too.
TEST_F(SensitivityLogTest, CutFilesGoOn) {
  const size_t head = whole_.find('\n') + 1;
  for (size_t cut = 0; cut < whole_.size(); ++cut) {
    Put(whole_.substr(0, cut));
    size_t there = 0;
    for (size_t at = head; at < cut; ++at) there += whole_[at] == '\n';
    {
      const auto log = SensitivityLog::Open(path_, kKey);
      ASSERT_TRUE(log) << cut;
      ASSERT_EQ((*log)->groups(), there) << cut;
      for (const auto& [names, divergence] : kGroups) {
        if (!(*log)->Find(names)) {
          ASSERT_TRUE((*log)->Add(names, divergence));
        }
      }
    }
    const auto again = SensitivityLog::Read(path_, kKey);
    ASSERT_TRUE(again) << cut;
    for (const auto& [names, divergence] : kGroups) ASSERT_EQ((*again)->Find(names), divergence) << cut;
  }
}

TEST_F(SensitivityLogTest, DamageLosesGroupsAndNeverChangesThem) {
  Rng rng(7);
  size_t lost = 0;
  for (int turn = 0; turn < 500; ++turn) {
    std::string bytes = whole_;
    const size_t at = static_cast<size_t>(rng.Uniform() * static_cast<double>(bytes.size()));
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << turn % 8));
    Put(bytes);
    const auto log = SensitivityLog::Read(path_, kKey);
    if (!log) {
      EXPECT_LT(at, whole_.find('\n') + 1);  // only the first line can make a file another's
      continue;
    }
    for (const auto& [names, divergence] : kGroups) {
      const auto found = (*log)->Find(names);
      if (found) {
        EXPECT_EQ(*found, divergence) << at;
      }
      lost += !found;
    }
    EXPECT_LE((*log)->groups(), kGroups.size());
  }
  EXPECT_GT(lost, 250u);
}

// A line of another job's file means nothing here.
TEST_F(SensitivityLogTest, LinesOfOtherFilesDoNotCount) {
  const std::string other = path_ + "-other";
  std::filesystem::remove(other);
  ASSERT_TRUE(SensitivityLog::Open(other, {"x", "b2", "none", "d4"}));
  std::ofstream(other, std::ios::app) << whole_.substr(whole_.find('\n') + 1);
  const auto log = SensitivityLog::Read(other, {"x", "b2", "none", "d4"});
  ASSERT_TRUE(log);
  EXPECT_EQ((*log)->groups(), 0u);
}

}  // namespace
}  // namespace hone
