// SchemaForm: a schema without $ref and allOf: what those say is merged into one object, so that each keyword stands once.
//
// The normal form: `true` is {}, `false` is {"enum": []}; "type" is an array, "const" is an "enum" of one; "anyOf" and "oneOf" are
// left for who builds alternatives. Unknown and unsupported keywords are errors. Subschemas (of properties, items ...) are as they
// came, but for {"allOf": [...]} around those that several sides gave.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "serve/openai/fields.h"

namespace hone {

class SchemaForm {
 public:
  explicit SchemaForm(const Json& root) : root_(root) {}

  // `path` stands in errors.
  Result<Json> Normal(const Json& schema, const std::string& path) { return Normal(schema, path, 0); }
  // What is valid against both; both in normal form.
  Result<Json> Both(Json a, const Json& b, const std::string& path);
  // Nothing is valid against both; may say false though it is so.
  Result<bool> Apart(const Json& a, const Json& b, const std::string& path, int depth = 0);

 private:
  Result<Json> Normal(const Json& schema, const std::string& path, int depth);
  Result<const Json*> Target(const std::string& reference, const std::string& path) const;
  Result<void> CountWork(const std::string& path);

  const Json& root_;
  int work_ = 0;
};

// The types that a schema in normal form lets through: "null", "boolean", "integer", "number", "string", "array", "object"; of
// integer and number only one.
std::vector<std::string> TypesOf(const Json& normal);
bool IsOfType(const Json& value, const std::string& type);

}  // namespace hone
