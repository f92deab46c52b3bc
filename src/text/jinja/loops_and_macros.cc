// for loops (recursive ones too), macros and call blocks.
#include <utility>

#include "text/jinja/interpreter.h"

namespace hone::jinja {

// The loop variable of {% for ... recursive %}: calling it runs the loop on other items and gives the text.
class RecursiveLoop : public LoopObject {
 public:
  RecursiveLoop(Value elements, Interpreter* interpreter, const Stmt* stmt, std::shared_ptr<Scope> scope)
      : LoopObject(std::move(elements)), interpreter_(*interpreter), stmt_(*stmt), scope_(std::move(scope)) {}

  Result<Value> Recurse(Runtime& rt, const Value& iterable) override {
    std::string text;
    std::string* outer = std::exchange(interpreter_.out_, &text);
    auto flow = interpreter_.RunLoop(stmt_, scope_, iterable, level + 1);
    interpreter_.out_ = outer;
    if (!flow) return std::move(flow).error();
    return rt.String(std::move(text));
  }

 private:
  Interpreter& interpreter_;
  const Stmt& stmt_;
  std::shared_ptr<Scope> scope_;  // around the loop; retained by the render
};

class MacroObject : public CallableObject {
 public:
  MacroObject(Interpreter* interpreter, const Stmt* stmt, std::shared_ptr<Scope> scope)
      : interpreter_(*interpreter), stmt_(*stmt), scope_(std::move(scope)) {}
  Result<Value> Call(Runtime&, const Args& args) override { return interpreter_.CallMacro(stmt_, scope_, args); }
  std::string_view type_name() const override { return "Macro"; }
  Value Attribute(std::string_view name) const override {
    if (name == "name") return Value::String(stmt_.macro.name);
    if (name == "catch_kwargs") return Value::Bool(stmt_.macro.uses_kwargs);
    if (name == "catch_varargs") return Value::Bool(stmt_.macro.uses_varargs);
    if (name == "caller") return Value::Bool(stmt_.macro.uses_caller);
    if (name != "arguments") return Value();
    std::vector<Value> names;
    for (const int number : stmt_.macro.parameters) {
      names.push_back(Value::String(interpreter_.program_.names[static_cast<size_t>(number)]));
    }
    return Value::Tuple(std::move(names));
  }

 private:
  Interpreter& interpreter_;
  const Stmt& stmt_;
  std::shared_ptr<Scope> scope_;  // where it was defined; retained by the render
};

Result<Interpreter::Flow> Interpreter::ExecFor(const Stmt& stmt, const std::shared_ptr<Scope>& scope) {
  HONE_TRY(const Value iterable, Eval(*stmt.exprs[0], scope));
  return RunLoop(stmt, scope, iterable, 0);
}

Result<Interpreter::Flow> Interpreter::RunLoop(const Stmt& stmt, const std::shared_ptr<Scope>& scope, const Value& iterable,
                                               int level) {
  HONE_TRY(std::vector<Value> items, rt_.Iterate(iterable));
  if (stmt.exprs.size() > 1) {
    std::vector<Value> kept;
    for (Value& item : items) {
      const auto inner = std::make_shared<Scope>(scope);
      HONE_RETURN_IF_ERROR(Assign(stmt.targets[0], item, inner));
      HONE_TRY(const Value keep, Eval(*stmt.exprs[1], inner));
      if (rt_.Truth(keep)) kept.push_back(std::move(item));
    }
    items = std::move(kept);
  }
  if (items.empty()) return ExecBody(stmt.bodies[1], std::make_shared<Scope>(scope));
  HONE_TRY(const Value list, rt_.List(std::move(items)));
  std::shared_ptr<LoopObject> loop;
  if (stmt.recursive) {
    RetainScope(scope);
    loop = std::make_shared<RecursiveLoop>(list, this, &stmt, scope);
  } else {
    loop = std::make_shared<LoopObject>(list);
  }
  loop->level = level;
  const Value loop_value = Value::FromObject(Kind::kLoop, loop);
  for (size_t i = 0; i < list.items().size(); ++i) {
    HONE_RETURN_IF_ERROR(rt_.Step());
    loop->index = i;
    const auto inner = std::make_shared<Scope>(scope);
    inner->Set(program_.loop_name, loop_value);
    HONE_RETURN_IF_ERROR(Assign(stmt.targets[0], list.items()[i], inner));
    HONE_TRY(const Flow flow, ExecBody(stmt.bodies[0], inner));
    if (flow == Flow::kBreak) break;
  }
  return Flow::kNormal;
}

Value Interpreter::MakeMacro(const Stmt& stmt, const std::shared_ptr<Scope>& scope) {
  RetainScope(scope);
  return Value::FromObject(Kind::kCallable, std::make_shared<MacroObject>(this, &stmt, scope));
}

Result<Value> Interpreter::CallMacro(const Stmt& stmt, const std::shared_ptr<Scope>& scope, const Args& args) {
  const MacroSignature& macro = stmt.macro;
  const size_t count = macro.parameters.size();
  const auto inner = std::make_shared<Scope>(scope);
  const auto name_of = [&](size_t i) -> const std::string& { return program_.names[static_cast<size_t>(macro.parameters[i])]; };

  std::vector<bool> given(count);
  auto kwargs = std::make_shared<Dict>();
  Value caller = Value::Undefined("No caller defined");
  std::vector<Value> values(count);
  for (size_t i = 0; i < std::min(count, args.positional.size()); ++i) {
    values[i] = args.positional[i];
    given[i] = true;
  }
  for (const auto& [name, value] : args.named) {
    HONE_RETURN_IF_ERROR(rt_.Step(1 + static_cast<int64_t>(count / 8)));
    size_t i = 0;
    while (i < count && name_of(i) != name) ++i;
    if (i < count && !given[i]) {
      values[i] = value;
      given[i] = true;
    } else if (name == "caller" && macro.uses_caller) {
      caller = value;
    } else if (macro.uses_kwargs) {
      HONE_RETURN_IF_ERROR(rt_.SetKey(kwargs.get(), Value::String(name), value));
    } else if (name == "caller") {
      return TypeError("macro '" + macro.name + "' was invoked with two values for the special caller argument. This is most likely a bug.");
    } else {
      return TypeError("macro '" + macro.name + "' takes no keyword argument '" + name + "'");
    }
  }
  if (args.positional.size() > count && !macro.uses_varargs) {
    return TypeError("macro '" + macro.name + "' takes not more than " + std::to_string(count) + " argument(s)");
  }
  if (macro.uses_caller) inner->Set(program_.caller_name, std::move(caller));
  if (macro.uses_kwargs) inner->Set(program_.kwargs_name, Value::FromDict(std::move(kwargs)));
  if (macro.uses_varargs) {
    std::vector<Value> rest;
    if (args.positional.size() > count) rest.assign(args.positional.begin() + static_cast<ptrdiff_t>(count), args.positional.end());
    HONE_TRY(Value varargs, rt_.Tuple(std::move(rest)));
    inner->Set(program_.varargs_name, std::move(varargs));
  }
  // A default sees the parameters before it.
  const size_t first_default = count - macro.defaults.size();
  for (size_t i = 0; i < count; ++i) {
    if (!given[i]) {
      values[i] = Value::Undefined("parameter '" + name_of(i) + "' was not provided");
      if (i >= first_default) {
        HONE_TRY(values[i], Eval(*macro.defaults[i - first_default], inner));
      }
    }
    inner->Set(macro.parameters[i], std::move(values[i]));
  }
  std::string text;
  std::string* outer = std::exchange(out_, &text);
  auto flow = ExecBody(stmt.bodies[0], inner);
  out_ = outer;
  if (!flow) return std::move(flow).error();
  return rt_.String(std::move(text));
}

Result<void> Interpreter::ExecCallBlock(const Stmt& stmt, const std::shared_ptr<Scope>& scope) {
  const Value caller = MakeMacro(stmt, scope);
  HONE_TRY(const Value value, EvalCall(*stmt.exprs[0], scope, &caller));
  return Output(value);
}

}  // namespace hone::jinja
