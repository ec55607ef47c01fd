#include "jinja/template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace braid::jinja {
namespace {

using ::testing::HasSubstr;

Result<Rendering> render(const std::string& source, const char* variables = "{}") {
  BRAID_ASSIGN(const Template parsed, Template::parse("test", source));
  BRAID_ASSIGN(const Value context, from_json(OrderedJson::parse(variables)));
  return parsed.render(context.dict(), {});
}

std::string text_of(const std::string& source, const char* variables = "{}") {
  const Result<Rendering> rendering = render(source, variables);
  return rendering.ok() ? rendering->text : "ERROR " + rendering.status().message();
}

TEST(Template, WritesTextAndValues) {
  EXPECT_EQ(text_of("a {{ x }} {{ 1.5 }} {{ true }} {{ none }} {{ missing }}!", R"({"x": "é"})"),
            "a é 1.5 True None !");
  EXPECT_EQ(text_of("{{ [1, 'a', (2,), {'k': none}] }}"), "[1, 'a', (2,), {'k': None}]");
}

TEST(Template, GenerationBlocksBecomeSpans) {
  const auto rendering =
      render("{% for m in [1, 2] %}u{% generation %}a{{ m }}{% endgeneration %}{% endfor %}");
  ASSERT_TRUE(rendering.ok()) << rendering.status().message();
  EXPECT_EQ(rendering->text, "ua1ua2");
  EXPECT_EQ(rendering->generated, (std::vector<Span>{{1, 3}, {4, 6}}));
  EXPECT_TRUE(rendering->spans_known);
}

TEST(Template, ErrorsNameTemplateLineAndTag) {
  EXPECT_EQ(text_of("a\n{{ m.content + 1 }}", R"({"m": {}})"),
            "ERROR chat template 'test': line 2, {{ m.content + 1 }}: 'dict object' has no "
            "attribute 'content'");
}

// Blocks trimmed and left-stripped, as transformers sets Jinja up.
TEST(Template, WhiteSpaceAroundTags) {
  EXPECT_EQ(text_of("a\n  {% if true %}\n  b\n  {% endif %}\nc\n"), "a\n  b\nc");
  EXPECT_EQ(text_of("a\n  {%- if true -%}\n  b\n  {%- endif -%}\nc"), "abc");
  EXPECT_EQ(text_of("a\n  {%+ if true +%}\nb{% endif %}"), "a\n  \nb");
  EXPECT_EQ(text_of("a\r\n  {{ 1 }}\rb"), "a\n  1\nb");
  EXPECT_EQ(text_of("{# c #}\n{% raw %}\n{{ x }}{% endraw %}\n."), "\n{{ x }}.");
}

TEST(Template, TheSandboxHoldsWhatTransformersHolds) {
  for (const char* source :
       {"{{ xs.append(1) }}", "{{ d.update({}) }}", "{{ ''.__class__.mro() }}",
        "{% set ns = namespace(_a=1) %}", "{% set d.x = 1 %}", "{{ range(100001) }}",
        "{{ raise_exception('no') }}", "{% include 'x' %}", "{{ 1 | nothing }}", "{% do x %}",
        "{% break %}", "{{ f(a=1, a=2) }}"})
    EXPECT_FALSE(render(source, R"({"xs": [1], "d": {"a": 1}})").ok()) << source;
  EXPECT_THAT(text_of("{{ raise_exception('no') }}"), HasSubstr("refuses the conversation: no"));
}

TEST(Template, HostileTemplatesEnd) {
  for (const char* source :
       {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "{{ 'a' * 1000000000 }}",
        "{{ [0] * 1000000000 }}", "{{ '%1000000000d' % 1 }}", "{{ 'a'.center(1000000000) }}",
        "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
        "{% set ns = namespace(x=[]) %}{% for i in range(999) %}{% set ns.x = [ns.x] %}{% endfor "
        "%}",
        "{{ 9 ** 99 }}",
        "{% set ns = namespace(s='aa') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}"
        "{% endfor %}",
        "{{ '{:1000000000}'.format(1) }}", "{{ 'a' | indent(1000000000) }}"})
    EXPECT_FALSE(render(source).ok()) << source;
}

// However deep a template is, parsing and ending it end.
TEST(Template, NestingHasALimit) {
  const struct {
    const char *begin, *again, *end;
  } templates[] = {{"{{ ", "(", ""},
                   {"{{ ", "[", ""},
                   {"{{ ", "{1: ", ""},
                   {"{{ 1", " + 1", " }}"},
                   {"{{ 1", " and 1", " }}"},
                   {"{{ ", "not ", "1 }}"},
                   {"{{ ", "- ", "1 }}"},
                   {"{{ a", ".b", " }}"},
                   {"{{ a", "[0]", " }}"},
                   {"{{ a", "()", " }}"},
                   {"{{ a", "|string", " }}"},
                   {"{{ 1", " if 1 else 1", " }}"},
                   {"{{ 1", " is defined", " }}"},
                   {"", "{% if 1 %}", ""},
                   {"", "{% for a in b %}", ""}};
  for (const auto& [begin, again, end] : templates) {
    std::string source = begin;
    for (int i = 0; i < 100000; ++i) source += again;
    EXPECT_FALSE(render(source + end).ok()) << begin << again;
  }
  std::string rows;  // side by side is not deep
  for (int i = 0; i < 100000; ++i) rows += " ~ 1";
  EXPECT_TRUE(render("{{ 1" + rows + " }}").ok());
}

// Where jinja2 does what few would expect.
TEST(Template, FollowsJinja2InItsOddCorners) {
  EXPECT_EQ(text_of("{% for a in [1] %}{% continue %}{% else %}e{% endfor %}"), "e");
  EXPECT_EQ(text_of("{% for a in [1] %}a{% break %}{% else %}e{% endfor %}"), "ae");
  EXPECT_EQ(text_of("{% for a in [1, 2] %}a{% if a == 2 %}{% break %}{% endif %}{% else %}e"
                    "{% endfor %}"),
            "aa");
  EXPECT_EQ(
      text_of("{% for a in [1, 2] %}{% set w %}x{% break %}{% endset %}{% endfor %}[{{ w }}]"),
      "[]");
  EXPECT_EQ(text_of("{% for a in [1, 2] %}{{ a }}{% filter upper %}x{% continue %}{% endfilter %}"
                    "{% endfor %}"),
            "12");
  EXPECT_EQ(text_of("{% set ns = namespace() %}{% set ns.x = [ns] %}{{ ns }}"),
            "<Namespace {'x': [<Namespace {...}>]}>");
  EXPECT_EQ(text_of("{{ 'x' % missing }}{{ 'x' % [1] }}"), "xx");
  EXPECT_FALSE(render("{% filter length %}abc{% endfilter %}").ok());
  EXPECT_FALSE(render("{{ [] | select | filesizeformat }}").ok());
}

// A slice of constants is taken before the run, where what cannot be sliced is undefined.
TEST(Template, SlicesOfConstantsAreFolded) {
  EXPECT_EQ(text_of("{{ none[1:] }}|{{ 5[:2] | default('d') }}|{{ 'abc'[1:] }}"), "|d|bc");
  EXPECT_EQ(text_of("{% if 5[:2] | default('d') == 'd' %}yes{% endif %}"), "yes");
  EXPECT_FALSE(render("{% if none[1:] %}{% endif %}").ok());
  EXPECT_FALSE(render("{% set x = none %}{{ x[1:] }}").ok());
  EXPECT_FALSE(render("{{ 'abc'[::0] }}").ok());
  EXPECT_EQ(text_of("{{ range(1, 9, 3)[1:3] }} {{ range(9)[::-2] }}"),
            "range(4, 10, 3) range(8, -1, -2)");
}

TEST(Template, WhatCountsAsEscapedEscapesWhatIsPutIntoIt) {
  EXPECT_EQ(text_of("{{ ('<b>' | safe) + '<' }} {{ '<' + ('<b>' | safe) }}"), "<b>&lt; &lt;<b>");
  EXPECT_EQ(text_of("{{ [('<%s>' | safe) % '<'] }}"), "[Markup('<&lt;>')]");
  EXPECT_EQ(text_of("{{ ('{}' | safe).format('<') }} {{ (',' | safe).join(['<', 1]) }}"),
            "&lt; &lt;,1");
  EXPECT_EQ(text_of("{{ ('a b' | safe).split() }} {{ ('ab' | safe)[1:] ~ '<' }}"),
            "[Markup('a'), Markup('b')] b<");
  EXPECT_EQ(text_of("{{ [('a' | safe) | upper, ('a' | safe) | title, ('a' | safe) | last] }}"),
            "[Markup('A'), 'A', Markup('a')]");
  EXPECT_EQ(text_of("{{ {'k': '<' | safe, 'l': '<'} | xmlattr }}"), " k=\"<\" l=\"&lt;\"");
}

TEST(Template, WhatHasNoTextOfItsOwnIsRefused) {
  EXPECT_THAT(text_of("{{ [1] | map('string') }}"), HasSubstr("put '| list' behind the filter"));
  EXPECT_THAT(text_of("{{ 'a'.upper }}"), HasSubstr("write () behind it"));
  EXPECT_THAT(text_of("{{ [raise_exception] }}"), HasSubstr("has no text of its own"));
  EXPECT_THAT(text_of("{{ '\\ud83d\\ude42' }}"), HasSubstr("half of a character"));
  EXPECT_EQ(text_of("{{ '\\U0001f642' }}"), "🙂");
}

TEST(Template, IntegersBeyond64BitsAreRefusedInWords) {
  for (const char* source : {"{{ 9223372036854775807 + 1 }}", "{{ '9223372036854775808' | int }}",
                             "{{ 'ffffffffffffffffff' | int(base=16) }}", "{{ 1e20 | int }}"})
    EXPECT_THAT(text_of(source), HasSubstr("does not fit into 64 bits")) << source;
  EXPECT_EQ(text_of("{{ 'x' | int(5) }} {{ '0x1f' | int(0, 16) }}"), "5 31");
}

}  // namespace
}  // namespace braid::jinja
