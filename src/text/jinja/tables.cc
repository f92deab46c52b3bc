// Looking names up in the tables of functions.h, and what the sandbox hides.
#include <algorithm>
#include <initializer_list>

#include "text/jinja/functions.h"
#include "text/jinja/runtime.h"

namespace hone::jinja {
namespace {

const Function* Find(std::initializer_list<std::span<const Function>> tables, std::string_view name) {
  for (const std::span<const Function> table : tables) {
    for (const Function& function : table) {
      if (function.name == name) return &function;
    }
  }
  return nullptr;
}

bool IsOneOf(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

const Function* FindFilter(std::string_view name) {
  return Find({TextFilters(), ListFilters(), SelectFilters(), NumberFilters(), MoreTextFilters()}, name);
}
const Function* FindTest(std::string_view name) { return Find({Tests()}, name); }
const Function* FindGlobal(std::string_view name) { return Find({Globals()}, name); }

const Function* FindMethod(const Value& self, std::string_view name) {
  switch (self.kind()) {
    case Kind::kString: return Find({StringMethods(), MoreStringMethods()}, name);
    case Kind::kList:
    case Kind::kTuple: return Find({ListMethods()}, name);
    case Kind::kDict: return Find({DictMethods()}, name);
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat: return Find({NumberMethods()}, name);
    case Kind::kCycler: return Find({CyclerMethods()}, name);
    case Kind::kLoop: return Find({LoopMethods()}, name);
    default: return nullptr;
  }
}

bool IsUnsafeAttribute(const Value& self, std::string_view name) {
  if (self.is(Kind::kList) && IsOneOf(name, {"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"})) return true;
  if (self.is(Kind::kDict) && IsOneOf(name, {"clear", "pop", "popitem", "setdefault", "update"})) return true;
  if (self.is_string() && name == "format_map") return true;
  return IsOneOf(name, {"__class__", "__dict__", "__doc__", "__init__", "__getattribute__", "__setattr__", "__delattr__", "__dir__",
                        "__eq__", "__ne__", "__hash__", "__str__", "__repr__", "__format__", "__reduce__", "__reduce_ex__",
                        "__sizeof__", "__subclasshook__", "__init_subclass__", "__new__", "__len__", "__iter__", "__contains__",
                        "__getitem__"});
}

}  // namespace hone::jinja
