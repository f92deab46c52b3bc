// Statements of the template grammar, and the parser's small change.
#include <algorithm>
#include <functional>

#include "text/jinja/parser.h"
#include "text/jinja/parser_impl.h"

namespace hone::jinja {

Error Parser::Fail(const std::string& what, int line) const {
  return InvalidInput("template line " + std::to_string(line) + ": " + what);
}

Token Parser::Next() {
  Token token = tokens_[at_];
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool Parser::SkipOperator(std::string_view op) {
  if (!current().IsOperator(op)) return false;
  Next();
  return true;
}

bool Parser::SkipName(std::string_view name) {
  if (!current().IsName(name)) return false;
  Next();
  return true;
}

std::string Parser::Describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kData: return "text";
    case TokenKind::kVariableBegin: return "'{{'";
    case TokenKind::kVariableEnd: return "'}}'";
    case TokenKind::kBlockBegin: return "'{%'";
    case TokenKind::kBlockEnd: return "'%}'";
    case TokenKind::kString: return "a string";
    case TokenKind::kFloat: return "a number";
    case TokenKind::kEnd: return "the end of the template";
    default: return "'" + token.text + "'";
  }
}

Result<void> Parser::ExpectOperator(std::string_view op) {
  if (SkipOperator(op)) return {};
  return Fail("expected '" + std::string(op) + "', got " + Describe(current()));
}

Result<std::string> Parser::ExpectName() {
  if (current().kind != TokenKind::kName) return Fail("expected a name, got " + Describe(current()));
  return Next().text;
}

Result<void> Parser::ExpectKeyword(std::string_view name) {
  if (SkipName(name)) return {};
  return Fail("expected '" + std::string(name) + "', got " + Describe(current()));
}

Result<void> Parser::ExpectKind(TokenKind kind) {
  if (current().kind != kind) {
    Token wanted;
    wanted.kind = kind;
    return Fail("expected " + Describe(wanted) + ", got " + Describe(current()));
  }
  Next();
  return {};
}

int Parser::NameNumber(const std::string& name) {
  const auto [it, added] = numbers_.emplace(name, static_cast<int>(program_->names.size()));
  if (added) program_->names.push_back(name);
  return it->second;
}

Result<std::unique_ptr<const Program>> Parser::Run() {
  program_->loop_name = NameNumber("loop");
  program_->caller_name = NameNumber("caller");
  program_->varargs_name = NameNumber("varargs");
  program_->kwargs_name = NameNumber("kwargs");
  HONE_TRY(program_->body, ParseBody({}));
  if (!unknown_.empty()) return unknown_[0];
  return std::unique_ptr<const Program>(std::move(program_));
}

Result<Body> Parser::ParseBody(Names end_names) {
  const Nesting nesting(this);
  HONE_RETURN_IF_ERROR(CheckNesting());
  Body body;
  const auto add = [&](StmtKind kind) {
    body.push_back(std::make_unique<Stmt>());
    body.back()->kind = kind;
    body.back()->line = current().line;
    return body.back().get();
  };
  while (true) {
    switch (current().kind) {
      case TokenKind::kData: {
        Stmt* stmt = add(StmtKind::kText);
        stmt->text = Next().text;
        break;
      }
      case TokenKind::kVariableBegin: {
        Stmt* stmt = add(StmtKind::kOutput);
        Next();
        HONE_TRY(ExprPtr expr, ParseTuple(true, {}, false));
        stmt->exprs.push_back(std::move(expr));
        HONE_RETURN_IF_ERROR(ExpectKind(TokenKind::kVariableEnd));
        break;
      }
      case TokenKind::kBlockBegin: {
        const Token& name = Look();
        if (std::any_of(end_names.begin(), end_names.end(), [&](auto end) { return name.IsName(end); })) {
          Next();
          return body;
        }
        Next();
        HONE_RETURN_IF_ERROR(ParseStatement(&body));
        HONE_RETURN_IF_ERROR(ExpectKind(TokenKind::kBlockEnd));
        break;
      }
      default:
        if (end_names.size() == 0) return body;
        return Fail("the template ends where '" + std::string(*end_names.begin()) + "' was expected");
    }
  }
}

Result<Body> Parser::ParseBlockBody(Names end_names) {
  SkipOperator(":");
  HONE_RETURN_IF_ERROR(ExpectKind(TokenKind::kBlockEnd));
  return ParseBody(end_names);
}

Result<void> Parser::ParseStatement(Body* body) {
  const Token& token = current();
  if (token.kind != TokenKind::kName) return Fail("tag name expected, got " + Describe(token));
  auto stmt = std::make_unique<Stmt>();
  stmt->line = token.line;
  struct Tag {
    std::string_view name;
    StmtKind kind;
    Result<void> (*parse)(Parser*, Stmt*);
  };
  static constexpr Tag kTags[] = {
      {"for", StmtKind::kFor, [](Parser* p, Stmt* s) { return p->ParseFor(s); }},
      {"if", StmtKind::kIf, [](Parser* p, Stmt* s) { return p->ParseIf(s); }},
      {"set", StmtKind::kSet, [](Parser* p, Stmt* s) { return p->ParseSet(s); }},
      {"with", StmtKind::kWith, [](Parser* p, Stmt* s) { return p->ParseWith(s); }},
      {"macro", StmtKind::kMacro, [](Parser* p, Stmt* s) { return p->ParseMacro(s); }},
      {"call", StmtKind::kCallBlock, [](Parser* p, Stmt* s) { return p->ParseCallBlock(s); }},
      {"filter", StmtKind::kFilterBlock, [](Parser* p, Stmt* s) { return p->ParseFilterBlock(s); }},
      {"generation", StmtKind::kScope, [](Parser* p, Stmt* s) { return p->ParseScope(s, "endgeneration"); }},
      {"autoescape", StmtKind::kScope, [](Parser* p, Stmt* s) { return p->ParseScope(s, "endautoescape"); }},
      {"block", StmtKind::kBlock, [](Parser* p, Stmt* s) { return p->ParseNamedBlock(s); }},
      {"print", StmtKind::kOutput, [](Parser* p, Stmt* s) { return p->ParsePrint(s); }},
      {"break", StmtKind::kBreak, nullptr},
      {"continue", StmtKind::kContinue, nullptr},
  };
  for (const Tag& tag : kTags) {
    if (!token.IsName(tag.name)) continue;
    stmt->kind = tag.kind;
    Next();
    if (tag.parse != nullptr) {
      HONE_RETURN_IF_ERROR(tag.parse(this, stmt.get()));
    } else if (loops_ == 0) {
      return Fail("'" + std::string(tag.name) + "' outside loop", stmt->line);
    }
    body->push_back(std::move(stmt));
    return {};
  }
  for (const std::string_view name : {"include", "import", "from", "extends"}) {
    if (token.IsName(name)) {
      return Unsupported("template line " + std::to_string(token.line) + ": '" + std::string(name) +
                         "' is not supported: a chat template is one file");
    }
  }
  return Fail("Encountered unknown tag '" + token.text + "'.");
}

Result<Target> Parser::ToTarget(const Expr& expr) const {
  Target target;
  target.line = expr.line;
  if (expr.kind == ExprKind::kName) {
    target.name = expr.name;
    return target;
  }
  if (expr.kind != ExprKind::kTuple) return Fail("can't assign to this expression", expr.line);
  target.is_tuple = true;
  for (const ExprPtr& child : expr.children) {
    HONE_TRY(Target part, ToTarget(*child));
    target.parts.push_back(std::move(part));
  }
  return target;
}

// Targets are names, possibly in (nested) tuples; `ns.attribute` where allowed.
Result<Target> Parser::ParseTarget(bool with_namespace, Names end_names) {
  if (with_namespace && current().kind == TokenKind::kName && Look().IsOperator(".")) {
    Target target;
    target.line = current().line;
    target.name = NameNumber(Next().text);
    Next();
    HONE_TRY(target.attribute, ExpectName());
    return target;
  }
  const int line = current().line;
  ExprPtr tuple = Make(ExprKind::kTuple, line);
  bool is_tuple = false;
  while (true) {
    const bool ends = current().kind == TokenKind::kBlockEnd || current().IsOperator(")") ||
                      std::any_of(end_names.begin(), end_names.end(), [&](auto name) { return current().IsName(name); });
    if (ends) break;
    HONE_TRY(ExprPtr item, ParsePrimary());
    tuple->children.push_back(std::move(item));
    if (!SkipOperator(",")) break;
    is_tuple = true;
  }
  if (tuple->children.empty()) return Fail("expected a name, got " + Describe(current()));
  return ToTarget(is_tuple ? *tuple : *tuple->children[0]);
}

Result<void> Parser::ParseFor(Stmt* stmt) {
  HONE_TRY(Target target, ParseTarget(false, {"in"}));
  stmt->targets.push_back(std::move(target));
  HONE_RETURN_IF_ERROR(ExpectKeyword("in"));
  HONE_TRY(ExprPtr iterable, ParseTuple(false, {"recursive"}, false));
  stmt->exprs.push_back(std::move(iterable));
  if (SkipName("if")) {
    HONE_TRY(ExprPtr filter, ParseExpression());
    stmt->exprs.push_back(std::move(filter));
  }
  stmt->recursive = SkipName("recursive");
  ++loops_;
  HONE_TRY(Body body, ParseBlockBody({"endfor", "else"}));
  --loops_;
  stmt->bodies.push_back(std::move(body));
  stmt->bodies.emplace_back();
  if (SkipName("else")) {
    HONE_TRY(stmt->bodies[1], ParseBlockBody({"endfor"}));
  }
  return ExpectKeyword("endfor");
}

Result<void> Parser::ParseIf(Stmt* stmt) {
  const size_t unknown = unknown_.size();
  while (true) {
    HONE_TRY(ExprPtr test, ParseTuple(false, {}, false));
    stmt->exprs.push_back(std::move(test));
    HONE_TRY(Body body, ParseBlockBody({"endif", "else", "elif"}));
    stmt->bodies.push_back(std::move(body));
    if (!SkipName("elif")) break;
  }
  stmt->bodies.emplace_back();
  if (SkipName("else")) {
    HONE_TRY(stmt->bodies.back(), ParseBlockBody({"endif"}));
  }
  unknown_.resize(unknown);
  return ExpectKeyword("endif");
}

Result<void> Parser::ParseSet(Stmt* stmt) {
  HONE_TRY(Target target, ParseTarget(true, {}));
  stmt->targets.push_back(std::move(target));
  if (SkipOperator("=")) {
    HONE_TRY(ExprPtr value, ParseTuple(true, {}, false));
    stmt->exprs.push_back(std::move(value));
    return {};
  }
  stmt->kind = StmtKind::kSetBlock;
  HONE_TRY(ExprPtr filter, ParseFilters(nullptr, false));
  stmt->exprs.push_back(std::move(filter));
  HONE_TRY(Body body, ParseBlockBody({"endset"}));
  stmt->bodies.push_back(std::move(body));
  return ExpectKeyword("endset");
}

Result<void> Parser::ParseWith(Stmt* stmt) {
  while (current().kind != TokenKind::kBlockEnd) {
    if (!stmt->targets.empty()) HONE_RETURN_IF_ERROR(ExpectOperator(","));
    HONE_TRY(Target target, ParseTarget(false, {}));
    stmt->targets.push_back(std::move(target));
    HONE_RETURN_IF_ERROR(ExpectOperator("="));
    HONE_TRY(ExprPtr value, ParseExpression());
    stmt->exprs.push_back(std::move(value));
  }
  HONE_TRY(Body body, ParseBlockBody({"endwith"}));
  stmt->bodies.push_back(std::move(body));
  return ExpectKeyword("endwith");
}

Result<void> Parser::ParseSignature(MacroSignature* signature) {
  HONE_RETURN_IF_ERROR(ExpectOperator("("));
  while (!current().IsOperator(")")) {
    if (!signature->parameters.empty()) HONE_RETURN_IF_ERROR(ExpectOperator(","));
    HONE_TRY(const std::string name, ExpectName());
    const int number = NameNumber(name);
    if (std::count(signature->parameters.begin(), signature->parameters.end(), number) > 0) {
      return Fail("duplicate argument '" + name + "' in function definition");
    }
    signature->parameters.push_back(number);
    if (SkipOperator("=")) {
      HONE_TRY(ExprPtr value, ParseExpression());
      signature->defaults.push_back(std::move(value));
    } else if (!signature->defaults.empty()) {
      return Fail("non-default argument follows default argument");
    }
  }
  return ExpectOperator(")");
}

Result<Body> Parser::ParseMacroBody(MacroSignature* signature, std::string_view end_name) {
  macros_.push_back(signature);
  const int loops = std::exchange(loops_, 0);
  HONE_TRY(Body body, ParseBlockBody({end_name}));
  loops_ = loops;
  macros_.pop_back();
  HONE_RETURN_IF_ERROR(ExpectKeyword(end_name));
  return body;
}

Result<void> Parser::ParseMacro(Stmt* stmt) {
  HONE_TRY(stmt->macro.name, ExpectName());
  stmt->targets.emplace_back().name = NameNumber(stmt->macro.name);
  HONE_RETURN_IF_ERROR(ParseSignature(&stmt->macro));
  HONE_TRY(Body body, ParseMacroBody(&stmt->macro, "endmacro"));
  stmt->bodies.push_back(std::move(body));
  return {};
}

Result<void> Parser::ParseCallBlock(Stmt* stmt) {
  stmt->macro.name = "caller";
  if (current().IsOperator("(")) HONE_RETURN_IF_ERROR(ParseSignature(&stmt->macro));
  HONE_TRY(ExprPtr call, ParseExpression());
  if (call->kind != ExprKind::kCall) return Fail("expected call", stmt->line);
  stmt->exprs.push_back(std::move(call));
  HONE_TRY(Body body, ParseMacroBody(&stmt->macro, "endcall"));
  stmt->bodies.push_back(std::move(body));
  return {};
}

Result<void> Parser::ParseFilterBlock(Stmt* stmt) {
  HONE_TRY(ExprPtr filter, ParseFilters(nullptr, true));
  stmt->exprs.push_back(std::move(filter));
  HONE_TRY(Body body, ParseBlockBody({"endfilter"}));
  stmt->bodies.push_back(std::move(body));
  return ExpectKeyword("endfilter");
}

Result<void> Parser::ParseScope(Stmt* stmt, std::string_view end_name) {
  const bool generation = end_name == "endgeneration";
  if (!generation) HONE_RETURN_IF_ERROR(ParseExpression());  // autoescape: chat templates never escape
  const int loops = loops_;
  if (generation) loops_ = 0;
  HONE_TRY(Body body, ParseBlockBody({end_name}));
  loops_ = loops;
  stmt->bodies.push_back(std::move(body));
  return ExpectKeyword(end_name);
}

// Without inheritance a block is its body, which sees only the template's own variables (all of them if scoped).
Result<void> Parser::ParseNamedBlock(Stmt* stmt) {
  HONE_TRY(stmt->text, ExpectName());
  stmt->recursive = SkipName("scoped");
  if (SkipName("required")) return Unsupported("template line " + std::to_string(stmt->line) + ": required blocks need extends");
  if (blocks_[stmt->text]++ > 0) return Fail("block '" + stmt->text + "' defined twice", stmt->line);
  const int loops = std::exchange(loops_, 0);
  HONE_TRY(Body body, ParseBlockBody({"endblock"}));
  loops_ = loops;
  stmt->bodies.push_back(std::move(body));
  HONE_RETURN_IF_ERROR(ExpectKeyword("endblock"));
  SkipName(stmt->text);
  return {};
}

Result<void> Parser::ParsePrint(Stmt* stmt) {
  while (current().kind != TokenKind::kBlockEnd) {
    if (!stmt->exprs.empty()) HONE_RETURN_IF_ERROR(ExpectOperator(","));
    HONE_TRY(ExprPtr expr, ParseExpression());
    stmt->exprs.push_back(std::move(expr));
  }
  return {};
}

Result<std::unique_ptr<const Program>> ParseTemplate(std::string_view source) {
  HONE_TRY(std::vector<Token> tokens, Tokenize(source));
  return Parser(std::move(tokens)).Run();
}

}  // namespace hone::jinja
