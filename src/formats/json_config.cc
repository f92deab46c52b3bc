// nlohmann::json behind a typed door. The text is scanned first: nesting is bounded before the parser sees it, and
// Infinity and NaN, which JSON lacks but Python writes, pass through the parser as strings that do not occur in the
// text.
#include "formats/json_config.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/memory.h"
#include "formats/file_kind.h"

namespace hone {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxDepth = 64;
constexpr size_t kMaxBytes = size_t{16} << 20;  // a tree takes up to twenty times its text

struct Literal {
  std::string_view text;
  double value;
};
constexpr Literal kLiterals[] = {{"-Infinity", -std::numeric_limits<double>::infinity()},
                                 {"Infinity", std::numeric_limits<double>::infinity()},
                                 {"NaN", std::numeric_limits<double>::quiet_NaN()}};

// The text with each literal outside strings as a string of `mark` + literal; depth is the deepest nesting.
std::string MarkLiterals(std::string_view text, std::string_view mark, size_t* depth) {
  std::string out;
  out.reserve(text.size());
  size_t level = 0;
  *depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    out += c;
    if (in_string) {
      if (c == '\\' && i + 1 < text.size()) out += text[++i];
      if (c == '"') in_string = false;
      continue;
    }
    if (c == '"') in_string = true;
    if (c == '{' || c == '[') *depth = std::max(*depth, ++level);
    if ((c == '}' || c == ']') && level > 0) --level;
    if (c != '-' && c != 'I' && c != 'N') continue;
    for (const Literal& literal : kLiterals) {
      if (!text.substr(i).starts_with(literal.text)) continue;
      out.pop_back();
      out.append("\"").append(mark).append(literal.text).append("\"");
      i += literal.text.size() - 1;
      break;
    }
  }
  return out;
}

// Turns the marked strings into numbers. Recursion is bounded by kMaxDepth.
void Unmark(std::string_view mark, Json* node) {
  if (node->is_structured()) {
    for (Json& child : *node) Unmark(mark, &child);
    return;
  }
  if (!node->is_string()) return;
  const std::string_view text = node->get_ref<const std::string&>();
  if (!text.starts_with(mark)) return;
  for (const Literal& literal : kLiterals) {
    if (text.substr(mark.size()) == literal.text) {
      *node = literal.value;
      return;
    }
  }
}

// And back, for Dump.
void Mark(std::string_view mark, Json* node) {
  if (node->is_structured()) {
    for (Json& child : *node) Mark(mark, &child);
    return;
  }
  if (!node->is_number_float()) return;
  const double value = node->get<double>();
  if (std::isfinite(value)) return;
  *node = std::string(mark) + (std::isnan(value) ? "NaN" : value < 0 ? "-Infinity" : "Infinity");
}

// A mark that the text does not contain. Drawn from its hash, so that no text can be written to hold many candidates.
std::string FreshMark(std::string_view text) {
  for (uint64_t k = std::hash<std::string_view>()(text);; ++k) {
    const std::string mark = "hone-" + std::to_string(k) + ":";
    if (text.find(mark) == std::string_view::npos) return mark;
  }
}

bool ToWhole(const Json& node, int64_t* out) {
  if (node.is_number_unsigned()) {
    const uint64_t value = node.get<uint64_t>();
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return false;
    *out = static_cast<int64_t>(value);
    return true;
  }
  if (node.is_number_integer()) {
    *out = node.get<int64_t>();
    return true;
  }
  if (!node.is_number_float()) return false;
  const double value = node.get<double>();
  if (!(std::abs(value) < 0x1.0p63) || value != std::floor(value)) return false;
  *out = static_cast<int64_t>(value);
  return true;
}

// What a value is, with its text when that is short.
std::string Found(const Json& node) {
  std::string text = node.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > 40) text.resize(37), text += "...";
  return std::string(node.type_name()) + " (" + text + ")";
}

}  // namespace

struct JsonConfig::Node {
  std::shared_ptr<const Json> root;  // keeps `value` alive
  const Json* value;

  const Json* Find(std::string_view key) const {  // nullptr: absent or null
    const auto it = value->find(key);
    return it == value->end() || it->is_null() ? nullptr : &*it;
  }
};

namespace {

Error Absent(const std::string& origin, std::string_view key) {
  return InvalidInput(origin + ": no key '" + std::string(key) + "', which is needed");
}
Error Wrong(const std::string& origin, std::string_view key, const Json& found, std::string_view wanted) {
  return InvalidInput(origin + ": key '" + std::string(key) + "' is " + Found(found) + ", wanted " +
                      std::string(wanted));
}

}  // namespace

Result<JsonConfig> JsonConfig::Parse(std::string_view text, std::string origin) {
  if (text.size() > kMaxBytes) {
    return Error{ErrorCode::kLimit,
                 origin + ": " + std::to_string(text.size()) + " bytes of JSON, wanted at most 16 MiB"};
  }
  const std::string mark = FreshMark(text);
  size_t depth = 0;
  const std::string marked = MarkLiterals(text, mark, &depth);
  if (depth > kMaxDepth) {
    return InvalidInput(origin + ": JSON is nested " + std::to_string(depth) + " deep, wanted at most 64");
  }
  auto root = std::make_shared<Json>();
  try {
    *root = Json::parse(marked);
  } catch (const std::exception& error) {
    const std::string_view head = text.substr(0, std::min<size_t>(text.find_first_not_of(" \t\r\n"), text.size()) + 1);
    const std::string kind = head.ends_with('{') ? "" : "; " + DescribeContents(text);
    return InvalidInput(origin + ": not valid JSON: " + error.what() + kind);
  }
  if (!root->is_object())
    return InvalidInput(origin + ": JSON " + std::string(root->type_name()) + ", wanted an object {...}");
  Unmark(mark, root.get());
  auto node = std::make_shared<Node>();
  node->value = root.get();
  node->root = std::move(root);
  return JsonConfig(std::move(node), std::move(origin));
}

Result<JsonConfig> JsonConfig::Read(const std::string& path) {
  HONE_TRY(const auto file, MappedFile::Open(path));
  const std::span<const std::byte> bytes = file->bytes();
  return Parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path);
}

bool JsonConfig::Has(std::string_view key) const { return node_->Find(key) != nullptr; }
bool JsonConfig::IsObject(std::string_view key) const {
  const Json* found = node_->Find(key);
  return found != nullptr && found->is_object();
}
bool JsonConfig::IsString(std::string_view key) const {
  const Json* found = node_->Find(key);
  return found != nullptr && found->is_string();
}
bool JsonConfig::IsArray(std::string_view key) const {
  const Json* found = node_->Find(key);
  return found != nullptr && found->is_array();
}

Result<int64_t> JsonConfig::Int(std::string_view key) const {
  const Json* found = node_->Find(key);
  if (found == nullptr) return Absent(origin_, key);
  int64_t value;
  if (!ToWhole(*found, &value)) return Wrong(origin_, key, *found, "a whole number");
  return value;
}
Result<int64_t> JsonConfig::Int(std::string_view key, int64_t fallback) const { return Has(key) ? Int(key) : fallback; }

Result<double> JsonConfig::Number(std::string_view key) const {
  const Json* found = node_->Find(key);
  if (found == nullptr) return Absent(origin_, key);
  if (!found->is_number()) return Wrong(origin_, key, *found, "a number");
  return found->get<double>();
}
Result<double> JsonConfig::Number(std::string_view key, double fallback) const {
  return Has(key) ? Number(key) : fallback;
}

Result<bool> JsonConfig::Bool(std::string_view key, bool fallback) const {
  const Json* found = node_->Find(key);
  if (found == nullptr) return fallback;
  if (!found->is_boolean()) return Wrong(origin_, key, *found, "true or false");
  return found->get<bool>();
}

Result<std::string> JsonConfig::String(std::string_view key) const {
  const Json* found = node_->Find(key);
  if (found == nullptr) return Absent(origin_, key);
  if (!found->is_string()) return Wrong(origin_, key, *found, "a string");
  return found->get<std::string>();
}
Result<std::string> JsonConfig::String(std::string_view key, std::string_view fallback) const {
  if (!Has(key)) return std::string(fallback);
  return String(key);
}

Result<std::vector<int64_t>> JsonConfig::Ints(std::string_view key) const {
  const Json* found = node_->Find(key);
  if (found == nullptr) return Absent(origin_, key);
  std::vector<int64_t> values(1);
  if (ToWhole(*found, &values[0])) return values;
  if (!found->is_array()) return Wrong(origin_, key, *found, "whole numbers");
  values.clear();
  for (const Json& item : *found) {
    if (!ToWhole(item, &values.emplace_back())) return Wrong(origin_, key, item, "only whole numbers in its array");
  }
  return values;
}

Result<std::vector<double>> JsonConfig::Numbers(std::string_view key) const {
  const Json* found = node_->Find(key);
  if (found == nullptr) return Absent(origin_, key);
  if (!found->is_array()) return Wrong(origin_, key, *found, "an array of numbers");
  std::vector<double> values;
  for (const Json& item : *found) {
    if (!item.is_number()) return Wrong(origin_, key, item, "only numbers in its array");
    values.push_back(item.get<double>());
  }
  return values;
}

Result<std::vector<std::string>> JsonConfig::Strings(std::string_view key) const {
  const Json* found = node_->Find(key);
  if (found == nullptr) return Absent(origin_, key);
  if (!found->is_array()) return Wrong(origin_, key, *found, "an array of strings");
  std::vector<std::string> values;
  for (const Json& item : *found) {
    if (!item.is_string()) return Wrong(origin_, key, item, "only strings in its array");
    values.push_back(item.get<std::string>());
  }
  return values;
}

Result<JsonConfig> JsonConfig::Object(std::string_view key) const {
  const Json* found = node_->Find(key);
  if (found == nullptr) return Absent(origin_, key);
  if (!found->is_object()) return Wrong(origin_, key, *found, "an object {...}");
  auto node = std::make_shared<Node>(Node{node_->root, found});
  return JsonConfig(std::move(node), origin_ + ": " + std::string(key));
}

std::vector<std::string> JsonConfig::Keys() const {
  std::vector<std::string> keys;
  for (const auto& item : node_->value->items()) keys.push_back(item.key());
  return keys;
}

std::string JsonConfig::Dump() const {
  std::string text = node_->value->dump(-1, ' ', false, Json::error_handler_t::replace);
  const std::string mark = FreshMark(text);
  Json marked = *node_->value;
  Mark(mark, &marked);
  text = marked.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t next = text.find("\"" + mark, at);
    out += text.substr(at, next - at);
    if (next == std::string::npos) break;
    const size_t begin = next + 1 + mark.size();
    const size_t end = text.find('"', begin);
    out += text.substr(begin, end - begin);
    at = end + 1;
  }
  return out;
}

}  // namespace hone
