// Hostile templates end in an error, soon, and within a small stack; unusual values and the clock.
#include <gtest/gtest.h>
#include <pthread.h>

#include <functional>

#include "base/sanitizer.h"
#include "text/jinja/runtime.h"
#include "text/jinja/template.h"

namespace hone::jinja {
namespace {

Result<std::string> Render(const std::string& source, const RenderOptions& options = {}) {
  auto parsed = Template::Parse(source);
  if (!parsed) return std::move(parsed).error();
  return (*parsed)->Render(Dict(), options);
}

std::string Repeat(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

// Runs on a thread with 1 MiB of stack, as a server's may have.
void OnSmallStack(const std::function<void()>& body) {
  constexpr size_t kStack = (kSanitizer ? 64 : 1) << 20;  // frames are many times larger under the sanitizer
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStack);
  pthread_t thread;
  const auto run = [](void* argument) -> void* {
    (*static_cast<const std::function<void()>*>(argument))();
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, run, const_cast<std::function<void()>*>(&body)), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

constexpr int kDeep = kSanitizer ? 10000 : 100000;

TEST(JinjaLimits, DeepSourcesAreErrors) {
  OnSmallStack([] {
    for (const char* open : {"(", "[", "{", "{1:", "-", "not ", "a[", "f(", "a|f(", "1 is eq(", "1 if ", "1 if 1 else ", "{'a': [", "x.y(", "a + (", "a is b "}) {
      SCOPED_TRACE(open);
      EXPECT_FALSE(Render("{{ " + Repeat(open, kDeep) + " }}").has_value());
    }
    for (const char* chain : {"+ 1 ", ".a", "[0]", "|upper", "~ 1", "and 1 ", "()", "is odd "}) {
      SCOPED_TRACE(chain);
      Render("{{ 1 " + Repeat(chain, kDeep) + " }}").has_value();  // any end but a crash
    }
    for (const char* tag : {"{% if 1 %}", "{% for x in y %}", "{% macro m() %}", "{% with %}", "{% set x %}", "{% filter upper %}", "{% call m() %}"}) {
      SCOPED_TRACE(tag);
      EXPECT_FALSE(Render(Repeat(tag, kDeep)).has_value());
    }
  });
}

TEST(JinjaLimits, ReasonableNestingWorks) {
  OnSmallStack([] {
    EXPECT_EQ(Render("{{ " + Repeat("(", 50) + "1" + Repeat(")", 50) + " }}").value(), "1");
    EXPECT_EQ(Render(Repeat("{% if 1 %}", 50) + "x" + Repeat("{% endif %}", 50)).value(), "x");
    EXPECT_EQ(Render("{% macro m(n) %}{% if n > 0 %}{{ m(n - 1) }}{% else %}end{% endif %}{% endmacro %}{{ m(40) }}").value(), "end");
    EXPECT_EQ(Render("{{ 1" + Repeat(" + 1", 200) + " }}").value(), "201");
    EXPECT_EQ(Render("{{ ''" + Repeat(" ~ 'a'", 2000) + " }}").value(), std::string(2000, 'a'));
  });
}

TEST(JinjaLimits, RecursionIsAnError) {
  OnSmallStack([] {
    for (const char* source : {
             "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
             "{% macro m() %}{% call m() %}{% endcall %}{{ caller() }}{% endmacro %}{% call m() %}{% endcall %}",
             "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
             "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}",
             "{% set ns = namespace(x=[]) %}{% for i in range(1000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}",
             "{% set ns = namespace(x={}) %}{% for i in range(1000) %}{% set ns.x = {'a': ns.x} %}{% endfor %}{{ ns.x | tojson }}",
             "{% set ns = namespace(x=[]) %}{% for i in range(9999) %}{% for j in [ns.x] %}{% set ns.x = loop %}{% endfor %}{% endfor %}{{ [ns.x] }}",
         }) {
      SCOPED_TRACE(source);
      EXPECT_FALSE(Render(source).has_value());
    }
  });
}

TEST(JinjaLimits, WorkIsBounded) {
  RenderOptions options;
  options.max_steps = kSanitizer ? 100'000 : 1'000'000;
  for (const char* source : {
           "{{ 'a' * 10 ** 12 }}", "{{ [1] * 10 ** 12 }}", "{{ 'a'.center(10 ** 12) }}", "{{ 'a'.zfill(10 ** 15) }}",
           "{{ '%1000000000000d' % 1 }}", "{{ '%.999999999f' % 1 }}", "{{ '{:>1000000000}'.format(1) }}", "{{ '{:.999999999f}'.format(1.0) }}",
           "{{ 'a' | indent(10 ** 12, true) }}", "{{ 'a' | center(10 ** 12) }}", "{{ range(10 ** 12) }}", "{{ [1] | batch(10 ** 12, 1) | list }}",
           "{{ [1] | slice(10 ** 12) | list }}", "{{ 'aaaa'.replace('a', 'b' * 10 ** 7).replace('b', 'c' * 100) }}",
           "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
           "{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
           "{% set ns = namespace(x=[1]) %}{% for i in range(150) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
           "{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(150) %}{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x == ns.y }}",
           "{% for a in range(99999) %}{{ 'x' * 99999 }}{% endfor %}",
           "{% set ns = namespace(x=[]) %}{% for a in range(99999) %}{% set ns.x = ns.x + [a] %}{% endfor %}",
           "{% for a in range(99999) %}{% for b in range(999) %}{% set _ = namespace(x=1) %}{% endfor %}{% endfor %}",
           "{{ strftime_now('%999999999d') }}", "{{ [1] | tojson(indent=10 ** 9) }}", "{{ 2 ** 10 ** 9 }}", "{{ 9223372036854775807 + 1 }}",
           "{{ (-9223372036854775807 - 1) // -1 }}", "{{ -(-9223372036854775807 - 1) }}", "{{ 99999999999999999999 }}",
           "{{ 'a,' * 60000000 }}{{ ('a,' * 30000000).split(',') | length }}",
       }) {
    SCOPED_TRACE(source);
    EXPECT_FALSE(Render(source, options).has_value());
  }
}

TEST(JinjaLimits, OptionsAreObeyed) {
  RenderOptions options;
  options.max_output_bytes = 10;
  EXPECT_EQ(Render("{{ 'a' * 10 }}", options).value(), "aaaaaaaaaa");
  EXPECT_EQ(Render("{{ 'a' * 11 }}", options).error().code, ErrorCode::kLimit);
  options = {};
  options.max_steps = 100;
  EXPECT_EQ(Render("{% for i in range(99) %}{{ i }}{% endfor %}", options).error().code, ErrorCode::kLimit);
  options = {};
  options.max_live_bytes = 100000;
  EXPECT_EQ(Render("{{ (['a' * 1000] * 1000) | join | length }}", options).error().code, ErrorCode::kLimit);
  options = {};
  options.max_depth = 10;
  EXPECT_EQ(Render("{{ " + Repeat("1 + (", 5) + "1" + Repeat(")", 5) + " }}", options).value(), "6");
  EXPECT_EQ(Render("{{ " + Repeat("1 + (", 12) + "1" + Repeat(")", 12) + " }}", options).error().code, ErrorCode::kLimit);
}

TEST(JinjaLimits, CyclesAreFreed) {
  const int64_t before = Object::live_bytes;
  for (const char* source : {
           "{% set ns = namespace() %}{% set ns.x = ns %}{% set ns.y = [ns, {'a': ns}] %}",
           "{% macro m() %}{% endmacro %}{% set ns = namespace(f=m) %}{% for i in [1] %}{% macro k() %}{% endmacro %}{% set ns.f = k %}{% endfor %}",
           "{% for i in [1] recursive %}{% set x = loop %}{{ loop.changed(loop) }}{% endfor %}",
           "{% set ns = namespace(l=0) %}{% for i in range(20000) %}{% for j in [1] recursive %}{% set p = ns.l %}{% set ns.l = loop %}{% endfor %}{% endfor %}",
           "{% set ns = namespace(f=0) %}{% macro m(p) %}{% macro inner() %}{{ p }}{% endmacro %}{% set ns.f = inner %}{% endmacro %}{% for i in range(20000) %}{{ m(ns.f) }}{% endfor %}",
       }) {
    SCOPED_TRACE(source);
    const auto text = Render(source);
    EXPECT_TRUE(text.has_value()) << text.error().message;
    EXPECT_EQ(Object::live_bytes, before);
  }
}

TEST(JinjaErrors, NameTheLine) {
  EXPECT_EQ(Render("a\n\n{{ x.y }}").error().message, "'x' is undefined (template line 3)");
  EXPECT_EQ(Render("a\n{% for x in 5 %}{% endfor %}").error().message, "'int' object is not iterable (template line 2)");
  EXPECT_EQ(Render("a\n{{ raise_exception('just this') }}").error().message, "just this");
  EXPECT_NE(Render("a\nb {{ 'x }}").error().message.find("line 2 column 6"), std::string::npos);
  EXPECT_NE(Render("a\n{% endif %}").error().message.find("line 2"), std::string::npos);
  EXPECT_EQ(Render("{% include 'x' %}").error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(Render("{{ lipsum() }}").error().code, ErrorCode::kUnsupported);
}

TEST(JinjaValues, JsonIsReadAsPythonReadsIt) {
  const Value value = FromJson(R"({"b": 1, "a": [1.0, 1e5, true, null, "\u00e9"], "b": 2, "n": 123456789012345678901234567890})").value();
  ASSERT_EQ(value.as_dict().size(), 3u);
  EXPECT_EQ(value.as_dict().entries()[0].first.as_string(), "b");
  EXPECT_EQ(value.as_dict().entries()[0].second.as_int(), 2);
  Dict variables;
  variables.Set("v", value);
  EXPECT_EQ(Template::Parse("{{ v }}").value()->Render(variables).value(),
            "{'b': 2, 'a': [1.0, 100000.0, True, None, 'é'], 'n': 123456789012345678901234567890}");
  EXPECT_FALSE(FromJson("[NaN]").has_value());
  EXPECT_FALSE(FromJson(Repeat("[", 200) + Repeat("]", 200)).has_value());
  EXPECT_TRUE(FromJson(Repeat("[", 90) + Repeat("]", 90)).has_value());
  EXPECT_FALSE(FromJson("\"\xff\"").has_value());
}

TEST(JinjaValues, BrokenUtf8Survives) {
  Dict variables;
  variables.Set("v", Value::String("a\xff\xc3z\xe4\xbd"));
  const auto render = [&](const char* source) { return Template::Parse(source).value()->Render(variables).value(); };
  EXPECT_EQ(render("{{ v }}"), "a\xff\xc3z\xe4\xbd");
  EXPECT_EQ(render("{{ v | length }}"), "6");
  EXPECT_EQ(render("{{ v[::-1] }}{{ v[1] }}"), "\xbd\xe4z\xc3\xff" "a\xff");
  EXPECT_EQ(render("{{ v.upper() }}{{ v.strip() }}"), "A\xff\xc3Z\xe4\xbd" "a\xff\xc3z\xe4\xbd");
}

TEST(JinjaClock, ReadsTimes) {
  const CivilTime time = CivilTime::Parse("2026-01-02T03:04:05").value();
  EXPECT_EQ(time.year, 2026);
  EXPECT_EQ(time.second, 5);
  EXPECT_EQ(CivilTime::Parse("2024-02-29").value().hour, 0);
  for (const char* bad : {"", "2026", "2026-13-01", "2026-02-30", "2026-01-01T25:00:00", "2026-01-01T00:00:00Z", "x", "2026-01-02T03:04"}) {
    EXPECT_FALSE(CivilTime::Parse(bad).has_value()) << bad;
  }
  EXPECT_GE(CivilTime::Now().year, 2024);
  EXPECT_EQ(Render("{{ strftime_now('%Y') | int > 2000 }}").value(), "True");
}

}  // namespace
}  // namespace hone::jinja
