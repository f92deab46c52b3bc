// Generation: the sequences of one HTTP request, from Submit to the last byte of the answer.
//
// The engine's thread only queues events and counts times; the I/O thread turns events into chunks. A client that goes
// away, and a choice that fails, cancel all sequences of the request. Concatenated deltas equal the text of the whole
// answer: both are made of the same events. The model that a request began with is held until it ends.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "serve/context.h"
#include "serve/error.h"
#include "serve/http.h"
#include "serve/prompt_choices.h"

namespace hone {

struct Usage {
  int64_t prompt_tokens = 0, completion_tokens = 0, cached_tokens = 0;
  int64_t reasoning_tokens = -1;  // -1: not known
};

// The JSON of one kind of answer: openai/*_answer.cc. Used on the I/O thread only.
class AnswerShape {
 public:
  virtual ~AnswerShape() = default;
  // Streams: whole server-sent events; "" for none.
  virtual std::string Begin() { return ""; }                              // before all
  virtual std::string Opening(int choice, const SequenceEvent& first) = 0;  // before the first delta of a choice
  virtual std::string Delta(int choice, const SequenceEvent& event) = 0;  // text, tokens
  virtual std::string Closing(int choice, const SequenceEvent& event) = 0;
  virtual std::string End(const Usage& usage) = 0;    // after all choices
  virtual std::string Failed(const ApiError& error);  // in place of the rest
  // Whole answers.
  virtual void Add(int choice, const SequenceEvent& event) = 0;
  virtual std::string Whole(const Usage& usage) = 0;
  // After the last event of a choice: whether it ended with tool calls.
  virtual bool CalledTools(int) const { return false; }
};

struct GenerationRequest {
  std::string model;  // what the request called it; "": the server's name
  std::vector<PromptChoices> prompts;  // the choices of the answer in order
  bool stream = false, include_usage = false;
  // Prompts are submitted as others end, no more at once than the engine runs, so that there may be more than its
  // queue holds. For prompts that need nothing of each other.
  bool by_turns = false;
  std::unique_ptr<AnswerShape> shape;
};

// Submits and answers. If the engine refuses a sequence the answer is its error, and none runs. `request` says who
// asks; its record is filled. Any thread.
void StartGeneration(ServeContext& context, std::shared_ptr<ServedModel> model, const HttpRequest& request,
                     GenerationRequest generation, std::shared_ptr<ResponseWriter> writer);

// "stop", "length", "error"
const char* FinishText(FinishReason reason);

// One server-sent event.
std::string Sse(std::string json);
std::string NamedSse(std::string_view name, std::string_view json);

}  // namespace hone
