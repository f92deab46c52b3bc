// Files of packed panels: mapped when they fit, made again when anything about them does not. That a model computes with them:
// tests/e2e/cli_test.cc.
#include "models/packed_cache.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/test_runtime.h"
#include "models/model.h"
#include "models/test_checkpoint.h"

namespace hone {
namespace {

namespace fs = std::filesystem;

std::shared_ptr<const Checkpoint> WriteModel() { return WriteFolder("packed", kLlamaConfig, LlamaTensors()); }

class PackedCacheTest : public RuntimeTest {
 protected:
  PackedCacheTest() { runtime_.log = &log_; }  // a warning where nothing can be written
  bool Load(const std::shared_ptr<const Checkpoint>& checkpoint, const std::string& folder) {
    return Model::Load(checkpoint, runtime_, {.max_rows = 8, .packed_cache = folder}).has_value();
  }
  static std::vector<fs::path> FilesOf(const std::string& folder) {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path());
    return files;
  }
  static std::string ReadAll(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  Log log_{LogLevel::kOff};
};

TEST_F(PackedCacheTest, IsWrittenOnceAndMappedThen) {
  const std::string folder = FreshFolder("packed_files") + "/below";
  const auto checkpoint = WriteModel();
  ASSERT_TRUE(Load(checkpoint, folder));
  ASSERT_EQ(FilesOf(folder).size(), 1u);
  const fs::path file = FilesOf(folder)[0];
  const std::string made = ReadAll(file);
  // Panels of 16 rows of K floats: output; of each layer q, k, v, attn_output, two each of gate and up, down.
  EXPECT_EQ(made.size(), 4096u + 4u * 16 * (16 + 2 * (16 + 16 + 16 + 16 + 2 * 16 + 2 * 16 + 24)));
  const auto written = fs::last_write_time(file);
  ASSERT_TRUE(Load(checkpoint, folder));
  EXPECT_EQ(fs::last_write_time(file), written);
  // Other options that change what is packed have a file of their own.
  EXPECT_NE(FindPackedCache(*checkpoint, true, folder).path, FindPackedCache(*checkpoint, false, folder).path);
}

TEST_F(PackedCacheTest, FilesThatDoNotFitAreMadeAgain) {
  const std::string folder = FreshFolder("packed_broken");
  const auto checkpoint = WriteModel();
  ASSERT_TRUE(Load(checkpoint, folder));
  const fs::path file = FilesOf(folder).at(0);
  const std::string whole = ReadAll(file);
  std::string layout = whole, key = whole;
  ++layout[8];
  ++key[24];
  for (const std::string& broken : {std::string(), whole.substr(0, 100), whole.substr(0, whole.size() - 1), whole + "x", layout, key}) {
    std::ofstream(file, std::ios::binary) << broken;
    ASSERT_TRUE(Load(checkpoint, folder));
    EXPECT_TRUE(ReadAll(file) == whole) << broken.size();
  }
}

TEST_F(PackedCacheTest, WeightsThatChangedArePackedAgain) {
  const std::string folder = FreshFolder("packed_changed");
  const auto checkpoint = WriteModel();
  const PackedCacheFile before = FindPackedCache(*checkpoint, false, folder);
  // The same bytes at another time: nothing says that they are the same.
  fs::last_write_time(checkpoint->path() + "/model.safetensors",
                      fs::last_write_time(checkpoint->path() + "/model.safetensors") + std::chrono::seconds(1));
  EXPECT_NE(FindPackedCache(*checkpoint, false, folder).key, before.key);
}

TEST_F(PackedCacheTest, APlaceThatCannotBeWrittenStopsNothing) {
  EXPECT_TRUE(Load(WriteModel(), "/proc/none"));
  const std::string taken = FreshFolder("packed_taken") + "/file";
  std::ofstream(taken) << "not a folder";
  EXPECT_TRUE(Load(WriteModel(), taken));
}

}  // namespace
}  // namespace hone
