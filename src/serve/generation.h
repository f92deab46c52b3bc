// Generation: the sequences of one HTTP request, from Submit to the last byte of the answer.
//
// The engine's thread only queues events; the I/O thread turns them into chunks. A client that goes away, and a choice that
// fails, cancel all sequences of the request. Concatenated deltas equal the text of the whole answer: both are made of the
// same events.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/log.h"
#include "engine/engine.h"
#include "serve/http.h"

namespace hone {

struct Usage {
  int64_t prompt_tokens = 0, completion_tokens = 0, cached_tokens = 0;
};

// The JSON of one kind of answer: openai/chat_answer.cc, openai/completion_answer.cc. Used on the I/O thread only.
class AnswerShape {
 public:
  virtual ~AnswerShape() = default;
  // Streams: the JSON of one chunk; "" for none.
  virtual std::string Opening(int choice) = 0;                            // before the first delta of a choice
  virtual std::string Delta(int choice, const SequenceEvent& event) = 0;  // text, tokens
  virtual std::string Closing(int choice, const SequenceEvent& event) = 0;
  virtual std::string UsageChunk(const Usage& usage) = 0;
  // Whole answers.
  virtual void Add(int choice, const SequenceEvent& event) = 0;
  virtual std::string Whole(const Usage& usage) = 0;
};

struct GenerationRequest {
  std::vector<SequenceRequest> sequences;  // choice i of the answer
  int choices_a_prompt = 1;                // sequences i with the same i / choices_a_prompt have the same prompt
  bool stream = false, include_usage = false;
  std::unique_ptr<AnswerShape> shape;
};

// Submits and answers. If the engine refuses a sequence the answer is its error, and none runs. Any thread.
void StartGeneration(Engine& engine, GenerationRequest request, std::shared_ptr<ResponseWriter> writer);

// "stop", "length", "error"
const char* FinishText(FinishReason reason);

}  // namespace hone
