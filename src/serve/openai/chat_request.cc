// Reads a chat request. What reaches the template is written anew as JSON, field by field, so nothing unknown gets through.
#include "serve/openai/chat_request.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "serve/json_writer.h"
#include "serve/limits.h"
#include "serve/openai/answer_fields.h"

namespace hone {
namespace {

constexpr std::string_view kRoles[] = {"system", "developer", "user", "assistant", "tool"};
// `parsed` and `parsed_arguments` say again what the text says: helpers of the official client leave them in the messages that
// come back.
constexpr std::string_view kMessageFields[] = {"role", "content", "name", "tool_calls", "tool_call_id", "reasoning_content",
                                               "reasoning", "refusal", "annotations", "audio", "function_call", "parsed"};

// Stands behind the text of a last message that goes on, with a space, while the template runs: only so is its end found
// in what the template makes of it (a short text may also be part of an end-of-turn token).
constexpr std::string_view kGoesOn = "hone.goes.on.here";

ApiError Bad(const std::string& field, const Json& found, const std::string& wanted) { return BadValue(field, found, wanted); }

// A string, or parts of type text; null only where `nullable`.
std::optional<ApiError> ReadContent(const Json& message, const std::string& path, bool nullable, std::string* text) {
  const std::string field = path + ".content";
  const auto it = message.find("content");
  if (it == message.end() || it->is_null()) {
    if (nullable) return std::nullopt;
    return ApiError{400, field + ": missing, wanted a string or an array of text parts", field, "missing_field"};
  }
  if (it->is_string()) {
    *text = it->get<std::string>();
    return std::nullopt;
  }
  if (!it->is_array()) return Bad(field, *it, "a string or an array of text parts");
  size_t i = 0;
  for (const Json& part : *it) {
    const std::string at = field + "[" + std::to_string(i) + "]";
    if (!part.is_object() || !part.contains("type") || !part.at("type").is_string()) {
      return Bad(at, part, "an object with type \"text\"");
    }
    const Json& type = part.at("type");
    if (type != Json("text")) {
      return ApiError{400, at + ".type: " + Found(type) + " is not supported; this model reads text parts only", at + ".type",
                      "unsupported_value"};
    }
    if (!part.contains("text") || !part.at("text").is_string()) {
      return ApiError{400, at + ".text: missing, wanted a string", at + ".text", "missing_field"};
    }
    for (const auto& [name, value] : part.items()) {
      if (name != "type" && name != "text" && !value.is_null()) {
        return ApiError{400, at + "." + name + ": not supported in a text part", at + "." + name, "unsupported_field"};
      }
    }
    if (i++ > 0) text->push_back('\n');
    text->append(part.at("text").get_ref<const std::string&>());
  }
  return std::nullopt;
}

std::optional<ApiError> WriteToolCalls(const Json& calls, const std::string& path, const FieldPolicy& policy, JsonWriter& json) {
  constexpr std::string_view kCall[] = {"id", "type", "function", "index"}, kFunction[] = {"name", "arguments", "parsed_arguments"};
  const std::string field = path + ".tool_calls";
  if (!calls.is_array() || calls.size() > static_cast<size_t>(kMaxTools)) {
    return Bad(field, calls, "an array of at most " + std::to_string(kMaxTools) + " calls");
  }
  json.Key("tool_calls").BeginArray();
  size_t i = 0;
  for (const Json& call : calls) {
    const std::string at = field + "[" + std::to_string(i++) + "]";
    const bool fine = call.is_object() && call.contains("function") && call.at("function").is_object() &&
                      call.at("function").contains("name") && call.at("function").at("name").is_string();
    if (!fine) return Bad(at, call, "an object with function.name and function.arguments");
    if (call.contains("type") && call.at("type") != Json("function")) return Bad(at + ".type", call.at("type"), "\"function\"");
    const Json& function = call.at("function");
    if (auto error = CheckNames(call, at, kCall, policy)) return error;
    if (auto error = CheckNames(function, at + ".function", kFunction, policy)) return error;
    json.BeginObject();
    if (call.contains("id") && call.at("id").is_string()) json.Field("id", call.at("id").get_ref<const std::string&>());
    json.Field("type", "function").Key("function").BeginObject();
    json.Field("name", function.at("name").get_ref<const std::string&>()).Key("arguments");
    const auto arguments = function.find("arguments");
    if (arguments == function.end() || arguments->is_null()) {
      json.Raw("{}");
    } else if (arguments->is_string()) {
      // Templates take the object; text that is none stays text. A model wrote it: clients' parsers take the last of two names.
      Json object;
      const std::string& text = arguments->get_ref<const std::string&>();
      if (!ParseBody(text, &object, true)) json.Raw(Dump(object));
      else json.String(text);
    } else if (arguments->is_object()) {
      json.Raw(Dump(*arguments));
    } else {
      return Bad(at + ".function.arguments", *arguments, "a string that holds JSON");
    }
    json.EndObject().EndObject();
  }
  json.EndArray();
  return std::nullopt;
}

std::optional<ApiError> WriteStrings(const Json& message, const std::string& path, JsonWriter& json) {
  constexpr std::pair<const char*, const char*> kStrings[] = {
      {"name", "name"}, {"tool_call_id", "tool_call_id"}, {"reasoning_content", "reasoning_content"},
      {"reasoning", "reasoning_content"}};
  for (const auto& [from, to] : kStrings) {
    const auto it = message.find(from);
    if (it == message.end() || it->is_null()) continue;
    if (!it->is_string()) return Bad(path + "." + from, *it, "a string");
    json.Field(to, it->get_ref<const std::string&>());
  }
  return std::nullopt;
}

// Sets `text` to the message's content; a message that `goes_on` has the mark behind it in `json`.
std::optional<ApiError> WriteMessage(const Json& message, const std::string& path, const RequestRules& rules, bool goes_on,
                                     JsonWriter& json, std::string* text) {
  if (!message.is_object()) return Bad(path, message, "an object");
  const auto role_it = message.find("role");
  const std::string wanted_roles = "one of system, developer, user, assistant, tool";
  if (role_it == message.end()) {
    return ApiError{400, path + ".role: missing, wanted " + wanted_roles, path + ".role", "missing_field"};
  }
  const std::string role = role_it->is_string() ? role_it->get<std::string>() : "";
  if (std::find(std::begin(kRoles), std::end(kRoles), role) == std::end(kRoles)) {
    return Bad(path + ".role", *role_it, wanted_roles);
  }
  if (auto error = CheckNames(message, path, kMessageFields, rules.policy)) return error;
  // What an assistant's message of this API carries back as empty may come back; what they would say may not be lost.
  for (const char* name : {"refusal", "annotations", "audio", "function_call"}) {
    const auto it = message.find(name);
    if (it == message.end() || it->is_null() || (it->is_structured() && it->empty())) continue;
    return ApiError{400, path + "." + name + ": not supported", path + "." + name, "unsupported_field"};
  }
  if (role == "tool" && !message.contains("tool_call_id")) {
    return ApiError{400, path + ".tool_call_id: missing, wanted the id of the call that this answers", path + ".tool_call_id",
                    "missing_field"};
  }
  const auto calls = message.find("tool_calls");
  const bool has_calls = calls != message.end() && !calls->is_null();
  if (has_calls && role != "assistant") {
    return ApiError{400, path + ".tool_calls: only an assistant message has them", path + ".tool_calls", "invalid_value"};
  }
  text->clear();
  if (auto error = ReadContent(message, path, has_calls, text)) return error;
  json.BeginObject().Field("role", role == "developer" ? "system" : std::string_view(role));
  json.Field("content", goes_on ? *text + std::string(kGoesOn) + " " : *text);
  if (auto error = WriteStrings(message, path, json)) return error;
  if (has_calls && !calls->empty()) {
    if (auto error = WriteToolCalls(*calls, path, rules.policy, json)) return error;
  }
  json.EndObject();
  return std::nullopt;
}

void ReadLengthsAndLogprobs(FieldReader& reader, ChatRequest* out) {
  SequenceRequest& sequence = out->fields.sequence;
  constexpr int64_t kMost = std::numeric_limits<int>::max();
  int old_name = 0, new_name = 0;
  reader.Int("max_tokens", 1, kMost, &old_name);
  reader.Int("max_completion_tokens", 1, kMost, &new_name);
  if (old_name > 0 && new_name > 0 && old_name != new_name) {
    return reader.Fail({400, "max_tokens: found " + std::to_string(old_name) + " and max_completion_tokens " +
                                 std::to_string(new_name) + "; they mean the same, send one", "max_tokens", "invalid_value"});
  }
  sequence.max_tokens = std::max(old_name, new_name);
  bool logprobs = false;
  int top = -1;
  reader.Bool("logprobs", &logprobs);
  reader.Int("top_logprobs", 0, kMaxLogprobs, &top);
  if (top > 0 && !logprobs) {
    return reader.Fail({400, "top_logprobs: only allowed when logprobs is true", "top_logprobs", "invalid_value"});
  }
  if (logprobs) sequence.logprobs = std::max(top, 0);
}

}  // namespace

std::optional<ApiError> ReadTools(FieldReader& reader, const FieldPolicy& policy, ChatRequest* out) {
  ToolFields tools;
  if (auto error = ReadToolFields(reader, policy, &out->fields.form, &tools)) return error;
  out->tools_json = std::move(tools.json);
  out->tool_names = std::move(tools.names);
  return std::nullopt;
}

// chat_template_kwargs and the fields that are variables of the template.
std::optional<ApiError> ReadVariables(FieldReader& reader, std::string_view template_source, ChatRequest* out) {
  Json variables = Json::object();
  if (const Json* kwargs = reader.Get("chat_template_kwargs")) {
    if (!kwargs->is_object()) return Bad("chat_template_kwargs", *kwargs, "an object");
    variables = *kwargs;
  }
  for (const char* name : {"enable_thinking", "reasoning_effort"}) {
    const Json* value = reader.Get(name);
    if (value == nullptr) continue;
    const bool flag = std::string_view(name) == "enable_thinking";
    if (flag ? !value->is_boolean() : !value->is_string()) return Bad(name, *value, flag ? "true or false" : "a string");
    if (template_source.find(name) == std::string_view::npos) {
      return ApiError{400, std::string(name) + ": the chat template of this model does not read it", name, "unsupported_field"};
    }
    variables[name] = *value;
  }
  for (const char* name : {"messages", "tools", "add_generation_prompt"}) {
    if (variables.contains(name)) {
      return ApiError{400, "chat_template_kwargs." + std::string(name) + ": is a field of the request itself",
                      "chat_template_kwargs", "invalid_value"};
    }
  }
  if (!variables.empty()) out->variables_json = Dump(variables);
  return std::nullopt;
}

std::optional<ApiError> ParseMessages(const Json& document, const RequestRules& rules, ChatRequest* out) {
  const auto it = document.find("messages");
  if (it == document.end() || it->is_null()) return ApiError{400, "messages: missing, wanted an array", "messages", "missing_field"};
  const Json& messages = *it;
  if (!messages.is_array() || messages.empty() || messages.size() > static_cast<size_t>(kMaxMessages)) {
    return Bad("messages", messages, "an array of 1 to " + std::to_string(kMaxMessages) + " messages");
  }
  JsonWriter json;
  json.BeginArray();
  size_t i = 0;
  for (const Json& message : messages) {
    const std::string path = "messages[" + std::to_string(i++) + "]";
    const bool goes_on = out->continue_final && i == messages.size();
    if (auto error = WriteMessage(message, path, rules, goes_on, json, &out->final_text)) return error;
  }
  json.EndArray();
  out->messages_json = std::move(json).text();
  return std::nullopt;
}

std::optional<ApiError> ParseChatRequest(std::string_view body, const RequestRules& rules, std::string_view template_source,
                                         ChatRequest* out) {
  Json document;
  if (auto error = ParseBody(body, &document)) return error;
  if (auto error = CheckFields(document, &FieldRule::chat, rules.policy)) return error;
  FieldReader reader(document);
  ReadGenerationFields(reader, rules, &out->fields);
  ReadLengthsAndLogprobs(reader, out);
  std::string taken;
  reader.String("safety_identifier", &taken);
  reader.String("prompt_cache_key", &taken);
  bool parallel = true;
  reader.Bool("parallel_tool_calls", &parallel);
  out->fields.form.one_call = !parallel;
  bool continue_final = false, add_prompt = true;
  reader.Bool("continue_final_message", &continue_final);
  const bool says_add_prompt = reader.Has("add_generation_prompt");
  reader.Bool("add_generation_prompt", &add_prompt);
  if (reader.error()) return reader.error();
  if (auto error = ReadTools(reader, rules.policy, out)) return error;
  if (auto error = ReadVariables(reader, template_source, out)) return error;
  out->continue_final = continue_final;
  if (auto error = ParseMessages(document, rules, out)) return error;
  if (continue_final) {
    const Json& last = document.at("messages").back();
    if (says_add_prompt && add_prompt) {
      return ApiError{400, "continue_final_message: cannot be true together with add_generation_prompt", "continue_final_message",
                      "invalid_value"};
    }
    if (last.at("role") != Json("assistant") || out->final_text.empty()) {
      return ApiError{400, "continue_final_message: the last message must be an assistant's with some content",
                      "continue_final_message", "invalid_value"};
    }
    if (out->fields.form.constrains()) {
      return ApiError{400, "continue_final_message: not together with response_format, or tools that must be called", "continue_final_message",
                      "unsupported_value"};
    }
    add_prompt = false;
  }
  out->add_generation_prompt = add_prompt;
  return std::nullopt;
}

std::optional<ApiError> RenderChat(const ChatTemplate& chat, const ChatRequest& request, std::string* prompt) {
  ChatInput input;
  input.messages_json = request.messages_json;
  input.tools_json = request.tools_json;
  input.variables_json = request.variables_json;
  input.add_generation_prompt = request.add_generation_prompt;
  Result<std::string> text = chat.Render(input);
  if (!text) {
    return ApiError{400, "messages: the chat template of this model refuses them: " + text.error().message, "messages",
                    "template_error"};
  }
  *prompt = std::move(*text);
  if (!input.tools_json.empty()) {
    input.tools_json.clear();
    if (const auto without = chat.Render(input); without && *without == *prompt) {
      return ApiError{400, "tools: the chat template of this model does not read them, so it would never know of them", "tools",
                      "unsupported_field"};
    }
  }
  if (!request.continue_final) return std::nullopt;
  // The answer goes on where the last message ends: cut what the template wrote after it (an end-of-turn token, mostly).
  const size_t at = prompt->rfind(kGoesOn);
  if (at == std::string::npos) {
    return ApiError{400, "continue_final_message: the chat template of this model changes the last message", "continue_final_message",
                    "unsupported_value"};
  }
  const bool trims = prompt->compare(at + kGoesOn.size(), 1, " ") != 0;  // then it would have trimmed the text too
  prompt->resize(at);
  for (size_t left = request.final_text.size(); trims && left > 0 && !prompt->empty(); --left) {
    if (std::string_view(" \t\r\n").find(prompt->back()) == std::string_view::npos) break;
    prompt->pop_back();
  }
  return std::nullopt;
}

}  // namespace hone
