// JsonConfig: typed access, Python's extra literals, and what it refuses.
#include "formats/json_config.h"

#include <cmath>

#include "base/test_shared.h"
#include "formats/test_bytes.h"

namespace hone {
namespace {

JsonConfig Good(std::string_view text) {
  auto parsed = JsonConfig::Parse(text, "config.json");
  EXPECT_TRUE(parsed) << parsed.error().message;
  return std::move(parsed).value();
}

TEST(JsonConfig, TypedAccess) {
  const JsonConfig c =
      Good(R"({"i":3,"neg":-4,"whole":3.0,"f":1e-5,"big":18446744073709551615,"s":"x","t":true,"n":null,
    "ints":[1,2.0],"floats":[1,0.5],"strings":["a","b"],"o":{"a":{"b":5}},"dup":1,"dup":2})");
  EXPECT_EQ(c.Int("i").value(), 3);
  EXPECT_EQ(c.Int("neg").value(), -4);
  EXPECT_EQ(c.Int("whole").value(), 3);
  EXPECT_EQ(c.Int("absent", 9).value(), 9);
  EXPECT_EQ(c.Int("n", 9).value(), 9);
  EXPECT_EQ(c.Number("f").value(), 1e-5);
  EXPECT_EQ(c.Number("i").value(), 3.0);
  EXPECT_EQ(c.Number("n", 2.5).value(), 2.5);
  EXPECT_TRUE(c.Bool("t", false).value());
  EXPECT_TRUE(c.Bool("absent", true).value());
  EXPECT_EQ(c.String("s").value(), "x");
  EXPECT_EQ(c.String("n", "y").value(), "y");
  EXPECT_EQ(c.Ints("ints").value(), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(c.Ints("i").value(), (std::vector<int64_t>{3}));
  EXPECT_EQ(c.Numbers("floats").value(), (std::vector<double>{1, 0.5}));
  EXPECT_EQ(c.Strings("strings").value(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(c.Object("o").value().Object("a").value().Int("b").value(), 5);
  EXPECT_EQ(c.Int("dup").value(), 2);
  EXPECT_TRUE(c.Has("i"));
  EXPECT_FALSE(c.Has("n"));
  EXPECT_FALSE(c.Has("absent"));
  EXPECT_TRUE(c.IsObject("o"));
  EXPECT_FALSE(c.IsObject("i"));
  EXPECT_TRUE(c.IsArray("ints"));
  EXPECT_FALSE(c.IsArray("s"));
  EXPECT_TRUE(c.IsString("s"));
  EXPECT_FALSE(c.IsString("n"));
  EXPECT_EQ(c.Object("o").value().Keys(), (std::vector<std::string>{"a"}));
  EXPECT_EQ(c.Keys().size(), 13u);
}

TEST(JsonConfig, AnObjectOutlivesItsParent) {
  Result<JsonConfig> inner = Good(R"({"o":{"a":"kept"}})").Object("o");
  EXPECT_EQ(inner->String("a").value(), "kept");
  EXPECT_EQ(inner->origin(), "config.json: o");
}

TEST(JsonConfig, ErrorsNameFileKeyFoundAndWanted) {
  const JsonConfig c = Good(
      R"({"i":3,"half":2.5,"big":18446744073709551615,"huge":1e30,"s":"text","n":null,"mixed":[1,"a"],"o":{"x":"y"}})");
  EXPECT_ERROR(c.Int("absent"), "config.json: no key 'absent'");
  EXPECT_ERROR(c.Int("n"), "no key 'n'");
  EXPECT_ERROR(c.Int("half"), "config.json: key 'half' is number (2.5), wanted a whole number");
  EXPECT_ERROR(c.Int("big"), "wanted a whole number");
  EXPECT_ERROR(c.Int("huge"), "wanted a whole number");
  EXPECT_ERROR(c.Int("s", 3), "key 's' is string (\"text\"), wanted a whole number");
  EXPECT_ERROR(c.Number("s", 1.0), "wanted a number");
  EXPECT_ERROR(c.Bool("i", false), "wanted true or false");
  EXPECT_ERROR(c.String("i"), "wanted a string");
  EXPECT_ERROR(c.Ints("mixed"), "is string (\"a\"), wanted only whole numbers in its array");
  EXPECT_ERROR(c.Ints("half"), "wanted whole numbers");
  EXPECT_ERROR(c.Numbers("mixed"), "wanted only numbers");
  EXPECT_ERROR(c.Numbers("i"), "wanted an array of numbers");
  EXPECT_ERROR(c.Strings("mixed"), "wanted only strings");
  EXPECT_ERROR(c.Object("i"), "wanted an object");
  EXPECT_ERROR(c.Object("o").value().Int("x"), "config.json: o: key 'x'");
}

TEST(JsonConfig, InfinityAndNaNOutsideStrings) {
  const JsonConfig c =
      Good(R"({"a":[0.0,Infinity,-Infinity],"b":NaN,"s":"Infinity, NaN and \"-Infinity\"","k\"NaN":{"x":[NaN]}})");
  const std::vector<double> a = c.Numbers("a").value();
  EXPECT_EQ(a[1], HUGE_VAL);
  EXPECT_EQ(a[2], -HUGE_VAL);
  EXPECT_TRUE(std::isnan(c.Number("b").value()));
  EXPECT_EQ(c.String("s").value(), "Infinity, NaN and \"-Infinity\"");
  EXPECT_FALSE(c.IsString("b"));
  EXPECT_ERROR(c.Int("b"), "wanted a whole number");
  EXPECT_EQ(c.Dump(),
            R"({"a":[0.0,Infinity,-Infinity],"b":NaN,"k\"NaN":{"x":[NaN]},"s":"Infinity, NaN and \"-Infinity\""})");
  EXPECT_EQ(Good(c.Dump()).Dump(), c.Dump());
  EXPECT_ERROR(JsonConfig::Parse(R"({"a":Infinit})", "f"), "not valid JSON");
  EXPECT_ERROR(JsonConfig::Parse(R"({"a":InfinityNaN})", "f"), "not valid JSON");
  EXPECT_ERROR(JsonConfig::Parse("{\"a\":NaN", "f"), "not valid JSON");
  EXPECT_ERROR(JsonConfig::Parse("{\"a\":\"\\", "f"), "not valid JSON");
}

TEST(JsonConfig, RefusesWhatIsNoObject) {
  EXPECT_ERROR(JsonConfig::Parse("", "f"), "f: not valid JSON");
  EXPECT_ERROR(JsonConfig::Parse("[1]", "f"), "JSON array, wanted an object");
  EXPECT_ERROR(JsonConfig::Parse("3", "f"), "JSON number, wanted an object");
  EXPECT_ERROR(JsonConfig::Parse("{\"a\":1,}", "f"), "not valid JSON");
  EXPECT_ERROR(JsonConfig::Parse("{} {}", "f"), "not valid JSON");
  EXPECT_ERROR(JsonConfig::Parse("{\"a\":\"\xff\"}", "f"), "not valid JSON");
  EXPECT_ERROR(JsonConfig::Parse("version https://git-lfs.github.com/spec/v1", "f"), "Git LFS pointer");
  EXPECT_ERROR(JsonConfig::Parse("<!DOCTYPE html><html>", "f"), "web page");
  EXPECT_ERROR(JsonConfig::Read("/nowhere/config.json"), "/nowhere/config.json: cannot open");
  EXPECT_EQ(Good("\xef\xbb\xbf{\"a\":1}").Int("a").value(), 1);  // a byte-order mark is tolerated
}

TEST(JsonConfig, DepthIsBounded) {
  const auto nested = [](size_t depth) {
    return "{\"a\":" + std::string(depth - 1, '[') + std::string(depth - 1, ']') + "}";
  };
  EXPECT_TRUE(JsonConfig::Parse(nested(64), "f"));
  EXPECT_ERROR(JsonConfig::Parse(nested(65), "f"), "nested 65 deep, wanted at most 64");
  EXPECT_ERROR(JsonConfig::Parse(nested(3000000), "f"), "nested 3000000 deep");
  EXPECT_ERROR(JsonConfig::Parse(std::string(3000000, '{'), "f"), "nested");
  EXPECT_TRUE(JsonConfig::Parse("{\"a\":\"" + std::string(100, '[') + "\"}", "f"));  // in a string it is no nesting
  EXPECT_ERROR(JsonConfig::Parse(std::string((16u << 20) + 1, ' '), "f"), "wanted at most 16 MiB");
}

TEST(JsonConfig, ReadsEverySharedConfig) {
  HONE_NEED_SHARED(models, "goldens/models");
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(models)) {
    if (!entry.is_directory()) continue;
    const auto config = JsonConfig::Read(entry.path() / "config.json");
    ASSERT_TRUE(config) << config.error().message;
    EXPECT_TRUE(config->String("model_type"));
    EXPECT_GT(config->Int("vocab_size").value(), 0);
    ++files;
  }
  EXPECT_GT(files, 25u);
  const auto mamba2 = JsonConfig::Read(models + "/mamba2/config.json");
  EXPECT_EQ(mamba2->Numbers("time_step_limit").value()[1], HUGE_VAL);
}

}  // namespace
}  // namespace hone
