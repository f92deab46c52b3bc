// See sse.h. The lines of an event stream are those of the HTML standard, "server-sent events".
#include "measure/load/sse.h"

#include <nlohmann/json.hpp>

#include "measure/json_text.h"

namespace hone {
namespace {

using nlohmann::ordered_json;

constexpr size_t kMostErrorText = 500;

const ordered_json* Field(const ordered_json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(key);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

std::string FieldText(const ordered_json& object, const char* key) {
  const ordered_json* value = Field(object, key);
  return value != nullptr && value->is_string() ? value->get<std::string>() : "";
}

int64_t CountAt(const ordered_json& object, const char* key) {
  const ordered_json* value = Field(object, key);
  if (value == nullptr || !value->is_number_integer()) return -1;
  if (value->is_number_unsigned() && value->get<uint64_t>() > INT64_MAX) return -1;
  return std::max<int64_t>(-1, value->get<int64_t>());
}

// Cut where a UTF-8 character begins.
std::string Beginning(std::string_view text) {
  if (text.size() <= kMostErrorText) return std::string(text);
  size_t end = kMostErrorText;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return std::string(text.substr(0, end)) + "...";
}

std::string ErrorOf(const ordered_json& error) {
  if (error.is_string()) return Beginning(error.get<std::string>());
  const std::string message = FieldText(error, "message");
  return Beginning(message.empty() ? error.dump(-1, ' ', false, ordered_json::error_handler_t::replace) : message);
}

// The content of a chat delta or a completion choice, whatever it is called there.
std::string ContentOf(const ordered_json& choice) {
  std::string text = FieldText(choice, "text");
  for (const char* holder : {"delta", "message"}) {
    const ordered_json* delta = Field(choice, holder);
    if (delta == nullptr) continue;
    text += FieldText(*delta, "reasoning_content") + FieldText(*delta, "reasoning") + FieldText(*delta, "content");
    const ordered_json* calls = Field(*delta, "tool_calls");
    if (calls != nullptr && !calls->empty())
      text += calls->dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  }
  return text;
}

}  // namespace

StreamEvent ParseStreamEvent(std::string_view data) {
  StreamEvent event;
  if (data == "[DONE]") {
    event.kind = StreamEvent::Kind::kDone;
    return event;
  }
  const ordered_json json = ParseJson(data);
  if (!json.is_object()) {
    event.kind = StreamEvent::Kind::kBad;
    event.text = Beginning(data);
    return event;
  }
  if (const ordered_json* error = Field(json, "error")) {
    event.kind = StreamEvent::Kind::kError;
    event.text = ErrorOf(*error);
    return event;
  }
  if (const ordered_json* choices = Field(json, "choices"); choices != nullptr && choices->is_array()) {
    event.has_choices = !choices->empty();
    for (const ordered_json& choice : *choices) {
      event.text += ContentOf(choice);
      if (event.finish_reason.empty()) event.finish_reason = FieldText(choice, "finish_reason");
    }
    if (!event.text.empty()) event.kind = StreamEvent::Kind::kContent;
  }
  if (const ordered_json* usage = Field(json, "usage")) {
    event.prompt_tokens = CountAt(*usage, "prompt_tokens");
    event.completion_tokens = CountAt(*usage, "completion_tokens");
    if (const ordered_json* details = Field(*usage, "prompt_tokens_details")) {
      event.cached_tokens = CountAt(*details, "cached_tokens");
    }
  }
  return event;
}

std::string ErrorText(std::string_view body) {
  const ordered_json json = ParseJson(body);
  for (const char* key : {"error", "detail", "message"}) {
    if (const ordered_json* error = Field(json, key)) return ErrorOf(*error);
  }
  return Beginning(body);
}

bool SseParser::Add(std::string_view bytes, const std::function<void(std::string_view data)>& event) {
  while (!bytes.empty()) {
    if (after_cr_ && bytes.front() == '\n') {  // the second half of \r\n
      after_cr_ = false;
      bytes.remove_prefix(1);
      continue;
    }
    after_cr_ = false;
    const size_t end = bytes.find_first_of("\r\n");
    const std::string_view part = bytes.substr(0, end);
    if (line_.size() + data_.size() + part.size() > kMaxEventBytes) return false;
    if (end == std::string_view::npos) {
      line_ += part;
      return true;
    }
    after_cr_ = bytes[end] == '\r';
    if (line_.empty()) {
      Line(part, event);
    } else {
      line_ += part;
      Line(line_, event);
      line_.clear();
    }
    bytes.remove_prefix(end + 1);
  }
  return true;
}

void SseParser::Line(std::string_view line, const std::function<void(std::string_view data)>& event) {
  if (line.empty()) {
    if (has_data_) event(data_);
    data_.clear();
    has_data_ = false;
    return;
  }
  if (line.substr(0, 5) != "data:") return;  // comments, event names, ids
  line.remove_prefix(5);
  if (!line.empty() && line.front() == ' ') line.remove_prefix(1);
  if (has_data_) data_ += '\n';
  data_ += line;
  has_data_ = true;
}

}  // namespace hone
