// Statements, except loops and macros (loops_and_macros.cc).
#include "text/jinja/interpreter.h"

#include <utility>

namespace hone::jinja {

void Scope::Drop() {
  // The values die after the scope is empty: what they hold may reach this scope again.
  const std::vector<std::pair<int, Value>> dropped = std::move(values);
  values.clear();
}

const Value* Scope::Find(int name) const {
  for (const auto& [number, value] : values) {
    if (number == name) return &value;
  }
  return nullptr;
}

void Scope::Set(int name, Value value) {
  for (auto& [number, old] : values) {
    if (number != name) continue;
    std::swap(old, value);  // the old value dies last: it may own this scope's neighbours
    return;
  }
  AddBytes(48);
  values.emplace_back(name, std::move(value));
}

Interpreter::Interpreter(const Program* program, const Dict* variables, Runtime* runtime)
    : program_(*program), variables_(*variables), rt_(*runtime), root_(std::make_shared<Scope>(nullptr)) {}

Result<std::string> Interpreter::Run() {
  std::string text;
  out_ = &text;
  rt_.Retain(root_);
  root_->retained = true;
  HONE_RETURN_IF_ERROR(ExecBody(program_.body, root_));
  return text;
}

void Interpreter::RetainScope(const std::shared_ptr<Scope>& scope) {
  // The whole chain: an outer scope may otherwise die through the inner one's values.
  for (std::shared_ptr<Scope> at = scope; at != nullptr && !at->retained; at = at->parent) {
    at->retained = true;
    rt_.Retain(at);
  }
}

Result<Interpreter::Flow> Interpreter::ExecBody(const Body& body, const std::shared_ptr<Scope>& scope) {
  for (const auto& stmt : body) {
    auto flow = Exec(*stmt, scope);
    if (!flow && !located_) {
      located_ = true;
      if (!rt_.raised) flow.error().message += " (template line " + std::to_string(stmt->line) + ")";
    }
    if (!flow || *flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

Result<Interpreter::Flow> Interpreter::Exec(const Stmt& stmt, const std::shared_ptr<Scope>& scope) {
  const Runtime::Depth depth(&rt_);
  if (!depth.ok()) return rt_.DepthError();
  HONE_RETURN_IF_ERROR(rt_.Step());
  switch (stmt.kind) {
    case StmtKind::kText:
      HONE_RETURN_IF_ERROR(Emit(stmt.text));
      return Flow::kNormal;
    case StmtKind::kOutput:
      for (const ExprPtr& expr : stmt.exprs) {
        HONE_TRY(const Value value, Eval(*expr, scope));
        HONE_RETURN_IF_ERROR(Output(value));
      }
      return Flow::kNormal;
    case StmtKind::kFor: return ExecFor(stmt, scope);
    case StmtKind::kIf: return ExecIf(stmt, scope);
    case StmtKind::kSet: {
      HONE_TRY(Value value, Eval(*stmt.exprs[0], scope));
      HONE_RETURN_IF_ERROR(Assign(stmt.targets[0], std::move(value), scope));
      return Flow::kNormal;
    }
    case StmtKind::kSetBlock: return ExecSetBlock(stmt, scope);
    case StmtKind::kFilterBlock: return ExecFilterBlock(stmt, scope);
    case StmtKind::kWith: return ExecWith(stmt, scope);
    case StmtKind::kScope: return ExecBody(stmt.bodies[0], std::make_shared<Scope>(scope));
    case StmtKind::kBlock:
      return ExecBody(stmt.bodies[0], std::make_shared<Scope>(stmt.recursive ? scope : root_));
    case StmtKind::kMacro:
      scope->Set(stmt.targets[0].name, MakeMacro(stmt, scope));
      return Flow::kNormal;
    case StmtKind::kCallBlock:
      HONE_RETURN_IF_ERROR(ExecCallBlock(stmt, scope));
      return Flow::kNormal;
    case StmtKind::kBreak: return Flow::kBreak;
    case StmtKind::kContinue: return Flow::kContinue;
  }
  return Flow::kNormal;
}

Result<void> Interpreter::Emit(std::string_view text) {
  if (static_cast<int64_t>(out_->size() + text.size()) > rt_.options().max_output_bytes) {
    return LimitError("the template writes too much: more than " + std::to_string(rt_.options().max_output_bytes) + " bytes");
  }
  out_->append(text);
  return rt_.ChargeBytes(text.size());
}

Result<void> Interpreter::Output(const Value& value) {
  if (value.is_string()) return Emit(value.as_string());
  HONE_TRY(const std::string text, rt_.Str(value));
  return Emit(text);
}

Result<Interpreter::Flow> Interpreter::ExecIf(const Stmt& stmt, const std::shared_ptr<Scope>& scope) {
  for (size_t i = 0; i < stmt.exprs.size(); ++i) {
    HONE_TRY(const Value test, Eval(*stmt.exprs[i], scope));
    if (rt_.Truth(test)) return ExecBody(stmt.bodies[i], scope);
  }
  return ExecBody(stmt.bodies.back(), scope);
}

Result<Interpreter::Flow> Interpreter::ExecCapture(const Body& body, const std::shared_ptr<Scope>& scope, std::string* text) {
  std::string* outer = std::exchange(out_, text);
  auto flow = ExecBody(body, std::make_shared<Scope>(scope));
  out_ = outer;
  return flow;
}

Result<Value> Interpreter::FilterText(const Expr& filter, std::string text, const std::shared_ptr<Scope>& scope) {
  Value outer = std::exchange(block_text_, Value::String(std::move(text)));
  auto value = Eval(filter, scope);
  block_text_ = std::move(outer);
  return value;
}

Result<Interpreter::Flow> Interpreter::ExecSetBlock(const Stmt& stmt, const std::shared_ptr<Scope>& scope) {
  std::string text;
  HONE_TRY(const Flow flow, ExecCapture(stmt.bodies[0], scope, &text));
  if (flow != Flow::kNormal) return flow;
  Value value;
  if (stmt.exprs[0] != nullptr) {
    HONE_TRY(value, FilterText(*stmt.exprs[0], std::move(text), scope));
  } else {
    HONE_TRY(value, rt_.String(std::move(text)));
  }
  HONE_RETURN_IF_ERROR(Assign(stmt.targets[0], std::move(value), scope));
  return Flow::kNormal;
}

Result<Interpreter::Flow> Interpreter::ExecFilterBlock(const Stmt& stmt, const std::shared_ptr<Scope>& scope) {
  std::string text;
  HONE_TRY(const Flow flow, ExecCapture(stmt.bodies[0], scope, &text));
  if (flow != Flow::kNormal) return flow;
  HONE_TRY(const Value value, FilterText(*stmt.exprs[0], std::move(text), scope));
  HONE_RETURN_IF_ERROR(Output(value));
  return Flow::kNormal;
}

// The values see the scope outside of the block.
Result<Interpreter::Flow> Interpreter::ExecWith(const Stmt& stmt, const std::shared_ptr<Scope>& scope) {
  const auto inner = std::make_shared<Scope>(scope);
  for (size_t i = 0; i < stmt.targets.size(); ++i) {
    HONE_TRY(Value value, Eval(*stmt.exprs[i], scope));
    HONE_RETURN_IF_ERROR(Assign(stmt.targets[i], std::move(value), inner));
  }
  return ExecBody(stmt.bodies[0], inner);
}

Result<void> Interpreter::Assign(const Target& target, Value value, const std::shared_ptr<Scope>& scope) {
  if (target.is_tuple) {
    auto items = rt_.Iterate(value);
    if (!items && !value.is(Kind::kGenerator)) return TypeError("cannot unpack non-iterable " + TypeName(value) + " object");
    if (!items) return std::move(items).error();
    if (items->size() < target.parts.size()) {
      return ValueError("not enough values to unpack (expected " + std::to_string(target.parts.size()) + ", got " +
                        std::to_string(items->size()) + ")");
    }
    if (items->size() > target.parts.size()) {
      return ValueError("too many values to unpack (expected " + std::to_string(target.parts.size()) + ")");
    }
    for (size_t i = 0; i < target.parts.size(); ++i) {
      HONE_RETURN_IF_ERROR(Assign(target.parts[i], std::move((*items)[i]), scope));
    }
    return {};
  }
  if (target.attribute.empty()) {
    scope->Set(target.name, std::move(value));
    return {};
  }
  HONE_TRY(const Value object, EvalName(target.name, scope.get()));
  if (!object.is(Kind::kNamespace)) return TypeError("cannot assign attribute on non-namespace object");
  return rt_.SetKey(&object.as<NamespaceObject>().attributes, Value::String(target.attribute), std::move(value));
}

}  // namespace hone::jinja
