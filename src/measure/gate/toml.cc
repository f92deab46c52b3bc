// See toml.h. Values are read as JSON, whose strings, numbers, booleans and arrays are TOML's too; literal strings
// ('...') are the one addition.
#include "measure/gate/toml.h"

#include <nlohmann/json.hpp>
#include <string>

#include "measure/json_text.h"

namespace hone {
namespace {

using nlohmann::ordered_json;

std::string_view Trim(std::string_view text) {
  const size_t from = text.find_first_not_of(" \t\r");
  if (from == std::string_view::npos) return {};
  return text.substr(from, text.find_last_not_of(" \t\r") - from + 1);
}

// Up to a '#' that is not inside of a string.
std::string_view WithoutComment(std::string_view line) {
  char quote = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quote != 0) {
      if (c == '\\' && quote == '"') ++i;
      if (c == quote) quote = 0;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '#') {
      return line.substr(0, i);
    }
  }
  return line;
}

bool IsKey(std::string_view text) {
  return !text.empty() && text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") ==
                              std::string_view::npos;
}

Result<ordered_json> ReadValue(std::string_view text) {
  if (text.size() >= 2 && text.front() == '\'' && text.find('\'', 1) == text.size() - 1) {
    return ordered_json(std::string(text.substr(1, text.size() - 2)));
  }
  ordered_json value = ParseJson(text);
  if (value.is_discarded() || value.is_object() || value.is_null())
    return InvalidInput("'" + std::string(text) +
                        "': wanted a \"string\", a number, true, false or an array on one line");
  return value;
}

}  // namespace

Result<ordered_json> ParseSmallToml(std::string_view text) {
  ordered_json root = ordered_json::object();
  ordered_json* table = &root;
  int number = 0;
  const auto fault = [&](const std::string& what) {
    return InvalidInput("line " + std::to_string(number) + ": " + what);
  };
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = Trim(WithoutComment(text.substr(at, end - at)));
    at = end + 1;
    ++number;
    if (line.empty()) continue;
    if (line.front() == '[') {
      const bool array = line.substr(0, 2) == "[[";
      const size_t marks = array ? 2 : 1;
      const std::string close(marks, ']');
      if (line.size() < 2 * marks + 1 || line.substr(line.size() - marks) != close)
        return fault("wanted [table] or [[table]]");
      const std::string key(Trim(line.substr(marks, line.size() - 2 * marks)));
      if (!IsKey(key)) return fault("'" + key + "' is no name of a table; dotted names are not read");
      ordered_json& there = root[key];
      if (array) {
        if (there.is_null()) there = ordered_json::array();
        if (!there.is_array()) return fault("'" + key + "' is not an array of tables elsewhere");
        there.push_back(ordered_json::object());
        table = &there.back();
      } else {
        if (!there.is_null()) return fault("table '" + key + "' is there already");
        there = ordered_json::object();
        table = &there;
      }
      continue;
    }
    const size_t equals = line.find('=');
    const std::string key(equals == std::string_view::npos ? line : Trim(line.substr(0, equals)));
    if (equals == std::string_view::npos || !IsKey(key)) return fault("wanted key = value");
    if (table->contains(key)) return fault("'" + key + "' is there already");
    Result<ordered_json> value = ReadValue(Trim(line.substr(equals + 1)));
    if (!value) return fault(key + ": " + value.error().message);
    (*table)[key] = std::move(*value);
  }
  return root;
}

}  // namespace hone
