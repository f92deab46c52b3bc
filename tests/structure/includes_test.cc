// A file includes, itself or through what it includes, what it uses. The compiler says so only of a file that is compiled alone:
// among the neighbours of a unity build (docs/building.md) a missing include is another's.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "structure/source_text.h"

namespace {

namespace fs = std::filesystem;
using hone::structure::SourceText;

using Files = std::map<std::string, SourceText>;            // by "folder/file"
using Homes = std::map<std::string, std::set<std::string>>;  // a name and the headers that bring it

// The headers a name of std is found in; one is enough.
const Homes kStandard = {
    {"accumulate", {"numeric"}}, {"any", {"any"}}, {"array", {"array", "span"}}, {"atomic", {"atomic"}}, {"bit_cast", {"bit"}}, {"bitset", {"bitset"}},
    {"chrono", {"chrono"}}, {"clamp", {"algorithm"}}, {"condition_variable", {"condition_variable"}}, {"deque", {"deque"}}, {"exp", {"cmath"}},
    {"filesystem", {"filesystem"}}, {"function", {"functional"}}, {"ifstream", {"fstream"}}, {"iota", {"numeric"}}, {"isfinite", {"cmath"}},
    {"isnan", {"cmath"}}, {"istringstream", {"sstream"}}, {"list", {"list"}}, {"make_shared", {"memory"}}, {"make_unique", {"memory"}}, {"map", {"map"}},
    {"memcpy", {"cstring"}}, {"mt19937_64", {"random"}}, {"mutex", {"mutex"}}, {"numeric_limits", {"limits"}}, {"ofstream", {"fstream"}},
    {"optional", {"optional"}}, {"ostringstream", {"sstream"}}, {"popcount", {"bit"}}, {"regex", {"regex"}}, {"set", {"set"}}, {"shared_ptr", {"memory"}},
    {"sort", {"algorithm"}}, {"span", {"span"}}, {"sqrt", {"cmath"}}, {"string", {"string"}}, {"string_view", {"string_view", "string"}}, {"thread", {"thread"}},
    {"tuple", {"tuple"}}, {"unique_ptr", {"memory"}}, {"unordered_map", {"unordered_map"}}, {"unordered_set", {"unordered_set"}}, {"variant", {"variant"}},
    {"vector", {"vector"}},
};

// "name (header)" of what `file` uses and does not reach.
std::vector<std::string> Missing(const Files& files, const Homes& homes, const std::string& file) {
  std::set<std::string> reached = {file}, standard, declared;
  std::vector<std::string> open = {file};
  while (!open.empty()) {
    const auto it = files.find(open.back());
    open.pop_back();
    if (it == files.end()) continue;
    standard.insert(it->second.standard.begin(), it->second.standard.end());
    declared.insert(it->second.declares.begin(), it->second.declares.end());
    for (const std::string& next : it->second.project) {
      if (reached.insert(next).second) open.push_back(next);
    }
  }
  const auto any_of = [](const std::set<std::string>& wanted, const std::set<std::string>& have) {
    for (const std::string& one : wanted) {
      if (have.count(one)) return true;
    }
    return false;
  };
  std::vector<std::string> missing;
  for (const std::string& name : files.at(file).uses) {
    const auto home = homes.find(name);
    if (home != homes.end() && !declared.count(name) && !any_of(home->second, reached)) missing.push_back(name + " (" + *home->second.begin() + ")");
  }
  for (const std::string& name : files.at(file).uses_std) {
    const auto home = kStandard.find(name);
    if (home != kStandard.end() && !any_of(home->second, standard)) missing.push_back("std::" + name + " (<" + *home->second.begin() + ">)");
  }
  return missing;
}

// What is compiled alone in any build, or is written to be included by such a file behind what it needs.
bool OfOneIsa(const std::string& file) {
  if (file.rfind("kernels/", 0) != 0) return false;
  for (const char* part : {"_body.h", "_panels.h", "simd/", "_avx", "_vnni", "_bf16", "_amx"}) {
    if (file.find(part) != std::string::npos) return true;
  }
  return false;
}

TEST(Includes, AFileReachesWhatItUses) {
  const fs::path source = fs::path(HONE_SOURCE_DIR) / "src";
  Files files;
  Homes homes;
  for (const auto& entry : fs::recursive_directory_iterator(source)) {
    const std::string file = fs::relative(entry.path(), source).string(), kind = entry.path().extension();
    if (kind != ".h" && kind != ".cc" && kind != ".inc") continue;
    std::ifstream text(entry.path());
    files[file] = hone::structure::ReadSource(text);
    if (kind != ".h" || OfOneIsa(file)) continue;
    text.clear();
    text.seekg(0);
    for (const std::string& name : hone::structure::Definitions(text)) homes[name.substr(name.rfind(':') + 1)].insert(file);
  }
  EXPECT_GT(homes.size(), 300u) << "definitions are no longer found";
  for (const auto& [file, text] : files) {
    if (fs::path(file).extension() == ".inc" || OfOneIsa(file)) continue;  // a list stands in the middle of another file
    for (const std::string& name : Missing(files, homes, file)) ADD_FAILURE() << file << " uses " << name << " and includes nothing that brings it";
  }
}

TEST(Includes, WhatIsMissingIsFound) {
  const auto read = [](const std::string& text) {
    std::istringstream in(text);
    return hone::structure::ReadSource(in);
  };
  Files files = {
      {"a/a.h", read("#include <vector>\nstruct Part {\n  std::vector<int> list;\n};\n")},
      {"a/b.h", read("#include \"a/a.h\"\nstruct Whole {\n  Part part;\n};\n")},
      {"a/good.cc", read("#include \"a/b.h\"\nPart part;  // Other o;\nstd::vector<Part> more = {\"Other o; std::map\"};\n")},
      {"a/own.cc", read("template <class Part> void Take(const Part& p);\nstruct Other;\nOther* o;\n")},
      {"a/bad.cc", read("#include <string>\nconst Part& part = Find(1'000, 'x');\nstd::map<int, std::string> Other::names;\n")},
  };
  const Homes homes = {{"Part", {"a/a.h"}}, {"Other", {"a/c.h"}}};
  EXPECT_EQ(Missing(files, homes, "a/good.cc"), std::vector<std::string>());
  EXPECT_EQ(Missing(files, homes, "a/own.cc"), std::vector<std::string>());
  EXPECT_EQ(Missing(files, homes, "a/bad.cc"), (std::vector<std::string>{"Other (a/c.h)", "Part (a/a.h)", "std::map (<map>)"}));
}

}  // namespace
