// Parsing and rendering put together, and the clock.
#include "text/jinja/template.h"

#include <time.h>

#include <cstdio>

#include "text/jinja/interpreter.h"
#include "text/jinja/parser.h"

namespace hone::jinja {

CivilTime CivilTime::Now() {
  const time_t now = time(nullptr);
  struct tm parts = {};
  localtime_r(&now, &parts);
  return {parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec};
}

Result<CivilTime> CivilTime::Parse(std::string_view text) {
  CivilTime t;
  const std::string copy(text);
  char separator = 'T', extra = 0;
  const int fields = std::sscanf(copy.c_str(), "%4d-%2d-%2d%c%2d:%2d:%2d%c", &t.year, &t.month, &t.day, &separator, &t.hour, &t.minute,
                                 &t.second, &extra);
  const bool shape = (fields == 3 || fields == 7) && (separator == 'T' || separator == ' ') && copy.size() <= 19;
  const bool ranges = t.year >= 1 && t.month >= 1 && t.month <= 12 && t.day >= 1 && t.day <= 31 && t.hour >= 0 && t.hour < 24 &&
                      t.minute >= 0 && t.minute < 60 && t.second >= 0 && t.second < 60;
  struct tm parts = {};
  parts.tm_year = t.year - 1900;
  parts.tm_mon = t.month - 1;
  parts.tm_mday = t.day;
  if (shape && ranges) timegm(&parts);
  if (!shape || !ranges || parts.tm_mday != t.day) {
    return InvalidInput("'" + copy.substr(0, 40) + "' is not a time: write it as 2026-01-02T03:04:05");
  }
  return t;
}

Template::Template(std::unique_ptr<const Program> program) : program_(std::move(program)) {}
Template::~Template() = default;

Result<std::shared_ptr<const Template>> Template::Parse(std::string_view source) {
  HONE_TRY(auto program, ParseTemplate(source));
  return std::shared_ptr<const Template>(new Template(std::move(program)));
}

Result<std::string> Template::Render(const Dict& variables, const RenderOptions& options) const {
  Runtime runtime(options);
  return Interpreter(program_.get(), &variables, &runtime).Run();
}

}  // namespace hone::jinja
