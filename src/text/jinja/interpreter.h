// Interpreter: walks a Program with a Runtime's limits. Scopes are as Jinja compiles them: a for loop's body, a macro, with,
// filter, call and set blocks each open one (a loop body anew every round), if does not; a name is looked up outwards, then
// among the variables of the render, then the globals. A macro sees the scope it was defined in.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "text/jinja/ast.h"
#include "text/jinja/runtime.h"

namespace hone::jinja {

struct Scope : Object {
  explicit Scope(std::shared_ptr<Scope> outer) : Object(96), parent(std::move(outer)) {}
  void Drop() override;
  const Value* Find(int name) const;  // in this scope only
  void Set(int name, Value value);

  std::shared_ptr<Scope> parent;
  std::vector<std::pair<int, Value>> values;
  bool retained = false;
};

class Interpreter {
 public:
  // All must outlive it.
  Interpreter(const Program* program, const Dict* variables, Runtime* runtime);

  Result<std::string> Run();

 private:
  friend class MacroObject;
  friend class RecursiveLoop;

  enum class Flow { kNormal, kBreak, kContinue };

  // Statements (interpreter.cc, loops_and_macros.cc).
  Result<Flow> ExecBody(const Body& body, const std::shared_ptr<Scope>& scope);
  Result<Flow> Exec(const Stmt& stmt, const std::shared_ptr<Scope>& scope);
  Result<Flow> ExecIf(const Stmt& stmt, const std::shared_ptr<Scope>& scope);
  Result<Flow> ExecFor(const Stmt& stmt, const std::shared_ptr<Scope>& scope);
  Result<Flow> RunLoop(const Stmt& stmt, const std::shared_ptr<Scope>& scope, const Value& iterable, int level);
  // The body's output into `text`, in a scope of its own.
  Result<Flow> ExecCapture(const Body& body, const std::shared_ptr<Scope>& scope, std::string* text);
  Result<Value> FilterText(const Expr& filter, std::string text, const std::shared_ptr<Scope>& scope);
  Result<Flow> ExecSetBlock(const Stmt& stmt, const std::shared_ptr<Scope>& scope);
  Result<Flow> ExecFilterBlock(const Stmt& stmt, const std::shared_ptr<Scope>& scope);
  Result<Flow> ExecWith(const Stmt& stmt, const std::shared_ptr<Scope>& scope);
  Result<void> ExecCallBlock(const Stmt& stmt, const std::shared_ptr<Scope>& scope);
  Result<void> Output(const Value& value);
  Result<void> Emit(std::string_view text);
  Result<void> Assign(const Target& target, Value value, const std::shared_ptr<Scope>& scope);
  Value MakeMacro(const Stmt& stmt, const std::shared_ptr<Scope>& scope);
  Result<Value> CallMacro(const Stmt& stmt, const std::shared_ptr<Scope>& scope, const Args& args);
  void RetainScope(const std::shared_ptr<Scope>& scope);

  // Expressions (expressions.cc).
  Result<Value> Eval(const Expr& expr, const std::shared_ptr<Scope>& scope);
  Result<Value> EvalAny(const Expr& expr, const std::shared_ptr<Scope>& scope);
  Result<Value> EvalName(int name, const Scope* scope);
  Result<Value> EvalCompare(const Expr& expr, const std::shared_ptr<Scope>& scope);
  Result<Value> EvalConcat(const Expr& expr, const std::shared_ptr<Scope>& scope);
  Result<Value> EvalSequence(const Expr& expr, const std::shared_ptr<Scope>& scope);
  Result<Value> EvalDict(const Expr& expr, const std::shared_ptr<Scope>& scope);
  Result<Value> EvalSlice(const Expr& expr, const std::shared_ptr<Scope>& scope);
  Result<Value> EvalCondition(const Expr& expr, const std::shared_ptr<Scope>& scope);
  Result<Value> EvalCall(const Expr& expr, const std::shared_ptr<Scope>& scope, const Value* caller = nullptr);
  Result<Value> EvalMethodCall(const Expr& expr, const std::shared_ptr<Scope>& scope);
  Result<Value> EvalFilter(const Expr& expr, const std::shared_ptr<Scope>& scope);
  Result<Value> EvalTest(const Expr& expr, const std::shared_ptr<Scope>& scope);
  Result<Value> EvalBinary(const Expr& expr, const std::shared_ptr<Scope>& scope);
  Result<Args> EvalArguments(const Arguments& arguments, const std::shared_ptr<Scope>& scope);

  const Program& program_;
  const Dict& variables_;
  Runtime& rt_;
  std::string* out_ = nullptr;
  std::shared_ptr<Scope> root_;
  Value block_text_;      // of the filter block being filtered
  bool located_ = false;  // an error already names its line
};

}  // namespace hone::jinja
