// The work is in decoder.cc: Decode of a whole sequence is the same stream.
#include "text/stream_decoder.h"

#include <utility>

#include "base/check.h"

namespace hone {

StreamDecoder::StreamDecoder(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special, bool continues_text)
    : tokenizer_(std::move(tokenizer)), skip_special_(skip_special), continues_text_(continues_text) {
  HONE_CHECK(tokenizer_ != nullptr);
  stream_ = tokenizer_->OpenStream(skip_special_, continues_text_);
}
StreamDecoder::~StreamDecoder() = default;
StreamDecoder::StreamDecoder(StreamDecoder&&) noexcept = default;
StreamDecoder& StreamDecoder::operator=(StreamDecoder&&) noexcept = default;

std::string StreamDecoder::Push(int32_t id) {
  std::string out;
  stream_->Push(id, &out);
  return out;
}

std::string StreamDecoder::Finish() {
  std::string out;
  stream_->Finish(&out);
  stream_ = tokenizer_->OpenStream(skip_special_, continues_text_);
  return out;
}

}  // namespace hone
