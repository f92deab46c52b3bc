// Bodies are measured (depth, values) before they are parsed, then every field is held to the table of fields.inc.
#include "serve/openai/fields.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "serve/json_writer.h"
#include "serve/limits.h"

namespace hone {
namespace {

constexpr FieldRule kRules[] = {
#define HONE_FIELD(name, chat, completion, response, embedding, harmless, note) \
  {name, FieldKind::chat, FieldKind::completion, FieldKind::response, FieldKind::embedding, harmless, note},
#include "serve/openai/fields.inc"
#undef HONE_FIELD
};

constexpr size_t kMaxFoundBytes = 80;
constexpr size_t kMaxNameBytes = 64;  // longer names are not compared

ApiError Invalid(std::string message, std::string param = "", std::string code = "invalid_json") {
  return {400, std::move(message), std::move(param), std::move(code)};
}

std::string LineAndColumn(std::string_view text, size_t offset) {
  offset = std::min(offset, text.size());
  const std::string_view before = text.substr(0, offset);
  const size_t line = 1 + static_cast<size_t>(std::count(before.begin(), before.end(), '\n'));
  const size_t newline = before.rfind('\n');
  const size_t column = newline == std::string_view::npos ? offset + 1 : offset - newline;
  return "line " + std::to_string(line) + ", column " + std::to_string(column);
}

// Depth and number of values, before anything is allocated for them. Wrong JSON may pass: the parser says no later.
std::optional<ApiError> CheckSize(std::string_view body) {
  int depth = 0;
  size_t values = 0;
  std::array<int, kMaxJsonDepth + 1> keys{};
  bool in_string = false;
  for (size_t i = 0; i < body.size(); ++i) {
    const char c = body[i];
    if (in_string) {
      if (c == '\\') ++i;
      else if (c == '"') in_string = false;
      continue;
    }
    switch (c) {
      case '"': in_string = true; break;
      case '{':
      case '[':
        if (++depth > kMaxJsonDepth) {
          return Invalid("the request body is nested deeper than " + std::to_string(kMaxJsonDepth) + " levels at " +
                         LineAndColumn(body, i));
        }
        keys[static_cast<size_t>(depth)] = 0;
        ++values;
        break;
      case '}':
      case ']': depth = std::max(0, depth - 1); break;
      case ',': ++values; break;
      case ':':
        if (++keys[static_cast<size_t>(depth)] > kMaxJsonKeys) {
          return Invalid("an object of the request body has more than " + std::to_string(kMaxJsonKeys) + " members");
        }
        break;
      default: break;
    }
    if (values > kMaxJsonValues) {
      return Invalid("the request body holds more than " + std::to_string(kMaxJsonValues) + " JSON values");
    }
  }
  return std::nullopt;
}

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t best = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = row[j];
      row[j] = best;
    }
  }
  return row[b.size()];
}

// null, false, "", [], {}: the caller sent the field and asks for nothing.
bool AsksForNothing(const Json& value, std::string_view harmless) {
  if (value.is_null() || value == Json(false)) return true;
  if (value.is_string()) {
    if (value.get_ref<const std::string&>().empty()) return true;
  } else if (value.is_structured() && value.empty()) {
    return true;
  }
  if (harmless.empty()) return false;
  const std::string all = "|" + std::string(harmless) + "|";  // JSON that holds these bars between values is no one value
  return all.find("|" + value.dump(-1, ' ', false, Json::error_handler_t::replace) + "|") != std::string::npos;
}

std::string Printable(std::string_view name) {
  std::string out = RepairUtf8(name.substr(0, kMaxNameBytes));
  std::replace_if(out.begin(), out.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');  // names are logged: no line of its own
  if (name.size() > kMaxNameBytes) out += "...";
  return out;
}

std::optional<ApiError> UnknownField(const std::string& path, std::string_view name,
                                     std::span<const std::string_view> known, const FieldPolicy& policy) {
  const std::string full = path.empty() ? Printable(name) : path + "." + Printable(name);
  const std::string_view near = Nearest(name, known);
  std::string message = "unknown field " + full;
  if (!near.empty()) message += "; did you mean " + std::string(near) + "?";
  if (policy.lenient) {
    if (policy.log != nullptr) policy.log->Warn("request: {} (ignored, --lenient-fields)", message);
    return std::nullopt;
  }
  return ApiError{400, message, full, "unknown_field"};
}

// The first name that an object has twice. Of two values parsers take the first or the last, so what a gateway looked at need not be
// what would be honoured here (RFC 8259, 4). A walk of its own: with a callback the parser looks through all elements of an array
// at the end of each.
class RepeatedName final : public nlohmann::json_sax<Json> {
 public:
  const std::optional<std::string>& path() const { return path_; }

  bool null() override { return CountElement(); }
  bool boolean(bool) override { return CountElement(); }
  bool number_integer(number_integer_t) override { return CountElement(); }
  bool number_unsigned(number_unsigned_t) override { return CountElement(); }
  bool number_float(number_float_t, const string_t&) override { return CountElement(); }
  bool string(string_t&) override { return CountElement(); }
  bool binary(binary_t&) override { return CountElement(); }
  bool start_object(size_t) override { return Open(false); }
  bool start_array(size_t) override { return Open(true); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }
  bool key(string_t& name) override {
    Level& object = open_.back();
    object.name = name;
    if (!object.names.insert(name).second) path_ = Path();
    return !path_;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }

 private:
  struct Level {
    bool is_array = false;
    size_t elements = 0;          // of an array, so far
    std::set<std::string> names;  // of an object, so far
    std::string name;             // the latest of them
  };
  bool CountElement() {
    if (!open_.empty()) ++open_.back().elements;
    return true;
  }
  bool Open(bool is_array) {
    CountElement();
    open_.push_back({.is_array = is_array});
    return true;
  }
  bool Close() {
    open_.pop_back();
    return true;
  }
  std::string Path() const {
    std::string path;
    for (const Level& level : open_) {
      if (level.is_array) path += "[" + std::to_string(level.elements - 1) + "]";
      else path += (path.empty() ? "" : ".") + Printable(level.name);
    }
    return path;
  }

  std::vector<Level> open_;
  std::optional<std::string> path_;
};

}  // namespace

std::span<const FieldRule> FieldRules() { return kRules; }

std::optional<ApiError> ParseBody(std::string_view body, Json* document, bool last_counts) {
  if (body.empty()) return Invalid("the request body is empty; wanted a JSON object");
  if (const size_t bad = FindInvalidUtf8(body); bad != std::string_view::npos) {
    return Invalid("the request body is not valid UTF-8 at byte " + std::to_string(bad) + " (" + LineAndColumn(body, bad) + ")");
  }
  if (const size_t zero = body.find('\0'); zero != std::string_view::npos) {  // the parser would take it for the end
    return Invalid("the request body is not valid JSON at " + LineAndColumn(body, zero) + ": a zero byte");
  }
  if (auto error = CheckSize(body)) return error;
  RepeatedName repeated;
  try {
    *document = Json::parse(body.begin(), body.end());
    if (!last_counts) Json::sax_parse(body.begin(), body.end(), &repeated);
  } catch (const Json::parse_error& e) {
    const size_t at = e.byte > 0 ? e.byte - 1 : 0;
    std::string what = e.what();
    if (const size_t colon = what.rfind("; "); colon != std::string::npos) what = what.substr(colon + 2);
    if (what.size() > kMaxFoundBytes) what = what.substr(0, kMaxFoundBytes) + "...";  // it quotes what was read last, however long
    return Invalid("the request body is not valid JSON at " + LineAndColumn(body, at) + ": " + RepairUtf8(what));
  } catch (const Json::out_of_range&) {  // its message quotes the number, however long
    return Invalid("the request body holds a number that is beyond the range of a double");
  } catch (const std::exception&) {
    return Invalid("the request body is not valid JSON");
  }
  if (!document->is_object()) return Invalid("the request body is not a JSON object; found " + Found(*document));
  if (const auto& path = repeated.path()) return Invalid(*path + ": this name is there twice in its object; send it once", *path, "duplicate_field");
  return std::nullopt;
}

std::string_view Nearest(std::string_view name, std::span<const std::string_view> candidates) {
  if (name.size() > kMaxNameBytes) return {};
  std::string_view best;
  size_t best_distance = 1 + std::max<size_t>(2, name.size() / 3);
  for (const std::string_view candidate : candidates) {
    const size_t distance = EditDistance(name, candidate);
    if (distance < best_distance) best = candidate, best_distance = distance;
  }
  return best;
}

std::optional<ApiError> CheckFields(const Json& object, FieldKind FieldRule::*kind, const FieldPolicy& policy) {
  for (const auto& [name, value] : object.items()) {
    const auto* rule = std::find_if(std::begin(kRules), std::end(kRules), [&, &key = name](const FieldRule& r) {
      return r.name == key && r.*kind != FieldKind::kAbsent;
    });
    if (rule == std::end(kRules)) {
      std::vector<std::string_view> known;
      for (const FieldRule& r : kRules) {
        if (r.*kind == FieldKind::kHonoured || r.*kind == FieldKind::kAccepted) known.push_back(r.name);
      }
      if (auto error = UnknownField("", name, known, policy)) return error;
      continue;
    }
    const FieldKind what = rule->*kind;
    if ((what != FieldKind::kRefused && what != FieldKind::kNever) || AsksForNothing(value, rule->harmless)) continue;
    const std::string message = name + ": not supported: " + std::string(rule->note) + " (found " + Found(value) + ")";
    if (what == FieldKind::kRefused && policy.lenient) {
      if (policy.log != nullptr) policy.log->Warn("request: {} (ignored, --lenient-fields)", message);
      continue;
    }
    return ApiError{400, message, name, "unsupported_field"};
  }
  return std::nullopt;
}

std::optional<ApiError> CheckNames(const Json& object, const std::string& path, std::span<const std::string_view> known,
                                   const FieldPolicy& policy) {
  for (const auto& [name, value] : object.items()) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    if (auto error = UnknownField(path, name, known, policy)) return error;
  }
  return std::nullopt;
}

std::string Dump(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string Found(const Json& value) {
  if (value.is_structured()) {
    const std::string size = std::to_string(value.size());
    return value.is_array() ? "an array of " + size : "an object of " + size + (value.size() == 1 ? " member" : " members");
  }
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > kMaxFoundBytes) text = RepairUtf8(text.substr(0, kMaxFoundBytes)) + "...";
  return text;
}

ApiError BadValue(const std::string& field, const Json& found, const std::string& wanted) {
  return {400, field + ": found " + Found(found) + ", wanted " + wanted, field, "invalid_value"};
}

std::optional<int64_t> AsInt(const Json& value) {
  if (value.is_number_unsigned()) {
    const uint64_t number = value.get<uint64_t>();
    if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
    return static_cast<int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_number_float()) {
    const double number = value.get<double>();
    if (std::floor(number) == number && std::fabs(number) < 9e15) return static_cast<int64_t>(number);
  }
  return std::nullopt;
}

const Json* FieldReader::Get(const std::string& name) {
  if (error_) return nullptr;
  const auto it = object_.find(name);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

void FieldReader::Bool(const std::string& name, bool* out) {
  const Json* value = Get(name);
  if (value == nullptr) return;
  if (!value->is_boolean()) return Fail(BadValue(name, *value, "true or false"));
  *out = value->get<bool>();
}

void FieldReader::Int(const std::string& name, int64_t min, int64_t max, int* out) {
  const Json* value = Get(name);
  if (value == nullptr) return;
  const std::optional<int64_t> number = AsInt(*value);
  if (!number || *number < min || *number > max) {
    return Fail(BadValue(name, *value, "an integer in [" + std::to_string(min) + ", " + std::to_string(max) + "]"));
  }
  *out = static_cast<int>(*number);
}

void FieldReader::Seed(const std::string& name, std::optional<uint64_t>* out) {
  const Json* value = Get(name);
  if (value == nullptr) return;
  if (value->is_number_unsigned()) {
    *out = value->get<uint64_t>();
  } else if (const std::optional<int64_t> number = AsInt(*value)) {
    *out = static_cast<uint64_t>(*number);
  } else {
    Fail(BadValue(name, *value, "a 64-bit integer"));
  }
}

void FieldReader::Float(const std::string& name, double min, bool min_open, double max, float* out) {
  double number = static_cast<double>(*out);
  Double(name, min, min_open, max, &number);
  *out = static_cast<float>(number);
}

void FieldReader::Double(const std::string& name, double min, bool min_open, double max, double* out) {
  const Json* value = Get(name);
  if (value == nullptr) return;
  const double number = value->is_number() ? value->get<double>() : std::nan("");
  if (!(number <= max) || !(min_open ? number > min : number >= min)) {
    const auto text = [](double x) {
      char digits[32];
      std::snprintf(digits, sizeof digits, "%g", x);
      return std::string(digits);
    };
    return Fail(BadValue(name, *value, "a number in " + std::string(min_open ? "(" : "[") + text(min) + ", " + text(max) + "]"));
  }
  *out = number;
}

void FieldReader::String(const std::string& name, std::string* out) {
  const Json* value = Get(name);
  if (value == nullptr) return;
  if (!value->is_string()) return Fail(BadValue(name, *value, "a string"));
  *out = value->get_ref<const std::string&>();
}

void FieldReader::Ids(const std::string& name, size_t max_count, int vocab, std::vector<int32_t>* out) {
  const Json* value = Get(name);
  if (value == nullptr) return;
  if (!value->is_array() || value->size() > max_count) {
    return Fail(BadValue(name, *value, "an array of at most " + std::to_string(max_count) + " token ids"));
  }
  for (const Json& item : *value) {
    const std::optional<int64_t> id = AsInt(item);
    if (!id || *id < 0 || *id >= vocab) {
      return Fail(BadValue(name, item, "token ids in [0, " + std::to_string(vocab - 1) + "]"));
    }
    out->push_back(static_cast<int32_t>(*id));
  }
}

}  // namespace hone
