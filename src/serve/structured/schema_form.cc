// See schema_form.h. Each keyword has one line in kKeywords: its kind of value, and how two of it become one.
#include "serve/structured/schema_form.h"

#include <algorithm>
#include <cctype>

namespace hone {
namespace {

constexpr int kMaxReferences = 40;  // on the way to one schema
constexpr int kMaxSchemaWork = 20000;

enum class Keyword {
  kNote,         // says nothing about what is valid
  kAssertion,    // kept
  kElsewhere,    // $ref, allOf, const: merged by Normal
  kOffIfFalse,   // supported only as false
  kOffIfZero,    // supported only as 0
  kUnsupported,
};
struct KeywordRule {
  std::string_view name;
  Keyword kind;
};
constexpr KeywordRule kKeywords[] = {
    {"type", Keyword::kAssertion}, {"enum", Keyword::kAssertion}, {"properties", Keyword::kAssertion},
    {"required", Keyword::kAssertion}, {"additionalProperties", Keyword::kAssertion}, {"items", Keyword::kAssertion},
    {"prefixItems", Keyword::kAssertion}, {"minItems", Keyword::kAssertion}, {"maxItems", Keyword::kAssertion},
    {"minLength", Keyword::kAssertion}, {"maxLength", Keyword::kAssertion}, {"pattern", Keyword::kAssertion},
    {"format", Keyword::kAssertion}, {"minimum", Keyword::kAssertion}, {"maximum", Keyword::kAssertion},
    {"exclusiveMinimum", Keyword::kAssertion}, {"exclusiveMaximum", Keyword::kAssertion}, {"anyOf", Keyword::kAssertion},
    {"oneOf", Keyword::kAssertion},
    {"const", Keyword::kElsewhere}, {"$ref", Keyword::kElsewhere}, {"allOf", Keyword::kElsewhere},
    {"title", Keyword::kNote}, {"description", Keyword::kNote}, {"default", Keyword::kNote}, {"example", Keyword::kNote},
    {"examples", Keyword::kNote}, {"$comment", Keyword::kNote}, {"$schema", Keyword::kNote}, {"$defs", Keyword::kNote},
    {"definitions", Keyword::kNote}, {"deprecated", Keyword::kNote}, {"readOnly", Keyword::kNote}, {"writeOnly", Keyword::kNote},
    {"contentEncoding", Keyword::kNote}, {"contentMediaType", Keyword::kNote}, {"discriminator", Keyword::kNote},
    {"uniqueItems", Keyword::kOffIfFalse}, {"nullable", Keyword::kOffIfFalse},
    {"minProperties", Keyword::kOffIfZero}, {"minContains", Keyword::kUnsupported}, {"maxContains", Keyword::kUnsupported},
    {"contains", Keyword::kUnsupported}, {"maxProperties", Keyword::kUnsupported}, {"multipleOf", Keyword::kUnsupported},
    {"not", Keyword::kUnsupported}, {"if", Keyword::kUnsupported}, {"then", Keyword::kUnsupported}, {"else", Keyword::kUnsupported},
    {"patternProperties", Keyword::kUnsupported}, {"propertyNames", Keyword::kUnsupported},
    {"dependentSchemas", Keyword::kUnsupported}, {"dependentRequired", Keyword::kUnsupported},
    {"dependencies", Keyword::kUnsupported}, {"unevaluatedItems", Keyword::kUnsupported},
    {"unevaluatedProperties", Keyword::kUnsupported}, {"additionalItems", Keyword::kUnsupported}, {"$id", Keyword::kUnsupported},
    {"$anchor", Keyword::kUnsupported}, {"$dynamicRef", Keyword::kUnsupported}, {"$dynamicAnchor", Keyword::kUnsupported},
    {"$recursiveRef", Keyword::kUnsupported}, {"contentSchema", Keyword::kUnsupported},
};
constexpr std::string_view kTypes[] = {"null", "boolean", "integer", "number", "string", "array", "object"};

std::string Place(const std::string& path, std::string_view name) {
  return path.empty() ? std::string(name) : path + "." + std::string(name);
}
Error Wrong(const std::string& path, std::string_view name, const Json& found, const std::string& wanted) {
  return InvalidInput(Place(path, name) + ": found " + Found(found) + ", wanted " + wanted);
}

// What the value of a kept keyword must be.
Result<void> CheckValue(const std::string& path, const std::string& name, const Json& value) {
  const auto is_schema = [](const Json& v) { return v.is_object() || v.is_boolean(); };
  const auto all = [](const Json& list, auto fits) { return std::all_of(list.begin(), list.end(), fits); };
  if (name == "enum") return value.is_array() ? Result<void>() : Wrong(path, name, value, "an array");
  if (name == "required") {
    const bool fine = value.is_array() && all(value, [](const Json& v) { return v.is_string(); });
    return fine ? Result<void>() : Wrong(path, name, value, "an array of strings");
  }
  if (name == "properties") {
    const bool fine = value.is_object() && all(value, is_schema);
    return fine ? Result<void>() : Wrong(path, name, value, "an object of schemas");
  }
  if (name == "additionalProperties" || name == "items") {
    return is_schema(value) ? Result<void>() : Wrong(path, name, value, "a schema");
  }
  if (name == "prefixItems" || name == "anyOf" || name == "oneOf" || name == "allOf") {
    const bool fine = value.is_array() && !value.empty() && all(value, is_schema);
    return fine ? Result<void>() : Wrong(path, name, value, "an array of schemas");
  }
  if (name == "pattern" || name == "format") return value.is_string() ? Result<void>() : Wrong(path, name, value, "a string");
  if (name.starts_with("min") || name.starts_with("max") || name.starts_with("exclusive")) {
    if (!value.is_number()) return Wrong(path, name, value, "a number");
    const bool count = name.ends_with("Items") || name.ends_with("Length");
    const std::optional<int64_t> whole = AsInt(value);
    if (count && (!whole || *whole < 0)) return Wrong(path, name, value, "a number of 0 or more");
  }
  return {};
}

Result<Json> TypeList(const std::string& path, const Json& type) {
  Json list = type.is_array() ? type : Json::array({type});
  for (const Json& name : list) {
    const bool known = name.is_string() && std::find(std::begin(kTypes), std::end(kTypes), name.get<std::string>()) != std::end(kTypes);
    if (!known) return Wrong(path, "type", type, "null, boolean, integer, number, string, array, object, or an array of these");
  }
  return list;
}

Json AllOf(const Json& a, const Json& b) {
  if (a == b || b == Json(true)) return a;
  return a == Json(true) ? b : Json{{"allOf", Json::array({a, b})}};
}

// The schema of a member that `side` may not name.
const Json& MemberSchema(const Json& side, const std::string& name) {
  static const Json kAnything = true;
  if (side.contains("properties") && side.at("properties").contains(name)) return side.at("properties").at(name);
  return side.contains("additionalProperties") ? side.at("additionalProperties") : kAnything;
}
const Json& ItemSchema(const Json& side, size_t index) {
  static const Json kAnything = true;
  if (side.contains("prefixItems") && index < side.at("prefixItems").size()) return side.at("prefixItems")[index];
  return side.contains("items") ? side.at("items") : kAnything;
}

void MergeObjects(const Json& a, const Json& b, Json* out) {
  Json properties = Json::object();
  for (const Json* side : {&a, &b}) {
    if (!side->contains("properties")) continue;
    for (const auto& [name, schema] : side->at("properties").items()) {
      if (!properties.contains(name)) properties[name] = AllOf(MemberSchema(a, name), MemberSchema(b, name));
    }
  }
  if (!properties.empty()) (*out)["properties"] = std::move(properties);
  const auto others = [](const Json& side) { return side.contains("additionalProperties") ? side.at("additionalProperties") : Json(true); };
  if (const Json both = AllOf(others(a), others(b)); both != Json(true)) (*out)["additionalProperties"] = both;
}

void MergeArrays(const Json& a, const Json& b, Json* out) {
  const auto size = [](const Json& side) { return side.contains("prefixItems") ? side.at("prefixItems").size() : 0; };
  Json prefix = Json::array();
  for (size_t i = 0; i < std::max(size(a), size(b)); ++i) prefix.push_back(AllOf(ItemSchema(a, i), ItemSchema(b, i)));
  if (!prefix.empty()) (*out)["prefixItems"] = std::move(prefix);
  const auto items = [](const Json& side) { return side.contains("items") ? side.at("items") : Json(true); };
  if (const Json both = AllOf(items(a), items(b)); both != Json(true)) (*out)["items"] = both;
}

Json CommonTypes(const Json& a, const Json& b) {
  Json both = Json::array();
  for (const std::string_view name : kTypes) {
    const auto has = [&](const Json& list) {
      const auto holds = [&](std::string_view type) { return std::find(list.begin(), list.end(), Json(type)) != list.end(); };
      return holds(name) || (name == "integer" && holds("number"));
    };
    if (has(a) && has(b)) both.push_back(name);
  }
  return both;
}

Json CommonValues(const Json& a, const Json& b) {
  Json both = Json::array();
  for (const Json& value : a) {
    if (std::find(b.begin(), b.end(), value) != b.end()) both.push_back(value);
  }
  return both;
}

}  // namespace

std::vector<std::string> TypesOf(const Json& normal) {
  std::vector<std::string> types;
  if (!normal.contains("type")) return {"null", "boolean", "number", "string", "array", "object"};
  for (const Json& type : normal.at("type")) types.push_back(type.get<std::string>());
  std::sort(types.begin(), types.end());
  types.erase(std::unique(types.begin(), types.end()), types.end());
  if (std::find(types.begin(), types.end(), "number") != types.end()) std::erase(types, "integer");
  return types;
}

bool IsOfType(const Json& value, const std::string& type) {
  if (type == "null") return value.is_null();
  if (type == "boolean") return value.is_boolean();
  if (type == "integer") return AsInt(value).has_value();
  if (type == "number") return value.is_number();
  if (type == "string") return value.is_string();
  return type == "array" ? value.is_array() : value.is_object();
}

Result<void> SchemaForm::CountWork(const std::string& path) {
  if (++work_ <= kMaxSchemaWork) return {};
  return Error{ErrorCode::kLimit, (path.empty() ? "the schema" : path) + ": its references and alternatives are too many"};
}

Result<const Json*> SchemaForm::Target(const std::string& reference, const std::string& path) const {
  if (!reference.starts_with("#")) return Unsupported(Place(path, "$ref") + ": \"" + reference.substr(0, 100) + "\" is outside of the schema");
  std::string pointer;  // percent signs are those of a URL
  for (size_t i = 1; i < reference.size(); ++i) {
    const bool coded = reference[i] == '%' && i + 2 < reference.size() && std::isxdigit(static_cast<unsigned char>(reference[i + 1])) &&
                       std::isxdigit(static_cast<unsigned char>(reference[i + 2]));
    pointer += coded ? static_cast<char>(std::stoi(reference.substr(i + 1, 2), nullptr, 16)) : reference[i];
    if (coded) i += 2;
  }
  try {
    const Json::json_pointer place(pointer);
    if (root_.contains(place)) {
      const Json& found = root_.at(place);
      if (found.is_object() || found.is_boolean()) return &found;
    }
  } catch (const Json::exception&) {
  }
  return InvalidInput(Place(path, "$ref") + ": \"" + reference.substr(0, 100) + "\" names no schema");
}

Result<Json> SchemaForm::Normal(const Json& schema, const std::string& path, int depth) {
  HONE_RETURN_IF_ERROR(CountWork(path));
  if (depth > kMaxReferences) return InvalidInput((path.empty() ? "the schema" : path) + ": its references go in a circle or too deep");
  if (schema.is_boolean()) return schema.get<bool>() ? Json::object() : Json{{"enum", Json::array()}};
  if (!schema.is_object()) return InvalidInput(path + ": found " + Found(schema) + ", wanted a schema");
  Json own = Json::object();
  std::vector<std::pair<const Json*, std::string>> more;
  for (const auto& [name, value] : schema.items()) {
    const auto* rule = std::find_if(std::begin(kKeywords), std::end(kKeywords), [key = std::string_view(name)](const KeywordRule& one) { return one.name == key; });
    const Keyword kind = rule != std::end(kKeywords) ? rule->kind : name.starts_with("x-") ? Keyword::kNote : Keyword::kUnsupported;
    const bool off = (kind == Keyword::kOffIfFalse && value == Json(false)) || (kind == Keyword::kOffIfZero && value == Json(0));
    if (kind == Keyword::kNote || off) continue;
    if (kind == Keyword::kAssertion) {
      HONE_RETURN_IF_ERROR(CheckValue(path, name, value));
      if (name == "type") {
        HONE_TRY(own["type"], TypeList(path, value));
      } else {
        own[name] = value;
      }
    } else if (name == "$ref") {
      if (!value.is_string()) return Wrong(path, name, value, "a string");
      HONE_TRY(const Json* target, Target(value.get<std::string>(), path));
      more.emplace_back(target, path);
    } else if (name == "allOf") {
      HONE_RETURN_IF_ERROR(CheckValue(path, name, value));
      for (size_t i = 0; i < value.size(); ++i) more.emplace_back(&value[i], Place(path, "allOf[" + std::to_string(i) + "]"));
    } else if (name != "const") {
      return Unsupported(Place(path, name) + (rule == std::end(kKeywords) ? ": unknown keyword" : ": not supported"));
    }
  }
  if (schema.contains("const")) {
    HONE_TRY(own, Both(std::move(own), Json{{"enum", Json::array({schema.at("const")})}}, path));
  }
  for (const auto& [one, place] : more) {
    HONE_TRY(const Json normal, Normal(*one, place, depth + 1));
    HONE_TRY(own, Both(std::move(own), normal, place));
  }
  return own;
}

Result<Json> SchemaForm::Both(Json a, const Json& b, const std::string& path) {
  HONE_RETURN_IF_ERROR(CountWork(path));
  if (b.empty()) return a;
  if (a.empty()) return b;
  Json both = a;
  for (const auto& [name, value] : b.items()) {
    if (!a.contains(name)) {
      both[name] = value;
      continue;
    }
    const Json& mine = a.at(name);
    if (name == "type") {
      both[name] = CommonTypes(mine, value);
      if (both[name].empty()) return Json{{"enum", Json::array()}};
    } else if (name == "enum") {
      both[name] = CommonValues(mine, value);
    } else if (name == "required") {
      for (const Json& one : value) both[name].push_back(one);
    } else if (name.starts_with("min") || name == "exclusiveMinimum") {
      both[name] = std::max(mine, value);
    } else if (name.starts_with("max") || name == "exclusiveMaximum") {
      both[name] = std::min(mine, value);
    } else if (name == "anyOf") {
      if (mine.size() * value.size() > 256) return Error{ErrorCode::kLimit, Place(path, name) + ": too many alternatives together"};
      both[name] = Json::array();
      for (const Json& x : mine) {
        for (const Json& y : value) both[name].push_back(AllOf(x, y));
      }
    } else if (name == "pattern" || name == "format" || name == "oneOf") {
      if (mine != value) return Unsupported(Place(path, name) + ": two of them for one value are not supported");
    }
  }
  if (a.contains("properties") || b.contains("properties") || a.contains("additionalProperties") || b.contains("additionalProperties")) {
    MergeObjects(a, b, &both);
  }
  if (a.contains("prefixItems") || b.contains("prefixItems") || a.contains("items") || b.contains("items")) MergeArrays(a, b, &both);
  return both;
}

Result<bool> SchemaForm::Apart(const Json& a, const Json& b, const std::string& path, int depth) {
  HONE_RETURN_IF_ERROR(CountWork(path));
  const auto fits = [](const Json& value, const Json& schema) {
    const std::vector<std::string> types = TypesOf(schema);
    const bool of_type = std::any_of(types.begin(), types.end(), [&](const std::string& type) { return IsOfType(value, type); });
    const bool listed = !schema.contains("enum") ||
                        std::find(schema.at("enum").begin(), schema.at("enum").end(), value) != schema.at("enum").end();
    return of_type && listed;
  };
  for (const Json* one : {&a, &b}) {
    if (!one->contains("enum")) continue;
    return std::none_of(one->at("enum").begin(), one->at("enum").end(), [&](const Json& v) { return fits(v, a) && fits(v, b); });
  }
  const std::vector<std::string> types_a = TypesOf(a), types_b = TypesOf(b);
  const auto numeric = [](const std::string& type) { return type == "integer" ? std::string("number") : type; };
  bool objects_only = true, common = false;
  for (const std::string& x : types_a) {
    for (const std::string& y : types_b) {
      if (numeric(x) != numeric(y)) continue;
      common = true;
      objects_only = objects_only && x == "object";
    }
  }
  if (!common) return true;
  if (!objects_only || depth > 2 || !a.contains("required") || !b.contains("required")) return false;
  for (const Json& name : a.at("required")) {
    if (std::find(b.at("required").begin(), b.at("required").end(), name) == b.at("required").end()) continue;
    HONE_TRY(const Json mine, Normal(MemberSchema(a, name.get<std::string>()), path, depth + 1));
    HONE_TRY(const Json theirs, Normal(MemberSchema(b, name.get<std::string>()), path, depth + 1));
    HONE_TRY(const bool apart, Apart(mine, theirs, path, depth + 1));
    if (apart) return true;
  }
  // A member that one side needs and the other does not let be.
  for (const auto& [one, other] : {std::pair(&a, &b), std::pair(&b, &a)}) {
    for (const Json& name : one->at("required")) {
      if (MemberSchema(*other, name.get<std::string>()) == Json(false)) return true;
    }
  }
  return false;
}

}  // namespace hone
