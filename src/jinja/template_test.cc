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

}  // namespace
}  // namespace braid::jinja
