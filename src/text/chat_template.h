// ChatTemplate: messages → prompt text, by the model's own Jinja template, as transformers' apply_chat_template renders it.
// Tokens are not its business. Immutable, cheap to copy, thread-safe. See docs/chat-templates.md and text/jinja/template.h.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "formats/checkpoint.h"
#include "text/jinja/template.h"

namespace hone {

struct NamedChatTemplate {
  std::string name;  // "default", "tool_use", "rag" ...
  std::string source;
};

// What a conversation gives to a template. JSON stays text here, so callers may use any JSON library.
struct ChatInput {
  std::string messages_json = "[]";    // an array of messages
  std::string tools_json;              // an array, or "" for none
  bool add_generation_prompt = true;
  std::string variables_json;          // an object of further variables (chat_template_kwargs), or ""
  std::optional<jinja::CivilTime> now;  // the clock of strftime_now; none: the system's
};

class ChatTemplate {
 public:
  // Variable name → text: "bos_token", "eos_token", "unk_token" ...
  using SpecialTokens = std::vector<std::pair<std::string, std::string>>;

  // Errors: the source does not parse.
  static Result<ChatTemplate> Create(std::string source, std::string bos_token, std::string eos_token);
  // Several templates: "tool_use" serves conversations with tools, "default" the others; a single one serves all.
  // Errors: none given, one does not parse, or several without a "default".
  static Result<ChatTemplate> CreateNamed(std::vector<NamedChatTemplate> templates, SpecialTokens special_tokens);

  // Errors: JSON that is not what its field says; what the template raises (kInvalidInput; the message of raise_exception
  // exactly); a limit (kLimit).
  Result<std::string> Render(const ChatInput& input) const;
  // The object of `hone template -m`: {"messages": [...], "tools": [...], "add_generation_prompt": true, ...}. Every key is a
  // variable of the template. Absent, "tools" and "documents" are none, "add_generation_prompt" is false, and special tokens
  // are the model's.
  Result<std::string> RenderJson(std::string_view json_object, std::optional<jinja::CivilTime> now = {}) const;

  const std::string& source() const;  // of the default template

 private:
  struct Parts;
  explicit ChatTemplate(std::shared_ptr<const Parts> parts) : parts_(std::move(parts)) {}
  std::shared_ptr<const Parts> parts_;
};

// The template of a model: GGUF tokenizer.chat_template (and tokenizer.chat_template.NAME), or in a folder
// chat_template.jinja (and additional_chat_templates/NAME.jinja), chat_template.json, tokenizer_config.json.
// kNotFound: the model has none.
Result<ChatTemplate> ChatTemplateFromCheckpoint(const Checkpoint& checkpoint);

}  // namespace hone
