// The syntax tree of a template. Plain structs, owned by the Program, read-only after parsing (many threads may render one).
// Names are numbered, so scopes compare integers. Depth is bounded by the parser (kMaxTreeDepth).
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace hone::jinja {

struct Function;  // functions.h

inline constexpr int kMaxTreeDepth = 500;

enum class ExprKind : uint8_t {
  kConst, kName,
  kTuple, kList, kDict,                   // children (dict: key, value, key, value ...)
  kAttr,                                  // children[0] . text
  kItem,                                  // children[0] [ children[1] ]
  kSlice,                                 // children[0] [ 1 : 2 : 3 ], each may be null
  kSliceValue,                            // a slice inside x[a:b, c]; always an error when used
  kCall, kFilter, kTest,                  // children[0] applied to arguments; a filter block's filter has no child
  kNot, kAnd, kOr, kCondition,            // condition: test, then, else (may be null)
  kCompare,                               // children[0] ops[0] children[1] ops[1] ...
  kConcat, kNegate, kPlus,
  kAdd, kSub, kMul, kDiv, kFloorDiv, kMod, kPow,
};

enum class CompareOp : uint8_t { kEq, kNe, kLt, kLe, kGt, kGe, kIn, kNotIn };

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct Arguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr star, double_star;
};

struct Expr {
  ExprKind kind = ExprKind::kConst;
  int line = 0;
  int depth = 1;
  int name = -1;                       // kName: its number
  Value constant;                      // kConst
  std::string text;                    // kAttr, kFilter, kTest: a name
  const Function* function = nullptr;  // kFilter, kTest: nullptr if unknown (an error when evaluated)
  std::vector<ExprPtr> children;
  std::vector<CompareOp> ops;
  Arguments arguments;
};

enum class StmtKind : uint8_t {
  kText, kOutput, kFor, kIf, kSet, kSetBlock, kMacro, kCallBlock, kFilterBlock, kWith, kScope, kBlock, kBreak, kContinue,
};

// What is assigned to: a name, a tuple of targets, or an attribute of a namespace.
struct Target {
  int line = 0;
  int name = -1;               // a name, or the namespace's name
  std::string attribute;       // of a namespace
  bool is_tuple = false;
  std::vector<Target> parts;
};

struct Stmt;
using Body = std::vector<std::unique_ptr<Stmt>>;

struct MacroSignature {
  std::string name;
  std::vector<int> parameters;      // names
  std::vector<ExprPtr> defaults;    // of the last parameters
  bool uses_varargs = false, uses_kwargs = false, uses_caller = false;
};

struct Stmt {
  StmtKind kind = StmtKind::kText;
  int line = 0;
  std::string text;                 // kText; kBlock: name
  std::vector<ExprPtr> exprs;       // kOutput: printed; kIf: tests; kFor: iterable, filter; kSet: value; kWith: values;
                                    // kSetBlock, kFilterBlock: filter chain; kCallBlock: the call
  std::vector<Target> targets;
  std::vector<Body> bodies;         // kIf: one a test, then else; kFor: body, else; others: body
  bool recursive = false;           // kFor
  MacroSignature macro;             // kMacro, kCallBlock
};

class Program {
 public:
  Body body;
  std::vector<std::string> names;   // by number
  int loop_name = -1, caller_name = -1, varargs_name = -1, kwargs_name = -1;
};

}  // namespace hone::jinja
