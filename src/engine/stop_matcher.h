// StopMatcher: cuts the text of a sequence before the first stop string, and holds back what may still become one.
//
// Rule: byte by byte, the first stop string to END wins; of those that end at the same byte the longest. So the result
// does not depend on how the text is cut into tokens, and streamed text equals text that is not streamed. No more is
// held back than the longest suffix that may begin a stop string, and an unfinished UTF-8 character.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hone {

class StopMatcher {
 public:
  // No stop string may be empty. With stop strings of valid UTF-8 a character is never cut; other bytes also work.
  explicit StopMatcher(std::vector<std::string> stops, bool include_stop = false);

  // The next bytes of the text. Returns what is settled now. After a stop was found it returns nothing.
  std::string Push(std::string_view bytes);
  // The text is over: what was held back; "" if a stop was found.
  std::string Finish();

  bool stopped() const { return winner_ >= 0; }
  const std::string& stop_string() const;  // REQUIRES: stopped()

 private:
  // Knuth-Morris-Pratt: `matched` bytes of the stop string are a suffix of the text; `failure[i]` is the longest proper
  // border of its first i + 1 bytes.
  struct Stop {
    std::string text;
    std::vector<int32_t> failure;
    size_t matched = 0;
  };
  bool Advance(Stop* stop, char byte);

  std::vector<Stop> stops_;
  bool include_stop_;
  std::string held_;
  int winner_ = -1;
};

}  // namespace hone
