// PCRE2 with its compiler (JIT). What a search needs besides the code (results, limits, stack) belongs to the thread.
#include "text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>

#include "text/unicode.h"
#include "text/utf8.h"

namespace hone {
namespace {

constexpr uint32_t kMatchSteps = 10'000'000;     // of one search
constexpr size_t kJitStackBytes = 256ull << 20;  // reserved when a search asks for it, used as needed
constexpr size_t kMaxPatternBytes = 64 << 10;

// What one thread needs to search.
struct SearchState {
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_jit_stack* stack = nullptr;

  SearchState() {
    if (context != nullptr) pcre2_set_match_limit(context, kMatchSteps);
  }
  ~SearchState() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    pcre2_jit_stack_free(stack);
  }
  bool Grow() {
    if (stack != nullptr) return false;
    stack = pcre2_jit_stack_create(64 << 10, kJitStackBytes, nullptr);
    if (stack == nullptr) return false;
    pcre2_jit_stack_assign(context, nullptr, stack);
    return true;
  }
};

SearchState& ThreadState() {
  thread_local SearchState state;
  return state;
}

// Patterns whose look-ahead runs to the end of a run of digits, from every digit: matched by hand, in one pass.
enum class Form {
  kCompiled,
  kThreesEmpty,     // (?=(\d{3})+(?!\d)): an empty match before every group of three counted from the end
  kThreesBoundary,  // \d{1,3}(?=(?:\d{3})*\b): groups of three counted from the end, if the run ends a word
  kThreesNumeric,   // \p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N})): groups of three numbers counted from the end
};

void FindThrees(std::string_view text, Form form, std::vector<TextRange>* matches) {
  std::vector<size_t> starts;  // of the digits of a run, then its end
  const auto digit = [&](size_t pos, Utf8Char* c) {
    *c = Utf8At(text, pos);
    return form == Form::kThreesNumeric ? IsNumeric(c->code) : IsDecimalDigit(c->code);
  };
  for (size_t pos = 0; pos < text.size();) {
    starts.clear();
    Utf8Char c;
    while (pos < text.size() && digit(pos, &c)) {
      starts.push_back(pos);
      pos += c.bytes;
    }
    if (starts.empty()) {
      pos += c.bytes;
      continue;
    }
    starts.push_back(pos);
    const size_t count = starts.size() - 1;
    if (form == Form::kThreesEmpty) {
      for (size_t i = count % 3; i < count; i += 3) matches->push_back({starts[i], starts[i]});
    } else if (form == Form::kThreesNumeric || pos >= text.size() || !IsWordCharacter(Utf8At(text, pos).code)) {
      size_t i = 0;
      while (i < count) {
        const size_t take = i == 0 && count % 3 != 0 ? count % 3 : 3;
        matches->push_back({starts[i], starts[i + take]});
        i += take;
      }
    }
  }
}

}  // namespace

struct Regex::Code {
  Form form = Form::kCompiled;
  pcre2_code* code = nullptr;
  bool jit = false;
  ~Code() { pcre2_code_free(code); }
};

Regex::Regex(std::unique_ptr<Code> code) : code_(std::move(code)) {}
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;
Regex::~Regex() = default;

Result<Regex> Regex::Compile(std::string_view pattern) {
  if (pattern.size() > kMaxPatternBytes) {
    return InvalidInput("regular expression of " + std::to_string(pattern.size()) + " bytes; at most " +
                        std::to_string(kMaxPatternBytes) + " are accepted");
  }
  auto code = std::make_unique<Code>();
  if (pattern == "(?=(\\d{3})+(?!\\d))") code->form = Form::kThreesEmpty;
  if (pattern == "\\d{1,3}(?=(?:\\d{3})*\\b)") code->form = Form::kThreesBoundary;
  if (pattern == "\\p{N}{1,3}(?=(?:\\p{N}{3})*(?!\\p{N}))") code->form = Form::kThreesNumeric;
  if (code->form != Form::kCompiled) return Regex(std::move(code));

  HONE_TRY(const std::string translated, TranslateOniguruma(pattern));
  std::unique_ptr<pcre2_compile_context, void (*)(pcre2_compile_context*)> context(
      pcre2_compile_context_create(nullptr), pcre2_compile_context_free);
  if (context == nullptr) return Error{ErrorCode::kInternal, "regular expression: no memory"};
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  code->code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &offset, context.get());
  if (code->code == nullptr) {
    PCRE2_UCHAR message[256] = {};
    pcre2_get_error_message(error, message, sizeof(message));
    return InvalidInput("regular expression '" + std::string(pattern.substr(0, 200)) +
                        "': " + reinterpret_cast<const char*>(message) + " (at byte " + std::to_string(offset) +
                        " of '" + translated.substr(0, 200) + "')");
  }
  code->jit = pcre2_jit_compile(code->code, PCRE2_JIT_COMPLETE) == 0;
  return Regex(std::move(code));
}

void Regex::FindAll(std::string_view text, std::vector<TextRange>* matches) const {
  if (code_->form != Form::kCompiled) return FindThrees(text, code_->form, matches);
  SearchState& state = ThreadState();
  if (state.context == nullptr || state.data == nullptr) return;
  const PCRE2_SIZE* found = pcre2_get_ovector_pointer(state.data);
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data() == nullptr ? "" : text.data());
  size_t pos = 0;
  size_t last_end = std::string_view::npos;  // an empty match may not follow a match at once
  while (pos <= text.size()) {
    const int rc =
        code_->jit ? pcre2_jit_match(code_->code, subject, text.size(), pos, 0, state.data, state.context)
                   : pcre2_match(code_->code, subject, text.size(), pos, PCRE2_NO_UTF_CHECK, state.data, state.context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT && state.Grow()) continue;
    if (rc < 0) return;  // no match, or a limit: the rest has no match
    const size_t begin = found[0], end = std::max(found[0], found[1]);
    if (begin == end && end == last_end) {
      if (pos >= text.size()) return;
      pos += Utf8At(text, pos).bytes;
      last_end = std::string_view::npos;
      continue;
    }
    matches->push_back({begin, end});
    last_end = end;
    pos = end;
  }
}

}  // namespace hone
