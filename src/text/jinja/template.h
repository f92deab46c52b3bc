// Template: Jinja source, parsed once, rendered many times. The language is Jinja2's in the environment that chat templates
// are written for (trim_blocks, lstrip_blocks, loop controls, generation blocks, tojson as json.dumps, immutable sandbox).
// A hostile template is harmless: steps, recursion, memory and output are bounded. Nothing is read from disk: include,
// import and extends are errors. docs/chat-templates.md lists what differs from Jinja2.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "text/jinja/value.h"

namespace hone::jinja {

// Wall clock time of strftime_now, without a zone.
struct CivilTime {
  int year = 1970, month = 1, day = 1, hour = 0, minute = 0, second = 0;
  static CivilTime Now();                                 // local time
  static Result<CivilTime> Parse(std::string_view text);  // "2026-01-02T03:04:05"; "2026-01-02" is midnight
};

struct RenderOptions {
  int64_t max_steps = 10'000'000;           // one a node evaluated; long strings cost more
  int max_depth = 1000;                     // nested expressions, blocks and macro calls, and 512 KiB of stack
  int64_t max_output_bytes = 64 << 20;
  int64_t max_live_bytes = 512 << 20;       // of values alive at once
  std::optional<CivilTime> now;             // none: the system's clock
};

class Program;  // the syntax tree

class Template {
 public:
  // A syntax error names the line and column.
  static Result<std::shared_ptr<const Template>> Parse(std::string_view source);
  ~Template();
  Template(const Template&) = delete;

  // Thread-safe. raise_exception(m) gives kInvalidInput with the message m and nothing else; other errors of the template
  // give Python's message with the template line added; a limit reached is kLimit.
  Result<std::string> Render(const Dict& variables, const RenderOptions& options = {}) const;

 private:
  explicit Template(std::unique_ptr<const Program> program);
  std::unique_ptr<const Program> program_;
};

}  // namespace hone::jinja
