// What jinja2 gives for generated templates (tests/data/jinja, written by tools/diff_jinja.py), and
// in the full tier a comparison with jinja2 itself.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "base/testing.h"
#include "base/text.h"
#include "jinja/template.h"
#include "test_paths.h"

namespace braid::jinja {
namespace {

std::string file_text(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(JinjaGoldens, GeneratedTemplatesGiveWhatJinja2Gives) {
  const std::string path = std::string(BRAID_SOURCE_DIR) + "/tests/data/jinja/goldens.json";
  const auto goldens = parse_ordered_json(file_text(path), path);
  ASSERT_TRUE(goldens.ok()) << goldens.status().message();
  const Value variables = *from_json(goldens->at("variables"));
  for (const OrderedJson& golden : goldens->at("cases")) {
    const auto parsed = Template::parse("golden", golden.at("template").get<std::string>());
    const Result<Rendering> made =
        parsed.ok() ? parsed->render(variables.dict(), {}) : Result<Rendering>(parsed.status());
    if (golden.at("text").is_null()) {
      EXPECT_FALSE(made.ok()) << golden;
      continue;
    }
    ASSERT_TRUE(made.ok()) << made.status().message() << "\n" << golden;
    EXPECT_EQ(made->text, golden.at("text").get<std::string>()) << golden;
  }
  EXPECT_GE(goldens->at("cases").size(), 100u);
}

TEST(JinjaGoldens, ManyMoreInTheFullTier) {
  if (!full_tier()) GTEST_SKIP() << "full tier only";
  const std::string root = BRAID_SOURCE_DIR;
  const std::string lines =
      std::string(BRAID_BINARY).substr(0, std::string(BRAID_BINARY).rfind('/')) + "/jinja_lines";
  const char* chosen = std::getenv("BRAID_PYTHON");
  const std::string python = chosen == nullptr ? "python3" : chosen;
  if (run_shell(python + " -c 'import jinja2'").exit_code != 0) GTEST_SKIP() << "no jinja2";
  for (const int seed : {1, 2, 3}) {
    const CommandOutcome outcome = run_shell(cat(python, " ", root, "/tools/diff_jinja.py ", lines,
                                                 " --count 2100 --seed ", seed, " 2>&1"));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  }
}

}  // namespace
}  // namespace braid::jinja
