#include "core/chat_template.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace linnet {
namespace {

struct Outcome {
  Status status;
  std::string text, diagnostic;
};

Outcome Run(const std::string& text, const std::vector<ChatMessage>& messages = {}, ChatTemplateOptions options = {}) {
  Outcome outcome;
  Diagnostic diagnostic;
  const auto chat_template = ChatTemplate::Parse(text, "<s>", "</s>", &diagnostic);
  outcome.status = chat_template.ok() ? chat_template->Render(messages, options, &outcome.text, &diagnostic)
                                      : chat_template.status();
  outcome.diagnostic = diagnostic.text();
  return outcome;
}

std::string Repeat(const std::string& unit, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) text += unit;
  return text;
}

void CheckRefused(const std::string& text, StatusCode code = StatusCode::kInvalidModel) {
  const std::string shown = text.substr(0, 200);
  CAPTURE(shown);
  const Outcome outcome = Run(text);
  CHECK(outcome.status.code() == code);
  CHECK(outcome.text.empty());
  CHECK(!outcome.diagnostic.empty());
  CHECK(outcome.diagnostic.find('\n') == std::string::npos);
}

}  // namespace

TEST_SUITE("chat template") {
  TEST_CASE("Render: messages, special tokens and options are variables of the template") {
    const std::vector<ChatMessage> messages = {{"system", "Be brief."}, {"user", "Hi"}};
    const std::string text =
        "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m['content'] }}{{ eos_token }}{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}{{ extra }}{{ tools is none }}";
    ChatTemplateOptions options;
    CHECK(Run(text, messages, options).text == "<s><system>Be brief.</s><user>Hi</s><assistant>True");
    options.add_generation_prompt = false;
    options.extra_context_json = R"({"extra": [1, {"b": null}]})";
    options.tools_json = R"([{"name": "f"}])";
    CHECK(Run(text, messages, options).text == "<s><system>Be brief.</s><user>Hi</s>[1, {'b': None}]False");
  }

  TEST_CASE("Render: raise_exception is the caller's error, with its text") {
    const Outcome outcome = Run("{{ raise_exception('roles must alternate') }}");
    CHECK(outcome.status.code() == StatusCode::kInvalidArgument);
    CHECK(outcome.diagnostic == "chat template, line 1: roles must alternate");
  }

  TEST_CASE("Render: an error names the line") {
    CHECK(Run("a\n{{ messages }}\n{{ nothing.more }}").diagnostic == "chat template, line 3: 'nothing' is undefined");
    CHECK(Run("a\n\n{% if %}").diagnostic == "chat template, line 3: expected an expression, found \"%}\"");
  }

  TEST_CASE("Render: JSON arguments that are none are refused") {
    ChatTemplateOptions options;
    options.tools_json = "{}";
    CHECK(Run("a", {}, options).status.code() == StatusCode::kInvalidArgument);
    options.tools_json = Repeat("[", 100) + Repeat("]", 100);
    CHECK(Run("a", {}, options).status.code() == StatusCode::kInvalidArgument);
    options.tools_json.clear();
    options.extra_context_json = "[1]";
    CHECK(Run("a", {}, options).status.code() == StatusCode::kInvalidArgument);
    options.extra_context_json = "{\"a\": ";
    CHECK(Run("a", {}, options).status.code() == StatusCode::kInvalidArgument);
  }

  TEST_CASE("Render: bytes that are not UTF-8 become U+FFFD") {
    CHECK(Run("{{ messages[0].content }}", {{"user", "a\xff"}}).text == "a\xef\xbf\xbd");
  }

  TEST_CASE("Parse: what is no template of a chat is refused") {
    CheckRefused("a\xff");
    CheckRefused(Repeat("a", ChatTemplate::kMaxTemplateBytes + 1));
    CheckRefused("{% include 'x' %}", StatusCode::kUnsupported);
    CheckRefused("{% import 'x' as y %}", StatusCode::kUnsupported);
    CheckRefused("{% for x in y recursive %}{% endfor %}", StatusCode::kUnsupported);
    for (const char* text : {"{{",
                             "{%",
                             "{#",
                             "{{ 'a",
                             "{{ a",
                             "{% if a %}",
                             "{% for x in a %}",
                             "{% raw %}",
                             "{% endif %}",
                             "{{ a b }}",
                             "{{ (a }}",
                             "{{ [a }}",
                             "{{ a[ }}",
                             "{{ a. }}",
                             "{{ a | }}",
                             "{{ a is }}",
                             "{{ {a} }}",
                             "{{ @ }}",
                             "{{ 1e999 }}",
                             "{{ 99999999999999999999 }}",
                             "{% set a.b.c = 1 %}",
                             "{% macro %}",
                             "{% call x %}{% endcall %}",
                             "{% break %}",
                             "{{ f(a=1, 2) }}",
                             "{{ a[1:2:3:4] }}"}) {
      const std::string shown = text;
      CAPTURE(shown);
      CHECK(!Run(text).status.ok());
    }
  }

  TEST_CASE("Parse: nesting without end is refused") {
    CheckRefused("{{ " + Repeat("(", 20000) + "1" + Repeat(")", 20000) + " }}");
    CheckRefused("{{ " + Repeat("[", 20000));
    CheckRefused("{{ " + Repeat("{'a':", 20000));
    CheckRefused("{{ " + Repeat("-", 20000) + "1 }}");
    CheckRefused("{{ " + Repeat("not ", 20000) + "1 }}");
    CheckRefused("{{ 1" + Repeat(" + 1", 20000) + " }}");
    CheckRefused("{{ 1" + Repeat(" ** 1", 20000) + " }}");
    CheckRefused("{{ a" + Repeat(".a", 20000) + " }}");
    CheckRefused("{{ a" + Repeat("[0]", 20000) + " }}");
    CheckRefused("{{ a" + Repeat("()", 20000) + " }}");
    CheckRefused("{{ 1" + Repeat("|abs", 20000) + " }}");
    CheckRefused("{{ 1" + Repeat(" if 1 else 1", 20000) + " }}");
    CheckRefused("{{ 1" + Repeat(" and 1", 20000) + " }}");
    CheckRefused(Repeat("{% if 1 %}", 10000));
    CheckRefused(Repeat("{% for x in [1] %}", 10000));
    CheckRefused(Repeat("{% macro m() %}", 10000));
    CheckRefused("{{ a" + Repeat("[a", 20000));
  }

  TEST_CASE("Render: loops and recursion without end are stopped") {
    CheckRefused("{% for i in range(10**9) %}{% endfor %}");
    CheckRefused(Repeat("{% for i in range(100000) %}", 5) + Repeat("{% endfor %}", 5));
    CheckRefused("{% set x = [1, 2] %}" + Repeat("{% set x = [x, x] %}", 40) + "{{ x }}");
    CheckRefused("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}");
    CheckRefused("{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}");
    CheckRefused("{% macro m() %}{% call m() %}{% endcall %}{% endmacro %}{{ m() }}");
    CheckRefused("{{ 'a' | map(" + Repeat("'map', ", 20000) + "'upper') | list }}");
  }

  TEST_CASE("Render: values that grow without end are stopped") {
    CheckRefused(
        "{% set ns = namespace(s='x') %}{% for i in range(100) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s }}");
    CheckRefused(
        "{% set ns = namespace(s=[1]) %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s %}{% endfor %}{{ ns.s }}");
    CheckRefused(
        "{% set ns = namespace(s=[1]) %}{% for i in range(100) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s | "
        "tojson }}");
    CheckRefused("{% set ns = namespace(s=[1]) %}{% for i in range(90000) %}{% set ns.s = [ns.s] %}{% endfor %}x");
    CheckRefused(
        "{% set ns = namespace(s=1) %}{% for i in range(90000) %}{% for x in [ns.s, 2] %}{% set ns.s = loop %}{% "
        "endfor %}{% endfor %}");
    CheckRefused("{{ 'a' * 10**12 }}");
    CheckRefused("{{ [1] * 10**12 }}");
    CheckRefused("{{ ('a' * 10**8) | length }}{{ ('a' * 10**8) | length }}{{ ('a' * 10**8) | length }}");
    CheckRefused("{{ 'a' * (2 ** 24 + 1) }}");
    CheckRefused("{% set a = 'a' * 10**7 %}{% for i in range(10) %}{{ a }}{% endfor %}");
    CheckRefused("{% set a = 'a' * 10**6 %}{{ a.replace('a', a) }}");
    CheckRefused("{% set a = ['a' * 10**6] * 10**5 %}{{ a | join }}");
    CheckRefused("{% set a = 'a' * 4000000 %}{% for i in range(100) %}{% set x = (a ~ 'b') in (a ~ a) %}{% endfor %}");
    CheckRefused("{{ [1] | tojson(indent=10**9) }}");
    CheckRefused("{{ 'a\nb' | indent(10**9) }}");
    CheckRefused("{{ [1] | batch(10**9, 0) }}");
    CheckRefused("{{ 2 ** 64 }}");
    CheckRefused("{{ 9223372036854775807 + 1 }}");
    CheckRefused("{{ (-9223372036854775807 - 1) // -1 }}");
    CheckRefused("{{ 1 // 0 }}");
    CheckRefused("{{ 1 % 0 }}");
    CheckRefused("{{ 1 % 0.0 }}");
    CheckRefused("{{ [1, 'a'] | sort }}");
  }

  TEST_CASE("Render: what contains itself neither hangs nor leaks") {
    CHECK(Run("{% set ns = namespace() %}{% set ns.a = ns %}{% set ns.b = [ns, {'k': ns}] %}{{ ns.b == ns.b }}{{ ns.a "
              "== ns }}")
              .text == "TrueTrue");
    CHECK(Run("{% set ns = namespace() %}{% for x in [1, 2] %}{{ loop.changed(loop) }}{% set ns.l = loop %}{% endfor "
              "%}{{ ns.l.index }}")
              .text == "TrueFalse2");
    CHECK(Run("{% set ns = namespace() %}{% for x in [1] %}{% macro m() %}{{ x }}!{% endmacro %}{% set ns.m = m %}{{ "
              "m() }}{% endfor %}{{ ns.m() }}")
              .text == "1!!");
    CHECK(Run("{{ (-9223372036854775807 - 1) % -1 }}").text == "0");
  }
}

}  // namespace linnet
