// The program's `reward-test` subcommand, run as a user runs it.
#include <gmock/gmock.h>

#include "base/text.h"
#include "host/testing.h"
#include "test_paths.h"

namespace braid {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class RewardTestCommand : public CommandTest {
 protected:
  Finished run(const std::string& config, const std::string& samples) {
    return run_program({BRAID_BINARY, "reward-test", write("c.yaml", config), "--samples",
                        write("s.jsonl", samples), "--json"});
  }
};

constexpr const char* kSamples =
    "{\"prompt\": \"6*7=\", \"response\": \"42\", \"label\": \"#### 42\"}\n"
    "{\"prompt\": \"6*8=\", \"response\": \"about 47\", \"label\": 48}\n"
    "{\"prompt\": \"6*9=\", \"response\": \"54\"}\n";

TEST_F(RewardTestCommand, PrintsValuesTotalsAndCounts) {
  const Finished finished = run(R"(
model: {path: unused}
reward:
  - {name: answer, type: rule, rule: numeric, weight: 2, on_error: drop}
  - {name: digits, type: rule, rule: digit_share}
  - {name: rm, type: model, path: none}
)",
                                kSamples);
  EXPECT_EQ(finished.end, "exited with status 0") << finished.errors;
  ASSERT_EQ(finished.lines.size(), 4u);
  const Json first = Json::parse(finished.lines[0]), third = Json::parse(finished.lines[2]);
  EXPECT_EQ(first["rewards"], Json({{"answer", 1.0}, {"digits", 1.0}}));
  EXPECT_EQ(first["total"], 3.0);
  EXPECT_EQ(Json::parse(finished.lines[1])["total"], 0.25);
  EXPECT_EQ(third["total"], nullptr);
  EXPECT_EQ(third["failures"]["answer"]["kind"], "error");
  const Json summary = Json::parse(finished.lines[3])["summary"];
  EXPECT_EQ(summary["errors"], 1);
  EXPECT_EQ(summary["dropped"], 1);
  EXPECT_EQ(summary["stopping"], 0);
  EXPECT_EQ(summary["skipped_models"], Json({"rm"}));
}

TEST_F(RewardTestCommand, StopShowsEverythingAndFails) {
  const Finished finished = run("reward: [{type: rule, rule: numeric}]", kSamples);
  EXPECT_EQ(finished.end, "exited with status 1");
  EXPECT_EQ(finished.lines.size(), 4u);
  EXPECT_THAT(finished.errors, AllOf(HasSubstr("sample 2"), HasSubstr("1 of 3")));
  const Json summary = Json::parse(finished.lines[3])["summary"];
  EXPECT_EQ(summary["dropped"], 0);  // nothing is: training would end
  EXPECT_EQ(summary["stopping"], 1);
  const Finished table =
      run_program({BRAID_BINARY, "reward-test", "reward=[{type: rule, rule: numeric}]", "--samples",
                   write("s.jsonl", kSamples)});
  EXPECT_THAT(table.lines.back(),
              HasSubstr("0 dropped, 1 for which training would stop (on_error)"));
}

TEST_F(RewardTestCommand, TakesKeysAndShowsWhatDoesNotApply) {
  const std::string function = write("f.py",
                                     "def f(prompts, completions, bonus, **columns):\n"
                                     "    return [None if c == '42' else len(p) + bonus\n"
                                     "            for p, c in zip(prompts, completions)]\n");
  const Finished finished = run_program(
      {BRAID_BINARY, "reward-test",
       cat("reward=[{type: python, path: ", function, ", function: f, kwargs: {bonus: 0.5}}]"),
       "--samples", write("s.jsonl", kSamples), "--json"});
  EXPECT_EQ(finished.end, "exited with status 0") << finished.errors;
  ASSERT_EQ(finished.lines.size(), 4u);
  EXPECT_EQ(Json::parse(finished.lines[0])["total"], nullptr);
  EXPECT_EQ(Json::parse(finished.lines[1])["total"], 4.5);
  EXPECT_EQ(Json::parse(finished.lines[3])["summary"]["errors"], 0);
}

TEST_F(RewardTestCommand, BadInputIsRefusedWithItsPlace) {
  const auto refusal = [&](const std::string& config, const std::string& samples) {
    const Finished finished = run(config, samples);
    EXPECT_EQ(finished.end, "exited with status 2");
    EXPECT_TRUE(finished.lines.empty());
    return finished.errors;
  };
  EXPECT_THAT(refusal("reward:\n- {type: rule, rule: exact,\n   wieght: 2}", kSamples),
              AllOf(HasSubstr("c.yaml:3"), HasSubstr("weight'")));
  EXPECT_THAT(refusal("reward:\n- {type: rule, rule: exakt}", kSamples),
              AllOf(HasSubstr("c.yaml:2"), HasSubstr("'exact'")));
  EXPECT_THAT(refusal("reward:\n- {type: http, url: 'http://x',\n   retries: 2}", kSamples),
              AllOf(HasSubstr("c.yaml:3"), HasSubstr("does not read 'retries'")));
  const Finished flow = run_program({BRAID_BINARY, "reward-test", "reward=[{type: rule}]",
                                     "--samples", write("s.jsonl", kSamples)});
  EXPECT_THAT(flow.errors, HasSubstr("error: command line: reward 'rule': type rule needs 'rule'"));
  EXPECT_THAT(refusal("model: {path: x}", kSamples), HasSubstr("reward"));
  // Every key with its value is a configuration again, whatever the rewards' types.
  const Finished resolved = run_program(
      {BRAID_BINARY, "config", "--resolve", "model.path=x", "data.train=task:sort_digits",
       "reward=[{type: rule, rule: exact}, {type: model, name: m, path: y}, {type: http, name: h, "
       "url: 'http://z'}]"});
  EXPECT_EQ(resolved.end, "exited with status 0") << resolved.errors;
  const Finished again = run_program(
      {BRAID_BINARY, "config", write("resolved.yaml", join(resolved.lines, "\n") + "\n")});
  EXPECT_EQ(again.end, "exited with status 0") << again.errors;
  EXPECT_THAT(refusal("reward: [{type: rule, rule: exact}]", "{\"prompt\": \"p\"}\n"),
              HasSubstr("s.jsonl:1"));
}

}  // namespace
}  // namespace braid
