// AnswerForm: what a request wants the text of its answer to be: JSON, JSON by a schema, calls of tools. GrammarCache: the grammar of it.
//
// Reasoning between the marks of the model comes before and is free. Arguments of tools follow their schemas where the tool is
// strict or must be called; a tool that need not be strict and whose schema cannot be enforced may have any object.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/grammar/grammar.h"
#include "serve/error.h"
#include "serve/openai/output_parser.h"

namespace hone {

struct AnswerForm {
  enum class Text { kFree, kJsonObject, kSchema };
  struct Tool {
    std::string name, parameters;  // JSON; "" for none
    std::string param;             // the field, for errors
    bool strict = false;
  };
  Text text = Text::kFree;
  std::string schema;        // JSON, for kSchema
  std::string schema_param;  // the field, for errors
  std::vector<Tool> tools;   // that may be called
  bool must_call = false, one_call = false;

  // Whether a grammar is needed.
  bool constrains() const;
};

// Where calls stand in the text; from the chat template.
struct AnswerMarks {
  OutputFormat format;
  bool named_arguments = false;  // kBracket: [TOOL_CALLS]NAME[ARGS]{...}
};

class GrammarCache {
 public:
  // Errors: a schema that cannot be enforced, with its field. Any thread; takes a moment for a new form.
  std::optional<ApiError> Find(const AnswerForm& form, const AnswerMarks& marks, std::shared_ptr<const Grammar>* out);

 private:
  std::mutex mutex_;
  std::list<std::pair<std::string, std::shared_ptr<const Grammar>>> known_;  // the latest first
};

}  // namespace hone
