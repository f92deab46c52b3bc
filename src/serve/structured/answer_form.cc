// See answer_form.h. A grammar is found again by a text of all that it depends on.
#include "serve/structured/answer_form.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "serve/structured/json_grammar.h"
#include "serve/structured/json_schema.h"

namespace hone {
namespace {

using Rule = GrammarBuilder::Rule;

constexpr size_t kMaxKnown = 16;
constexpr std::string_view kArgs = "[ARGS]";

ApiError ErrorOf(const Error& error, const std::string& param) {
  const bool unsupported = error.code == ErrorCode::kUnsupported;
  return {400, param + ": " + error.message, param, unsupported ? "unsupported_value" : "invalid_value"};
}

class AnswerBuilder {
 public:
  AnswerBuilder(const AnswerForm& form, const AnswerMarks& marks) : form_(form), marks_(marks), json_(builder_) {}

  std::optional<ApiError> Build(std::shared_ptr<const Grammar>* out) {
    const Rule answer = builder_.AddRule();
    const int body = builder_.AddState();
    AddReasoning(answer.start, body);
    if (form_.text != AnswerForm::Text::kFree && !form_.must_call) {
      Rule text;
      if (auto error = AddText(&text)) return error;
      builder_.Call(body, text, answer.end);
    }
    if (!form_.tools.empty()) {
      if (auto error = AddCalls(body, answer.end)) return error;
    }
    std::vector<std::string> special = {std::string(kCallOpen), std::string(kCallClose), std::string(kBracketMark), std::string(kArgs)};
    if (!marks_.format.think_open.empty()) special.insert(special.end(), {marks_.format.think_open, marks_.format.think_close});
    Result<std::shared_ptr<const Grammar>> grammar = builder_.Build(answer, std::move(special));
    const bool of_text = form_.text == AnswerForm::Text::kSchema;
    if (!grammar) return ErrorOf(grammar.error(), of_text ? form_.schema_param : "tools");
    *out = std::move(*grammar);
    return std::nullopt;
  }

 private:
  int TwoSpaces(int from) { return builder_.Call(builder_.Call(from, json_.Space()), json_.Space()); }

  void AddReasoning(int from, int body) {
    const OutputFormat& format = marks_.format;
    int begin = from;
    if (!format.in_thinking) builder_.Empty(from, body);
    if (format.think_open.empty()) return;
    if (!format.in_thinking) begin = builder_.Text(from, format.think_open);
    const int inside = builder_.AddState();
    builder_.Empty(begin, inside);
    builder_.Empty(TwoSpaces(builder_.UpTo(inside, format.think_close)), body);
  }

  std::optional<ApiError> AddText(Rule* rule) {
    *rule = json_.AnyObject();
    if (form_.text != AnswerForm::Text::kSchema) return std::nullopt;
    Result<Rule> found = AddJsonSchema(json_, Json::parse(form_.schema, nullptr, false));
    if (!found) return ErrorOf(found.error(), form_.schema_param);
    *rule = *found;
    return std::nullopt;
  }

  std::optional<ApiError> ArgumentsOf(const AnswerForm::Tool& tool, Rule* rule) {
    *rule = json_.AnyObject();
    if (tool.parameters.empty() || !(tool.strict || form_.must_call)) return std::nullopt;
    Result<Rule> found = AddJsonSchema(json_, Json::parse(tool.parameters, nullptr, false), /*only_objects=*/true);
    if (!found && tool.strict) return ErrorOf(found.error(), tool.param);
    if (found) *rule = *found;
    return std::nullopt;
  }

  std::optional<ApiError> AddCalls(int body, int end) {
    const ToolFormat format = marks_.format.tools;
    const bool named = format == ToolFormat::kBracket && marks_.named_arguments;
    const Rule call = builder_.AddRule();
    for (const AnswerForm::Tool& tool : form_.tools) {
      Rule arguments;
      if (auto error = ArgumentsOf(tool, &arguments)) return error;
      if (named) {
        builder_.Call(builder_.Text(call.start, tool.name + std::string(kArgs)), arguments, call.end);
        continue;
      }
      const char* const key = format == ToolFormat::kBareJson ? "parameters" : "arguments";
      const Rule name = json_.OneOf({Json(tool.name).dump(-1, ' ', false, Json::error_handler_t::replace)});
      builder_.Call(call.start, json_.Object({{"name", name, true}, {key, arguments, true}}, std::nullopt), call.end);
    }
    const bool free_text = !form_.must_call && form_.text == AnswerForm::Text::kFree;
    // A call without its mark, and what stands between two calls with it.
    const auto whole = [&](int from) {
      if (format == ToolFormat::kTagged) {
        return builder_.Text(builder_.Call(builder_.Call(builder_.Call(from, json_.Space()), call), json_.Space()), kCallClose);
      }
      if (format != ToolFormat::kBracket || named) return builder_.Call(from, call);
      const std::optional<size_t> most = form_.one_call ? std::optional<size_t>(1) : std::nullopt;
      return builder_.Call(builder_.Call(from, json_.Space()), json_.Array({}, call, 1, most));
    };
    const std::string_view mark = format == ToolFormat::kTagged ? kCallOpen : format == ToolFormat::kBracket ? kBracketMark : "";
    int first = builder_.AddState();  // behind the mark of the first call
    if (free_text && !mark.empty()) {
      const int text = builder_.AddState();
      builder_.Empty(body, text);
      std::vector<int> before;
      builder_.Empty(builder_.UpTo(text, mark, &before), first);
      for (const int state : before) builder_.Empty(state, end);
    } else {
      const int spaced = builder_.Call(body, json_.Space());
      builder_.Empty(builder_.Text(spaced, mark), first);
      if (free_text) AddTextWithoutBrace(spaced, end);
    }
    const int after = whole(first);
    builder_.Empty(after, end);
    if (form_.one_call || (format == ToolFormat::kBracket && !named)) return std::nullopt;
    const int between = format == ToolFormat::kBareJson ? builder_.Text(after, "\n") : builder_.Call(after, json_.Space());
    builder_.Empty(builder_.Text(between, mark), first);
    return std::nullopt;
  }

  // kBareJson: an answer that begins with a brace is a call.
  void AddTextWithoutBrace(int from, int end) {
    const int rest = builder_.AddState();
    builder_.Bytes(from, 0, '{' - 1, rest);
    builder_.Bytes(from, '{' + 1, 255, rest);
    builder_.Bytes(rest, 0, 255, rest);
    builder_.Empty(rest, end);
    builder_.Empty(from, end);
  }

  const AnswerForm& form_;
  const AnswerMarks& marks_;
  GrammarBuilder builder_;
  JsonGrammar json_;
};

std::string KeyOf(const AnswerForm& form, const AnswerMarks& marks) {
  std::string key;
  const auto add = [&](std::string_view part) { key += std::to_string(part.size()) + ":" + std::string(part); };
  add(std::to_string(static_cast<int>(form.text)) + (form.must_call ? "c" : "") + (form.one_call ? "1" : ""));
  add(form.schema);
  for (const AnswerForm::Tool& tool : form.tools) add(tool.name), add(tool.parameters), add(tool.strict ? "s" : "");
  add(std::to_string(static_cast<int>(marks.format.tools)) + (marks.named_arguments ? "n" : "") + (marks.format.in_thinking ? "t" : ""));
  add(marks.format.think_open);
  add(marks.format.think_close);
  return key;
}

}  // namespace

bool AnswerForm::constrains() const {
  const bool strict = std::any_of(tools.begin(), tools.end(), [](const Tool& tool) { return tool.strict; });
  return text != Text::kFree || must_call || (!tools.empty() && (strict || one_call));
}

std::optional<ApiError> GrammarCache::Find(const AnswerForm& form, const AnswerMarks& marks, std::shared_ptr<const Grammar>* out) {
  out->reset();
  if (!form.constrains()) return std::nullopt;
  std::string key = KeyOf(form, marks);
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(known_.begin(), known_.end(), [&](const auto& one) { return one.first == key; });
    if (found != known_.end()) {
      known_.splice(known_.begin(), known_, found);
      *out = found->second;
      return std::nullopt;
    }
  }
  if (auto error = AnswerBuilder(form, marks).Build(out)) return error;
  const std::lock_guard lock(mutex_);
  known_.emplace_front(std::move(key), *out);
  if (known_.size() > kMaxKnown) known_.pop_back();
  return std::nullopt;
}

}  // namespace hone
