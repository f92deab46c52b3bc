// Reading the fields of a JSON request: body to document, known and unknown names, values in their ranges.
//
// Promises: any bytes give a document or a 400; an error names the field, what was found and what is allowed; nothing is
// silently ignored. Private to openai/ and endpoints/: JSON stays behind this header (nlohmann, ordered: templates see the
// keys in the order sent).
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "serve/error.h"

namespace hone {

using Json = nlohmann::ordered_json;

enum class FieldKind { kHonoured, kAccepted, kRefused, kNever, kAbsent };

struct FieldRule {
  std::string_view name;
  FieldKind chat, completion, response, embedding;
  std::string_view harmless;  // JSON of values that a refused field may have, with | between them, besides null and the empty values
  std::string_view note;
};
std::span<const FieldRule> FieldRules();  // openai/fields.inc

// How strict a request is read.
struct FieldPolicy {
  bool lenient = false;
  Log* log = nullptr;  // may be null
};

// The document of a body. Errors: bytes that are not UTF-8, not JSON (with line and column), nested deeper than kMaxJsonDepth,
// more than kMaxJsonValues values, not an object, a name twice in one object (unless `last_counts`: then its last value counts).
std::optional<ApiError> ParseBody(std::string_view body, Json* document, bool last_counts = false);

// Every member of `object` is honoured or accepted by `kind` of its rule, or has a harmless value.
std::optional<ApiError> CheckFields(const Json& object, FieldKind FieldRule::*kind, const FieldPolicy& policy);
// The same for a small object whose members are all honoured; `path` ("stream_options") stands before the names.
std::optional<ApiError> CheckNames(const Json& object, const std::string& path, std::span<const std::string_view> known,
                                   const FieldPolicy& policy);
// The candidate nearest to `name` by edit distance; "" if none is near.
std::string_view Nearest(std::string_view name, std::span<const std::string_view> candidates);

// The value as JSON; bytes that are no UTF-8 are replaced.
std::string Dump(const Json& value);
// The value as JSON, cut to a readable length: for "found ..." in messages.
std::string Found(const Json& value);
ApiError BadValue(const std::string& field, const Json& found, const std::string& wanted);

// Reads members of one object. The first error stays; later calls do nothing. An absent or null member leaves *out alone.
class FieldReader {
 public:
  explicit FieldReader(const Json& object) : object_(object) {}

  // The member, or null if it is absent or JSON null or an error stands.
  const Json* Get(const std::string& name);
  bool Has(const std::string& name) { return Get(name) != nullptr; }

  void Bool(const std::string& name, bool* out);
  void Int(const std::string& name, int64_t min, int64_t max, int* out);
  void Seed(const std::string& name, std::optional<uint64_t>* out);  // any 64-bit integer
  // min_open: min itself is not allowed.
  void Float(const std::string& name, double min, bool min_open, double max, float* out);
  void Double(const std::string& name, double min, bool min_open, double max, double* out);
  void String(const std::string& name, std::string* out);
  void Ids(const std::string& name, size_t max_count, int vocab, std::vector<int32_t>* out);

  void Fail(ApiError error) {
    if (!error_) error_ = std::move(error);
  }
  std::optional<ApiError>& error() { return error_; }

 private:
  const Json& object_;
  std::optional<ApiError> error_;
};

// An integer, or a float that is one.
std::optional<int64_t> AsInt(const Json& value);

}  // namespace hone
