// See output_parser.h. A small state machine over a buffer: each step takes a piece off its front, or waits for more.
#include "serve/openai/output_parser.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "serve/openai/fields.h"

namespace hone {
namespace {

constexpr std::string_view kSpace = " \t\r\n";
constexpr std::pair<std::string_view, std::string_view> kThinkMarks[] = {
    {"<think>", "</think>"}, {"<thinking>", "</thinking>"}, {"<seed:think>", "</seed:think>"}, {"[THINK]", "[/THINK]"}};
constexpr size_t kMaxCallNameBytes = 256;  // of a function behind a mark
constexpr size_t kMaxHeaderBytes = 4096;  // of a call before its arguments; longer ones are read when they are whole

// How many bytes at the end of `text` are the beginning of `mark`.
size_t PartialMark(std::string_view text, std::string_view mark) {
  for (size_t n = std::min(text.size(), mark.size() - 1); n > 0; --n) {
    if (text.substr(text.size() - n) == mark.substr(0, n)) return n;
  }
  return 0;
}

size_t SpaceAtEnd(std::string_view text) {
  const size_t last = text.find_last_not_of(kSpace);
  return last == std::string_view::npos ? text.size() : text.size() - last - 1;
}

// {"name": ..., "arguments" or "parameters": {...}}; arguments may be a string that holds JSON.
bool ReadCall(const Json& call, std::string* name, std::string* arguments) {
  if (!call.is_object() || !call.contains("name") || !call.at("name").is_string()) return false;
  *name = call.at("name").get<std::string>();
  *arguments = "{}";
  for (const char* key : {"arguments", "parameters"}) {
    const auto it = call.find(key);
    if (it == call.end() || it->is_null()) continue;
    if (it->is_string())
      *arguments = it->get<std::string>();
    else if (it->is_object())
      *arguments = Dump(*it);
    else
      return false;
    return true;
  }
  return call.size() == 1;
}

bool ParseJson(std::string_view text, Json* out) {
  *out = Json::parse(text.begin(), text.end(), nullptr, false);
  return !out->is_discarded();
}

// <function=NAME><parameter=KEY>\nVALUE\n</parameter>...</function>: a value that is JSON and no string is taken as
// that.
bool ReadXmlCall(std::string_view text, std::string* name, std::string* arguments) {
  constexpr std::string_view kFunction = "<function=", kParameter = "<parameter=", kEnd = "</parameter>";
  const size_t begin = text.find(kFunction);
  const size_t name_end = text.find('>', begin == std::string_view::npos ? text.size() : begin);
  if (begin == std::string_view::npos || name_end == std::string_view::npos) return false;
  *name = text.substr(begin + kFunction.size(), name_end - begin - kFunction.size());
  Json object = Json::object();
  for (size_t at = name_end; (at = text.find(kParameter, at)) != std::string_view::npos;) {
    const size_t key_end = text.find('>', at), end = text.find(kEnd, at);
    if (key_end == std::string_view::npos || end == std::string_view::npos || end < key_end) return false;
    const std::string key(text.substr(at + kParameter.size(), key_end - at - kParameter.size()));
    std::string_view value = text.substr(key_end + 1, end - key_end - 1);
    if (value.starts_with("\n")) value.remove_prefix(1);
    if (value.ends_with("\n")) value.remove_suffix(1);
    Json parsed;
    object[key] = ParseJson(value, &parsed) && !parsed.is_string() ? parsed : Json(std::string(value));
    at = end;
  }
  *arguments = Dump(object);
  return !name->empty();
}

// Walks over the front of a call: {"name": "f", "arguments": <here>. Only strings may stand before the arguments.
enum class Header { kMore, kFound, kOther };
Header ReadHeader(std::string_view text, std::string* name, size_t* arguments_at) {
  size_t at = 0;
  const auto skip = [&] { at = std::min(text.find_first_not_of(kSpace, at), text.size()); };
  const auto read_string = [&](std::string* out) {  // at a quote; false: not whole, or no string
    size_t end = at + 1;
    while (end < text.size() && text[end] != '"') end += text[end] == '\\' ? 2 : 1;
    if (end >= text.size()) return false;
    Json value;
    if (!ParseJson(text.substr(at, end + 1 - at), &value)) return false;
    *out = value.get<std::string>();
    at = end + 1;
    return true;
  };
  skip();
  if (at == text.size()) return Header::kMore;
  if (text[at++] != '{') return Header::kOther;
  bool named = false;
  for (;;) {
    std::string key, value;
    skip();
    if (at == text.size()) return Header::kMore;
    if (text[at] != '"') return Header::kOther;
    if (!read_string(&key)) return Header::kMore;
    skip();
    if (at == text.size()) return Header::kMore;
    if (text[at++] != ':') return Header::kOther;
    skip();
    if (at == text.size()) return Header::kMore;
    if (key == "arguments" || key == "parameters") {
      *arguments_at = at;
      return named && text[at] == '{' ? Header::kFound : Header::kOther;
    }
    if (text[at] != '"') return Header::kOther;
    if (!read_string(&value)) return Header::kMore;
    if (key == "name") *name = value, named = true;
    skip();
    if (at == text.size()) return Header::kMore;
    if (text[at++] != ',') return Header::kOther;
  }
}

// The bytes of the JSON object or array at the front of `text`, npos if it is not whole.
size_t JsonEnd(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if ((c == '}' || c == ']') && --depth <= 0) {
      return i + 1;
    }
  }
  return std::string_view::npos;
}

}  // namespace

OutputFormat FormatOf(std::string_view template_source, std::string_view prompt, std::vector<std::string> tool_names) {
  OutputFormat format;
  for (const auto& [open, close] : kThinkMarks) {
    if (template_source.find(open) == std::string_view::npos && template_source.find(close) == std::string_view::npos)
      continue;
    format.think_open = open;
    format.think_close = close;
    prompt.remove_suffix(SpaceAtEnd(prompt));
    format.in_thinking = prompt.ends_with(open);
    break;
  }
  if (!tool_names.empty()) {
    format.tools = template_source.find(kCallOpen) != std::string_view::npos      ? ToolFormat::kTagged
                   : template_source.find(kBracketMark) != std::string_view::npos ? ToolFormat::kBracket
                                                                                  : ToolFormat::kBareJson;
  }
  format.tool_names = std::move(tool_names);
  return format;
}

OutputParser::OutputParser(OutputFormat format) : format_(std::move(format)) {
  if (format_.in_thinking) state_ = State::kThinking, skip_space_ = true;
}

void OutputParser::Feed(std::string_view text, std::vector<OutputPiece>* out) {
  if (text.empty()) return;
  buffer_ += text;
  while (Step(false, out)) {
  }
}

void OutputParser::Finish(std::vector<OutputPiece>* out) {
  while (Step(true, out)) {
  }
}

bool OutputParser::Step(bool final, std::vector<OutputPiece>* out) {
  switch (state_) {
    case State::kStart:
      return StepStart(final);
    case State::kThinking:
      return StepThinking(final, out);
    case State::kContent:
      return StepContent(final, out);
    case State::kHeader:
      return StepHeader(final, out);
    case State::kArguments:
      return StepArguments(out);
    case State::kTail:
      return StepTail(final);
    case State::kWhole:
      return StepWhole(final, out);
    case State::kJson:
      return StepJson(final, out);
  }
  return false;
}

bool OutputParser::StepStart(bool final) {
  if (format_.think_open.empty()) {
    state_ = State::kContent;
    return true;
  }
  const std::string_view text(buffer_);
  const std::string_view rest = text.substr(std::min(text.find_first_not_of(kSpace), text.size()));
  if (rest.starts_with(format_.think_open)) {
    buffer_.erase(0, text.size() - rest.size() + format_.think_open.size());
    state_ = State::kThinking;
    skip_space_ = true;
    return true;
  }
  if (!final && std::string_view(format_.think_open).starts_with(rest)) return false;
  state_ = State::kContent;
  return true;
}

// White space around the reasoning is no part of it.
bool OutputParser::StepThinking(bool final, std::vector<OutputPiece>* out) {
  if (skip_space_) {
    buffer_.erase(0, std::min(buffer_.find_first_not_of(kSpace), buffer_.size()));
    if (buffer_.empty()) return false;
    skip_space_ = false;
  }
  const size_t close = buffer_.find(format_.think_close);
  if (close != std::string::npos) {
    const std::string_view reasoning = std::string_view(buffer_).substr(0, close);
    Emit(OutputPiece::Kind::kReasoning, reasoning.substr(0, close - SpaceAtEnd(reasoning)), out);
    buffer_.erase(0, close + format_.think_close.size());
    state_ = State::kContent;
    skip_space_ = true;
    return true;
  }
  std::string_view ready(buffer_);
  if (!final) ready.remove_suffix(PartialMark(ready, format_.think_close));
  ready.remove_suffix(SpaceAtEnd(ready));
  Emit(OutputPiece::Kind::kReasoning, ready, out);
  buffer_.erase(0, ready.size());
  return false;
}

bool OutputParser::StepContent(bool final, std::vector<OutputPiece>* out) {
  if (skip_space_) {
    // Llama writes ";" between calls.
    const bool between_calls = format_.tools == ToolFormat::kBareJson && calls_ > 0;
    buffer_.erase(0, std::min(buffer_.find_first_not_of(between_calls ? " \t\r\n;" : kSpace), buffer_.size()));
    if (buffer_.empty()) return false;
    skip_space_ = false;
  }
  if (buffer_.empty()) return false;
  std::string_view ready(buffer_);
  if (format_.tools == ToolFormat::kNone) {
    Emit(OutputPiece::Kind::kContent, ready, out);
    buffer_.clear();
    return false;
  }
  if (format_.tools != ToolFormat::kTagged && !content_began_) {
    const size_t first = ready.find_first_not_of(kSpace);
    if (first == std::string_view::npos && !final) return false;
    if (first != std::string_view::npos && ready[first] == (format_.tools == ToolFormat::kBareJson ? '{' : '[') &&
        !ready.substr(first).starts_with(kBracketMark)) {
      const std::string_view mark = kBracketMark;
      if (format_.tools == ToolFormat::kBareJson || !mark.starts_with(ready.substr(first)) || final) {
        state_ = State::kJson;
        return true;
      }
      return false;  // "[" may be the mark yet
    }
  }
  const std::string_view mark = format_.tools == ToolFormat::kTagged ? kCallOpen : kBracketMark;
  if (format_.tools != ToolFormat::kBareJson) {
    if (const size_t at = ready.find(mark); at != std::string_view::npos) {
      const std::string_view before = ready.substr(0, at);
      Emit(OutputPiece::Kind::kContent, before.substr(0, at - SpaceAtEnd(before)), out);
      buffer_.erase(0, at + mark.size());
      state_ = format_.tools == ToolFormat::kTagged ? State::kHeader : State::kJson;
      marked_ = true;
      return true;
    }
  }
  // A call may follow: what could be its mark waits, and the white space before it, which would be no content then.
  if (!final) {
    if (format_.tools != ToolFormat::kBareJson) ready.remove_suffix(PartialMark(ready, mark));
    ready.remove_suffix(SpaceAtEnd(ready));
  } else if (calls_ > 0) {
    ready.remove_suffix(SpaceAtEnd(ready));
  }
  Emit(OutputPiece::Kind::kContent, ready, out);
  buffer_.erase(0, ready.size());
  if (final) buffer_.clear();
  return false;
}

bool OutputParser::StepHeader(bool final, std::vector<OutputPiece>* out) {
  std::string name;
  size_t arguments_at = 0;
  const Header header = ReadHeader(buffer_, &name, &arguments_at);
  if (header == Header::kFound) {
    EmitCall(name, "", out);
    buffer_.erase(0, arguments_at);
    scanned_ = 0;
    depth_ = 0;
    in_string_ = escaped_ = false;
    state_ = State::kArguments;
    return true;
  }
  const bool closed = buffer_.find(kCallClose) != std::string::npos;
  if (header == Header::kMore && !final && !closed && buffer_.size() < kMaxHeaderBytes) return false;
  state_ = State::kWhole;
  return true;
}

bool OutputParser::StepArguments(std::vector<OutputPiece>* out) {
  for (; scanned_ < buffer_.size(); ++scanned_) {
    const char c = buffer_[scanned_];
    if (in_string_) {
      if (escaped_)
        escaped_ = false;
      else if (c == '\\')
        escaped_ = true;
      else if (c == '"')
        in_string_ = false;
    } else if (c == '"') {
      in_string_ = true;
    } else if (c == '{' || c == '[') {
      ++depth_;
    } else if ((c == '}' || c == ']') && --depth_ == 0) {
      out->push_back({OutputPiece::Kind::kArguments, buffer_.substr(0, scanned_ + 1), calls_ - 1});
      buffer_.erase(0, scanned_ + 1);
      state_ = State::kTail;
      return true;
    }
  }
  if (!buffer_.empty()) out->push_back({OutputPiece::Kind::kArguments, std::exchange(buffer_, {}), calls_ - 1});
  scanned_ = 0;
  return false;
}

// From the end of the arguments to the end of the call.
bool OutputParser::StepTail(bool final) {
  const size_t close = buffer_.find(kCallClose);
  if (close == std::string::npos) {
    if (final) buffer_.clear();
    return false;
  }
  buffer_.erase(0, close + kCallClose.size());
  state_ = State::kContent;
  skip_space_ = true;
  return true;
}

// A call that is read when it is whole.
bool OutputParser::StepWhole(bool final, std::vector<OutputPiece>* out) {
  const size_t close = buffer_.find(kCallClose);
  if (close == std::string::npos && !final) return false;
  const size_t end = std::min(close, buffer_.size());
  const std::string text = buffer_.substr(0, end);
  std::string name, arguments;
  Json call;
  const bool read =
      (ParseJson(text, &call) && ReadCall(call, &name, &arguments)) || ReadXmlCall(text, &name, &arguments);
  const bool whole = close != std::string::npos;
  if (read)
    EmitCall(name, arguments, out);
  else
    Emit(OutputPiece::Kind::kContent, std::string(kCallOpen) + text + std::string(whole ? kCallClose : ""), out);
  buffer_.erase(0, whole ? end + kCallClose.size() : end);
  state_ = State::kContent;
  skip_space_ = read;
  return true;
}

// kBareJson, kBracket: an object or array at the front.
bool OutputParser::StepJson(bool final, std::vector<OutputPiece>* out) {
  const std::string_view text(buffer_);
  const size_t first = std::min(text.find_first_not_of(kSpace), text.size());
  if (first == text.size() && !final) return false;
  if (marked_ && first < text.size() && text[first] != '[' && text[first] != '{')
    return StepNamedCall(first, final, out);
  const size_t end = JsonEnd(text.substr(first));
  if (end == std::string_view::npos && !final) return false;
  const std::string_view json = text.substr(first, end);
  std::vector<std::pair<std::string, std::string>> calls;
  Json value;
  if (end != std::string_view::npos && ParseJson(json, &value)) {
    bool fine = true;
    const auto add = [&](const Json& one) {
      std::string name, arguments;
      fine = fine && ReadCall(one, &name, &arguments) &&
             std::find(format_.tool_names.begin(), format_.tool_names.end(), name) != format_.tool_names.end();
      calls.emplace_back(std::move(name), std::move(arguments));
    };
    if (value.is_array())
      std::for_each(value.begin(), value.end(), add);
    else
      add(value);
    if (!fine) calls.clear();
  }
  state_ = State::kContent;
  const bool marked = std::exchange(marked_, false);
  if (calls.empty()) {  // plain text after all
    if (marked) Emit(OutputPiece::Kind::kContent, kBracketMark, out);
    content_began_ = true;
    return true;
  }
  const size_t used = first + end;
  for (const auto& [name, arguments] : calls) EmitCall(name, arguments, out);
  buffer_.erase(0, used);
  skip_space_ = true;
  return true;
}

// [TOOL_CALLS]NAME[ARGS]{...} or [TOOL_CALLS]NAME{...}: newer Mistral models. `first`: where the name begins.
bool OutputParser::StepNamedCall(size_t first, bool final, std::vector<OutputPiece>* out) {
  constexpr std::string_view kArgs = "[ARGS]";
  const std::string_view text(buffer_);
  const size_t brace = text.substr(0, first + kMaxCallNameBytes).find('{', first);
  if (brace == std::string_view::npos && !final && text.size() < first + kMaxCallNameBytes) return false;
  std::string name;
  if (brace != std::string_view::npos) {
    std::string_view before = text.substr(first, brace - first);
    before.remove_suffix(SpaceAtEnd(before));
    if (before.ends_with(kArgs)) before.remove_suffix(kArgs.size());
    name = before;
  }
  const bool offered =
      std::find(format_.tool_names.begin(), format_.tool_names.end(), name) != format_.tool_names.end();
  const size_t bytes = offered ? JsonEnd(text.substr(brace)) : std::string_view::npos;
  if (offered && bytes == std::string_view::npos && !final) return false;
  state_ = State::kContent;
  marked_ = false;
  Json arguments;
  if (bytes == std::string_view::npos || !ParseJson(text.substr(brace, bytes), &arguments)) {  // plain text after all
    Emit(OutputPiece::Kind::kContent, kBracketMark, out);
    content_began_ = true;
    return true;
  }
  EmitCall(name, text.substr(brace, bytes), out);
  buffer_.erase(0, brace + bytes);
  skip_space_ = true;
  return true;
}

bool NamesBeforeArguments(std::string_view template_source) { return template_source.find("[ARGS]") != std::string_view::npos; }

bool MarksAreSpecial(const OutputFormat& format, const Tokenizer& tokenizer) {
  std::vector<std::string_view> marks;
  if (!format.think_open.empty()) marks.insert(marks.end(), {format.think_open, format.think_close});
  if (format.tools == ToolFormat::kTagged) marks.insert(marks.end(), {kCallOpen, kCallClose});
  if (format.tools == ToolFormat::kBracket) marks.push_back(kBracketMark);
  return std::any_of(marks.begin(), marks.end(), [&](std::string_view mark) {
    const std::optional<int32_t> id = tokenizer.TokenId(mark);
    return id && tokenizer.IsSpecial(*id);
  });
}

void OutputParser::Emit(OutputPiece::Kind kind, std::string_view text, std::vector<OutputPiece>* out) {
  if (text.empty()) return;
  if (kind == OutputPiece::Kind::kContent) content_began_ = true;
  if (!out->empty() && out->back().kind == kind)
    out->back().text += text;
  else
    out->push_back({kind, std::string(text), 0});
}

void OutputParser::EmitCall(std::string_view name, std::string_view arguments, std::vector<OutputPiece>* out) {
  out->push_back({OutputPiece::Kind::kCall, std::string(name), calls_++});
  if (!arguments.empty()) out->push_back({OutputPiece::Kind::kArguments, std::string(arguments), calls_ - 1});
}

}  // namespace hone
