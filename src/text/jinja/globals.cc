// Global functions, and the objects that only they make: namespaces, cyclers, joiners.
#include <locale.h>
#include <time.h>

#include <cstdio>

#include "text/jinja/runtime.h"

namespace hone::jinja {
namespace {

Result<Value> MakeRange(Runtime& rt, const Value&, const Bound& args) {
  if (!args.Has(0)) return TypeError("range expected at least 1 argument, got 0");
  int64_t begin = 0, end = 0, step = 1;
  HONE_TRY(end, rt.AsIndex(args[0], ""));
  if (args.Has(1)) {
    begin = end;
    HONE_TRY(end, rt.AsIndex(args[1], ""));
  }
  if (args.Has(2)) {
    HONE_TRY(step, rt.AsIndex(args[2], ""));
  }
  if (step == 0) return ValueError("range() arg 3 must not be zero");
  const __int128 span = step > 0 ? static_cast<__int128>(end) - begin : static_cast<__int128>(begin) - end;
  const __int128 stride = step > 0 ? static_cast<__int128>(step) : -static_cast<__int128>(step);
  const __int128 count = span <= 0 ? 0 : (span + stride - 1) / stride;
  if (count > kMaxRange) {
    return LimitError("Range too big. The sandbox blocks ranges larger than MAX_RANGE (" + std::to_string(kMaxRange) + ").");
  }
  HONE_RETURN_IF_ERROR(rt.CheckItems(static_cast<uint64_t>(count)));
  std::vector<Value> items;
  items.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < static_cast<int64_t>(count); ++i) items.push_back(Value::Int(begin + i * step));
  std::string name = "range(" + std::to_string(begin) + ", " + std::to_string(end);
  if (step != 1) name += ", " + std::to_string(step);
  return Value::View(name + ")", std::move(items));
}

// The arguments of dict() and namespace(): a mapping or pairs, then names.
Result<void> Fill(Runtime& rt, const Args& args, std::string_view function, Dict* dict) {
  if (args.positional.size() > 1) {
    return TypeError(std::string(function) + " expected at most 1 argument, got " + std::to_string(args.positional.size()));
  }
  if (!args.positional.empty()) {
    const Value& source = args.positional[0];
    if (source.is(Kind::kDict)) {
      for (const auto& [key, value] : source.as_dict().entries()) HONE_RETURN_IF_ERROR(rt.SetKey(dict, key, value));
    } else {
      HONE_TRY(const std::vector<Value> items, rt.Iterate(source));
      for (const Value& item : items) {
        HONE_TRY(const std::vector<Value> pair, rt.Iterate(item));
        if (pair.size() != 2) return ValueError("dictionary update sequence element has length " + std::to_string(pair.size()) + "; 2 is required");
        HONE_RETURN_IF_ERROR(rt.SetKey(dict, pair[0], pair[1]));
      }
    }
  }
  for (const auto& [name, value] : args.named) HONE_RETURN_IF_ERROR(rt.SetKey(dict, Value::String(name), value));
  return {};
}

Result<Value> MakeDict(Runtime& rt, const Value&, const Bound& args) {
  auto dict = std::make_shared<Dict>();
  HONE_RETURN_IF_ERROR(Fill(rt, args.all(), "dict", dict.get()));
  return Value::FromDict(std::move(dict));
}

Result<Value> MakeNamespace(Runtime& rt, const Value&, const Bound& args) {
  auto object = std::make_shared<NamespaceObject>();
  rt.Retain(object);
  HONE_RETURN_IF_ERROR(Fill(rt, args.all(), "namespace", &object->attributes));
  return Value::FromObject(Kind::kNamespace, std::move(object));
}

Result<Value> MakeCycler(Runtime& rt, const Value&, const Bound& args) {
  if (args.all().positional.empty()) return TypeError("at least one item has to be provided");
  Value value = Value::FromObject(Kind::kCycler, std::make_shared<CyclerObject>(args.all().positional));
  HONE_RETURN_IF_ERROR(rt.CheckDepth(value));
  return value;
}

// "" the first time, the separator after that.
struct Joiner : CallableObject {
  explicit Joiner(std::string text) : separator(std::move(text)) {}
  Result<Value> Call(Runtime& rt, const Args&) override {
    if (!used) {
      used = true;
      return Value::String("");
    }
    return rt.String(separator);
  }
  std::string_view type_name() const override { return "Joiner"; }
  std::string separator;
  bool used = false;
};

Result<Value> MakeJoiner(Runtime& rt, const Value&, const Bound& args) {
  std::string separator = ", ";
  if (args.Has(0)) {
    HONE_TRY(separator, rt.Str(args[0]));
  }
  return Value::FromObject(Kind::kCallable, std::make_shared<Joiner>(std::move(separator)));
}

Result<Value> RaiseException(Runtime& rt, const Value&, const Bound& args) {
  HONE_TRY(const std::string message, rt.Str(args[0]));
  rt.raised = true;
  return InvalidInput(message);
}

// strftime of the C locale. What Python fills in itself is replaced first: %f, %z and %Z (a time without a zone).
Result<Value> StrftimeNow(Runtime& rt, const Value&, const Bound& args) {
  if (!args[0].is_string()) return TypeError("strftime() argument 1 must be str, not " + TypeName(args[0]));
  const std::string& format = args[0].as_string();
  if (format.size() > 4096) return LimitError("strftime_now: a format longer than 4096 bytes");
  const CivilTime now = rt.options().now ? *rt.options().now : CivilTime::Now();
  struct tm parts = {};
  parts.tm_year = now.year - 1900;
  parts.tm_mon = now.month - 1;
  parts.tm_mday = now.day;
  parts.tm_hour = now.hour;
  parts.tm_min = now.minute;
  parts.tm_sec = now.second;
  parts.tm_isdst = -1;
  struct tm normal = parts;
  timegm(&normal);  // weekday and day of the year
  parts.tm_wday = normal.tm_wday;
  parts.tm_yday = normal.tm_yday;
  std::string prepared;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 >= format.size()) {
      prepared.push_back(format[i]);
      continue;
    }
    const char code = format[++i];
    if (code == 'f') {
      prepared += "000000";
    } else if (code != 'z' && code != 'Z') {
      // A field width could make the text as long as it likes.
      if (code >= '0' && code <= '9') return ValueError("strftime_now: field widths are not supported");
      if ((code == '-' || code == '_' || code == '^' || code == '#') && i + 1 < format.size() && format[i + 1] >= '0' && format[i + 1] <= '9') {
        return ValueError("strftime_now: field widths are not supported");
      }
      prepared += '%';
      prepared += code;
    }
  }
  if (prepared.empty()) return Value::String("");
  static const locale_t c_locale = newlocale(LC_ALL_MASK, "C", nullptr);
  prepared.push_back('.');  // tells an empty result from a buffer too small
  std::string out(prepared.size() * 32 + 256, '\0');
  const size_t length = strftime_l(out.data(), out.size(), prepared.c_str(), &parts, c_locale);
  if (length == 0) return ValueError("strftime_now: the format is not understood");
  out.resize(length - 1);
  return rt.String(std::move(out));
}

Result<Value> Lipsum(Runtime&, const Value&, const Bound&) {
  return Error{ErrorCode::kUnsupported, "the function 'lipsum' is not supported: a chat template must give the same text each time"};
}

constexpr Function kGlobals[] = {
    {"cycler", "*", 0, MakeCycler},
    {"dict", "*", 0, MakeDict},
    {"joiner", "sep", 0, MakeJoiner},
    {"lipsum", "*", 0, Lipsum},
    {"namespace", "*", 0, MakeNamespace},
    {"raise_exception", "message", 1, RaiseException},
    {"range", "start stop step", 0, MakeRange},
    {"strftime_now", "format", 1, StrftimeNow},
};

Result<Value> CyclerNext(Runtime&, const Value& self, const Bound&) {
  CyclerObject& cycler = self.as<CyclerObject>();
  const Value value = cycler.items.items()[cycler.position];
  cycler.position = (cycler.position + 1) % cycler.items.items().size();
  return value;
}

Result<Value> CyclerReset(Runtime&, const Value& self, const Bound&) {
  self.as<CyclerObject>().position = 0;
  return Value::None();
}

constexpr Function kCyclerMethods[] = {
    {"next", "", 0, CyclerNext},
    {"reset", "", 0, CyclerReset},
};

Result<Value> LoopCycle(Runtime&, const Value& self, const Bound& args) {
  const auto& items = args.all().positional;
  if (items.empty()) return TypeError("no items for cycling given");
  return items[self.as<LoopObject>().index % items.size()];
}

Result<Value> LoopChanged(Runtime& rt, const Value& self, const Bound& args) {
  const std::shared_ptr<LoopObject> loop = self.shared<LoopObject>();
  const std::vector<Value>& values = args.all().positional;
  bool same = loop->has_last_changed && loop->last_changed.size() == values.size();
  for (size_t i = 0; same && i < values.size(); ++i) {
    HONE_TRY(same, rt.Equal(values[i], loop->last_changed[i]));
  }
  if (same) return Value::Bool(false);
  if (!loop->has_last_changed) rt.Retain(loop);
  loop->has_last_changed = true;
  loop->last_changed = values;
  return Value::Bool(true);
}

constexpr Function kLoopMethods[] = {
    {"changed", "*", 0, LoopChanged},
    {"cycle", "*", 0, LoopCycle},
};

}  // namespace

std::span<const Function> Globals() { return kGlobals; }
std::span<const Function> CyclerMethods() { return kCyclerMethods; }
std::span<const Function> LoopMethods() { return kLoopMethods; }

}  // namespace hone::jinja
