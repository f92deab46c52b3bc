// A type of namespace scope is defined in one file of src/. Two types of one name in one namespace are one type to the linker, which
// keeps either's destructor for both; the compiler sees it only if one file includes both.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>

#include "structure/source_text.h"

namespace {

namespace fs = std::filesystem;
using hone::structure::Definitions;

TEST(Names, ATypeIsDefinedInOneFile) {
  std::map<std::string, std::string> defined;
  const fs::path source = fs::path(HONE_SOURCE_DIR) / "src";
  for (const auto& entry : fs::recursive_directory_iterator(source)) {
    if (entry.path().extension() != ".h" && entry.path().extension() != ".cc") continue;
    std::ifstream text(entry.path());
    const std::string file = fs::relative(entry.path(), source).string();
    for (const std::string& name : Definitions(text)) {
      const auto [first, added] = defined.emplace(name, file);
      EXPECT_TRUE(added) << name << " is defined in " << first->second << " and in " << file << ": rename one, or put it into an anonymous namespace";
    }
  }
  EXPECT_GT(defined.size(), 300u) << "the pattern no longer finds definitions";
}

TEST(Names, DefinitionsAreFound) {
  std::istringstream text("namespace hone {\nstruct A {\nclass B final : public A {\nenum class C { x };\nstruct D;\nnamespace {\nstruct E {\n}  // namespace\n"
                          "namespace inner {\ntemplate <int n> class F {\n}  // namespace inner\n}  // namespace hone\n");
  EXPECT_EQ(Definitions(text), (std::set<std::string>{"hone::A", "hone::B", "hone::C", "hone::inner::F"}));
}

}  // namespace
