// What the tests of the house read from a source file. All rely on the layout of this project: a namespace begins and ends at
// column 0 and its end names it in a comment, an #include stands at column 0.
#pragma once

#include <istream>
#include <set>
#include <string>
#include <vector>

namespace hone::structure {

// "namespace::Name" of the types that the text defines outside anonymous namespaces.
std::set<std::string> Definitions(std::istream& text);

struct SourceText {
  std::vector<std::string> project, standard;  // what it includes, "folder/file.h" and "vector"
  std::set<std::string> declares;              // names of types, aliases and template parameters, wherever they stand
  std::set<std::string> uses;                  // unqualified names with a capital where a type would stand
  std::set<std::string> uses_std;              // "vector" of std::vector
};

SourceText ReadSource(std::istream& text);

}  // namespace hone::structure
