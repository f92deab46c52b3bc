// Variables of a conversation, choice of the template, and where checkpoints keep theirs.
#include "text/chat_template.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace hone {

using jinja::Dict;
using jinja::Kind;
using jinja::Template;
using jinja::Value;

struct ChatTemplate::Parts {
  struct Entry {
    std::string name, source;
    std::shared_ptr<const Template> parsed;
  };
  std::vector<Entry> entries;
  size_t default_entry = 0;
  SpecialTokens special_tokens;

  Result<std::string> Render(const Dict& given, std::optional<jinja::CivilTime> now) const {
    Dict variables;
    variables.Set("tools", Value::None());
    variables.Set("documents", Value::None());
    variables.Set("add_generation_prompt", Value::Bool(false));
    for (const auto& [name, text] : special_tokens) variables.Set(name, Value::String(text));
    for (const auto& [key, value] : given.entries()) variables.Set(key, value);
    jinja::RenderOptions options;
    options.now = now;
    return Choose(*variables.Find("tools")).parsed->Render(variables, options);
  }

  const Entry& Choose(const Value& tools) const {
    if (!tools.is_none()) {
      for (const Entry& entry : entries) {
        if (entry.name == "tool_use") return entry;
      }
    }
    return entries[default_entry];
  }
};

Result<ChatTemplate> ChatTemplate::Create(std::string source, std::string bos_token, std::string eos_token) {
  return CreateNamed({{"default", std::move(source)}}, {{"bos_token", std::move(bos_token)}, {"eos_token", std::move(eos_token)}});
}

Result<ChatTemplate> ChatTemplate::CreateNamed(std::vector<NamedChatTemplate> templates, SpecialTokens special_tokens) {
  auto parts = std::make_shared<Parts>();
  if (templates.empty()) return NotFound("no chat template");
  bool has_default = templates.size() == 1;
  for (NamedChatTemplate& named : templates) {
    HONE_TRY(auto parsed, Template::Parse(named.source).Context("chat template '" + named.name + "'"));
    if (named.name == "default") {
      parts->default_entry = parts->entries.size();
      has_default = true;
    }
    parts->entries.push_back({std::move(named.name), std::move(named.source), std::move(parsed)});
  }
  if (!has_default) return InvalidInput("several chat templates, but none is named 'default'");
  parts->special_tokens = std::move(special_tokens);
  return ChatTemplate(std::move(parts));
}

const std::string& ChatTemplate::source() const { return parts_->entries[parts_->default_entry].source; }

Result<std::string> ChatTemplate::RenderJson(std::string_view json_object, std::optional<jinja::CivilTime> now) const {
  HONE_TRY(const Value object, jinja::FromJson(json_object).Context("the conversation"));
  if (!object.is(Kind::kDict)) return InvalidInput("the conversation: a JSON object with \"messages\" is wanted");
  const Value* messages = object.as_dict().Find("messages");
  if (messages == nullptr || !messages->is(Kind::kList)) {
    return InvalidInput("the conversation: \"messages\" must be an array of {\"role\": ..., \"content\": ...}");
  }
  return parts_->Render(object.as_dict(), now);
}

Result<std::string> ChatTemplate::Render(const ChatInput& input) const {
  Dict given;
  if (!input.variables_json.empty()) {
    HONE_TRY(const Value variables, jinja::FromJson(input.variables_json).Context("template variables"));
    if (!variables.is(Kind::kDict)) return InvalidInput("template variables: a JSON object is wanted");
    for (const auto& [key, value] : variables.as_dict().entries()) given.Set(key, value);
  }
  HONE_TRY(Value messages, jinja::FromJson(input.messages_json).Context("messages"));
  if (!messages.is(Kind::kList)) return InvalidInput("messages: a JSON array is wanted");
  given.Set("messages", std::move(messages));
  if (!input.tools_json.empty()) {
    HONE_TRY(Value tools, jinja::FromJson(input.tools_json).Context("tools"));
    given.Set("tools", std::move(tools));
  }
  given.Set("add_generation_prompt", Value::Bool(input.add_generation_prompt));
  return parts_->Render(given, input.now);
}

namespace {

constexpr uintmax_t kMaxFileBytes = 64 << 20;

// The text of a file, or nothing if there is none.
Result<std::optional<std::string>> ReadIfThere(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return std::optional<std::string>();
  const uintmax_t bytes = std::filesystem::file_size(path, error);
  if (error || bytes > kMaxFileBytes) return InvalidInput(path.string() + ": larger than 64 MiB");
  std::ifstream file(path, std::ios::binary);
  if (!file) return IoError(path.string() + ": cannot be opened");
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (file.bad()) return IoError("cannot read " + path.string());
  return std::optional<std::string>(std::move(text));
}

// A token of tokenizer_config.json: "text" or {"content": "text", ...}; "" if it is neither.
std::string TokenText(const Value& value) {
  if (value.is_string()) return value.as_string();
  if (!value.is(Kind::kDict)) return "";
  const Value* content = value.as_dict().Find("content");
  return content != nullptr && content->is_string() ? content->as_string() : "";
}

// chat_template: a string, a list of {"name", "template"}, or an object {name: text}.
void AddTemplates(const Value& value, std::vector<NamedChatTemplate>* templates) {
  if (value.is_string()) templates->push_back({"default", value.as_string()});
  if (value.is(Kind::kDict)) {
    for (const auto& [key, text] : value.as_dict().entries()) {
      if (key.is_string() && text.is_string()) templates->push_back({key.as_string(), text.as_string()});
    }
  }
  if (!value.is(Kind::kList)) return;
  for (const Value& item : value.items()) {
    if (!item.is(Kind::kDict)) continue;
    const Value *name = item.as_dict().Find("name"), *text = item.as_dict().Find("template");
    if (name != nullptr && text != nullptr && name->is_string() && text->is_string()) {
      templates->push_back({name->as_string(), text->as_string()});
    }
  }
}

// additional_chat_templates/NAME.jinja, in the order of their names.
Result<void> AddMoreFiles(const std::filesystem::path& folder, std::vector<NamedChatTemplate>* templates) {
  std::error_code error;
  std::vector<std::filesystem::path> paths;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() == ".jinja") paths.push_back(it->path());
  }
  std::sort(paths.begin(), paths.end());
  for (const auto& path : paths) {
    HONE_TRY(std::optional<std::string> text, ReadIfThere(path));
    if (text) templates->push_back({path.stem().string(), std::move(*text)});
  }
  return {};
}

Result<ChatTemplate> FromFolder(const std::string& path) {
  const std::filesystem::path folder(path);
  std::vector<NamedChatTemplate> templates;
  ChatTemplate::SpecialTokens tokens;
  std::optional<Value> in_config;
  const std::string config_path = (folder / "tokenizer_config.json").string();
  HONE_TRY(const std::optional<std::string> config, ReadIfThere(config_path));
  if (config) {
    HONE_TRY(const Value object, jinja::FromJson(*config).Context(config_path));
    if (!object.is(Kind::kDict)) return InvalidInput(config_path + ": a JSON object is wanted");
    for (const auto& [key, value] : object.as_dict().entries()) {
      const std::string text = TokenText(value);
      if (key.as_string().ends_with("_token") && !text.empty()) tokens.emplace_back(key.as_string(), text);
      if (key.as_string() == "chat_template") in_config = value;
    }
  }
  HONE_TRY(std::optional<std::string> file, ReadIfThere(folder / "chat_template.jinja"));
  HONE_TRY(const std::optional<std::string> json, ReadIfThere(folder / "chat_template.json"));
  if (file) {
    templates.push_back({"default", std::move(*file)});
    HONE_RETURN_IF_ERROR(AddMoreFiles(folder / "additional_chat_templates", &templates));
  } else if (json) {
    HONE_TRY(const Value object, jinja::FromJson(*json).Context((folder / "chat_template.json").string()));
    const Value* text = object.is(Kind::kDict) ? object.as_dict().Find("chat_template") : nullptr;
    if (text != nullptr) AddTemplates(*text, &templates);
  }
  if (templates.empty() && in_config) AddTemplates(*in_config, &templates);
  if (templates.empty()) {
    return NotFound(path + ": no chat template (chat_template.jinja, chat_template.json, or chat_template in tokenizer_config.json)");
  }
  return ChatTemplate::CreateNamed(std::move(templates), std::move(tokens)).Context(path);
}

Result<ChatTemplate> FromGguf(const GgufFile& gguf) {
  constexpr std::string_view kKey = "tokenizer.chat_template";
  std::vector<NamedChatTemplate> templates;
  for (const auto& [key, value] : gguf.metadata()) {
    const std::string* text = std::get_if<std::string>(&value.value);
    if (text == nullptr || !key.starts_with(kKey)) continue;
    if (key == kKey) templates.push_back({"default", *text});
    if (key.size() > kKey.size() + 1 && key[kKey.size()] == '.') templates.push_back({key.substr(kKey.size() + 1), *text});
  }
  if (templates.empty()) return NotFound(gguf.path() + ": no chat template (key tokenizer.chat_template)");
  ChatTemplate::SpecialTokens tokens;
  constexpr std::pair<const char*, const char*> kTokens[] = {
      {"bos_token", "tokenizer.ggml.bos_token_id"},           {"eos_token", "tokenizer.ggml.eos_token_id"},
      {"unk_token", "tokenizer.ggml.unknown_token_id"},       {"pad_token", "tokenizer.ggml.padding_token_id"},
      {"sep_token", "tokenizer.ggml.seperator_token_id"},     {"mask_token", "tokenizer.ggml.mask_token_id"},
  };
  if (gguf.Has("tokenizer.ggml.tokens")) {
    HONE_TRY(const auto texts, gguf.Strings("tokenizer.ggml.tokens"));
    for (const auto& [name, key] : kTokens) {
      HONE_TRY(const int64_t id, gguf.Int(key, -1));
      if (id >= 0 && static_cast<uint64_t>(id) < texts.size()) tokens.emplace_back(name, texts[static_cast<size_t>(id)]);
    }
  }
  return ChatTemplate::CreateNamed(std::move(templates), std::move(tokens)).Context(gguf.path());
}

}  // namespace

Result<ChatTemplate> ChatTemplateFromCheckpoint(const Checkpoint& checkpoint) {
  return checkpoint.gguf() != nullptr ? FromGguf(*checkpoint.gguf()) : FromFolder(checkpoint.path());
}

}  // namespace hone
