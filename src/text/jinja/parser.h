// Tokens → Program. The grammar and its precedences are Jinja2's, which are not quite Python's (`~` binds tighter than `+`,
// `-2 ** 2` is 4, filters bind to the nearest operand). Recursive descent with a bound on nesting.
#pragma once

#include <memory>
#include <string_view>

#include "base/result.h"
#include "text/jinja/ast.h"

namespace hone::jinja {

// Errors: kInvalidInput with the template's line; kUnsupported for include, import, from and extends.
Result<std::unique_ptr<const Program>> ParseTemplate(std::string_view source);

}  // namespace hone::jinja
