// One automaton a stop string, advanced together: constant work a byte and stop string, memory linear in the stop
// strings.
#include "engine/stop_matcher.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "text/utf8.h"

namespace hone {
namespace {

// Bytes at the end of `text` that begin a UTF-8 character without finishing it.
size_t UnfinishedBytes(std::string_view text) {
  for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
    const size_t at = text.size() - back;
    if ((static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) continue;  // a continuation: its character begins earlier
    const Utf8Char character = Utf8At(text, at);
    return character.cut && character.bytes == back ? back : 0;
  }
  return 0;
}

}  // namespace

StopMatcher::StopMatcher(std::vector<std::string> stops, bool include_stop) : include_stop_(include_stop) {
  stops_.reserve(stops.size());
  for (std::string& text : stops) {
    HONE_CHECK(!text.empty());
    Stop stop;
    stop.failure.resize(text.size(), 0);
    for (size_t i = 1, border = 0; i < text.size(); ++i) {
      while (border > 0 && text[i] != text[border]) border = stop.failure[border - 1];
      if (text[i] == text[border]) ++border;
      stop.failure[i] = static_cast<int32_t>(border);
    }
    stop.text = std::move(text);
    stops_.push_back(std::move(stop));
  }
}

const std::string& StopMatcher::stop_string() const {
  HONE_CHECK(stopped());
  return stops_[winner_].text;
}

// True if the stop string ends with this byte.
bool StopMatcher::Advance(Stop* stop, char byte) {
  while (stop->matched > 0 && stop->text[stop->matched] != byte) stop->matched = stop->failure[stop->matched - 1];
  if (stop->text[stop->matched] == byte) ++stop->matched;
  return stop->matched == stop->text.size();
}

std::string StopMatcher::Push(std::string_view bytes) {
  if (stopped()) return "";
  for (const char byte : bytes) {
    held_ += byte;
    for (size_t i = 0; i < stops_.size(); ++i) {
      if (!Advance(&stops_[i], byte)) continue;
      if (winner_ < 0 || stops_[i].text.size() > stops_[winner_].text.size()) winner_ = static_cast<int>(i);
    }
    if (stopped()) {
      if (!include_stop_) held_.resize(held_.size() - stop_string().size());
      return std::exchange(held_, {});
    }
  }
  size_t keep = UnfinishedBytes(held_);
  for (const Stop& stop : stops_) keep = std::max(keep, stop.matched);
  std::string settled = held_.substr(0, held_.size() - keep);
  held_.erase(0, settled.size());
  return settled;
}

std::string StopMatcher::Finish() { return std::exchange(held_, {}); }

}  // namespace hone
