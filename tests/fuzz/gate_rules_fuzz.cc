// fuzzes: measure
// Rules of gates, in JSON and TOML, and results that gates compare: what they say or an error, never a crash.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "measure/gate/gate.h"
#include "measure/ledger/entries.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto figures = hone::FiguresOfJson(text);
  const auto paired = hone::PairedOfResult(text, 0.95);
  const auto rules = hone::ParseGateRules(text);
  if (!rules) return 0;
  if (paired) hone::Judge(*rules, *paired);
  for (const hone::GateRule& rule : rules->rules) hone::MatchesFigure(rule.figure, text);
  return 0;
}
