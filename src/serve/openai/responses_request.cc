// Reads a responses request: items of `input` become messages, function tools become those of chat completions, and the
// rest is read by the same code as there.
#include "serve/openai/responses_request.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "serve/json_writer.h"
#include "serve/limits.h"
#include "serve/openai/answer_fields.h"

namespace hone {
namespace {

constexpr std::string_view kItemFields[] = {
    "type",   "role",    "content",           "id",          "status",  "phase", "call_id", "name", "arguments",
    "output", "summary", "encrypted_content", "annotations", "logprobs", "parsed_arguments"};
constexpr std::string_view kToolFields[] = {"type", "name", "description", "parameters", "strict"};
constexpr std::string_view kTextFields[] = {"format", "verbosity"};
constexpr std::string_view kReasoningFields[] = {"effort", "summary", "generate_summary"};

ApiError NotSupported(const std::string& field, const std::string& why) {
  return {400, field + ": " + why, field, "unsupported_value"};
}

// A string, or parts with a text; `what` are the types of part that hold one.
std::optional<ApiError> ReadText(const Json* value, const std::string& field, const FieldPolicy& policy, std::string* text) {
  constexpr std::string_view kPartFields[] = {"type", "text", "annotations", "logprobs", "parsed"};
  if (value == nullptr || value->is_null())
    return ApiError{400, field + ": missing, wanted a string or an array of text parts", field, "missing_field"};
  if (value->is_string()) {
    *text = value->get<std::string>();
    return std::nullopt;
  }
  if (!value->is_array()) return BadValue(field, *value, "a string or an array of text parts");
  size_t i = 0;
  for (const Json& part : *value) {
    const std::string at = field + "[" + std::to_string(i) + "]";
    if (!part.is_object() || !part.contains("type") || !part.at("type").is_string()) {
      return BadValue(at, part, "an object with type \"input_text\"");
    }
    const std::string type = part.at("type").get<std::string>();
    if (type != "input_text" && type != "output_text" && type != "text" && type != "reasoning_text" &&
        type != "summary_text") {
      return NotSupported(at + ".type", Found(part.at("type")) + " is not supported; this model reads text only");
    }
    if (!part.contains("text") || !part.at("text").is_string()) {
      return ApiError{400, at + ".text: missing, wanted a string", at + ".text", "missing_field"};
    }
    if (auto error = CheckNames(part, at, kPartFields, policy)) return error;
    if (i++ > 0) text->push_back('\n');
    text->append(part.at("text").get_ref<const std::string&>());
  }
  return std::nullopt;
}

std::optional<ApiError> ReadString(const Json& item, const std::string& path, const char* name, std::string* out) {
  const auto it = item.find(name);
  const std::string field = path + "." + name;
  if (it == item.end()) return ApiError{400, field + ": missing, wanted a string", field, "missing_field"};
  if (!it->is_string()) return BadValue(field, *it, "a string");
  *out = it->get<std::string>();
  return std::nullopt;
}

const Json* Member(const Json& item, const char* name) {
  const auto it = item.find(name);
  return it == item.end() ? nullptr : &*it;
}

// The messages that the items of `input` amount to.
class Conversation {
 public:
  explicit Conversation(const FieldPolicy& policy) : policy_(policy) {}

  std::optional<ApiError> Add(const Json& item, const std::string& path) {
    if (!item.is_object()) return BadValue(path, item, "an object");
    std::string type = "message";
    if (item.contains("type") && !item.at("type").is_null()) {
      if (auto error = ReadString(item, path, "type", &type)) return error;
    }
    if (type != "message" && type != "function_call" && type != "function_call_output" && type != "reasoning") {
      return NotSupported(path + ".type", "\"" + RepairUtf8(type.substr(0, 64)) +
                                              "\" is not supported; supported: \"message\", "
                                              "\"function_call\", \"function_call_output\", \"reasoning\"");
    }
    if (auto error = CheckNames(item, path, kItemFields, policy_)) return error;
    if (type == "reasoning") return AddReasoning(item, path);
    if (type == "function_call") return AddCall(item, path);
    if (type == "function_call_output") return AddOutput(item, path);
    return AddMessage(item, path);
  }
  Json Take() { return std::move(messages_); }

 private:
  std::optional<ApiError> AddMessage(const Json& item, const std::string& path) {
    std::string role, text;
    if (auto error = ReadString(item, path, "role", &role)) return error;
    if (role != "user" && role != "assistant" && role != "system" && role != "developer") {
      return BadValue(path + ".role", item.at("role"), "one of user, assistant, system, developer");
    }
    if (auto error = ReadText(Member(item, "content"), path + ".content", policy_, &text)) return error;
    Json message = {{"role", role}, {"content", text}};
    if (role == "assistant") AddThought(&message);
    messages_.push_back(std::move(message));
    return std::nullopt;
  }

  std::optional<ApiError> AddReasoning(const Json& item, const std::string& path) {
    const Json* encrypted = Member(item, "encrypted_content");
    if (encrypted != nullptr && !encrypted->is_null()) {
      return NotSupported(path + ".encrypted_content", "this server cannot read it");
    }
    const Json* content = Member(item, "content");
    if (content == nullptr || content->is_null() || (content->is_array() && content->empty())) return std::nullopt;
    return ReadText(content, path + ".content", policy_, &thought_);
  }

  std::optional<ApiError> AddCall(const Json& item, const std::string& path) {
    std::string id, name, arguments;
    if (auto error = ReadString(item, path, "call_id", &id)) return error;
    if (auto error = ReadString(item, path, "name", &name)) return error;
    if (auto error = ReadString(item, path, "arguments", &arguments)) return error;
    if (messages_.empty() || messages_.back().at("role") != Json("assistant")) {
      messages_.push_back({{"role", "assistant"}, {"content", nullptr}});
      AddThought(&messages_.back());
    }
    messages_.back()["tool_calls"].push_back(
        {{"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", arguments}}}});
    return std::nullopt;
  }

  std::optional<ApiError> AddOutput(const Json& item, const std::string& path) {
    std::string id, text;
    if (auto error = ReadString(item, path, "call_id", &id)) return error;
    if (auto error = ReadText(Member(item, "output"), path + ".output", policy_, &text)) return error;
    messages_.push_back({{"role", "tool"}, {"tool_call_id", id}, {"content", text}});
    return std::nullopt;
  }

  void AddThought(Json* message) {
    if (!thought_.empty()) (*message)["reasoning_content"] = std::exchange(thought_, {});
  }

  const FieldPolicy& policy_;
  Json messages_ = Json::array();
  std::string thought_;  // of the assistant's message that comes next
};

std::optional<ApiError> ReadInput(const Json& document, const RequestRules& rules, ResponsesRequest* out) {
  Conversation conversation(rules.policy);
  if (const Json* instructions = Member(document, "instructions"); instructions != nullptr && !instructions->is_null()) {
    if (!instructions->is_string()) return BadValue("instructions", *instructions, "a string");
    out->instructions_json = Dump(*instructions);
    (void)conversation.Add({{"role", "system"}, {"content", *instructions}}, "instructions");
  }
  const Json* input = Member(document, "input");
  if (input == nullptr || input->is_null())
    return ApiError{400, "input: missing, wanted a string or an array of items", "input", "missing_field"};
  if (input->is_string()) {
    (void)conversation.Add({{"role", "user"}, {"content", *input}}, "input");
  } else if (input->is_array() && !input->empty() && input->size() <= static_cast<size_t>(kMaxMessages)) {
    size_t i = 0;
    for (const Json& item : *input) {
      if (auto error = conversation.Add(item, "input[" + std::to_string(i++) + "]")) return error;
    }
  } else {
    return BadValue("input", *input, "a string or an array of 1 to " + std::to_string(kMaxMessages) + " items");
  }
  const Json messages = {{"messages", conversation.Take()}};
  if (auto error = ParseMessages(messages, rules, &out->chat)) {
    error->param = "input";
    error->message.insert(0, "input, as messages: ");
    return error;
  }
  return std::nullopt;
}

// The flat function tools of this endpoint, as those of chat completions.
std::optional<ApiError> ReadFlatTools(const Json& document, const RequestRules& rules, ResponsesRequest* out) {
  Json nested = Json::object();
  if (const Json* choice = Member(document, "tool_choice"); choice != nullptr && !choice->is_null()) {
    nested["tool_choice"] = *choice;
    out->tool_choice_json = Dump(*choice);
  }
  const Json* tools = Member(document, "tools");
  if (tools != nullptr && !tools->is_null()) {
    if (!tools->is_array()) return BadValue("tools", *tools, "an array of tools");
    nested["tools"] = Json::array();
    size_t i = 0;
    for (const Json& tool : *tools) {
      const std::string at = "tools[" + std::to_string(i++) + "]";
      if (!tool.is_object() || !tool.contains("type")) return BadValue(at, tool, "an object with type \"function\"");
      if (tool.at("type") != Json("function")) {
        return NotSupported(at + ".type", "found " + Found(tool.at("type")) + ", supported: \"function\"");
      }
      if (auto error = CheckNames(tool, at, kToolFields, rules.policy)) return error;
      Json function = Json::object();
      for (const auto& [name, value] : tool.items()) {
        if (name != "type" && !value.is_null()) function[name] = value;
      }
      nested["tools"].push_back({{"type", "function"}, {"function", std::move(function)}});
    }
    out->tools_json = Dump(*tools);
  }
  FieldReader reader(nested);
  auto error = ReadTools(reader, rules.policy, &out->chat);
  const auto flatten = [](std::string* text) {
    constexpr std::string_view kNested = ".function.";
    if (const size_t at = text->find(kNested); at != std::string::npos) text->replace(at, kNested.size(), ".");
  };
  if (error) flatten(&error->param), flatten(&error->message);
  for (AnswerForm::Tool& tool : out->chat.fields.form.tools) flatten(&tool.param);
  return error;
}

std::optional<ApiError> ReadTextOptions(FieldReader& reader, const FieldPolicy& policy, ResponsesRequest* out) {
  const Json* text = reader.Get("text");
  if (text == nullptr) return reader.error();
  if (!text->is_object()) return BadValue("text", *text, "an object");
  if (auto error = CheckNames(*text, "text", kTextFields, policy)) return error;
  if (const Json* format = Member(*text, "format"); format != nullptr && !format->is_null()) {
    if (auto error = ReadTextFormat(*format, "text.format", /*flat=*/true, policy, &out->chat.fields.form)) return error;
    out->format_json = Dump(*format);
  }
  const Json* verbosity = Member(*text, "verbosity");
  if (verbosity != nullptr && !verbosity->is_null() && *verbosity != Json("medium") && !policy.lenient) {
    return NotSupported("text.verbosity", "not supported; ask for it in the input");
  }
  return std::nullopt;
}

std::optional<ApiError> ReadReasoning(FieldReader& reader, const RequestRules& rules, std::string_view template_source,
                                      ResponsesRequest* out) {
  Json variables = Json::object();
  for (const char* name : {"chat_template_kwargs", "enable_thinking"}) {
    if (const Json* value = reader.Get(name)) variables[name] = *value;
  }
  if (const Json* reasoning = reader.Get("reasoning")) {
    if (!reasoning->is_object()) return BadValue("reasoning", *reasoning, "an object");
    if (auto error = CheckNames(*reasoning, "reasoning", kReasoningFields, rules.policy)) return error;
    for (const char* name : {"summary", "generate_summary"}) {
      const Json* value = Member(*reasoning, name);
      if (value != nullptr && !value->is_null() && !rules.policy.lenient) {
        return NotSupported(std::string("reasoning.") + name, "not supported: reasoning is sent as it is");
      }
    }
    if (const Json* effort = Member(*reasoning, "effort"); effort != nullptr && !effort->is_null()) {
      variables["reasoning_effort"] = *effort;
      out->effort_json = Dump(*effort);
    }
  }
  FieldReader inner(variables);
  auto error = ReadVariables(inner, template_source, &out->chat);
  if (error && error->param == "reasoning_effort") {
    error->param = "reasoning.effort";
    error->message.replace(0, std::string_view("reasoning_effort").size(), "reasoning.effort");
  }
  return error;
}

void ReadInclude(FieldReader& reader, ResponsesRequest* out) {
  bool logprobs = false;
  if (const Json* include = reader.Get("include")) {
    if (!include->is_array()) return reader.Fail(BadValue("include", *include, "an array"));
    for (const Json& what : *include) {
      if (what != Json("message.output_text.logprobs")) {
        return reader.Fail(
            NotSupported("include", "found " + Found(what) + ", supported: \"message.output_text.logprobs\""));
      }
      logprobs = true;
    }
  }
  int top = 0;
  reader.Int("top_logprobs", 0, kMaxLogprobs, &top);
  if (logprobs || top > 0) out->chat.fields.sequence.logprobs = top;
}

void ReadMetadata(FieldReader& reader, ResponsesRequest* out) {
  const Json* metadata = reader.Get("metadata");
  if (metadata == nullptr) return;
  bool fine = metadata->is_object() && metadata->size() <= 16;
  if (fine) {
    for (const auto& [name, value] : metadata->items())
      fine = fine && name.size() <= 64 && value.is_string() && Dump(value).size() <= 514;
  }
  if (!fine)
    return reader.Fail(
        BadValue("metadata", *metadata, "at most 16 texts of at most 512 bytes, under names of at most 64"));
  out->metadata_json = Dump(*metadata);
}

}  // namespace

std::optional<ApiError> ParseResponsesRequest(std::string_view body, const RequestRules& rules,
                                              std::string_view template_source, ResponsesRequest* out) {
  Json document;
  if (auto error = ParseBody(body, &document)) return error;
  if (auto error = CheckFields(document, &FieldRule::response, rules.policy)) return error;
  FieldReader reader(document);
  ReadGenerationFields(reader, rules, &out->chat.fields);
  if (out->chat.fields.continuous_usage) {
    reader.Fail({400, "stream_options.continuous_usage_stats: not supported; the last event has the usage", "stream_options.continuous_usage_stats", "unsupported_field"});
  }
  reader.Int("max_output_tokens", 1, std::numeric_limits<int>::max(), &out->max_output_tokens);
  out->chat.fields.sequence.max_tokens = out->max_output_tokens;
  ReadInclude(reader, out);
  ReadMetadata(reader, out);
  std::string taken;
  reader.String("safety_identifier", &taken);
  reader.String("prompt_cache_key", &taken);
  reader.Bool("parallel_tool_calls", &out->parallel_tool_calls);
  out->chat.fields.form.one_call = !out->parallel_tool_calls;
  int tool_calls = 0;
  reader.Int("max_tool_calls", 0, std::numeric_limits<int>::max(),
             &tool_calls);  // of built-in tools, which there are none of
  reader.Bool("add_generation_prompt", &out->chat.add_generation_prompt);
  if (const Json* user = reader.Get("user")) out->user_json = Dump(*user);
  if (reader.error()) return reader.error();
  if (auto error = ReadTextOptions(reader, rules.policy, out)) return error;
  if (auto error = ReadFlatTools(document, rules, out)) return error;
  if (auto error = ReadReasoning(reader, rules, template_source, out)) return error;
  return ReadInput(document, rules, out);
}

}  // namespace hone
