// fuzzes: text
// Any bytes as tokenizer.json: a clear error, or a tokenizer whose Encode and Decode end and whose stream equals its
// Decode.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "text/stream_decoder.h"
#include "text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view json(reinterpret_cast<const char*>(data), size);
  const auto tokenizer = hone::Tokenizer::FromJson(json, "", "fuzz");
  if (!tokenizer) return 0;
  const std::string text =
      "Hello  wörld, it's 1234567!\n\n </s><s> \xF0\x9F\x98\x80\xFF\xE4\xBD\t\xE2\x96\x81[UNK] ab" +
      std::string(40, ' ') + "x";
  for (const bool special : {false, true}) {
    const auto ids = (*tokenizer)->Encode(text, {.add_special = special, .parse_special = special});
    const std::string whole = (*tokenizer)->Decode(ids, special);
    hone::StreamDecoder stream(*tokenizer, special);
    std::string joined;
    for (const int32_t id : ids) joined += stream.Push(id);
    joined += stream.Finish();
    if (joined != whole) std::abort();
    for (const int32_t id : ids) (*tokenizer)->TokenBytes(id);
  }
  (*tokenizer)->Decode(std::vector<int32_t>{-1, 0, 1, 2, 3, 1 << 30}, true);
  return 0;
}
