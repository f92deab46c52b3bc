// fuzzes: serve
// Any JSON as a schema: a grammar or an error that says something; and from wherever the grammar leads it can go on.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/check.h"
#include "engine/grammar/token_grammar.h"
#include "serve/fake_engine.h"
#include "serve/structured/json_schema.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hone;
  Json schema;
  if (size > 16384 || ParseBody({reinterpret_cast<const char*>(data), size}, &schema)) return 0;
  GrammarBuilder builder;
  JsonGrammar json(builder);
  const auto rule = AddJsonSchema(json, schema);
  if (!rule) {
    HONE_CHECK(!rule.error().message.empty());
    return 0;
  }
  const auto grammar = builder.Build(*rule);
  if (!grammar) return 0;
  static const auto tokens = std::make_shared<TokenBytesTable>(FakeChatTokenizer());
  GrammarCursor cursor(std::make_shared<TokenGrammar>(*grammar, tokens));
  for (size_t i = 0; i < 48 && !cursor.MustEnd(); ++i) {
    const int first = data[i % size];
    bool some = false;
    for (int k = 0; k < 256 && !some; ++k) some = cursor.Advance(std::string(1, static_cast<char>((first + k * 37) & 255)));
    HONE_CHECK(some);
  }
  return 0;
}
