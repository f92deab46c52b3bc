// Runtime: one render's limits and Python's operations on values: truth, str, repr, ==, <, in, +, attributes, items, calls.
// Every operation that a template can make long charges steps for it. Errors carry Python's messages. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/sanitizer.h"
#include "base/result.h"
#include "text/jinja/ast.h"
#include "text/jinja/functions.h"
#include "text/jinja/template.h"
#include "text/jinja/value.h"

namespace hone::jinja {

inline constexpr uint64_t kMaxStringBytes = 64 << 20;
inline constexpr uint64_t kMaxItems = 4'000'000;
inline constexpr int64_t kMaxRange = 100'000;  // the sandbox's own limit

// ---- Shared parts of values that only exist in a render.

struct NamespaceObject : Object {
  NamespaceObject() : Object(128) {}
  void Drop() override { attributes.Clear(); }
  Dict attributes;
};

struct GeneratorObject : Object {
  explicit GeneratorObject(std::vector<Value> elements);
  int depth() const override { return depth_; }
  std::vector<Value> items;
  size_t next = 0;
  bool failed = false;  // after the items, this error
  Error error;
  std::string type_name = "generator";

 private:
  int depth_;
};

struct CyclerObject : Object {
  explicit CyclerObject(std::vector<Value> elements) : Object(96), items(Value::Tuple(std::move(elements))) {}
  int depth() const override { return items.depth() + 1; }
  Value items;
  size_t position = 0;
};

// Anything that can be called with (): a method of a value, a global, a macro, a joiner.
struct CallableObject : Object {
  CallableObject() : Object(96) {}
  virtual Result<Value> Call(Runtime& rt, const Args& args) = 0;
  virtual std::string_view type_name() const { return "builtin_function_or_method"; }
  virtual Value Attribute(std::string_view) const { return Value(); }  // undefined: none
};

struct NativeCallable : CallableObject {
  NativeCallable(const Function* fn, Value value) : function(fn), self(std::move(value)) {}
  int depth() const override { return self.depth() + 1; }
  Result<Value> Call(Runtime& rt, const Args& args) override;
  const Function* function;
  Value self;
};

struct LoopObject : Object {
  explicit LoopObject(Value elements) : Object(192), items(std::move(elements)) {}
  int depth() const override { return items.depth() + 1; }
  void Drop() override { last_changed.clear(); }
  // Calls the loop again on other items; only a recursive loop has it.
  virtual Result<Value> Recurse(Runtime& rt, const Value& iterable);
  Value items;  // a list
  size_t index = 0;
  int level = 0;  // depth0
  bool has_last_changed = false;
  std::vector<Value> last_changed;
};

// ---- Errors in Python's words. All are kInvalidInput except limits.
Error TypeError(std::string message);
Error ValueError(std::string message);
Error LimitError(std::string message);
Error UndefinedError(const Value& value);
std::string TypeName(const Value& value);  // "str", "NoneType" ...

class Runtime {
 public:
  explicit Runtime(const RenderOptions& options);
  ~Runtime();
  Runtime(const Runtime&) = delete;

  const RenderOptions& options() const { return options_; }

  // ---- Limits.
  Result<void> Step(int64_t cost = 1) {
    steps_ += cost;
    if (steps_ > options_.max_steps || Object::live_bytes - live_base_ > options_.max_live_bytes) [[unlikely]] {
      return StepError();
    }
    return {};
  }
  Result<void> ChargeBytes(size_t bytes) { return Step(1 + static_cast<int64_t>(bytes / 256)); }
  // A string of so many bytes, or a list of so many items, is about to be made.
  Result<void> CheckBytes(uint64_t bytes);
  Result<void> CheckItems(uint64_t items);
  // Every recursion over values or syntax holds one and asks Check().
  class Depth {
   public:
    explicit Depth(Runtime* rt) : rt_(rt) { ++rt_->depth_; }
    ~Depth() { --rt_->depth_; }
    Depth(const Depth&) = delete;
    bool ok() const {
      const char* here = static_cast<const char*>(__builtin_frame_address(0));
      const int64_t used = rt_->stack_base_ - here;
      return rt_->depth_ <= rt_->options_.max_depth && used < kMaxStackBytes && -used < kMaxStackBytes;
    }

   private:
    Runtime* rt_;
  };
  Error DepthError() const;

  // ---- Making values. Errors: nested deeper than kMaxValueDepth, or too many items.
  Result<Value> List(std::vector<Value> items);
  Result<Value> Tuple(std::vector<Value> items);
  Result<Value> Generator(std::vector<Value> items, std::string type_name = "generator");
  Result<Value> String(std::string text);  // charges for its length
  Result<void> CheckDepth(const Value& value) const;
  Result<void> SetKey(Dict* dict, Value key, Value value);  // unhashable keys are errors
  // Kept until the render ends, then dropped: cycles through the object do not leak, chains of them do not recurse.
  void Retain(std::shared_ptr<Object> object) { retained_.push_back(std::move(object)); }

  // ---- Operations (operators.cc, text_form.cc, access.cc).
  bool Truth(const Value& value) const;
  Result<std::string> Str(const Value& value);
  Result<std::string> Repr(const Value& value);
  Result<bool> Equal(const Value& a, const Value& b);
  Result<bool> Less(const Value& a, const Value& b, std::string_view op = "<");
  Result<bool> Compare(CompareOp op, const Value& a, const Value& b);
  Result<bool> Contains(const Value& container, const Value& item);
  Result<Value> Arithmetic(ExprKind op, const Value& a, const Value& b);
  Result<Value> Negate(const Value& value, bool plus);
  Result<Value> Concat(const std::vector<Value>& values);
  Result<Value> GetAttr(const Value& object, std::string_view name);
  // getattr() alone: no item of that name. Found or undefined.
  Result<Value> OnlyAttr(const Value& object, std::string_view name, bool* found);
  Result<Value> GetItem(const Value& object, const Value& key);
  Result<Value> Slice(const Value& object, const Value& begin, const Value& end, const Value& step);
  Result<std::vector<Value>> Iterate(const Value& value);
  Result<int64_t> Length(const Value& value);  // len()
  Result<Value> Call(const Value& callee, const Args& args);
  Result<Value> CallFunction(const Function& function, const Value& self, const Args& args);
  Result<int64_t> AsIndex(const Value& value, std::string_view what);  // an integer or bool, else TypeError

  // Appends str(value) or JSON to `out`, charging for it.
  Result<void> AppendRepr(std::string* out, const Value& value);

  // raise_exception was called: its message must reach the caller alone.
  bool raised = false;

 private:
#if defined(HONE_SANITIZER)
  static constexpr int64_t kMaxStackBytes = 4 << 20;  // frames are many times larger under the sanitizer
#else
  static constexpr int64_t kMaxStackBytes = 512 << 10;
#endif
  Error StepError() const;

  RenderOptions options_;
  int64_t steps_ = 0;
  int64_t live_base_;
  int depth_ = 0;
  const char* stack_base_;
  std::vector<std::shared_ptr<Object>> retained_;
};

// ---- Text of scalars.
std::string FloatRepr(double value);                // 1.0, 1e+16, inf
std::string StringRepr(std::string_view text);      // 'it''s' as Python quotes it
std::string HtmlEscape(std::string_view text);
struct JsonStyle {
  bool ensure_ascii = false, sort_keys = false, pretty = false;
  std::string indent, item_separator = ", ", key_separator = ": ";
};
Result<std::string> ToJson(Runtime& rt, const Value& value, const JsonStyle& style);  // json.dumps

// ---- python_format.cc
Result<std::string> PercentFormat(Runtime& rt, const std::string& format, const Value& argument);  // format % argument
Result<std::string> BraceFormat(Runtime& rt, std::string_view format, const Args& args);           // format.format(...)
Result<std::string> FormatValue(Runtime& rt, const Value& value, std::string_view spec);           // format(value, spec)
std::string FixedFloat(double value, int precision);

// Makes a value callable; self is what the function works on.
Value MakeCallable(const Function* function, Value self = Value());

// A stable merge sort; `less` may fail, and an inconsistent order does no harm.
template <typename Item, typename Less>
Result<void> StableSort(std::vector<Item>* items, const Less& less) {
  std::vector<Item> other(items->size());
  for (size_t width = 1; width < items->size(); width *= 2) {
    for (size_t begin = 0; begin < items->size(); begin += 2 * width) {
      const size_t middle = std::min(begin + width, items->size()), end = std::min(begin + 2 * width, items->size());
      size_t left = begin, right = middle, to = begin;
      while (left < middle && right < end) {
        HONE_TRY(const bool take_right, less((*items)[right], (*items)[left]));
        other[to++] = std::move((*items)[take_right ? right++ : left++]);
      }
      while (left < middle) other[to++] = std::move((*items)[left++]);
      while (right < end) other[to++] = std::move((*items)[right++]);
    }
    items->swap(other);
  }
  return {};
}

}  // namespace hone::jinja
