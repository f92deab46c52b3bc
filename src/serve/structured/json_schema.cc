// One rule for each schema that differs; a schema that is needed again, as by a reference to itself, is the same rule. Rules are
// written from a list, so nesting costs no stack.
#include "serve/structured/json_schema.h"

#include <algorithm>
#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "serve/structured/number_grammar.h"
#include "serve/structured/regex_grammar.h"
#include "serve/structured/schema_form.h"

namespace hone {
namespace {

using Rule = GrammarBuilder::Rule;

constexpr size_t kMaxSchemaRules = 4096;
constexpr size_t kMaxSchemaTextBytes = 16u << 20;  // of all rules' schemas
constexpr size_t kMaxBranches = 256;

struct Format {
  std::string_view name, pattern;
};
// Each is within what its RFC allows; what the text means (the 30th of February) is not looked at.
#define HONE_DATE R"(\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01]))"
#define HONE_TIME R"(([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,9})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d))"
#define HONE_HOST R"([A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?){0,7})"
constexpr Format kFormats[] = {
    {"date", HONE_DATE},
    {"time", HONE_TIME},
    {"date-time", HONE_DATE "T" HONE_TIME},
    {"email", R"(([A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*|"[A-Za-z0-9 .@!#$%&'*+/=?^_`{|}~-]*")@)" HONE_HOST},
    {"hostname", HONE_HOST},
    {"ipv4", R"((25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)(\.(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)){3})"},
    {"uuid", "[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"},
    {"uri", R"([A-Za-z][A-Za-z0-9+.-]*:([A-Za-z0-9._~:/?#@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})+)"},
};

std::string Under(const std::string& path, const std::string& name) { return path.empty() ? name : path + "." + name; }

class Compiler {
 public:
  Compiler(JsonGrammar& json, const Json& root) : json_(json), form_(root) {}

  Result<Rule> Compile(const Json& schema, bool only_objects) {
    HONE_TRY(Json normal, form_.Normal(schema, ""));
    if (only_objects) {
      HONE_TRY(normal, form_.Both(std::move(normal), Json{{"type", Json::array({"object"})}}, ""));
    }
    HONE_TRY(const Rule rule, RuleOfNormal(std::move(normal), ""));
    while (!waiting_.empty()) {
      const Waiting next = std::move(waiting_.front());
      waiting_.pop_front();
      HONE_RETURN_IF_ERROR(Write(next.schema, next.rule, next.path));
      if (json_.builder().full()) break;  // the grammar will say so
    }
    return rule;
  }

 private:
  struct Waiting {
    Json schema;
    Rule rule;
    std::string path;
  };

  Result<Rule> RuleOf(const Json& schema, const std::string& path) {
    HONE_TRY(Json normal, form_.Normal(schema, path));
    return RuleOfNormal(std::move(normal), path);
  }

  Result<Rule> RuleOfNormal(Json normal, const std::string& path) {
    if (normal.empty()) return json_.Value();
    std::string text = normal.dump(-1, ' ', false, Json::error_handler_t::replace);
    if (const auto it = rules_.find(text); it != rules_.end()) return it->second;
    text_bytes_ += text.size();
    if (rules_.size() >= kMaxSchemaRules || text_bytes_ > kMaxSchemaTextBytes) {
      return Error{ErrorCode::kLimit, (path.empty() ? "the schema" : path) + ": it has too many parts that differ"};
    }
    const Rule rule = json_.builder().AddRule();
    rules_.emplace(std::move(text), rule);
    waiting_.push_back({std::move(normal), rule, path});
    return rule;
  }

  Result<void> Write(const Json& schema, const Rule& rule, const std::string& path) {
    for (const char* name : {"oneOf", "anyOf"}) {
      if (schema.contains(name)) return WriteBranches(schema, name, rule, path);
    }
    if (schema.contains("enum")) return WriteValues(schema, rule, path);
    for (const std::string& type : TypesOf(schema)) {
      HONE_TRY(const Rule one, RuleOfType(schema, type, path));
      json_.builder().Call(rule.start, one, rule.end);
    }
    return {};
  }

  Result<void> WriteBranches(const Json& schema, const std::string& name, const Rule& rule, const std::string& path) {
    const Json& branches = schema.at(name);
    if (branches.size() > kMaxBranches) return Error{ErrorCode::kLimit, Under(path, name) + ": more than " + std::to_string(kMaxBranches)};
    Json rest = schema;
    rest.erase(name);
    std::vector<Json> merged;
    for (size_t i = 0; i < branches.size(); ++i) {
      const std::string place = Under(path, name + "[" + std::to_string(i) + "]");
      HONE_TRY(const Json normal, form_.Normal(branches[i], place));
      HONE_TRY(Json both, form_.Both(rest, normal, place));
      for (const Json& other : merged) {
        if (name == "anyOf") break;
        HONE_TRY(const bool apart, form_.Apart(other, both, place));
        if (!apart) return Unsupported(place + ": one value may fit this and a branch before it; use anyOf, or a const that tells them apart");
      }
      HONE_TRY(const Rule branch, RuleOfNormal(both, place));
      json_.builder().Call(rule.start, branch, rule.end);
      merged.push_back(std::move(both));
    }
    return {};
  }

  // Of the values of `enum` those that the other keywords let through; those that would need more than a look are refused.
  Result<void> WriteValues(const Json& schema, const Rule& rule, const std::string& path) {
    std::vector<std::string> texts;
    const std::vector<std::string> types = TypesOf(schema);
    for (const Json& value : schema.at("enum")) {
      if (std::none_of(types.begin(), types.end(), [&](const std::string& type) { return IsOfType(value, type); })) continue;
      for (const auto& [name, wanted] : schema.items()) {
        if (name == "type" || name == "enum") continue;
        const bool of_numbers = name == "minimum" || name == "maximum" || name.starts_with("exclusive");
        const bool of_strings = name.ends_with("Length") || name == "pattern" || name == "format";
        const bool of_arrays = name.ends_with("tems");
        const bool concerns = of_numbers ? value.is_number() : of_strings ? value.is_string() : of_arrays ? value.is_array() : value.is_object();
        if (concerns) return Unsupported(Under(path, name) + ": together with enum or const not supported");
      }
      texts.push_back(value.dump());
    }
    json_.builder().Call(rule.start, json_.OneOf(texts), rule.end);
    return {};
  }

  Result<Rule> RuleOfType(const Json& schema, const std::string& type, const std::string& path) {
    if (type == "null") return json_.OneOf({"null"});
    if (type == "boolean") return json_.OneOf({"true", "false"});
    if (type == "string") return StringRule(schema, path);
    if (type == "array") return ArrayRule(schema, path);
    if (type == "object") return ObjectRule(schema, path);
    return NumberRule(schema, type == "integer", path);
  }

  static size_t Count(const Json& schema, const char* name, size_t otherwise) {
    return schema.contains(name) ? static_cast<size_t>(AsInt(schema.at(name)).value_or(0)) : otherwise;
  }
  static std::optional<size_t> Most(const Json& schema, const char* name) {
    if (!schema.contains(name)) return std::nullopt;
    return Count(schema, name, 0);
  }

  Result<Rule> NumberRule(const Json& schema, bool integer, const std::string& path) {
    NumberBounds bounds{.integer = integer};
    const auto read = [&](const char* name, bool open, bool upper) -> Result<void> {
      if (!schema.contains(name)) return {};
      HONE_TRY(const Decimal value, ParseDecimal(schema.at(name).dump()).Context(Under(path, name)));
      // Of two bounds of one side the tighter holds; equal ones hold without the bound itself.
      const char* const other = upper ? "maximum" : "minimum";
      if (open && schema.contains(other) && (upper ? schema.at(other) < schema.at(name) : schema.at(other) > schema.at(name))) return {};
      (upper ? bounds.most : bounds.least) = value;
      (upper ? bounds.most_open : bounds.least_open) = open;
      return {};
    };
    HONE_RETURN_IF_ERROR(read("minimum", false, false));
    HONE_RETURN_IF_ERROR(read("exclusiveMinimum", true, false));
    HONE_RETURN_IF_ERROR(read("maximum", false, true));
    HONE_RETURN_IF_ERROR(read("exclusiveMaximum", true, true));
    if (!bounds.least && !bounds.most) return integer ? json_.AnyInteger() : json_.AnyNumber();
    return AddNumber(json_.builder(), bounds);
  }

  Result<Rule> StringRule(const Json& schema, const std::string& path) {
    const bool pattern = schema.contains("pattern"), format = schema.contains("format");
    if (!pattern && !format) {
      const std::optional<size_t> most = Most(schema, "maxLength");
      const size_t least = Count(schema, "minLength", 0);
      return least == 0 && !most ? json_.AnyString() : json_.String(least, most);
    }
    const char* const name = pattern ? "pattern" : "format";
    for (const char* other : {"format", "minLength", "maxLength"}) {
      if (std::string_view(other) != name && schema.contains(other)) {
        return Unsupported(Under(path, name) + ": together with " + other + " not supported");
      }
    }
    const std::string text = schema.at(name).get<std::string>();
    if (pattern) {
      HONE_TRY(const Rule content, AddRegex(json_.builder(), text, RegexUse::kSearch, Spelling::kJson).Context(Under(path, name)));
      return json_.Quoted(content);
    }
    const auto* known = std::find_if(std::begin(kFormats), std::end(kFormats), [&](const Format& one) { return one.name == text; });
    if (known == std::end(kFormats)) return Unsupported(Under(path, name) + ": " + Found(schema.at(name)) + " is not supported");
    HONE_TRY(const Rule content, AddRegex(json_.builder(), known->pattern, RegexUse::kWhole, Spelling::kJson));
    return json_.Quoted(content);
  }

  Result<Rule> ArrayRule(const Json& schema, const std::string& path) {
    std::vector<Rule> prefix;
    for (size_t i = 0; schema.contains("prefixItems") && i < schema.at("prefixItems").size(); ++i) {
      HONE_TRY(const Rule item, RuleOf(schema.at("prefixItems")[i], Under(path, "prefixItems[" + std::to_string(i) + "]")));
      prefix.push_back(item);
    }
    std::optional<Rule> rest = json_.Value();
    if (schema.contains("items")) {
      if (schema.at("items") == Json(false)) rest.reset();
      else {
        HONE_TRY(rest, RuleOf(schema.at("items"), Under(path, "items")));
      }
    }
    return json_.Array(prefix, rest, Count(schema, "minItems", 0), Most(schema, "maxItems"));
  }

  Result<Rule> ObjectRule(const Json& schema, const std::string& path) {
    std::vector<JsonGrammar::Member> members;
    std::optional<Rule> others = json_.Value();
    if (schema.contains("additionalProperties")) {
      if (schema.at("additionalProperties") == Json(false)) others.reset();
      else {
        HONE_TRY(others, RuleOf(schema.at("additionalProperties"), Under(path, "additionalProperties")));
      }
    }
    if (schema.contains("properties")) {
      for (const auto& [name, value] : schema.at("properties").items()) {
        HONE_TRY(const Rule rule, RuleOf(value, Under(path, "properties." + name)));
        members.push_back({name, rule, false});
      }
    }
    std::map<std::string, size_t> by_name;
    for (size_t i = 0; i < members.size(); ++i) by_name.emplace(members[i].key, i);
    for (size_t i = 0; schema.contains("required") && i < schema.at("required").size(); ++i) {
      const std::string name = schema.at("required")[i].get<std::string>();
      const auto [it, added] = by_name.emplace(name, members.size());
      if (!added) {
        members[it->second].required = true;
      } else {
        if (!others) return InvalidInput(Under(path, "required") + ": \"" + name.substr(0, 100) + "\" is no property, and no others are allowed");
        members.push_back({name, *others, true});
      }
    }
    return json_.Object(members, others);
  }

  JsonGrammar& json_;
  SchemaForm form_;
  std::map<std::string, Rule> rules_;
  std::deque<Waiting> waiting_;
  size_t text_bytes_ = 0;
};

}  // namespace

Result<GrammarBuilder::Rule> AddJsonSchema(JsonGrammar& json, const Json& schema, bool only_objects) {
  if (const size_t bytes = schema.dump(-1, ' ', false, Json::error_handler_t::replace).size(); bytes > kMaxSchemaBytes) {
    return Error{ErrorCode::kLimit, "found " + std::to_string(bytes) + " bytes, at most " + std::to_string(kMaxSchemaBytes)};
  }
  return Compiler(json, schema).Compile(schema, only_objects);
}

}  // namespace hone
