// Schemas against goldens (JSON-Schema-Test-Suite and tools, judged by other implementations), a plain validator over random
// schemas, and what must be refused by name.
#include "serve/structured/json_schema.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/test_shared.h"
#include "serve/structured/regex_grammar.h"
#include "serve/structured/test_grammar.h"

namespace hone {
namespace {

Result<std::shared_ptr<const Grammar>> Compile(const Json& schema) {
  GrammarBuilder builder;
  JsonGrammar rules(builder);
  HONE_TRY(const GrammarBuilder::Rule rule, AddJsonSchema(rules, schema));
  return builder.Build(rule);
}
Result<std::shared_ptr<const Grammar>> Compile(const char* schema) { return Compile(Json::parse(schema)); }

Json Cases(const std::string& path) {
  std::ifstream in(path);
  return Json::parse(in).at("cases");
}

// Where several schemas of allOf each name members, the texts have them in an order of their own; ours is that of the schemas.
std::string Reversed(const std::string& text) {
  const Json value = Json::parse(text);
  if (!value.is_object()) return text;
  Json reversed = Json::object();
  std::vector<std::pair<std::string, Json>> members;
  for (const auto& [name, member] : value.items()) members.emplace_back(name, member);
  for (auto it = members.rbegin(); it != members.rend(); ++it) reversed[it->first] = it->second;
  return reversed.dump();
}

// `rows`: texts with what they should be. Counts what is accepted and refused.
void CheckRows(const GrammarRun& run, const Json& rows, const std::string& what, int* accepted, int* rejected) {
  Rng rng(5);
  for (const Json& row : rows) {
    const std::string text = row.at("text").get<std::string>(), expect = row.at("expect").get<std::string>();
    const size_t fits = run.Fits(text);
    const bool accepts = fits == text.size() + 1;
    if (expect == "accept") {
      ++*accepted;
      EXPECT_TRUE(accepts || run.Accepts(Reversed(text))) << what << ": " << text << " stops at " << fits;
    } else if (expect == "reject") {
      ++*rejected;
      EXPECT_FALSE(accepts) << what << ": " << text;
      EXPECT_LE(fits, row.value("reject_at", text.size())) << what << ": " << text;
    }
    EXPECT_EQ(run.CheckTokens(text, rng), "") << what;
    if (!accepts || expect != "accept") continue;
    GrammarCursor cursor = run.Start();
    for (const char c : text) {
      EXPECT_FALSE(run.Allowed(cursor).empty()) << what;
      cursor.Advance(std::string(1, c));
    }
  }
}

TEST(JsonSchema, Goldens) {
  HONE_NEED_SHARED(path, "goldens/structured/json_schema.json");
  int accepted = 0, rejected = 0, refused = 0;
  const Json cases = Cases(path);
  for (const Json& one : cases) {
    const auto grammar = Compile(one.at("schema"));
    if (!grammar) {
      ++refused;
      EXPECT_FALSE(grammar.error().message.empty());
      continue;
    }
    CheckRows(GrammarRun(*grammar), one.at("instances"), one.at("schema").dump(), &accepted, &rejected);
  }
  std::printf("accepted %d, rejected %d, schemas refused %d\n", accepted, rejected, refused);
  EXPECT_GT(accepted, 120);
  EXPECT_GT(rejected, 100);
  EXPECT_LT(refused, 35);
}

TEST(JsonSchema, GoldenTools) {
  HONE_NEED_SHARED(path, "goldens/structured/tools.json");
  int accepted = 0, rejected = 0;
  const Json cases = Cases(path);
  for (const Json& one : cases) {
    const Json& function = one.at("tool").at("function");
    const auto grammar = Compile(function.at("parameters"));
    ASSERT_TRUE(grammar) << function.dump() << grammar.error().message;
    CheckRows(GrammarRun(*grammar), one.at("arguments"), function.at("name").get<std::string>(), &accepted, &rejected);
  }
  EXPECT_GT(accepted, 10);
  EXPECT_GT(rejected, 10);
}

TEST(Regex, Goldens) {
  HONE_NEED_SHARED(path, "goldens/structured/regex.json");
  int accepted = 0, rejected = 0;
  const Json cases = Cases(path);
  for (const Json& one : cases) {
    GrammarBuilder builder;
    const auto rule = AddRegex(builder, one.at("pattern").get<std::string>(), RegexUse::kWhole, Spelling::kPlain);
    ASSERT_TRUE(rule) << one.at("pattern") << rule.error().message;
    const auto grammar = builder.Build(*rule);
    ASSERT_TRUE(grammar);
    CheckRows(GrammarRun(*grammar), one.at("strings"), one.at("pattern").dump(), &accepted, &rejected);
  }
  EXPECT_GT(accepted, 14);
  EXPECT_GT(rejected, 14);
}

// Whether `value` is valid, straight from the words of the specification; for the keywords that RandomSchema writes.
bool Valid(const Json& value, const Json& schema, const Json& root) {
  if (schema.is_boolean()) return schema.get<bool>();
  if (schema.contains("$ref")) return Valid(value, root.at(Json::json_pointer(schema.at("$ref").get<std::string>().substr(1))), root);
  const auto is = [&](const std::string& type) {
    return type == "null" ? value.is_null() : type == "boolean" ? value.is_boolean() : type == "integer" ? value.is_number_integer()
           : type == "number" ? value.is_number() : type == "string" ? value.is_string() : type == "array" ? value.is_array() : value.is_object();
  };
  if (schema.contains("type")) {
    const Json types = schema.at("type").is_array() ? schema.at("type") : Json::array({schema.at("type")});
    if (std::none_of(types.begin(), types.end(), [&](const Json& type) { return is(type.get<std::string>()); })) return false;
  }
  if (schema.contains("enum") && std::find(schema.at("enum").begin(), schema.at("enum").end(), value) == schema.at("enum").end()) return false;
  if (schema.contains("const") && schema.at("const") != value) return false;
  const auto valid = [&](const Json& one) { return Valid(value, one, root); };
  if (schema.contains("allOf") && !std::all_of(schema.at("allOf").begin(), schema.at("allOf").end(), valid)) return false;
  if (schema.contains("anyOf") && std::none_of(schema.at("anyOf").begin(), schema.at("anyOf").end(), valid)) return false;
  if (value.is_number()) {
    const auto bound = [&](const char* name, auto holds) { return !schema.contains(name) || holds(value.get<double>(), schema.at(name).get<double>()); };
    if (!bound("minimum", std::greater_equal<>()) || !bound("maximum", std::less_equal<>()) || !bound("exclusiveMinimum", std::greater<>()) ||
        !bound("exclusiveMaximum", std::less<>())) return false;
  }
  if (value.is_string()) {
    const size_t size = CharsOf(value.get<std::string>()).size();
    if (size < schema.value("minLength", size_t{0}) || size > schema.value("maxLength", size_t{1} << 30)) return false;
  }
  if (value.is_array()) {
    if (value.size() < schema.value("minItems", size_t{0}) || value.size() > schema.value("maxItems", size_t{1} << 30)) return false;
    const size_t prefix = schema.contains("prefixItems") ? schema.at("prefixItems").size() : 0;
    for (size_t i = 0; i < value.size(); ++i) {
      if (i < prefix ? !Valid(value[i], schema.at("prefixItems")[i], root) : schema.contains("items") && !Valid(value[i], schema.at("items"), root)) return false;
    }
  }
  if (!value.is_object()) return true;
  const Json properties = schema.value("properties", Json::object());
  for (const Json& name : schema.value("required", Json::array())) {
    if (!value.contains(name.get<std::string>())) return false;
  }
  for (const auto& [name, member] : value.items()) {
    if (properties.contains(name) ? !Valid(member, properties.at(name), root)
                                  : schema.contains("additionalProperties") && !Valid(member, schema.at("additionalProperties"), root)) return false;
  }
  return true;
}

Json RandomSchema(Rng& rng, int depth) {
  static const char* const kNames[] = {"a", "name", "na", "x\"y", "\xC3\xA9", "ab\n"};
  const auto inner = [&] { return RandomSchema(rng, depth - 1); };
  switch (rng.Below(depth > 0 ? 13 : 8)) {
    case 0: return {{"type", "integer"}, {"minimum", static_cast<int64_t>(rng.Below(300)) - 150}, {"maximum", 150 + static_cast<int64_t>(rng.Below(2000))}};
    case 1: return {{"type", "number"}, {"minimum", static_cast<double>(rng.Below(800)) / 8 - 50}, {"exclusiveMaximum", 50 + static_cast<double>(rng.Below(100)) / 4}};
    case 2: return {{"type", "string"}, {"minLength", rng.Below(4)}, {"maxLength", 3 + rng.Below(5)}};
    case 3: return {{"type", Json::array({"null", "boolean", rng.Below(2) == 0 ? "string" : "integer"})}};
    case 4: return {{"enum", Json::array({1, "one", "on", nullptr, Json::array({1, 2}), Json{{"k", "v"}}})}};
    case 5: return {{"const", rng.Below(2) == 0 ? Json("a\"b\n") : Json(-7)}};
    case 6: return {{"exclusiveMinimum", -static_cast<int64_t>(rng.Below(30))}, {"maximum", 0.5}};
    case 7: return rng.Below(4) == 0 ? Json(true) : Json{{"type", "string"}};
    case 8: return {{"type", "array"}, {"items", inner()}, {"minItems", rng.Below(3)}, {"maxItems", 2 + rng.Below(3)}};
    case 9: return {{"type", "array"}, {"prefixItems", Json::array({inner(), inner()})}, {"items", rng.Below(2) == 0 ? Json(false) : inner()}};
    case 10: return {{"anyOf", Json::array({inner(), inner(), Json{{"type", "null"}}})}};
    case 11: return {{"type", Json::array({"array", "null"})}, {"items", Json{{"$ref", "#"}}}};
    default: break;
  }
  Json schema = {{"type", "object"}, {"properties", Json::object()}, {"required", Json::array()}};
  for (const char* name : kNames) {
    if (rng.Below(2) == 0) schema["properties"][name] = inner();
    if (rng.Below(4) == 0) schema["required"].push_back(name);
  }
  if (rng.Below(3) == 0) return {{"allOf", Json::array({schema, Json{{"properties", Json{{"a", inner()}, {"b", true}}}}})}};
  if (rng.Below(2) == 0) {
    schema["additionalProperties"] = rng.Below(2) == 0 ? Json(false) : inner();
    if (schema["additionalProperties"] == Json(false)) {
      for (const Json& name : schema["required"]) schema["properties"].emplace(name.get<std::string>(), true);
    }
  }
  return schema;
}

TEST(JsonSchema, RandomAnswersAreValid) {
  int whole_count = 0, cut_count = 0, refused = 0;
  for (uint64_t seed = 0; seed < 150; ++seed) {
    Rng rng(seed);
    const Json schema = RandomSchema(rng, 3);
    const auto grammar = Compile(schema);
    if (!grammar) {  // two sides of allOf may leave nothing
      ++refused;
      continue;
    }
    const GrammarRun run(*grammar);
    for (int i = 0; i < 4; ++i) {
      bool whole = false;
      const std::string text = run.Sample(rng, 400, &whole);
      if (!whole) {  // cut: each beginning goes on within the grammar
        EXPECT_EQ(run.Fits(text) >= text.size(), true) << schema.dump() << "\n" << text;
        ++cut_count;
        continue;
      }
      ++whole_count;
      const Json value = Json::parse(text, nullptr, false);
      ASSERT_FALSE(value.is_discarded()) << schema.dump() << "\n" << text;
      EXPECT_TRUE(Valid(value, schema, schema)) << schema.dump() << "\n" << text;
    }
  }
  EXPECT_GT(whole_count, 400);
  EXPECT_LT(refused, 30);
}

TEST(JsonSchema, RefusesByName) {
  const std::pair<const char*, const char*> kCases[] = {
      {R"({"properties":{"a":{"not":{}}}})", "properties.a.not"},
      {R"({"items":{"multipleOf":3}})", "items.multipleOf"},
      {R"({"patternProperties":{"a":{}}})", "patternProperties"},
      {R"({"minimun":3})", "minimun: unknown keyword"},
      {R"({"type":"strin"})", "type"},
      {R"_({"type":"string","pattern":"(?=a)"})_", "pattern: at character"},
      {R"({"type":"string","pattern":"a(b"})", "pattern: at character"},
      {R"({"type":"string","pattern":"a\\1"})", "pattern: at character"},
      {R"({"type":"string","pattern":"a","minLength":3})", "pattern: together with minLength"},
      {R"({"type":"string","format":"color"})", "format"},
      {R"({"type":"string","minLength":-1})", "minLength"},
      {R"({"type":"string","minLength":1000000000})", "states"},
      {R"_({"type":"string","pattern":"((a{1000}){1000}){1000}"})_", "states"},
      {R"({"minimum":1e300})", "minimum"},
      {R"({"$ref":"#"})", "circle"},
      {R"({"$ref":"#/$defs/x"})", "$ref"},
      {R"({"$ref":"http://other/x"})", "$ref"},
      {R"({"oneOf":[{"type":"integer"},{"minimum":2}]})", "oneOf[1]"},
      {R"({"enum":[]})", "nothing fits"},
      {R"({"type":"object","required":["a"],"properties":{"a":{"$ref":"#"}}})", "nothing fits"},
      {R"({"type":"object","required":["a"],"additionalProperties":false})", "required"},
      {R"({"enum":["a"],"minLength":2})", "minLength"},
      {R"({"uniqueItems":true})", "uniqueItems"},
  };
  for (const auto& [schema, wanted] : kCases) {
    const auto grammar = Compile(schema);
    ASSERT_FALSE(grammar) << schema;
    EXPECT_NE(grammar.error().message.find(wanted), std::string::npos) << schema << ": " << grammar.error().message;
  }
}

TEST(JsonSchema, OneOfWhereBranchesCannotOverlap) {
  const auto grammar = Compile(R"({"oneOf":[
      {"type":"object","properties":{"kind":{"const":"a"},"x":{"type":"integer"}},"required":["kind","x"],"additionalProperties":false},
      {"type":"object","properties":{"kind":{"const":"b"}},"required":["kind"],"additionalProperties":false},{"type":"null"}]})");
  ASSERT_TRUE(grammar) << grammar.error().message;
  const GrammarRun run(*grammar);
  EXPECT_TRUE(run.Accepts(R"({"kind":"a","x":1})"));
  EXPECT_TRUE(run.Accepts(R"({"kind": "b"})"));
  EXPECT_TRUE(run.Accepts("null"));
  EXPECT_FALSE(run.Accepts(R"({"kind":"b","x":1})"));
}

TEST(JsonSchema, FormatsAreEnforced) {
  struct Case {
    const char *format, *good, *bad;
  };
  const Case kCases[] = {
      {"date", "2024-02-29", "2024-13-01"},
      {"time", "23:59:59Z", "24:00:00Z"},
      {"date-time", "2024-02-29T12:00:00.5+01:00", "2024-02-29 12:00:00Z"},
      {"uuid", "123e4567-e89b-12d3-a456-426614174000", "123e4567e89b12d3a456426614174000"},
      {"ipv4", "192.168.0.1", "192.168.0.256"},
      {"email", "a.b@example.com", "a.b@"},
      {"hostname", "www.example.com", "-a.com"},
      {"uri", "https://example.com/a?b=%20", "no uri"},
  };
  for (const Case& one : kCases) {
    const auto grammar = Compile(Json{{"type", "string"}, {"format", one.format}});
    ASSERT_TRUE(grammar) << one.format;
    EXPECT_TRUE(GrammarRun(*grammar).Accepts(Json(one.good).dump())) << one.format;
    EXPECT_FALSE(GrammarRun(*grammar).Accepts(Json(one.bad).dump())) << one.format;
  }
}

// What is nested without end stops where the depth ends, and what was begun can still be closed.
TEST(JsonSchema, DepthIsBounded) {
  const auto grammar = Compile("{}");
  ASSERT_TRUE(grammar);
  const GrammarRun run(*grammar);
  GrammarCursor cursor = run.Start();
  std::string text;
  while (cursor.Advance("[")) text += "[";
  EXPECT_GT(text.size(), 50u);
  EXPECT_LT(text.size(), 1000u);
  EXPECT_FALSE(run.Allowed(cursor).empty());
  for (size_t i = text.size(); i > 0; --i) ASSERT_TRUE(cursor.Advance("]"));
  EXPECT_TRUE(cursor.MustEnd());
}

}  // namespace
}  // namespace hone
