// The docs say what was measured: docs/choosing.md is bench/choosing.in.md with the figures of bench/results/quantize.json, and the
// tables of docs/quantize.md hold a line for each of its rows. bench/selection_tables.py writes them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <string>

namespace {

std::string Page(const std::string& name) {
  std::ifstream file(HONE_SOURCE_DIR "/" + name, std::ios::binary);
  EXPECT_TRUE(file) << name;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(MeasuredDocs, ChoosingIsItsTemplateWithTheFigures) {
  const nlohmann::json results = nlohmann::json::parse(Page("bench/results/quantize.json"));
  const std::string form = Page("bench/choosing.in.md");
  const std::regex place(R"(\{\{([^/{}]+)/([^/{}]+)/([^/{}]+)/([^/{}]+)\}\})");
  std::string filled;
  size_t at = 0, figures = 0;
  for (std::sregex_iterator found(form.begin(), form.end(), place), end; found != end; ++found, ++figures) {
    const std::smatch& m = *found;
    const double figure = results.at(m[1]).at(m[2]).at(m[3]).get<double>();
    filled += form.substr(at, static_cast<size_t>(m.position()) - at) + fmt::format(fmt::runtime("{:" + m[4].str() + "}"), figure);
    at = static_cast<size_t>(m.position() + m.length());
  }
  filled += form.substr(at);
  EXPECT_GT(figures, 30u);
  EXPECT_EQ(filled.find("{{"), std::string::npos);
  EXPECT_TRUE(filled == Page("docs/choosing.md")) << "run bench/selection_tables.py; change bench/choosing.in.md, not docs/choosing.md";
}

TEST(MeasuredDocs, TablesHoldEveryRow) {
  const nlohmann::json results = nlohmann::json::parse(Page("bench/results/quantize.json"));
  const std::string page = Page("docs/quantize.md");
  for (const std::string where : {"builtin", "smollm2"}) {
    std::string tables;
    for (const char* kind : {" types -->", " folders -->"}) {
      const size_t begin = page.find("<!-- measured: " + where + kind), end = page.find("<!-- end -->", begin);
      if (begin != std::string::npos) tables += page.substr(begin, end - begin);
    }
    for (const auto& [key, row] : results.at(where).items()) {
      if (!row.contains("kld")) continue;
      const std::string group = row.at("group"), width = row.at("width");
      const std::string name = key.substr(0, group.empty() ? key.find(' ') : key.size() - width.size() - group.size() - 2);
      const std::string head = group.empty() ? fmt::format("\n| {} | {} | ", width, name) : fmt::format("\n| {} | {} | {} | ", name, width, group);
      const size_t line = tables.find(head);
      ASSERT_NE(line, std::string::npos) << where << " " << key << ": run bench/selection_tables.py";
      EXPECT_NE(tables.substr(line, tables.find('\n', line + 1) - line).find(fmt::format(" {:.5f} ", row.at("kld").get<double>())), std::string::npos)
          << where << " " << key << ": run bench/selection_tables.py";
    }
  }
}

// At each width the best recipe loses less than what llama-quantize writes in the same bits.
TEST(MeasuredDocs, EveryWidthHasARecipeThatBeatsThePlainType) {
  const nlohmann::json results = nlohmann::json::parse(Page("bench/results/quantize.json"));
  for (const std::string where : {"builtin", "smollm2"}) {
    for (const std::string width : {"3", "4", "5", "6", "8"}) {
      int plain = 0;
      for (const auto& [key, row] : results.at(where).items()) {
        if (!key.ends_with(" plain") || row.at("width") != width) continue;
        const std::string type = key.substr(0, key.size() - 6);
        double best = 1e9;
        for (const char* way : {" gptq", " mixed", " mixed gptq"}) {
          if (results.at(where).contains(type + way) && results.at(where).at(type + way).at("bits").get<double>() < row.at("bits").get<double>() + 0.005)
            best = std::min(best, results.at(where).at(type + way).at("kld").get<double>());
        }
        if (best == 1e9) continue;  // measured for its size alone
        EXPECT_LT(best, row.at("kld").get<double>()) << where << " " << key;
        ++plain;
      }
      EXPECT_GT(plain, 0) << where << ": nothing was measured at " << width << " bits";
    }
  }
}

}  // namespace
