// Every #include in src/ must follow src/layers.txt, and layers.txt must be acyclic: folders are listed bottom first.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;
const fs::path kSource = fs::path(HONE_SOURCE_DIR) / "src";

using Layers = std::map<std::string, std::set<std::string>>;

// "folder: allowed ..." lines in order; also checks that each allowed folder stands above.
Layers ReadLayers(std::istream& in, std::vector<std::string>* problems) {
  Layers layers;
  for (std::string line; std::getline(in, line);) {
    const size_t colon = line.find(':');
    if (line.empty() || line[0] == '#' || colon == std::string::npos) continue;
    const std::string folder = line.substr(0, colon);
    std::istringstream words(line.substr(colon + 1));
    std::set<std::string> allowed;
    for (std::string word; words >> word;) {
      if (!layers.count(word)) problems->push_back(folder + " may include " + word + ", which is not above it");
      allowed.insert(word);
    }
    layers[folder] = allowed;
  }
  return layers;
}

// Folders named by #include "folder/..." lines that `folder` may not include.
std::vector<std::string> Violations(const Layers& layers, const std::string& folder, std::istream& text) {
  std::vector<std::string> bad;
  const std::string prefix = "#include \"";
  for (std::string line; std::getline(text, line);) {
    if (line.rfind(prefix, 0) != 0) continue;
    const std::string path = line.substr(prefix.size(), line.find('"', prefix.size()) - prefix.size());
    const size_t slash = path.find('/');
    if (slash == std::string::npos) {
      bad.push_back("\"" + path + "\": includes are written from src/");
      continue;
    }
    const std::string other = path.substr(0, slash);
    if (other == folder) continue;
    const auto it = layers.find(folder);
    if (it == layers.end() || !it->second.count(other)) bad.push_back("\"" + path + "\": " + folder + " may not include " + other);
  }
  return bad;
}

TEST(Layers, IncludesFollowTheTable) {
  std::ifstream file(kSource / "layers.txt");
  std::vector<std::string> problems;
  const Layers layers = ReadLayers(file, &problems);
  ASSERT_GE(layers.size(), 8u);
  size_t files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(kSource)) {
    const std::string extension = entry.path().extension();
    if (extension != ".cc" && extension != ".h" && extension != ".inc") continue;
    ++files;
    const std::string folder = fs::relative(entry.path(), kSource).begin()->string();
    std::ifstream text(entry.path());
    for (const std::string& bad : Violations(layers, folder, text)) {
      problems.push_back(fs::relative(entry.path(), kSource).string() + ": " + bad);
    }
  }
  EXPECT_GT(files, 20u);
  for (const std::string& problem : problems) ADD_FAILURE() << problem;
}

TEST(Layers, TheCheckCanFail) {
  std::istringstream table("base:\ntensor: base\nserve: nothing base\n");
  std::vector<std::string> problems;
  const Layers layers = ReadLayers(table, &problems);
  EXPECT_EQ(problems.size(), 1u);
  std::istringstream upward("#include \"tensor/tensor.h\"\n#include <vector>\n");
  EXPECT_EQ(Violations(layers, "base", upward).size(), 1u);
  std::istringstream downward("#include \"base/result.h\"\n#include \"tensor/dtype.h\"\n");
  EXPECT_TRUE(Violations(layers, "tensor", downward).empty());
  std::istringstream relative("#include \"result.h\"\n");
  EXPECT_EQ(Violations(layers, "base", relative).size(), 1u);
}

}  // namespace
