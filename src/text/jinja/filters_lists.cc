// Filters on sequences: order, grouping, slicing, aggregation.
#include <algorithm>

#include "text/jinja/attribute_path.h"
#include "text/jinja/runtime.h"

namespace hone::jinja {
namespace {

bool Flag(Runtime& rt, const Bound& args, size_t i, bool fallback = false) { return args.Has(i) ? rt.Truth(args[i]) : fallback; }

Result<std::vector<Value>> Items(Runtime& rt, const Value& value) { return rt.Iterate(value); }

// Sort keys beside what they order.
struct Keyed {
  Value key, item;
};

Result<void> SortKeyed(Runtime& rt, std::vector<Keyed>* items, bool reverse) {
  HONE_RETURN_IF_ERROR(rt.CheckItems(items->size()));
  if (reverse) std::reverse(items->begin(), items->end());
  HONE_RETURN_IF_ERROR(StableSort(items, [&](const Keyed& a, const Keyed& b) { return rt.Less(a.key, b.key); }));
  if (reverse) std::reverse(items->begin(), items->end());
  return {};
}

Result<Value> Sort(Runtime& rt, const Value& self, const Bound& args) {
  std::vector<AttributePath> paths;
  const auto add = [&](const Value& attribute) -> Result<void> {
    HONE_TRY(AttributePath path, AttributePath::Parse(attribute));
    path.set_ignore_case(!Flag(rt, args, 1));
    paths.push_back(std::move(path));
    return {};
  };
  if (args.Has(2) && args[2].is_string()) {
    const std::string& text = args[2].as_string();
    for (size_t begin = 0; begin <= text.size();) {
      const size_t end = std::min(text.find(',', begin), text.size());
      HONE_RETURN_IF_ERROR(add(Value::String(text.substr(begin, end - begin))));
      begin = end + 1;
    }
  } else {
    HONE_RETURN_IF_ERROR(add(args[2]));
  }
  HONE_TRY(std::vector<Value> items, Items(rt, self));
  std::vector<Keyed> keyed;
  keyed.reserve(items.size());
  for (Value& item : items) {
    std::vector<Value> key;
    for (const AttributePath& path : paths) {
      HONE_TRY(Value part, path.Get(rt, item));
      key.push_back(std::move(part));
    }
    HONE_TRY(Value key_list, rt.List(std::move(key)));
    keyed.push_back({std::move(key_list), std::move(item)});
  }
  HONE_RETURN_IF_ERROR(SortKeyed(rt, &keyed, Flag(rt, args, 0)));
  for (size_t i = 0; i < items.size(); ++i) items[i] = std::move(keyed[i].item);
  return rt.List(std::move(items));
}

Result<Value> DictSort(Runtime& rt, const Value& self, const Bound& args) {
  if (self.is_undefined()) return UndefinedError(self);
  if (!self.is(Kind::kDict)) return TypeError("'" + TypeName(self) + "' object has no attribute 'items'");
  const std::string by = args.Has(1) && args[1].is_string() ? args[1].as_string() : "key";
  if (by != "key" && by != "value") return ValueError("You can only sort by either \"key\" or \"value\"");
  AttributePath path;
  path.set_ignore_case(!Flag(rt, args, 0));
  std::vector<Keyed> keyed;
  for (const auto& [key, value] : self.as_dict().entries()) {
    HONE_TRY(Value order, path.Get(rt, by == "key" ? key : value));
    HONE_TRY(Value pair, rt.Tuple({key, value}));
    keyed.push_back({std::move(order), std::move(pair)});
  }
  HONE_RETURN_IF_ERROR(SortKeyed(rt, &keyed, Flag(rt, args, 2)));
  std::vector<Value> out;
  for (Keyed& entry : keyed) out.push_back(std::move(entry.item));
  return rt.List(std::move(out));
}

Result<Value> Unique(Runtime& rt, const Value& self, const Bound& args) {
  HONE_TRY(AttributePath path, AttributePath::Parse(args[1]));
  path.set_ignore_case(!Flag(rt, args, 0));
  HONE_TRY(std::vector<Value> items, Items(rt, self));
  Dict seen;
  std::vector<Value> out;
  for (Value& item : items) {
    HONE_TRY(Value key, path.Get(rt, item));
    if (!IsHashable(key)) return TypeError("unhashable type: '" + TypeName(key) + "'");
    if (seen.Find(key) != nullptr) continue;
    HONE_RETURN_IF_ERROR(rt.SetKey(&seen, std::move(key), Value::None()));
    out.push_back(std::move(item));
  }
  return rt.Generator(std::move(out));
}

Result<Value> Extreme(Runtime& rt, const Value& self, const Bound& args, bool largest) {
  HONE_TRY(AttributePath path, AttributePath::Parse(args[1]));
  path.set_ignore_case(!Flag(rt, args, 0));
  HONE_TRY(std::vector<Value> items, Items(rt, self));
  if (items.empty()) return Value::Undefined("No aggregated item, sequence was empty.");
  Value best, best_key;
  for (size_t i = 0; i < items.size(); ++i) {
    HONE_TRY(Value key, path.Get(rt, items[i]));
    bool better = i == 0;
    if (i > 0) {
      HONE_TRY(better, rt.Less(key, best_key, largest ? ">" : "<"));
    }
    if (!better) continue;
    best = items[i];
    best_key = std::move(key);
  }
  return best;
}

Result<Value> Max(Runtime& rt, const Value& self, const Bound& args) { return Extreme(rt, self, args, true); }
Result<Value> Min(Runtime& rt, const Value& self, const Bound& args) { return Extreme(rt, self, args, false); }

Result<Value> Sum(Runtime& rt, const Value& self, const Bound& args) {
  HONE_TRY(const AttributePath path, AttributePath::Parse(args[0]));
  HONE_TRY(std::vector<Value> items, Items(rt, self));
  Value total = args.Has(1) ? args[1] : Value::Int(0);
  if (total.is_string()) return TypeError("sum() can't sum strings [use ''.join(seq) instead]");
  for (const Value& item : items) {
    HONE_TRY(const Value part, path.Get(rt, item));
    HONE_TRY(total, rt.Arithmetic(ExprKind::kAdd, total, part));
  }
  return total;
}

Result<Value> GroupBy(Runtime& rt, const Value& self, const Bound& args) {
  HONE_TRY(AttributePath path, AttributePath::Parse(args[0]));
  if (args.Has(1)) path.set_default(args[1]);
  AttributePath shown = path;
  path.set_ignore_case(!Flag(rt, args, 2));
  HONE_TRY(std::vector<Value> items, Items(rt, self));
  std::vector<Keyed> keyed;
  for (Value& item : items) {
    HONE_TRY(Value key, path.Get(rt, item));
    keyed.push_back({std::move(key), std::move(item)});
  }
  HONE_RETURN_IF_ERROR(SortKeyed(rt, &keyed, false));
  std::vector<Value> groups;
  for (size_t begin = 0; begin < keyed.size();) {
    size_t end = begin + 1;
    for (; end < keyed.size(); ++end) {
      HONE_TRY(const bool same, rt.Equal(keyed[begin].key, keyed[end].key));
      if (!same) break;
    }
    std::vector<Value> members;
    for (size_t i = begin; i < end; ++i) members.push_back(keyed[i].item);
    HONE_TRY(Value grouper, shown.Get(rt, members[0]));
    HONE_TRY(Value list, rt.List(std::move(members)));
    HONE_TRY(Value group, rt.Tuple({std::move(grouper), std::move(list)}));
    group.as<ListObject>().is_group = true;
    groups.push_back(std::move(group));
    begin = end;
  }
  return rt.List(std::move(groups));
}

Result<Value> First(Runtime& rt, const Value& self, const Bound&) {
  if (self.is(Kind::kGenerator)) {
    GeneratorObject& generator = self.as<GeneratorObject>();
    if (generator.next < generator.items.size()) return generator.items[generator.next++];
    if (generator.failed) return generator.error;
    return Value::Undefined("No first item, sequence was empty.");
  }
  HONE_TRY(std::vector<Value> items, Items(rt, self));
  if (items.empty()) return Value::Undefined("No first item, sequence was empty.");
  return items[0];
}

bool IsReversible(const Value& value) {
  return value.is_string() || value.is(Kind::kList) || value.is(Kind::kTuple) || value.is(Kind::kDict) || value.is(Kind::kView) ||
         value.is_undefined();
}

Result<Value> Last(Runtime& rt, const Value& self, const Bound&) {
  if (!IsReversible(self)) return TypeError("'" + TypeName(self) + "' object is not reversible");
  HONE_TRY(std::vector<Value> items, Items(rt, self));
  if (items.empty()) return Value::Undefined("No last item, sequence was empty.");
  return items.back();
}

Result<Value> Reverse(Runtime& rt, const Value& self, const Bound&) {
  auto items = Items(rt, self);
  if (!items) return TypeError("argument must be iterable");
  std::reverse(items->begin(), items->end());
  if (self.is_string()) {
    std::string out;
    for (const Value& item : *items) out += item.as_string();
    return rt.String(std::move(out));
  }
  if (!IsReversible(self)) return rt.List(std::move(*items));
  return rt.Generator(std::move(*items), TypeName(self) + "_reverseiterator");
}

Result<Value> Length(Runtime& rt, const Value& self, const Bound&) {
  HONE_TRY(const int64_t length, rt.Length(self));
  return Value::Int(length);
}

Result<Value> ToList(Runtime& rt, const Value& self, const Bound&) {
  HONE_TRY(std::vector<Value> items, Items(rt, self));
  return rt.List(std::move(items));
}

Result<Value> Join(Runtime& rt, const Value& self, const Bound& args) {
  HONE_TRY(const AttributePath path, AttributePath::Parse(args[1]));
  HONE_TRY(std::vector<Value> items, Items(rt, self));
  std::string separator;
  if (args.Has(0)) {
    HONE_TRY(separator, rt.Str(args[0]));
  }
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    HONE_TRY(const Value item, path.Get(rt, items[i]));
    HONE_TRY(const std::string text, rt.Str(item));
    if (i > 0) out += separator;
    out += text;
    HONE_RETURN_IF_ERROR(rt.ChargeBytes(separator.size()));
    if (out.size() > kMaxStringBytes) HONE_RETURN_IF_ERROR(rt.CheckBytes(out.size()));
  }
  return rt.String(std::move(out));
}

Result<Value> Batch(Runtime& rt, const Value& self, const Bound& args) {
  HONE_TRY(const int64_t count, rt.AsIndex(args[0], "linecount"));
  HONE_TRY(std::vector<Value> items, Items(rt, self));
  std::vector<Value> out, line;
  for (Value& item : items) {
    if (static_cast<int64_t>(line.size()) == count) {
      HONE_TRY(Value list, rt.List(std::exchange(line, {})));
      out.push_back(std::move(list));
    }
    line.push_back(std::move(item));
  }
  if (!line.empty()) {
    if (args.Given(1) && static_cast<int64_t>(line.size()) < count) {
      HONE_RETURN_IF_ERROR(rt.CheckItems(static_cast<uint64_t>(count)));
      line.resize(static_cast<size_t>(count), args[1]);
    }
    HONE_TRY(Value list, rt.List(std::move(line)));
    out.push_back(std::move(list));
  }
  return rt.Generator(std::move(out));
}

Result<Value> Slice(Runtime& rt, const Value& self, const Bound& args) {
  HONE_TRY(const int64_t slices, rt.AsIndex(args[0], "slices"));
  HONE_TRY(std::vector<Value> items, Items(rt, self));
  if (slices == 0) return ValueError("integer division or modulo by zero");
  std::vector<Value> out;
  if (slices > 0) {
    HONE_RETURN_IF_ERROR(rt.CheckItems(static_cast<uint64_t>(slices)));
    const size_t count = static_cast<size_t>(slices);
    const size_t each = items.size() / count, longer = items.size() % count;
    size_t begin = 0;
    for (size_t i = 0; i < count; ++i) {
      const size_t end = begin + each + (i < longer ? 1 : 0);
      std::vector<Value> part(items.begin() + static_cast<ptrdiff_t>(begin), items.begin() + static_cast<ptrdiff_t>(end));
      if (args.Given(1) && i >= longer) part.push_back(args[1]);
      HONE_TRY(Value list, rt.List(std::move(part)));
      out.push_back(std::move(list));
      begin = end;
    }
  }
  return rt.Generator(std::move(out));
}

Result<Value> DictItems(Runtime& rt, const Value& self, const Bound&) {
  if (self.is_undefined()) return rt.Generator({});
  if (!self.is(Kind::kDict)) return TypeError("Can only get item pairs from a mapping.");
  std::vector<Value> out;
  for (const auto& [key, value] : self.as_dict().entries()) {
    HONE_TRY(Value pair, rt.Tuple({key, value}));
    out.push_back(std::move(pair));
  }
  return rt.Generator(std::move(out));
}

Result<Value> Random(Runtime&, const Value&, const Bound&) {
  return Error{ErrorCode::kUnsupported, "the filter 'random' is not supported: a chat template must give the same text each time"};
}

constexpr Function kListFilters[] = {
    {"batch", "linecount fill_with", 1, Batch},
    {"count", "", 0, Length},
    {"dictsort", "case_sensitive by reverse", 0, DictSort},
    {"first", "", 0, First},
    {"groupby", "attribute default case_sensitive", 1, GroupBy},
    {"items", "", 0, DictItems},
    {"join", "d attribute", 0, Join},
    {"last", "", 0, Last},
    {"length", "", 0, Length},
    {"list", "", 0, ToList},
    {"max", "case_sensitive attribute", 0, Max},
    {"min", "case_sensitive attribute", 0, Min},
    {"random", "", 0, Random},
    {"reverse", "", 0, Reverse},
    {"slice", "slices fill_with", 1, Slice},
    {"sort", "reverse case_sensitive attribute", 0, Sort},
    {"sum", "attribute start", 0, Sum},
    {"unique", "case_sensitive attribute", 0, Unique},
};

}  // namespace

std::span<const Function> ListFilters() { return kListFilters; }

}  // namespace hone::jinja
