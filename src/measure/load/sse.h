// The answer of an OpenAI-style server as events: a parser of text/event-stream and of the chunks in it. Bytes in, what
// a chunk says out; no socket, no clock. Anything a server may send is an event or is skipped, never an abort; a line
// longer than kMaxEventBytes breaks the stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace hone {

inline constexpr size_t kMaxEventBytes = 16u << 20;

// One chunk of a stream.
struct StreamEvent {
  enum class Kind {
    kContent,  // carries text, reasoning or a tool call
    kOther,    // a role, a finish reason, usage
    kDone,     // data: [DONE]
    kError,    // {"error": ...} in the stream
    kBad,      // data that is no JSON object
  } kind = Kind::kOther;
  std::string text;           // of the first choice; kError, kBad: what was said
  std::string finish_reason;  // "" if none
  bool has_choices = false;
  int64_t prompt_tokens = -1, completion_tokens = -1, cached_tokens = -1;  // usage; -1: not said
};

// What the data of one event says.
StreamEvent ParseStreamEvent(std::string_view data);

// The message of an error body ({"error": {"message"}}, {"error": text}, {"detail": ...}), else the beginning of it.
std::string ErrorText(std::string_view body);

class SseParser {
 public:
  // Calls `event` for the data of each event that `bytes` completes. False if a line is too long.
  bool Add(std::string_view bytes, const std::function<void(std::string_view data)>& event);

 private:
  void Line(std::string_view line, const std::function<void(std::string_view data)>& event);
  std::string line_, data_;
  bool has_data_ = false, after_cr_ = false;
};

}  // namespace hone
