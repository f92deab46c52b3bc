// Evaluation of expressions. Each kind has a function of its own, so that the recursive frames stay small.
#include "text/jinja/interpreter.h"

namespace hone::jinja {

Result<Value> Interpreter::Eval(const Expr& expr, const std::shared_ptr<Scope>& scope) {
  const Runtime::Depth depth(&rt_);
  if (!depth.ok()) return rt_.DepthError();
  HONE_RETURN_IF_ERROR(rt_.Step());
  auto result = EvalAny(expr, scope);
  if (!result && !located_) {
    // The innermost expression's line; what raise_exception says is passed on untouched.
    located_ = true;
    if (!rt_.raised) result.error().message += " (template line " + std::to_string(expr.line) + ")";
  }
  return result;
}

Result<Value> Interpreter::EvalAny(const Expr& expr, const std::shared_ptr<Scope>& scope) {
  switch (expr.kind) {
    case ExprKind::kConst: return expr.constant;
    case ExprKind::kName: return EvalName(expr.name, scope.get());
    case ExprKind::kTuple:
    case ExprKind::kList: return EvalSequence(expr, scope);
    case ExprKind::kDict: return EvalDict(expr, scope);
    case ExprKind::kAttr: {
      HONE_TRY(const Value object, Eval(*expr.children[0], scope));
      return rt_.GetAttr(object, expr.text);
    }
    case ExprKind::kItem: {
      HONE_TRY(const Value object, Eval(*expr.children[0], scope));
      HONE_TRY(const Value key, Eval(*expr.children[1], scope));
      return rt_.GetItem(object, key);
    }
    case ExprKind::kSlice: return EvalSlice(expr, scope);
    case ExprKind::kSliceValue: return TypeError("a slice can not be part of a tuple index");
    case ExprKind::kCall: return EvalCall(expr, scope);
    case ExprKind::kFilter: return EvalFilter(expr, scope);
    case ExprKind::kTest: return EvalTest(expr, scope);
    case ExprKind::kNot: {
      HONE_TRY(const Value value, Eval(*expr.children[0], scope));
      return Value::Bool(!rt_.Truth(value));
    }
    case ExprKind::kAnd: {
      HONE_TRY(Value left, Eval(*expr.children[0], scope));
      if (!rt_.Truth(left)) return left;
      return Eval(*expr.children[1], scope);
    }
    case ExprKind::kOr: {
      HONE_TRY(Value left, Eval(*expr.children[0], scope));
      if (rt_.Truth(left)) return left;
      return Eval(*expr.children[1], scope);
    }
    case ExprKind::kCondition: return EvalCondition(expr, scope);
    case ExprKind::kCompare: return EvalCompare(expr, scope);
    case ExprKind::kConcat: return EvalConcat(expr, scope);
    case ExprKind::kNegate:
    case ExprKind::kPlus: {
      HONE_TRY(const Value value, Eval(*expr.children[0], scope));
      return rt_.Negate(value, expr.kind == ExprKind::kPlus);
    }
    default: return EvalBinary(expr, scope);
  }
}

Result<Value> Interpreter::EvalName(int name, const Scope* scope) {
  for (; scope != nullptr; scope = scope->parent.get()) {
    if (const Value* value = scope->Find(name)) return *value;
  }
  const std::string& text = program_.names[static_cast<size_t>(name)];
  if (const Value* value = variables_.Find(text)) return *value;
  if (const Function* global = FindGlobal(text)) return MakeCallable(global);
  return Value::Undefined("'" + text + "' is undefined");
}

Result<Value> Interpreter::EvalBinary(const Expr& expr, const std::shared_ptr<Scope>& scope) {
  HONE_TRY(const Value left, Eval(*expr.children[0], scope));
  HONE_TRY(const Value right, Eval(*expr.children[1], scope));
  return rt_.Arithmetic(expr.kind, left, right);
}

Result<Value> Interpreter::EvalCondition(const Expr& expr, const std::shared_ptr<Scope>& scope) {
  HONE_TRY(const Value test, Eval(*expr.children[0], scope));
  if (rt_.Truth(test)) return Eval(*expr.children[1], scope);
  if (expr.children[2] != nullptr) return Eval(*expr.children[2], scope);
  return Value::Undefined("the inline if-expression on line " + std::to_string(expr.line) +
                          " evaluated to false and no else section was defined.");
}

// a < b < c: each operand once, the first false comparison ends it.
Result<Value> Interpreter::EvalCompare(const Expr& expr, const std::shared_ptr<Scope>& scope) {
  HONE_TRY(Value left, Eval(*expr.children[0], scope));
  for (size_t i = 0; i < expr.ops.size(); ++i) {
    HONE_TRY(Value right, Eval(*expr.children[i + 1], scope));
    HONE_TRY(const bool holds, rt_.Compare(expr.ops[i], left, right));
    if (!holds) return Value::Bool(false);
    left = std::move(right);
  }
  return Value::Bool(true);
}

Result<Value> Interpreter::EvalConcat(const Expr& expr, const std::shared_ptr<Scope>& scope) {
  std::vector<Value> values;
  values.reserve(expr.children.size());
  for (const ExprPtr& child : expr.children) {
    HONE_TRY(Value value, Eval(*child, scope));
    values.push_back(std::move(value));
  }
  return rt_.Concat(values);
}

Result<Value> Interpreter::EvalSequence(const Expr& expr, const std::shared_ptr<Scope>& scope) {
  std::vector<Value> items;
  items.reserve(expr.children.size());
  for (const ExprPtr& child : expr.children) {
    HONE_TRY(Value value, Eval(*child, scope));
    items.push_back(std::move(value));
  }
  return expr.kind == ExprKind::kList ? rt_.List(std::move(items)) : rt_.Tuple(std::move(items));
}

Result<Value> Interpreter::EvalDict(const Expr& expr, const std::shared_ptr<Scope>& scope) {
  auto dict = std::make_shared<Dict>();
  for (size_t i = 0; i + 1 < expr.children.size(); i += 2) {
    HONE_TRY(Value key, Eval(*expr.children[i], scope));
    HONE_TRY(Value value, Eval(*expr.children[i + 1], scope));
    HONE_RETURN_IF_ERROR(rt_.SetKey(dict.get(), std::move(key), std::move(value)));
  }
  return Value::FromDict(std::move(dict));
}

Result<Value> Interpreter::EvalSlice(const Expr& expr, const std::shared_ptr<Scope>& scope) {
  HONE_TRY(const Value object, Eval(*expr.children[0], scope));
  Value parts[3] = {Value::None(), Value::None(), Value::None()};
  for (size_t i = 0; i < 3; ++i) {
    if (expr.children[i + 1] == nullptr) continue;
    HONE_TRY(parts[i], Eval(*expr.children[i + 1], scope));
  }
  return rt_.Slice(object, parts[0], parts[1], parts[2]);
}

Result<Args> Interpreter::EvalArguments(const Arguments& arguments, const std::shared_ptr<Scope>& scope) {
  Args args;
  args.positional.reserve(arguments.positional.size());
  for (const ExprPtr& expr : arguments.positional) {
    HONE_TRY(Value value, Eval(*expr, scope));
    args.positional.push_back(std::move(value));
  }
  for (const auto& [name, expr] : arguments.named) {
    HONE_TRY(Value value, Eval(*expr, scope));
    args.named.emplace_back(name, std::move(value));
  }
  if (arguments.star != nullptr) {
    HONE_TRY(const Value star, Eval(*arguments.star, scope));
    HONE_TRY(std::vector<Value> more, rt_.Iterate(star));
    args.positional.insert(args.positional.end(), more.begin(), more.end());
  }
  if (arguments.double_star != nullptr) {
    HONE_TRY(const Value more, Eval(*arguments.double_star, scope));
    if (!more.is(Kind::kDict)) return TypeError("argument after ** must be a mapping, not " + TypeName(more));
    HONE_RETURN_IF_ERROR(rt_.CheckItems(more.as_dict().size()));
    for (const auto& [key, value] : more.as_dict().entries()) {
      if (!key.is_string()) return TypeError("keywords must be strings");
      for (const auto& [name, other] : args.named) {
        if (name == key.as_string()) return TypeError("got multiple values for keyword argument '" + name + "'");
        HONE_RETURN_IF_ERROR(rt_.Step());
      }
      args.named.emplace_back(key.as_string(), value);
    }
  }
  return args;
}

Result<Value> Interpreter::EvalCall(const Expr& expr, const std::shared_ptr<Scope>& scope, const Value* caller) {
  const Expr& target = *expr.children[0];
  if (target.kind == ExprKind::kAttr && caller == nullptr) return EvalMethodCall(expr, scope);
  HONE_TRY(const Value callee, Eval(target, scope));
  HONE_TRY(Args args, EvalArguments(expr.arguments, scope));
  if (caller != nullptr) args.named.emplace_back("caller", *caller);
  return rt_.Call(callee, args);
}

// object.name(...): a native method is called without making a bound method first.
Result<Value> Interpreter::EvalMethodCall(const Expr& expr, const std::shared_ptr<Scope>& scope) {
  const Expr& target = *expr.children[0];
  HONE_TRY(const Value object, Eval(*target.children[0], scope));
  const bool plain = object.is_string() || object.is(Kind::kList) || object.is(Kind::kDict);
  const Function* method = plain ? FindMethod(object, target.text) : nullptr;
  if (method == nullptr) {
    HONE_TRY(const Value callee, rt_.GetAttr(object, target.text));
    HONE_TRY(const Args args, EvalArguments(expr.arguments, scope));
    return rt_.Call(callee, args);
  }
  HONE_TRY(const Args args, EvalArguments(expr.arguments, scope));
  return rt_.CallFunction(*method, object, args);
}

Result<Value> Interpreter::EvalFilter(const Expr& expr, const std::shared_ptr<Scope>& scope) {
  if (expr.function == nullptr) return InvalidInput("No filter named '" + expr.text + "' found.");
  // The first filter of a filter block has no operand: it works on the block's text.
  Value input = block_text_;
  if (expr.children[0] != nullptr) {
    HONE_TRY(input, Eval(*expr.children[0], scope));
  }
  HONE_TRY(const Args args, EvalArguments(expr.arguments, scope));
  return rt_.CallFunction(*expr.function, input, args);
}

Result<Value> Interpreter::EvalTest(const Expr& expr, const std::shared_ptr<Scope>& scope) {
  if (expr.function == nullptr) return InvalidInput("No test named '" + expr.text + "' found.");
  HONE_TRY(const Value input, Eval(*expr.children[0], scope));
  HONE_TRY(const Args args, EvalArguments(expr.arguments, scope));
  return rt_.CallFunction(*expr.function, input, args);
}

}  // namespace hone::jinja
