// The parser's class, shared by parser_expressions.cc and parser_statements.cc only.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"

namespace hone::jinja {

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)), program_(std::make_unique<Program>()) {}
  Result<std::unique_ptr<const Program>> Run();

 private:
  using Names = std::initializer_list<std::string_view>;

  // Counts nesting; every function that can reach itself holds one.
  struct Nesting {
    explicit Nesting(Parser* parser) : parser_(parser) { ++parser_->nesting_; }
    ~Nesting() { --parser_->nesting_; }
    Parser* parser_;
  };
  Result<void> CheckNesting() const;

  const Token& current() const { return tokens_[at_]; }
  const Token& Look(size_t ahead = 1) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  Token Next();
  bool SkipOperator(std::string_view op);
  bool SkipName(std::string_view name);
  Result<void> ExpectOperator(std::string_view op);
  Result<std::string> ExpectName();
  Result<void> ExpectKeyword(std::string_view name);
  Result<void> ExpectKind(TokenKind kind);
  static std::string Describe(const Token& token);
  Error Fail(const std::string& what, int line) const;
  Error Fail(const std::string& what) const { return Fail(what, current().line); }
  int NameNumber(const std::string& name);

  ExprPtr Make(ExprKind kind, int line) const;
  // Sets the depth from children and arguments. Errors: deeper than kMaxTreeDepth.
  Result<ExprPtr> Finish(ExprPtr expr) const;
  Result<ExprPtr> Unary(ExprKind kind, int line, ExprPtr child) const;
  Result<ExprPtr> Binary(ExprKind kind, int line, ExprPtr left, ExprPtr right) const;

  // Expressions.
  Result<ExprPtr> ParseExpression(bool with_condition = true);
  Result<ExprPtr> ParseCondition();
  Result<ExprPtr> ParseOr();
  Result<ExprPtr> ParseAnd();
  Result<ExprPtr> ParseNot();
  Result<ExprPtr> ParseCompare();
  Result<ExprPtr> ParseBinary(int level);
  Result<ExprPtr> ParseUnary(bool with_filter);
  Result<ExprPtr> ParsePrimary();
  Result<ExprPtr> ParseTuple(bool with_condition, Names end_names, bool explicit_parentheses);
  Result<ExprPtr> ParseListLiteral();
  Result<ExprPtr> ParseDictLiteral();
  Result<ExprPtr> ParsePostfix(ExprPtr node);
  Result<ExprPtr> ParseFilterChain(ExprPtr node);
  Result<ExprPtr> ParseFilters(ExprPtr node, bool start_inline);
  Result<ExprPtr> ParseTest(ExprPtr node);
  Result<ExprPtr> ParseSubscript(ExprPtr node);
  Result<ExprPtr> ParseSubscribed();
  Result<ExprPtr> ParseCall(ExprPtr node);
  Result<Arguments> ParseArguments();
  Result<std::string> ParseDottedName();

  // Statements.
  Result<Body> ParseBody(Names end_names);
  Result<Body> ParseBlockBody(Names end_names);  // the rest of the opening tag, then the body; stops at the end's name
  Result<void> ParseStatement(Body* body);
  Result<void> ParseFor(Stmt* stmt);
  Result<void> ParseIf(Stmt* stmt);
  Result<void> ParseSet(Stmt* stmt);
  Result<void> ParseWith(Stmt* stmt);
  Result<void> ParseMacro(Stmt* stmt);
  Result<void> ParseCallBlock(Stmt* stmt);
  Result<void> ParseFilterBlock(Stmt* stmt);
  Result<void> ParseScope(Stmt* stmt, std::string_view end_name);
  Result<void> ParseNamedBlock(Stmt* stmt);
  Result<void> ParsePrint(Stmt* stmt);
  Result<void> ParseSignature(MacroSignature* signature);
  Result<Body> ParseMacroBody(MacroSignature* signature, std::string_view end_name);
  Result<Target> ParseTarget(bool with_namespace, Names end_names);
  Result<Target> ToTarget(const Expr& expr) const;

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int nesting_ = 0;
  std::vector<Error> unknown_;  // filters and tests that do not exist, outside of conditions
  int loops_ = 0;       // loops around that break and continue can reach
  std::unique_ptr<Program> program_;
  std::map<std::string, int> numbers_;
  std::vector<MacroSignature*> macros_;  // being parsed, outermost first
  std::map<std::string, int> blocks_;
};

}  // namespace hone::jinja
