// Tools and formats are checked whole, also those that are not used; what cannot be enforced is refused where the grammar is made.
#include "serve/openai/answer_fields.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "serve/limits.h"

namespace hone {
namespace {

ApiError Missing(const std::string& field, const std::string& wanted) {
  return {400, field + ": missing, wanted " + wanted, field, "missing_field"};
}

const Json* Find(const Json& object, const char* name) {
  const auto it = object.find(name);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

std::optional<ApiError> ReadSchema(const Json& holder, const std::string& field, bool flat, const FieldPolicy& policy, AnswerForm* out) {
  constexpr std::string_view kNames[] = {"name", "description", "schema", "strict", "type"};
  const auto known = flat ? std::span(kNames) : std::span(kNames).first(std::size(kNames) - 1);
  if (auto error = CheckNames(holder, field, known, policy)) return error;
  const Json *name = Find(holder, "name"), *schema = Find(holder, "schema"), *strict = Find(holder, "strict");
  if (name == nullptr) return Missing(field + ".name", "a string");
  if (!name->is_string()) return BadValue(field + ".name", *name, "a string");
  if (strict != nullptr && !strict->is_boolean()) return BadValue(field + ".strict", *strict, "true or false");
  if (schema == nullptr) return Missing(field + ".schema", "a JSON schema");
  if (!schema->is_object()) return BadValue(field + ".schema", *schema, "a JSON schema (an object)");
  out->text = AnswerForm::Text::kSchema;
  out->schema = Dump(*schema);
  out->schema_param = field + ".schema";
  return std::nullopt;
}

// The tool that `choice` names: {"type": "function", "function": {"name": ...}}, or with the name beside the type.
std::optional<ApiError> NamedTool(const Json& choice, const std::string& field, const FieldPolicy& policy,
                                  const std::vector<AnswerForm::Tool>& tools, std::string* name) {
  const Json* type = choice.is_object() ? Find(choice, "type") : nullptr;
  if (type == nullptr || *type != Json("function")) return BadValue(field, choice, "an object with type \"function\" and a name");
  const Json* function = Find(choice, "function");
  constexpr std::string_view kNested[] = {"type", "function"}, kFlat[] = {"type", "name"}, kFunction[] = {"name"};
  if (auto error = CheckNames(choice, field, function != nullptr ? kNested : kFlat, policy)) return error;
  if (function != nullptr && function->is_object()) {
    if (auto error = CheckNames(*function, field + ".function", kFunction, policy)) return error;
  }
  const Json* named = function != nullptr && function->is_object() ? Find(*function, "name") : Find(choice, "name");
  if (named == nullptr || !named->is_string()) return BadValue(field, choice, "an object with type \"function\" and a name");
  *name = named->get<std::string>();
  const bool known = std::any_of(tools.begin(), tools.end(), [&](const AnswerForm::Tool& tool) { return tool.name == *name; });
  if (!known) return ApiError{400, field + ": " + Found(*named) + " is none of the tools", field, "invalid_value"};
  return std::nullopt;
}

std::optional<ApiError> ReadTool(const Json& tool, const std::string& at, const FieldPolicy& policy, AnswerForm::Tool* out) {
  constexpr std::string_view kTool[] = {"type", "function"}, kFunction[] = {"name", "description", "parameters", "strict"};
  if (!tool.is_object() || !tool.contains("type")) return BadValue(at, tool, "an object with type \"function\"");
  if (tool.at("type") != Json("function")) {
    return ApiError{400, at + ".type: found " + Found(tool.at("type")) + ", supported: \"function\"", at + ".type", "unsupported_value"};
  }
  const Json* function = Find(tool, "function");
  const Json* name = function != nullptr && function->is_object() ? Find(*function, "name") : nullptr;
  if (name == nullptr || !name->is_string()) return BadValue(at + ".function", function != nullptr ? *function : Json(), "an object with a name");
  if (auto error = CheckNames(tool, at, kTool, policy)) return error;
  if (auto error = CheckNames(*function, at + ".function", kFunction, policy)) return error;
  out->name = name->get<std::string>();
  out->param = at + ".function.parameters";
  if (const Json* parameters = Find(*function, "parameters")) {
    if (!parameters->is_object()) return BadValue(out->param, *parameters, "a JSON schema (an object)");
    out->parameters = Dump(*parameters);
  }
  if (const Json* strict = Find(*function, "strict")) {
    if (!strict->is_boolean()) return BadValue(at + ".function.strict", *strict, "true or false");
    out->strict = strict->get<bool>();
  }
  return std::nullopt;
}

struct Choice {
  bool use = true;
  std::optional<std::vector<std::string>> allowed;  // none: all
};

// {"type": "allowed_tools", "allowed_tools": {"mode", "tools"}}, or with those beside the type.
std::optional<ApiError> ReadAllowed(const Json& choice, const FieldPolicy& policy, AnswerForm* form, Choice* out) {
  constexpr std::string_view kOuter[] = {"type", "allowed_tools"}, kInner[] = {"mode", "tools"}, kFlat[] = {"type", "mode", "tools"};
  const Json* inner = Find(choice, "allowed_tools");
  const Json& list = inner != nullptr ? *inner : choice;
  const std::string wanted = "a mode (\"auto\" or \"required\") and an array of tools";
  const Json *mode = list.is_object() ? Find(list, "mode") : nullptr, *tools = list.is_object() ? Find(list, "tools") : nullptr;
  if (mode == nullptr || tools == nullptr || !tools->is_array() || tools->empty() || (*mode != Json("auto") && *mode != Json("required"))) {
    return BadValue("tool_choice", choice, wanted);
  }
  if (auto error = inner == nullptr ? CheckNames(choice, "tool_choice", kFlat, policy) : CheckNames(choice, "tool_choice", kOuter, policy)) return error;
  if (inner != nullptr) {
    if (auto error = CheckNames(*inner, "tool_choice.allowed_tools", kInner, policy)) return error;
  }
  form->must_call = *mode == Json("required");
  out->allowed.emplace();
  for (const Json& tool : *tools) {
    if (auto error = NamedTool(tool, "tool_choice", policy, form->tools, &out->allowed->emplace_back())) return error;
  }
  return std::nullopt;
}

std::optional<ApiError> ReadChoice(const Json& choice, const FieldPolicy& policy, AnswerForm* form, Choice* out) {
  if (choice == Json("auto")) return std::nullopt;
  if (choice == Json("none")) {
    out->use = false;
    return std::nullopt;
  }
  const bool allowed = choice.is_object() && Find(choice, "type") != nullptr && choice.at("type") == Json("allowed_tools");
  if (choice != Json("required") && !choice.is_object()) {
    return BadValue("tool_choice", choice, "\"auto\", \"none\", \"required\", or an object that names a function or allowed_tools");
  }
  if (form->tools.empty()) return ApiError{400, "tool_choice: there are no tools to choose from", "tool_choice", "invalid_value"};
  if (allowed) return ReadAllowed(choice, policy, form, out);
  form->must_call = true;
  if (choice == Json("required")) return std::nullopt;
  std::string name;
  if (auto error = NamedTool(choice, "tool_choice", policy, form->tools, &name)) return error;
  std::erase_if(form->tools, [&](const AnswerForm::Tool& tool) { return tool.name != name; });
  form->one_call = true;
  return std::nullopt;
}

}  // namespace

std::optional<ApiError> ReadTextFormat(const Json& format, const std::string& field, bool flat, const FieldPolicy& policy, AnswerForm* out) {
  const Json* type = format.is_object() ? Find(format, "type") : nullptr;
  if (type == nullptr || !type->is_string()) return BadValue(field, format, "an object with a type");
  constexpr std::string_view kNames[] = {"type", "json_schema"};
  const bool schema = *type == Json("json_schema");
  if (!schema && *type != Json("text") && *type != Json("json_object")) {
    return ApiError{400, field + ".type: " + Found(*type) + " is not supported; supported: \"text\", \"json_object\", \"json_schema\"",
                    field + ".type", "unsupported_value"};
  }
  if (!schema || !flat) {
    if (auto error = CheckNames(format, field, std::span(kNames).first(schema ? 2 : 1), policy)) return error;
  }
  if (!schema) {
    if (*type == Json("json_object")) out->text = AnswerForm::Text::kJsonObject;
    return std::nullopt;
  }
  if (flat) return ReadSchema(format, field, flat, policy, out);
  const Json* holder = Find(format, "json_schema");
  if (holder == nullptr) return Missing(field + ".json_schema", "an object with a name and a schema");
  if (!holder->is_object()) return BadValue(field + ".json_schema", *holder, "an object with a name and a schema");
  return ReadSchema(*holder, field + ".json_schema", flat, policy, out);
}

std::optional<ApiError> ReadToolFields(FieldReader& reader, const FieldPolicy& policy, AnswerForm* form, ToolFields* out) {
  const Json* tools = reader.Get("tools");
  if (tools != nullptr && (!tools->is_array() || tools->size() > static_cast<size_t>(kMaxTools))) {
    return BadValue("tools", *tools, "an array of at most " + std::to_string(kMaxTools) + " tools");
  }
  for (size_t i = 0; tools != nullptr && i < tools->size(); ++i) {
    if (auto error = ReadTool((*tools)[i], "tools[" + std::to_string(i) + "]", policy, &form->tools.emplace_back())) return error;
  }
  Choice choice;
  if (const Json* found = reader.Get("tool_choice")) {
    if (auto error = ReadChoice(*found, policy, form, &choice)) return error;
  }
  const auto is_allowed = [&](const std::string& name) {
    return !choice.allowed || std::find(choice.allowed->begin(), choice.allowed->end(), name) != choice.allowed->end();
  };
  std::erase_if(form->tools, [&](const AnswerForm::Tool& tool) { return !choice.use || !is_allowed(tool.name); });
  if (form->tools.empty()) {
    form->one_call = false;
    return std::nullopt;
  }
  Json offered = Json::array();
  for (const Json& tool : *tools) {
    const std::string name = tool.at("function").at("name").get<std::string>();
    if (!is_allowed(name)) continue;
    offered.push_back(tool);
    out->names.push_back(name);
  }
  out->json = Dump(offered);
  return std::nullopt;
}

}  // namespace hone
