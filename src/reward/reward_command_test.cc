// The program's `reward-test` subcommand, run as a user runs it.
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>

#include "host/file.h"
#include "host/process.h"
#include "reward/testing.h"

namespace braid {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct Finished {
  std::vector<std::string> lines;
  std::string errors;
  std::string ending;
};

class RewardTestCommand : public testing::Test {
 protected:
  void SetUp() override {
    if (!path_exists(BRAID_BINARY)) GTEST_SKIP() << "the program is not built: " << BRAID_BINARY;
    ASSERT_TRUE(make_folder(folder_).ok());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) {
    const std::string path = join_path(folder_, name);
    EXPECT_TRUE(write_file_atomic(path, text).ok());
    return path;
  }

  Finished run(const std::string& config, const std::string& samples) {
    auto process = ChildProcess::start({{BRAID_BINARY, "reward-test", write("c.yaml", config),
                                         "--samples", write("s.jsonl", samples), "--json"},
                                        0});
    EXPECT_TRUE(process.ok()) << process.status().message();
    Finished finished;
    for (auto line = (*process)->read_line(deadline_in(300)); line.ok();
         line = (*process)->read_line(deadline_in(300)))
      finished.lines.push_back(*line);
    finished.ending = *(*process)->wait(deadline_in(300));
    finished.errors = (*process)->take_errors();
    return finished;
  }

  std::string folder_ = cat(testing::TempDir(), "/braid_reward_command_", ::getpid());
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
  EXPECT_EQ(finished.ending, "exited with status 0") << finished.errors;
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
  EXPECT_EQ(summary["skipped_models"], Json({"rm"}));
}

TEST_F(RewardTestCommand, StopShowsEverythingAndFails) {
  const Finished finished = run("reward: [{type: rule, rule: numeric}]", kSamples);
  EXPECT_EQ(finished.ending, "exited with status 1");
  EXPECT_EQ(finished.lines.size(), 4u);
  EXPECT_THAT(finished.errors, AllOf(HasSubstr("sample 2"), HasSubstr("1 of 3")));
}

TEST_F(RewardTestCommand, BadInputIsRefusedWithItsPlace) {
  const auto refusal = [&](const std::string& config, const std::string& samples) {
    const Finished finished = run(config, samples);
    EXPECT_EQ(finished.ending, "exited with status 2");
    EXPECT_TRUE(finished.lines.empty());
    return finished.errors;
  };
  EXPECT_THAT(refusal("reward:\n- {type: rule, rule: exact,\n   wieght: 2}", kSamples),
              AllOf(HasSubstr("c.yaml:3"), HasSubstr("weight'")));
  EXPECT_THAT(refusal("reward:\n- {type: rule, rule: exakt}", kSamples),
              AllOf(HasSubstr("c.yaml:2"), HasSubstr("'exact'")));
  EXPECT_THAT(refusal("model: {path: x}", kSamples), HasSubstr("reward"));
  EXPECT_THAT(refusal("reward: [{type: rule, rule: exact}]", "{\"prompt\": \"p\"}\n"),
              HasSubstr("s.jsonl:1"));
}

}  // namespace
}  // namespace braid
