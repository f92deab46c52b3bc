// Every case of testdata/cases.json, whose expected texts and errors come from Jinja2 itself (testdata/make_cases.py).
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "text/jinja/template.h"

namespace hone::jinja {
namespace {

using Json = nlohmann::ordered_json;

// What Jinja2 says is what we say, except where these words stand in its message: positions in source, Python's own
// syntax errors, memory addresses, loaders of other templates. There only the failure is compared.
bool SameWords(const std::string& raises) {
  return !raises.starts_with("TemplateSyntaxError") && !raises.starts_with("SyntaxError") &&
         raises.find(" at 0x") == std::string::npos && raises.find("no loader") == std::string::npos;
}

std::string TestName(size_t i, const Json& one) { return "case " + std::to_string(i) + ": " + one["template"].get<std::string>(); }

TEST(JinjaCases, AgreeWithTheReference) {
  std::ifstream file(std::string(HONE_SOURCE_DIR) + "/src/text/jinja/testdata/cases.json", std::ios::binary);
  const Json all = Json::parse(std::string((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>()));
  const std::string variables = all["variables"].dump();
  size_t i = 0, raised = 0;
  for (const Json& one : all["cases"]) {
    SCOPED_TRACE(TestName(i++, one));
    const Value input = FromJson(one.contains("variables") ? one["variables"].dump() : variables).value();
    RenderOptions options;
    options.now = CivilTime{2026, 1, 2, 3, 4, 5};
    const auto parsed = Template::Parse(one["template"].get<std::string>());
    const Result<std::string> text = parsed ? (*parsed)->Render(input.as_dict(), options) : Result<std::string>(parsed.error());
    if (one.contains("raises")) {
      ++raised;
      const std::string raises = one["raises"];
      if (text) {
        ADD_FAILURE() << "gave " << *text << "\nbut should raise " << raises;
      } else if (SameWords(raises)) {
        const std::string words = raises.substr(raises.find(": ") + 2);
        EXPECT_NE(text.error().message.find(words), std::string::npos) << text.error().message << "\nshould say " << words;
      }
      continue;
    }
    if (!text) {
      ADD_FAILURE() << text.error().message;
    } else {
      EXPECT_EQ(*text, one["expect"].get<std::string>());
    }
  }
  EXPECT_GT(i, 300u);
  EXPECT_GT(raised, 100u);
}

}  // namespace
}  // namespace hone::jinja
