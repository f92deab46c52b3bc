// OutputParser: what a chat model wrote → content, reasoning and tool calls, piece by piece as the text comes.
//
// Which marks a model uses is read off its chat template (FormatOf). Both a stream and a whole answer are made of the
// pieces of one parser, so they hold the same text. Text that looks like a tool call and is none stays content.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace hone {

enum class ToolFormat {
  kNone,      // no tools were offered
  kTagged,    // <tool_call>{"name": ..., "arguments": {...}}</tool_call> (Hermes, Qwen), or
              // <function=NAME><parameter=...>
  kBracket,   // [TOOL_CALLS] [{"name": ..., "arguments": {...}}, ...] (Mistral), or [TOOL_CALLS]NAME[ARGS]{...}
  kBareJson,  // the answer is {"name": ..., "parameters": {...}} (Llama), one after another
};

// The marks of kTagged and kBracket.
inline constexpr std::string_view kCallOpen = "<tool_call>", kCallClose = "</tool_call>", kBracketMark = "[TOOL_CALLS]";

struct OutputFormat {
  std::string think_open, think_close;  // "": the model marks no reasoning
  bool in_thinking = false;             // the prompt ends within the reasoning
  ToolFormat tools = ToolFormat::kNone;
  std::vector<std::string> tool_names;  // those offered
};

// `prompt` is the rendered text, `tool_names` the functions that it offers (none: no calls are looked for).
OutputFormat FormatOf(std::string_view template_source, std::string_view prompt, std::vector<std::string> tool_names);

// Where the template writes calls with their name before the arguments ([TOOL_CALLS]NAME[ARGS]{...}).
bool NamesBeforeArguments(std::string_view template_source);

// A mark of the format is a special token: text without special tokens would not show it.
bool MarksAreSpecial(const OutputFormat& format, const Tokenizer& tokenizer);

struct OutputPiece {
  enum class Kind { kContent, kReasoning, kCall, kArguments };
  Kind kind = Kind::kContent;
  std::string text;  // kCall: the function's name; kArguments: a fragment of the JSON text
  int call = 0;      // kCall, kArguments: number of the call
};

class OutputParser {
 public:
  explicit OutputParser(OutputFormat format);

  // New text of the answer, whole characters. Appends pieces; text that may yet be part of a mark is held back.
  void Feed(std::string_view text, std::vector<OutputPiece>* out);
  // The answer has ended: what was held back.
  void Finish(std::vector<OutputPiece>* out);

  bool thinking() const { return state_ == State::kThinking; }
  int calls() const { return calls_; }

 private:
  enum class State { kStart, kThinking, kContent, kHeader, kArguments, kTail, kWhole, kJson };

  bool Step(bool final, std::vector<OutputPiece>* out);  // false: more text is needed
  bool StepStart(bool final);
  bool StepThinking(bool final, std::vector<OutputPiece>* out);
  bool StepContent(bool final, std::vector<OutputPiece>* out);
  bool StepHeader(bool final, std::vector<OutputPiece>* out);
  bool StepArguments(std::vector<OutputPiece>* out);
  bool StepTail(bool final);
  bool StepWhole(bool final, std::vector<OutputPiece>* out);
  bool StepJson(bool final, std::vector<OutputPiece>* out);
  bool StepNamedCall(size_t first, bool final, std::vector<OutputPiece>* out);
  void Emit(OutputPiece::Kind kind, std::string_view text, std::vector<OutputPiece>* out);
  void EmitCall(std::string_view name, std::string_view arguments, std::vector<OutputPiece>* out);

  const OutputFormat format_;
  State state_ = State::kStart;
  std::string buffer_;       // text that is not in a piece yet
  bool skip_space_ = false;  // white space at the front of buffer_ says nothing
  bool content_began_ = false;
  bool marked_ = false;  // kJson: behind a mark
  int calls_ = 0;
  // kArguments: where the JSON text stands.
  size_t scanned_ = 0;
  int depth_ = 0;
  bool in_string_ = false, escaped_ = false;
};

}  // namespace hone
