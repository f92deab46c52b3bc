// fuzzes: formats
// JsonConfig from arbitrary text: every accessor answers for every key, and what it dumps parses to the same again.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "formats/json_config.h"

namespace {

void Visit(const hone::JsonConfig& config) {
  for (const std::string& key : config.Keys()) {
    static_cast<void>(config.Has(key));
    static_cast<void>(config.Int(key));
    static_cast<void>(config.Number(key));
    static_cast<void>(config.Bool(key, false));
    static_cast<void>(config.String(key));
    static_cast<void>(config.Ints(key));
    static_cast<void>(config.Numbers(key));
    static_cast<void>(config.Strings(key));
    const auto inner = config.Object(key);
    HONE_CHECK(inner.has_value() == config.IsObject(key));
    if (inner) Visit(*inner);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto config = hone::JsonConfig::Parse({reinterpret_cast<const char*>(data), size}, "fuzz");
  if (!config) return 0;
  Visit(*config);
  const std::string text = config->Dump();
  const auto again = hone::JsonConfig::Parse(text, "again");
  HONE_CHECK(again.has_value() && again->Dump() == text, "a dump does not parse to the same");
  return 0;
}
