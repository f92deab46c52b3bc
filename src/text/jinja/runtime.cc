// Limits, making values, binding and calling. The operations on values stand in operators.cc, access.cc and text_form.cc.
#include "text/jinja/runtime.h"

#include <algorithm>

namespace hone::jinja {

GeneratorObject::GeneratorObject(std::vector<Value> elements)
    : Object(96 + elements.size() * sizeof(Value)), items(std::move(elements)), depth_(1) {
  for (const Value& item : items) depth_ = std::max(depth_, item.depth() + 1);
}

Result<Value> NativeCallable::Call(Runtime& rt, const Args& args) { return rt.CallFunction(*function, self, args); }

Result<Value> LoopObject::Recurse(Runtime&, const Value&) {
  return TypeError("The loop must have the 'recursive' marker to be called recursively.");
}

Error TypeError(std::string message) { return InvalidInput(std::move(message)); }
Error ValueError(std::string message) { return InvalidInput(std::move(message)); }
Error LimitError(std::string message) { return {ErrorCode::kLimit, std::move(message)}; }

Error UndefinedError(const Value& value) {
  const UndefinedObject* undefined = value.as_undefined();
  return InvalidInput(undefined != nullptr ? undefined->message : "value is undefined");
}

std::string TypeName(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined: return "Undefined";
    case Kind::kNone: return "NoneType";
    case Kind::kBool: return "bool";
    case Kind::kInt: return "int";
    case Kind::kFloat: return value.object() != nullptr ? "int" : "float";
    case Kind::kString: return value.is_markup() ? "Markup" : "str";
    case Kind::kList: return "list";
    case Kind::kTuple: return "tuple";
    case Kind::kDict: return "dict";
    case Kind::kView: return value.as_list_object().view_name.substr(0, value.as_list_object().view_name.find('('));
    case Kind::kGenerator: return value.as<GeneratorObject>().type_name;
    case Kind::kNamespace: return "Namespace";
    case Kind::kCallable: return std::string(value.as<CallableObject>().type_name());
    case Kind::kLoop: return "LoopContext";
    case Kind::kCycler: return "Cycler";
  }
  return "object";
}

Runtime::Runtime(const RenderOptions& options)
    : options_(options), live_base_(Object::live_bytes), stack_base_(static_cast<const char*>(__builtin_frame_address(0))) {}

Runtime::~Runtime() {
  // All are still held here while each is emptied, so nothing recurses.
  for (auto& object : retained_) object->Drop();
}

Error Runtime::StepError() const {
  if (steps_ > options_.max_steps) return LimitError("the template does too much work: more than " + std::to_string(options_.max_steps) + " steps");
  return LimitError("the template holds too much memory: more than " + std::to_string(options_.max_live_bytes) + " bytes");
}

Error Runtime::DepthError() const { return LimitError("maximum recursion depth exceeded in the template"); }

Result<void> Runtime::CheckBytes(uint64_t bytes) {
  if (bytes > kMaxStringBytes) return LimitError("a string of the template would be longer than 64 MiB");
  return ChargeBytes(static_cast<size_t>(bytes));
}

Result<void> Runtime::CheckItems(uint64_t items) {
  if (items > kMaxItems) return LimitError("a list of the template would be longer than " + std::to_string(kMaxItems));
  return Step(1 + static_cast<int64_t>(items / 8));
}

Result<void> Runtime::CheckDepth(const Value& value) const {
  if (value.depth() > kMaxValueDepth) return LimitError("a value of the template nests too deeply");
  return {};
}

Result<Value> Runtime::List(std::vector<Value> items) {
  HONE_RETURN_IF_ERROR(CheckItems(items.size()));
  Value value = Value::List(std::move(items));
  HONE_RETURN_IF_ERROR(CheckDepth(value));
  return value;
}

Result<Value> Runtime::Tuple(std::vector<Value> items) {
  HONE_RETURN_IF_ERROR(CheckItems(items.size()));
  Value value = Value::Tuple(std::move(items));
  HONE_RETURN_IF_ERROR(CheckDepth(value));
  return value;
}

Result<Value> Runtime::Generator(std::vector<Value> items, std::string type_name) {
  HONE_RETURN_IF_ERROR(CheckItems(items.size()));
  auto generator = std::make_shared<GeneratorObject>(std::move(items));
  generator->type_name = std::move(type_name);
  Value value = Value::FromObject(Kind::kGenerator, std::move(generator));
  HONE_RETURN_IF_ERROR(CheckDepth(value));
  return value;
}

Result<Value> Runtime::String(std::string text) {
  HONE_RETURN_IF_ERROR(CheckBytes(text.size()));
  return Value::String(std::move(text));
}

Result<void> Runtime::SetKey(Dict* dict, Value key, Value value) {
  if (!IsHashable(key)) return TypeError("unhashable type: '" + TypeName(key) + "'");
  HONE_RETURN_IF_ERROR(Step());
  if (dict->size() >= kMaxItems) return LimitError("a dict of the template would be larger than " + std::to_string(kMaxItems));
  if (value.depth() >= kMaxValueDepth) return LimitError("a value of the template nests too deeply");
  dict->Set(std::move(key), std::move(value));
  return {};
}

Value MakeCallable(const Function* function, Value self) {
  return Value::FromObject(Kind::kCallable, std::make_shared<NativeCallable>(function, std::move(self)));
}

Result<Value> Runtime::CallFunction(const Function& function, const Value& self, const Args& args) {
  HONE_RETURN_IF_ERROR(Step());
  HONE_TRY(const Bound bound, Bind(function, args));
  return function.call(*this, self, bound);
}

Result<Value> Runtime::Call(const Value& callee, const Args& args) {
  const Depth depth(this);
  if (!depth.ok()) return DepthError();
  HONE_RETURN_IF_ERROR(Step());
  switch (callee.kind()) {
    case Kind::kCallable: {
      const auto keep = callee.object();
      return callee.as<CallableObject>().Call(*this, args);
    }
    case Kind::kLoop:
      if (args.positional.size() != 1 || !args.named.empty()) return TypeError("loop() takes one argument");
      return callee.shared<LoopObject>()->Recurse(*this, args.positional[0]);
    case Kind::kUndefined:
      return UndefinedError(callee);
    default:
      return TypeError("'" + TypeName(callee) + "' object is not callable");
  }
}

Result<Bound> Bind(const Function& function, const Args& args) {
  Bound bound;
  bound.all_ = &args;
  if (function.parameters == "*") return bound;
  const std::string name(function.name);
  std::array<std::string_view, kMaxParameters> names;
  size_t count = 0;
  for (std::string_view rest = function.parameters; !rest.empty() && count < kMaxParameters;) {
    const size_t space = rest.find(' ');
    names[count++] = rest.substr(0, space);
    rest = space == std::string_view::npos ? std::string_view() : rest.substr(space + 1);
  }
  if (args.positional.size() > count) {
    return TypeError(name + "() takes at most " + std::to_string(count) + " argument" + (count == 1 ? "" : "s") + " (" +
                     std::to_string(args.positional.size()) + " given)");
  }
  for (size_t i = 0; i < args.positional.size(); ++i) {
    bound.values_[i] = args.positional[i];
    bound.present_ |= 1u << i;
  }
  for (const auto& [key, value] : args.named) {
    const size_t i = static_cast<size_t>(std::find(names.begin(), names.begin() + static_cast<ptrdiff_t>(count), key) - names.begin());
    if (i == count) return TypeError(name + "() got an unexpected keyword argument '" + key + "'");
    if (bound.Has(i)) return TypeError(name + "() got multiple values for argument '" + key + "'");
    bound.values_[i] = value;
    bound.present_ |= 1u << i;
  }
  for (size_t i = 0; i < static_cast<size_t>(function.required); ++i) {
    if (!bound.Has(i)) return TypeError(name + "() missing 1 required positional argument: '" + std::string(names[i]) + "'");
  }
  return bound;
}

}  // namespace hone::jinja
