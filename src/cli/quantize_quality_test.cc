// What the end of hone quantize says of speed: a result that is slower than its original is named, in which work, in both forms.
#include "cli/quantize_quality.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace hone {
namespace {

TEST(QuantizeQuality, SaysInWhichWorkTheResultIsSlower) {
  struct Case {
    double decode_after, prefill_after;  // of 100 before
    std::vector<std::string> slower;
  };
  for (const Case& c : {Case{300, 60, {"prefill"}}, Case{60, 300, {"decode"}}, Case{60, 60, {"decode", "prefill"}},
                        Case{300, 98, {}}, Case{98, 300, {}}}) {
    Quality quality;
    quality.decode_before = quality.prefill_before = 100;
    quality.decode_after = c.decode_after;
    quality.prefill_after = c.prefill_after;
    const std::string text = QualityText(quality);
    for (const std::string work : {"decode", "prefill"}) {
      const bool said = text.find("slower in " + work + " than the original") != std::string::npos;
      EXPECT_EQ(said, std::count(c.slower.begin(), c.slower.end(), work) == 1) << text;
    }
    EXPECT_EQ(nlohmann::json::parse(QualityJson(quality))["slower_in"], nlohmann::json(c.slower));
  }
}

}  // namespace
}  // namespace hone
