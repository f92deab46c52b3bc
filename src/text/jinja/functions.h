// Native functions that templates can name: filters, tests, methods of values, globals. Each kind is a few tables (one a
// subject); adding one is one function and one line in its table. All share one signature, and arguments are bound to named
// parameters before the call, as Python binds them.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "text/jinja/value.h"

namespace hone::jinja {

class Runtime;
struct Function;

struct Args {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

inline constexpr size_t kMaxParameters = 6;

// Arguments by parameter. `all` is everything that was passed, for functions that take any.
class Bound {
 public:
  bool Has(size_t i) const { return (present_ >> i) & 1; }
  const Value& operator[](size_t i) const { return values_[i]; }  // undefined if absent
  // Present and not None.
  bool Given(size_t i) const { return Has(i) && !values_[i].is_none(); }
  const Args& all() const { return *all_; }

 private:
  friend Result<Bound> Bind(const Function& function, const Args& args);
  std::array<Value, kMaxParameters> values_;
  uint32_t present_ = 0;
  const Args* all_ = nullptr;
};

using NativeFn = Result<Value> (*)(Runtime& rt, const Value& self, const Bound& args);

struct Function {
  std::string_view name;
  std::string_view parameters;  // names with one space between; "*" takes anything, unbound
  int required;                 // how many of them must be given
  NativeFn call;                // self: what is filtered, tested or whose method it is
};

// Errors: too many, unknown, doubled or missing arguments, worded as Python does.
Result<Bound> Bind(const Function& function, const Args& args);

// nullptr: no such name.
const Function* FindFilter(std::string_view name);
const Function* FindTest(std::string_view name);
const Function* FindGlobal(std::string_view name);
const Function* FindMethod(const Value& self, std::string_view name);
// A method that would change `self`, or an internal attribute (__class__ ...): the sandbox hides those.
bool IsUnsafeAttribute(const Value& self, std::string_view name);

// The tables.
std::span<const Function> TextFilters();
std::span<const Function> MoreTextFilters();
std::span<const Function> ListFilters();
std::span<const Function> SelectFilters();
std::span<const Function> NumberFilters();
std::span<const Function> Tests();
std::span<const Function> Globals();
std::span<const Function> StringMethods();
std::span<const Function> MoreStringMethods();
std::span<const Function> ListMethods();
std::span<const Function> DictMethods();
std::span<const Function> NumberMethods();
std::span<const Function> CyclerMethods();
std::span<const Function> LoopMethods();

}  // namespace hone::jinja
