// fuzzes: text
// A template's source against fixed variables: any bytes must end in a text or an error, soon and in bounded memory.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "text/jinja/template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hone::jinja;
  static const Value variables =
      FromJson(R"({"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "h\u00e9 <b>"},
                   {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": {"a": [1, 2.5]}}}]}],
                   "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
                   "n": 5, "f": 2.5, "s": "Hello World", "d": {"b": 1, "a": {"x": [1, null, true]}}, "add_generation_prompt": true})")
          .value();
  const auto parsed = Template::Parse(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!parsed) return 0;
  RenderOptions options;
  options.max_steps = 300'000;
  options.max_output_bytes = 1 << 20;
  options.max_live_bytes = 64 << 20;
  options.now = CivilTime{2026, 1, 2, 3, 4, 5};
  (void)(*parsed)->Render(variables.as_dict(), options).has_value();
  return 0;
}
