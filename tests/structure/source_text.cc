#include "structure/source_text.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <regex>

namespace hone::structure {
namespace {

bool OfWord(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// Without comments and without what stands between quotes.
std::string Code(const std::string& text) {
  std::string code;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text.compare(i, 2, "//") == 0) {
      while (i < text.size() && text[i] != '\n') ++i;
      code += '\n';
    } else if (text.compare(i, 3, "R\"(") == 0) {
      i = std::min(text.find(")\"", i), text.size() - 1) + 1;
    } else if (text[i] == '"' || (text[i] == '\'' && (i == 0 || !OfWord(text[i - 1])))) {  // 1'000 is a number
      const char quote = text[i];
      for (++i; i < text.size() && text[i] != quote && text[i] != '\n'; ++i) i += text[i] == '\\';
    } else {
      code += text[i];
    }
  }
  return code;
}

}  // namespace

std::set<std::string> Definitions(std::istream& text) {
  static const std::regex kBegin(R"(namespace ?([\w:]*) ?\{)"), kType(R"((?:template <.*> )?(?:struct|class|enum class|enum|union) (?:alignas\(\d+\) )?(\w+)(?: final)?(?: : [^{;]*)? \{.*)");
  std::set<std::string> names;
  std::vector<std::string> inside;
  std::smatch match;
  for (std::string line; std::getline(text, line);) {
    if (std::regex_match(line, match, kBegin)) {
      inside.push_back(match[1]);
    } else if (line.rfind("}  // namespace", 0) == 0 && !inside.empty()) {
      inside.pop_back();
    } else if (std::regex_match(line, match, kType)) {
      std::string name;
      bool shared = true;
      for (const std::string& space : inside) name += space + "::", shared = shared && !space.empty();
      if (shared) names.insert(name + match[1].str());
    }
  }
  return names;
}

SourceText ReadSource(std::istream& text) {
  const std::string all{std::istreambuf_iterator<char>(text), {}};
  SourceText source;
  for (size_t line = 0; line < all.size(); line = std::min(all.find('\n', line), all.size() - 1) + 1) {
    if (all.compare(line, 9, "#include ") != 0) continue;
    const char open = all[line + 9];
    const size_t end = all.find(open == '<' ? '>' : '"', line + 10);
    (open == '<' ? source.standard : source.project).push_back(all.substr(line + 10, end - line - 10));
  }
  static const std::set<std::string> kDeclare = {"struct", "class", "enum", "union", "using", "typename", "concept"};
  const std::string code = Code(all);
  std::string before;  // the word before this one
  for (size_t at = 0; at < code.size();) {
    if (!OfWord(code[at])) {
      ++at;
      continue;
    }
    size_t end = at;
    while (end < code.size() && OfWord(code[end])) ++end;
    const std::string word = code.substr(at, end - at);
    const bool qualified = at > 0 && (code[at - 1] == ':' || code[at - 1] == '.' || code[at - 1] == '>');
    if (kDeclare.count(before)) source.declares.insert(word);
    if (before == "std" && code.compare(at - 2, 2, "::") == 0) source.uses_std.insert(word);
    if (!qualified && std::isupper(static_cast<unsigned char>(word[0])) && end + 1 < code.size()) {
      const char next = code[end], second = code[end + 1];
      if (std::string("&*<>{").find(next) != std::string::npos || (next == ':' && second == ':') || (next == ' ' && OfWord(second))) source.uses.insert(word);
    }
    before = word;
    at = end;
  }
  return source;
}

}  // namespace hone::structure
