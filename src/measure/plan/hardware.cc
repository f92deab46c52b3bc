// See hardware.h.
#include "measure/plan/hardware.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>

#include "measure/model_cost.h"

namespace hone {
namespace {

const Hardware kCards[] = {
#define HONE_CARD(name, memory, read, ops16, ops8, link, node, cpu) \
  {name, 1, memory * 1e9, read * 1e9, ops16 * 1e12, ops8 * 1e12, link * 1e9, node, cpu, 0.9},
#include "measure/plan/cards.inc"
#undef HONE_CARD
};

std::string Lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

// A number and what stands after it, lower case and without spaces before it.
Result<std::pair<double, std::string>> SplitNumber(std::string_view flag, std::string_view text, const char* wanted) {
  const std::string copy(text);
  char* end = nullptr;
  const double value = std::strtod(copy.c_str(), &end);
  const bool digits = !copy.empty() && (std::isdigit(static_cast<unsigned char>(copy[0])) || copy[0] == '.');
  if (!digits || end == copy.c_str() || !std::isfinite(value) || value <= 0)
    return UsageError(fmt::format("{} '{}': wanted {}", flag, text, wanted));
  while (*end == ' ') ++end;
  return std::pair(value, Lower(end));
}

// The factor of "k", "m", "g", "t", "p" (decimal) at the beginning of `unit`, which is taken off; "ki" ... binary.
double TakePrefix(std::string* unit) {
  const std::string_view prefixes = "kmgtp";
  if (unit->empty()) return 1;
  const size_t power = prefixes.find((*unit)[0]);
  if (power == std::string_view::npos) return 1;
  unit->erase(0, 1);
  if (!unit->empty() && (*unit)[0] == 'i') {
    unit->erase(0, 1);
    return std::pow(1024.0, static_cast<double>(power + 1));
  }
  return std::pow(1000.0, static_cast<double>(power + 1));
}

Result<double> Parse(std::string_view flag, std::string_view text, std::initializer_list<std::string_view> units,
                     const char* wanted) {
  HONE_TRY(auto split, SplitNumber(flag, text, wanted));
  const double factor = TakePrefix(&split.second);
  if (std::find(units.begin(), units.end(), split.second) == units.end())
    return UsageError(fmt::format("{} '{}': wanted {}", flag, text, wanted));
  return split.first * factor;
}

}  // namespace

std::span<const Hardware> Cards() { return kCards; }

const Hardware* FindCard(std::string_view name) {
  const std::string wanted = Lower(name);
  for (const Hardware& card : kCards) {
    if (card.name == wanted) return &card;
  }
  return nullptr;
}

Hardware ThisMachine(const Roof& roof, const WeightFormat& format, bool exact, double memory_bytes) {
  Hardware machine;
  machine.name = roof.cpu.empty() ? "this machine" : roof.cpu;
  machine.cpu = true;
  machine.cards_a_node = 1;
  machine.memory_bytes = memory_bytes;
  machine.read_bytes_s = roof.read_all_gbs() * 1e9;
  if (roof.isa != Isa::kScalar) {
    machine.ops_16bit = roof.Gops(UnitOfType(format.kernel, roof.isa, exact)).value_or(0) * 1e9;
  }
  if (machine.ops_16bit <= 0) machine.ops_16bit = 4e9 * std::max(1, roof.threads);  // scalar code: about one a cycle
  return machine;
}

Efficiency AssumedEfficiency(const Hardware& hardware) {
  if (hardware.cpu) return {0.8, 0.4, 0.4, 200e-6, 15e-6, "assumed for CPUs"};
  return {0.75, 0.5, 0.5, 1e-3, 15e-6, "assumed for cards"};
}

Result<double> ParseBytes(std::string_view flag, std::string_view text) {
  return Parse(flag, text, {"", "b"}, "bytes, as 80GB or 24GiB");
}
Result<double> ParseRate(std::string_view flag, std::string_view text) {
  return Parse(flag, text, {"", "b", "b/s"}, "bytes a second, as 2TB/s or 936GB/s");
}
Result<double> ParseOps(std::string_view flag, std::string_view text) {
  return Parse(flag, text, {"", "flops", "flop/s", "ops", "op/s"}, "operations a second, as 312T or 500GFLOPS");
}

std::string SayBytes(double bytes) {
  const char* const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
  int unit = 0;
  while (bytes >= 999.95 && unit < 5) bytes /= 1000, ++unit;
  if (unit == 0) return fmt::format("{:.0f} B", bytes);
  return fmt::format("{:.{}f} {}", bytes, bytes < 10 ? 2 : bytes < 100 ? 1 : 0, units[unit]);
}

std::string SayScaled(double value, std::string_view unit) {
  const char* const prefixes[] = {"", "k", "M", "G", "T", "P", "E"};
  int i = 0;
  while (value >= 999.5 && i < 6) value /= 1000, ++i;
  return fmt::format("{:.3g} {}{}", value, prefixes[i], unit);
}

}  // namespace hone
