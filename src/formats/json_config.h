// JsonConfig: a JSON object (config.json, generation_config.json ...) with typed, checked access. Keeps the JSON
// library out of the folders that read configurations. Cheap to copy; immutable; thread-safe.
//
// A key that is absent or null is "absent". A key of another type is an error that names the file, the key, what was
// found and what was wanted. Infinity and NaN literals, as Python writes them, are read as numbers.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace hone {

class JsonConfig {
 public:
  // `origin` stands in error messages (a path). The text must be one JSON object, at most 16 MiB, nesting at most 64 deep.
  static Result<JsonConfig> Parse(std::string_view text, std::string origin);
  static Result<JsonConfig> Read(const std::string& path);

  bool Has(std::string_view key) const;      // present and not null
  bool IsObject(std::string_view key) const;
  bool IsString(std::string_view key) const;
  bool IsArray(std::string_view key) const;

  Result<int64_t> Int(std::string_view key) const;  // a whole number; 3.0 counts
  Result<int64_t> Int(std::string_view key, int64_t fallback) const;
  Result<double> Number(std::string_view key) const;
  Result<double> Number(std::string_view key, double fallback) const;
  Result<bool> Bool(std::string_view key, bool fallback) const;
  Result<std::string> String(std::string_view key) const;
  Result<std::string> String(std::string_view key, std::string_view fallback) const;
  Result<std::vector<int64_t>> Ints(std::string_view key) const;  // an array of whole numbers, or one whole number
  Result<std::vector<double>> Numbers(std::string_view key) const;
  Result<std::vector<std::string>> Strings(std::string_view key) const;
  Result<JsonConfig> Object(std::string_view key) const;
  std::vector<std::string> Keys() const;

  const std::string& origin() const { return origin_; }
  std::string Dump() const;  // compact JSON text

 private:
  struct Node;  // holds the library's value
  JsonConfig(std::shared_ptr<const Node> node, std::string origin)
      : node_(std::move(node)), origin_(std::move(origin)) {}
  std::shared_ptr<const Node> node_;
  std::string origin_;
};

}  // namespace hone
