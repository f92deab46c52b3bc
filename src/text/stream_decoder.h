// StreamDecoder: the text of a sequence, token by token.
//
// Promises: no output holds part of a UTF-8 character; all outputs joined equal Tokenizer::Decode of all ids pushed.
// Where a later token can still change earlier text (a byte-fallback run, a character cut in two, a trailing space that
// a decoder may strip) that text is held back until it is settled, and never longer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "text/tokenizer.h"

namespace hone {

// One per sequence; not for use from two threads at once.
class StreamDecoder {
 public:
  // `continues_text`: the tokens go on from a prompt whose text stands before theirs, so the space that some tokenizers
  // strip at the start of a text stays. False: outputs joined equal Decode of the ids by themselves.
  StreamDecoder(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special, bool continues_text = false);
  ~StreamDecoder();
  StreamDecoder(StreamDecoder&&) noexcept;
  StreamDecoder& operator=(StreamDecoder&&) noexcept;

  // The text that is settled now that `id` is known; often "", never part of a character.
  std::string Push(int32_t id);
  // What was held back; an incomplete character becomes U+FFFD. The decoder is then as new.
  std::string Finish();

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  bool skip_special_, continues_text_;
  std::unique_ptr<Tokenizer::Stream> stream_;
};

}  // namespace hone
