// Expressions of the template grammar, loosest binding first.
#include <algorithm>

#include "text/jinja/functions.h"
#include "text/jinja/parser_impl.h"

namespace hone::jinja {
namespace {

constexpr int kMaxNesting = 200;

struct BinaryOp {
  std::string_view text;
  ExprKind kind;
  int level;
};
// Levels of left-associative operators; a higher level binds tighter. Concatenation is between them (level 2).
constexpr BinaryOp kBinaryOps[] = {
    {"+", ExprKind::kAdd, 1},      {"-", ExprKind::kSub, 1}, {"~", ExprKind::kConcat, 2}, {"*", ExprKind::kMul, 3},
    {"/", ExprKind::kDiv, 3},      {"//", ExprKind::kFloorDiv, 3}, {"%", ExprKind::kMod, 3}, {"**", ExprKind::kPow, 4},
};
constexpr int kTightest = 4;

struct CompareName {
  std::string_view text;
  CompareOp op;
};
constexpr CompareName kCompareNames[] = {
    {"==", CompareOp::kEq}, {"!=", CompareOp::kNe}, {"<", CompareOp::kLt},
    {"<=", CompareOp::kLe}, {">", CompareOp::kGt},  {">=", CompareOp::kGe},
};

int DepthOfArguments(const Arguments& arguments) {
  int depth = 0;
  for (const ExprPtr& e : arguments.positional) depth = std::max(depth, e->depth);
  for (const auto& [name, e] : arguments.named) depth = std::max(depth, e->depth);
  if (arguments.star) depth = std::max(depth, arguments.star->depth);
  if (arguments.double_star) depth = std::max(depth, arguments.double_star->depth);
  return depth;
}

}  // namespace

Result<void> Parser::CheckNesting() const {
  if (nesting_ <= kMaxNesting) return {};
  return Fail("nested too deeply (more than " + std::to_string(kMaxNesting) + " levels)");
}

ExprPtr Parser::Make(ExprKind kind, int line) const {
  auto expr = std::make_unique<Expr>();
  expr->kind = kind;
  expr->line = line;
  return expr;
}

Result<ExprPtr> Parser::Finish(ExprPtr expr) const {
  int depth = DepthOfArguments(expr->arguments);
  for (const ExprPtr& child : expr->children) {
    if (child) depth = std::max(depth, child->depth);
  }
  expr->depth = depth + 1;
  if (expr->depth > kMaxTreeDepth) return Fail("expression nested too deeply", expr->line);
  return expr;
}

Result<ExprPtr> Parser::Unary(ExprKind kind, int line, ExprPtr child) const {
  ExprPtr expr = Make(kind, line);
  expr->children.push_back(std::move(child));
  return Finish(std::move(expr));
}

Result<ExprPtr> Parser::Binary(ExprKind kind, int line, ExprPtr left, ExprPtr right) const {
  ExprPtr expr = Make(kind, line);
  expr->children.push_back(std::move(left));
  expr->children.push_back(std::move(right));
  return Finish(std::move(expr));
}

Result<ExprPtr> Parser::ParseExpression(bool with_condition) {
  const Nesting nesting(this);
  HONE_RETURN_IF_ERROR(CheckNesting());
  return with_condition ? ParseCondition() : ParseOr();
}

Result<ExprPtr> Parser::ParseCondition() {
  const Nesting nesting(this);
  HONE_RETURN_IF_ERROR(CheckNesting());
  const int line = current().line;
  const size_t unknown = unknown_.size();
  HONE_TRY(ExprPtr node, ParseOr());
  while (SkipName("if")) {
    ExprPtr condition = Make(ExprKind::kCondition, line);
    HONE_TRY(ExprPtr test, ParseOr());
    condition->children.push_back(std::move(test));
    condition->children.push_back(std::move(node));
    condition->children.push_back(nullptr);
    if (SkipName("else")) {
      HONE_TRY(condition->children[2], ParseCondition());
    }
    HONE_TRY(node, Finish(std::move(condition)));
    unknown_.resize(unknown);  // inside a condition these fail only when used
  }
  return node;
}

Result<ExprPtr> Parser::ParseOr() {
  HONE_TRY(ExprPtr left, ParseAnd());
  while (current().IsName("or")) {
    const int line = Next().line;
    HONE_TRY(ExprPtr right, ParseAnd());
    HONE_TRY(left, Binary(ExprKind::kOr, line, std::move(left), std::move(right)));
  }
  return left;
}

Result<ExprPtr> Parser::ParseAnd() {
  HONE_TRY(ExprPtr left, ParseNot());
  while (current().IsName("and")) {
    const int line = Next().line;
    HONE_TRY(ExprPtr right, ParseNot());
    HONE_TRY(left, Binary(ExprKind::kAnd, line, std::move(left), std::move(right)));
  }
  return left;
}

Result<ExprPtr> Parser::ParseNot() {
  int negations = 0;
  const int line = current().line;
  while (SkipName("not")) ++negations;
  HONE_TRY(ExprPtr node, ParseCompare());
  for (; negations > 0; --negations) {
    HONE_TRY(node, Unary(ExprKind::kNot, line, std::move(node)));
  }
  return node;
}

Result<ExprPtr> Parser::ParseCompare() {
  const int line = current().line;
  HONE_TRY(ExprPtr first, ParseBinary(1));
  ExprPtr node;
  while (true) {
    CompareOp op = CompareOp::kIn;
    const auto it = std::find_if(std::begin(kCompareNames), std::end(kCompareNames),
                                 [&](const CompareName& c) { return current().IsOperator(c.text); });
    if (it != std::end(kCompareNames)) {
      op = it->op;
    } else if (current().IsName("not") && Look().IsName("in")) {
      Next();
      op = CompareOp::kNotIn;
    } else if (!current().IsName("in")) {
      break;
    }
    Next();
    HONE_TRY(ExprPtr right, ParseBinary(1));
    if (!node) {
      node = Make(ExprKind::kCompare, line);
      node->children.push_back(std::move(first));
    }
    node->ops.push_back(op);
    node->children.push_back(std::move(right));
  }
  if (!node) return first;
  return Finish(std::move(node));
}

Result<ExprPtr> Parser::ParseBinary(int level) {
  if (level > kTightest) return ParseUnary(true);
  HONE_TRY(ExprPtr left, ParseBinary(level + 1));
  while (true) {
    const auto it = std::find_if(std::begin(kBinaryOps), std::end(kBinaryOps), [&](const BinaryOp& op) {
      return op.level == level && current().IsOperator(op.text);
    });
    if (it == std::end(kBinaryOps)) return left;
    const int line = Next().line;
    HONE_TRY(ExprPtr right, ParseBinary(level + 1));
    if (it->kind == ExprKind::kConcat && left->kind == ExprKind::kConcat) {
      left->depth = std::max(left->depth, right->depth + 1);
      left->children.push_back(std::move(right));
      if (left->depth > kMaxTreeDepth) return Fail("expression nested too deeply", line);
    } else {
      HONE_TRY(left, Binary(it->kind, line, std::move(left), std::move(right)));
    }
  }
}

Result<ExprPtr> Parser::ParseUnary(bool with_filter) {
  const Nesting nesting(this);
  HONE_RETURN_IF_ERROR(CheckNesting());
  const int line = current().line;
  ExprPtr node;
  if (current().IsOperator("-") || current().IsOperator("+")) {
    const ExprKind kind = Next().text == "-" ? ExprKind::kNegate : ExprKind::kPlus;
    HONE_TRY(ExprPtr child, ParseUnary(false));
    HONE_TRY(node, Unary(kind, line, std::move(child)));
  } else {
    HONE_TRY(node, ParsePrimary());
  }
  HONE_TRY(node, ParsePostfix(std::move(node)));
  if (with_filter) return ParseFilterChain(std::move(node));
  return node;
}

Result<ExprPtr> Parser::ParsePrimary() {
  const Token& token = current();
  if (token.IsOperator("(")) {
    Next();
    HONE_TRY(ExprPtr node, ParseTuple(true, {}, true));
    HONE_RETURN_IF_ERROR(ExpectOperator(")"));
    return node;
  }
  if (token.IsOperator("[")) return ParseListLiteral();
  if (token.IsOperator("{")) return ParseDictLiteral();
  ExprPtr node = Make(ExprKind::kConst, token.line);
  switch (token.kind) {
    case TokenKind::kName: {
      const std::string name = Next().text;
      if (name == "true" || name == "True") {
        node->constant = Value::Bool(true);
      } else if (name == "false" || name == "False") {
        node->constant = Value::Bool(false);
      } else if (name == "none" || name == "None") {
        node->constant = Value::None();
      } else {
        node->kind = ExprKind::kName;
        node->name = NameNumber(name);
        for (MacroSignature* macro : macros_) {
          macro->uses_varargs |= name == "varargs";
          macro->uses_kwargs |= name == "kwargs";
          macro->uses_caller |= name == "caller";
        }
      }
      return node;
    }
    case TokenKind::kString: {
      std::string text = Next().text;
      while (current().kind == TokenKind::kString) text += Next().text;
      node->constant = Value::String(std::move(text));
      return node;
    }
    case TokenKind::kInteger:
      node->constant = Value::Int(Next().integer);
      return node;
    case TokenKind::kFloat:
      node->constant = Value::Float(Next().number);
      return node;
    default:
      return Fail("unexpected " + Describe(token));
  }
}

Result<ExprPtr> Parser::ParseTuple(bool with_condition, Names end_names, bool explicit_parentheses) {
  const int line = current().line;
  std::vector<ExprPtr> items;
  bool is_tuple = false;
  while (true) {
    const Token& token = current();
    const bool ends = token.kind == TokenKind::kVariableEnd || token.kind == TokenKind::kBlockEnd || token.IsOperator(")") ||
                      std::any_of(end_names.begin(), end_names.end(), [&](auto name) { return token.IsName(name); });
    if (ends) break;
    HONE_TRY(ExprPtr item, ParseExpression(with_condition));
    items.push_back(std::move(item));
    if (!SkipOperator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !items.empty()) return std::move(items[0]);
  if (!is_tuple && !explicit_parentheses) return Fail("expected an expression, got " + Describe(current()));
  ExprPtr node = Make(ExprKind::kTuple, line);
  node->children = std::move(items);
  return Finish(std::move(node));
}

Result<ExprPtr> Parser::ParseListLiteral() {
  ExprPtr node = Make(ExprKind::kList, Next().line);
  while (!current().IsOperator("]")) {
    if (!node->children.empty()) {
      HONE_RETURN_IF_ERROR(ExpectOperator(","));
      if (current().IsOperator("]")) break;
    }
    HONE_TRY(ExprPtr item, ParseExpression());
    node->children.push_back(std::move(item));
  }
  HONE_RETURN_IF_ERROR(ExpectOperator("]"));
  return Finish(std::move(node));
}

Result<ExprPtr> Parser::ParseDictLiteral() {
  ExprPtr node = Make(ExprKind::kDict, Next().line);
  while (!current().IsOperator("}")) {
    if (!node->children.empty()) {
      HONE_RETURN_IF_ERROR(ExpectOperator(","));
      if (current().IsOperator("}")) break;
    }
    HONE_TRY(ExprPtr key, ParseExpression());
    HONE_RETURN_IF_ERROR(ExpectOperator(":"));
    HONE_TRY(ExprPtr value, ParseExpression());
    node->children.push_back(std::move(key));
    node->children.push_back(std::move(value));
  }
  HONE_RETURN_IF_ERROR(ExpectOperator("}"));
  return Finish(std::move(node));
}

Result<ExprPtr> Parser::ParsePostfix(ExprPtr node) {
  while (true) {
    if (current().IsOperator(".") || current().IsOperator("[")) {
      HONE_TRY(node, ParseSubscript(std::move(node)));
    } else if (current().IsOperator("(")) {
      HONE_TRY(node, ParseCall(std::move(node)));
    } else {
      return node;
    }
  }
}

Result<ExprPtr> Parser::ParseFilterChain(ExprPtr node) {
  while (true) {
    if (current().IsOperator("|")) {
      HONE_TRY(node, ParseFilters(std::move(node), false));
    } else if (current().IsName("is")) {
      HONE_TRY(node, ParseTest(std::move(node)));
    } else if (current().IsOperator("(")) {
      HONE_TRY(node, ParseCall(std::move(node)));
    } else {
      return node;
    }
  }
}

Result<std::string> Parser::ParseDottedName() {
  HONE_TRY(std::string name, ExpectName());
  while (SkipOperator(".")) {
    HONE_TRY(const std::string part, ExpectName());
    name += "." + part;
  }
  return name;
}

Result<ExprPtr> Parser::ParseFilters(ExprPtr node, bool start_inline) {
  while (start_inline || SkipOperator("|")) {
    start_inline = false;
    ExprPtr filter = Make(ExprKind::kFilter, current().line);
    HONE_TRY(filter->text, ParseDottedName());
    filter->function = FindFilter(filter->text);
    if (filter->function == nullptr) unknown_.push_back(Fail("No filter named '" + filter->text + "'.", filter->line));
    if (current().IsOperator("(")) {
      HONE_TRY(filter->arguments, ParseArguments());
    }
    filter->children.push_back(std::move(node));
    HONE_TRY(node, Finish(std::move(filter)));
  }
  return node;
}

Result<ExprPtr> Parser::ParseTest(ExprPtr node) {
  ExprPtr test = Make(ExprKind::kTest, Next().line);
  const bool negated = SkipName("not");
  HONE_TRY(test->text, ParseDottedName());
  test->function = FindTest(test->text);
  if (test->function == nullptr) unknown_.push_back(Fail("No test named '" + test->text + "'.", test->line));
  test->children.push_back(std::move(node));
  const Token& token = current();
  const bool operand = (token.kind == TokenKind::kName || token.kind == TokenKind::kString || token.kind == TokenKind::kInteger ||
                        token.kind == TokenKind::kFloat || token.IsOperator("[") || token.IsOperator("{")) &&
                       !token.IsName("else") && !token.IsName("or") && !token.IsName("and");
  if (token.IsOperator("(")) {
    HONE_TRY(test->arguments, ParseArguments());
  } else if (operand) {
    if (token.IsName("is")) return Fail("You cannot chain multiple tests with is");
    const Nesting nesting(this);
    HONE_RETURN_IF_ERROR(CheckNesting());
    HONE_TRY(ExprPtr argument, ParsePrimary());
    HONE_TRY(argument, ParsePostfix(std::move(argument)));
    test->arguments.positional.push_back(std::move(argument));
  }
  const int line = test->line;
  HONE_TRY(node, Finish(std::move(test)));
  if (negated) return Unary(ExprKind::kNot, line, std::move(node));
  return node;
}

Result<ExprPtr> Parser::ParseSubscript(ExprPtr node) {
  const Token token = Next();
  if (token.text == ".") {
    const Token name = Next();
    if (name.kind == TokenKind::kName) {
      HONE_TRY(ExprPtr attr, Unary(ExprKind::kAttr, token.line, std::move(node)));
      attr->text = name.text;
      return attr;
    }
    if (name.kind != TokenKind::kInteger) return Fail("expected name or number", name.line);
    ExprPtr index = Make(ExprKind::kConst, name.line);
    index->constant = Value::Int(name.integer);
    return Binary(ExprKind::kItem, token.line, std::move(node), std::move(index));
  }
  std::vector<ExprPtr> items;
  while (!current().IsOperator("]")) {
    if (!items.empty()) HONE_RETURN_IF_ERROR(ExpectOperator(","));
    HONE_TRY(ExprPtr item, ParseSubscribed());
    items.push_back(std::move(item));
  }
  HONE_RETURN_IF_ERROR(ExpectOperator("]"));
  if (items.size() != 1) {
    ExprPtr tuple = Make(ExprKind::kTuple, token.line);
    tuple->children = std::move(items);
    HONE_TRY(tuple, Finish(std::move(tuple)));
    return Binary(ExprKind::kItem, token.line, std::move(node), std::move(tuple));
  }
  if (items[0]->kind != ExprKind::kSliceValue) return Binary(ExprKind::kItem, token.line, std::move(node), std::move(items[0]));
  ExprPtr slice = std::move(items[0]);
  slice->kind = ExprKind::kSlice;
  slice->children.insert(slice->children.begin(), std::move(node));
  return Finish(std::move(slice));
}

Result<ExprPtr> Parser::ParseSubscribed() {
  ExprPtr slice = Make(ExprKind::kSliceValue, current().line);
  slice->children.resize(3);
  if (!current().IsOperator(":")) {
    HONE_TRY(ExprPtr node, ParseExpression());
    if (!current().IsOperator(":")) return node;
    slice->children[0] = std::move(node);
  }
  Next();
  const auto ends = [&] { return current().IsOperator("]") || current().IsOperator(","); };
  if (!current().IsOperator(":") && !ends()) {
    HONE_TRY(slice->children[1], ParseExpression());
  }
  if (SkipOperator(":") && !ends()) {
    HONE_TRY(slice->children[2], ParseExpression());
  }
  return Finish(std::move(slice));
}

Result<ExprPtr> Parser::ParseCall(ExprPtr node) {
  ExprPtr call = Make(ExprKind::kCall, current().line);
  call->children.push_back(std::move(node));
  HONE_TRY(call->arguments, ParseArguments());
  return Finish(std::move(call));
}

Result<Arguments> Parser::ParseArguments() {
  const int line = current().line;
  HONE_RETURN_IF_ERROR(ExpectOperator("("));
  const auto invalid = [&] { return Fail("invalid syntax for function call expression", line); };
  Arguments out;
  bool first = true;
  while (!current().IsOperator(")")) {
    if (!first) {
      HONE_RETURN_IF_ERROR(ExpectOperator(","));
      if (current().IsOperator(")")) break;
    }
    first = false;
    if (SkipOperator("*")) {
      if (out.star || out.double_star) return invalid();
      HONE_TRY(out.star, ParseExpression());
    } else if (SkipOperator("**")) {
      if (out.double_star) return invalid();
      HONE_TRY(out.double_star, ParseExpression());
    } else if (current().kind == TokenKind::kName && Look().IsOperator("=")) {
      if (out.double_star) return invalid();
      const std::string name = Next().text;
      Next();
      HONE_TRY(ExprPtr value, ParseExpression());
      for (const auto& [other, expr] : out.named) {
        if (other == name) return Fail("keyword argument repeated: " + name, line);
      }
      out.named.emplace_back(name, std::move(value));
    } else {
      if (out.star || out.double_star || !out.named.empty()) return invalid();
      HONE_TRY(ExprPtr value, ParseExpression());
      out.positional.push_back(std::move(value));
    }
  }
  HONE_RETURN_IF_ERROR(ExpectOperator(")"));
  return out;
}

}  // namespace hone::jinja
