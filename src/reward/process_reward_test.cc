// The command and python types: real child processes.
#include <gmock/gmock.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/yaml.h"
#include "host/file.h"
#include "reward/needed_columns.h"
#include "reward/python_reward_script.h"
#include "reward/testing.h"
#include "test_paths.h"

namespace braid::inline reward {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// A program that answers by the words of the response.
constexpr const char* kProgram = R"(
import json, os, sys, time
for line in sys.stdin:
    request = json.loads(line)
    word = request["response"]
    answer = {"id": request["id"], "reward": len(word)}
    if word == "hang": time.sleep(60)
    if word == "crash": sys.stderr.write("out of luck\n"); sys.exit(7)
    if word == "memory": answer["reward"] = len(bytearray(1 << 30))
    if word == "garbage": print("not json", flush=True); continue
    if word == "stale": answer["id"] += 1
    if word == "refuse": answer = {"id": request["id"], "error": "cannot judge"}
    if word == "truth": answer["reward"] = True
    if word == "huge": answer["reward"] = float("inf")
    if word == "label": answer["reward"] = request["label"] + request["weight"] + request["extra"]["id"]
    if word == "pid": answer["reward"] = os.getpid()
    print(json.dumps(answer), flush=True)
)";

RewardOptions command() {
  RewardOptions options;
  options.name = "judge";
  options.type = "command";
  options.command = {"python3", "-c", kProgram};
  options.timeout_s = 10;
  return options;
}

TEST(CommandReward, GivesNumbersAndEveryField) {
  const auto outcomes = score_with(
      command(), {make_sample(0, "four"), make_sample(1, ""),
                  make_sample(2, "label", {{"label", 1}, {"weight", 0.25}, {"id", 30}})});
  EXPECT_THAT(brief(outcomes), ElementsAre("4", "0", "31.25"));
}

TEST(CommandReward, HangIsATimeoutAndTheNextSampleGetsAFreshProcess) {
  RewardOptions options = command();
  options.timeout_s = 3;
  const auto outcomes = score_with(options, {make_sample(0, "hang"), make_sample(1, "four")});
  EXPECT_THAT(brief(outcomes), ElementsAre("timeout", "4"));
  EXPECT_THAT(outcomes[0].error, HasSubstr("no answer within 3"));
}

TEST(CommandReward, CrashIsAnErrorWithItsLastWordsAndARestart) {
  const auto outcomes = score_with(
      command(), {make_sample(0, "pid"), make_sample(1, "crash"), make_sample(2, "pid")});
  EXPECT_EQ(brief(outcomes[1]), "error");
  EXPECT_THAT(outcomes[1].error, AllOf(HasSubstr("status 7"), HasSubstr("out of luck")));
  EXPECT_EQ(outcomes[2].kind, RewardOutcome::Kind::kValue);
  EXPECT_NE(outcomes[0].value, outcomes[2].value);
}

TEST(CommandReward, MemoryLimit) {
  RewardOptions options = command();
  options.memory_mb = 256;
  const auto outcomes = score_with(options, {make_sample(0, "memory"), make_sample(1, "four")});
  EXPECT_THAT(brief(outcomes), ElementsAre("error", "4"));
  EXPECT_THAT(outcomes[0].error, HasSubstr("MemoryError"));
}

TEST(CommandReward, AnswersThatAreNoRewards) {
  const auto outcomes = score_with(
      command(), {make_sample(0, "garbage"), make_sample(1, "stale"), make_sample(2, "refuse"),
                  make_sample(3, "truth"), make_sample(4, "huge"), make_sample(5, "four")});
  EXPECT_THAT(brief(outcomes), ElementsAre("error", "error", "error", "error", "error", "4"));
  EXPECT_THAT(outcomes[0].error, HasSubstr("not json"));
  EXPECT_THAT(outcomes[1].error, HasSubstr("id"));
  EXPECT_EQ(outcomes[2].error, "cannot judge");
  EXPECT_THAT(outcomes[3].error, HasSubstr("no number"));
}

TEST(CommandReward, SeveralWorkersKeepTheOrder) {
  RewardOptions options = command();
  options.workers = 3;
  std::vector<RewardSample> samples;
  std::vector<std::string> wanted;
  for (int i = 0; i < 20; ++i) {
    samples.push_back(make_sample(i, std::string(static_cast<size_t>(i) + 10, 'x')));
    wanted.push_back(std::to_string(i + 10));
  }
  EXPECT_EQ(brief(score_with(options, samples)), wanted);
}

TEST(CommandReward, MissingProgramFailsTheRewardNotTheSample) {
  RewardOptions options = command();
  options.command = {"/no/such/judge"};
  auto reward = make_reward(options);
  ASSERT_TRUE(reward.ok());
  const Status status = (*reward)->score({make_sample(0, "x")}, quiet_watch()).status();
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("'judge'"), HasSubstr("/no/such/judge")));
}

class PythonReward : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(make_folder(folder_).ok()); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  RewardOptions python(const std::string& text, const std::string& function = "f") {
    const std::string path = join_path(folder_, "my.py");
    EXPECT_TRUE(write_file_atomic(path, text).ok());
    RewardOptions options;
    options.name = "py";
    options.type = "python";
    options.path = path;
    options.function = function;
    options.timeout_s = 10;
    return options;
  }

  std::string folder_ = cat(testing::TempDir(), "/braid_reward_test_", ::getpid());
};

TEST_F(PythonReward, EmbeddedScriptIsTheShippedOne) {
  EXPECT_EQ(*read_file(cat(BRAID_SOURCE_DIR, "/tools/python_reward.py")), kPythonRewardScript);
}

TEST_F(PythonReward, VerlSignatureSeesEveryField) {
  const auto outcomes = score_with(python(R"(
def f(data_source, solution_str, ground_truth, extra_info=None):
    assert data_source == "gsm8k" and solution_str == "seven" and ground_truth == 7
    return {"score": extra_info["difficulty"] + extra_info["index"], "acc": True, "note": "text"}
)"),
                                   {make_sample(0, "seven",
                                                {{"data_source", "gsm8k"},
                                                 {"label", 7},
                                                 {"difficulty", 0.5},
                                                 {"extra_info", {{"index", 2}}}})});
  ASSERT_THAT(brief(outcomes), ElementsAre("2.5")) << outcomes[0].error;
  EXPECT_EQ(outcomes[0].logs, (std::map<std::string, double>{{"acc", 1.0}}));
}

TEST_F(PythonReward, VerlGroundTruthOfTheParquetLayout) {
  const auto outcomes =
      score_with(python("def f(data_source, solution_str, ground_truth, extra_info):\n"
                        "    return float(solution_str == ground_truth)\n"),
                 {make_sample(0, "a", {{"reward_model", {{"ground_truth", "a"}}}}),
                  make_sample(1, "b", {{"reward_model", {{"ground_truth", "a"}}}})});
  EXPECT_THAT(brief(outcomes), ElementsAre("1", "0"));
}

TEST_F(PythonReward, TrlSignatureSeesEveryField) {
  RewardSample sample = make_sample(3, "seven", {{"label", "7"}, {"difficulty", 0.5}});
  sample.response_ids = {5, 6};
  const auto outcomes = score_with(python(R"(
def f(prompts, completions, completion_ids, label, **columns):
    print("printing is harmless")
    assert prompts == ["Q3 "] and completions == ["seven"] and label == ["7"]
    return [len(ids) + d for ids, d in zip(completion_ids, columns["difficulty"])]
)"),
                                   {sample});
  ASSERT_THAT(brief(outcomes), ElementsAre("2.5")) << outcomes[0].error;
}

TEST_F(PythonReward, TrlFunctionsGetTheWholeStepAndTheTrainersState) {
  RewardOptions options = python(R"(
calls = []
def f(completions, completion_ids, trainer_state, log_metric, log_extra, **columns):
    calls.append(len(completions))
    assert trainer_state.global_step == 7 and trainer_state.max_steps == 9
    log_metric("calls", len(calls))
    log_extra("length", [len(c) for c in completions])
    log_extra("text", completions)
    assert columns["solution"] == ["a", None, "c"] and "prompt" not in columns
    mean = sum(map(len, completions)) / len(completions)
    return [len(c) - mean if c != "skip" else None for c in completions]
)");
  const auto reward = make_reward(options);
  ASSERT_TRUE(reward.ok()) << reward.status().message();
  ScoreWatch watch = quiet_watch();
  watch.step = 7;
  watch.total_steps = 9;
  const auto outcomes =
      (*reward)->score({make_sample(0, "12", {{"solution", "a"}, {"prompt", 1}}),
                        make_sample(1, "skip"), make_sample(2, "123456", {{"solution", "c"}})},
                       watch);
  ASSERT_TRUE(outcomes.ok());
  EXPECT_THAT(brief(*outcomes), ElementsAre("-2", "absent", "2")) << (*outcomes)[0].error;
  EXPECT_EQ((*outcomes)[0].logs, (std::map<std::string, double>{{"calls", 1}, {"length", 2}}));
  EXPECT_EQ((*outcomes)[1].logs, (std::map<std::string, double>{{"length", 4}}));
}

TEST_F(PythonReward, GroupsAreCallsOfTheirOwn) {
  RewardOptions options = python(
      "def f(prompts, completions, **columns):\n"
      "    return [len(completions)] * len(completions)\n");
  std::vector<RewardSample> samples;
  for (int i = 0; i < 5; ++i) {
    samples.push_back(make_sample(i, "x"));
    samples.back().group = i / 2;
  }
  EXPECT_THAT(brief(score_with(options, samples)), ElementsAre("5", "5", "5", "5", "5"));
  options.batch = "group";
  options.workers = 2;
  EXPECT_THAT(brief(score_with(options, samples)), ElementsAre("2", "2", "2", "2", "1"));
  options.batch = "sample";
  EXPECT_THAT(brief(score_with(options, samples)), ElementsAre("1", "1", "1", "1", "1"));
}

TEST_F(PythonReward, ConversationsAreMessages) {
  RewardOptions options = python(R"(
def f(prompts, completions, **columns):
    assert prompts[0][-1]["role"] == "user"
    return [len(c[0]["content"]) + len(p) for p, c in zip(prompts, completions)]
)");
  RewardSample talk = make_sample(0, "four");
  talk.messages =
      Json::parse(R"([{"role": "system", "content": "s"}, {"role": "user", "content": "u"}])");
  EXPECT_THAT(brief(score_with(options, {talk})), ElementsAre("6"));
  options.completions = "messages";
  EXPECT_THAT(brief(score_with(options, {make_sample(0, "four")})), ElementsAre("5"));
  options.completions = "text";
  EXPECT_THAT(brief(score_with(options, {talk})), ElementsAre("error"));
}

// TRL takes the assistant's beginning out of the prompt and puts it before the completion.
TEST_F(PythonReward, AnOpenMessageIsTheCompletionsBeginning) {
  const RewardOptions options = python(R"(
def f(prompts, completions, **columns):
    assert [m["role"] for m in prompts[0]] == ["user"]
    return [len(c[0]["content"]) for c in completions]
)");
  RewardSample talk = make_sample(0, "four");
  talk.messages =
      Json::parse(R"([{"role": "user", "content": "u"}, {"role": "assistant", "content": "So"}])");
  EXPECT_THAT(brief(score_with(options, {talk})), ElementsAre("6"));
}

TEST_F(PythonReward, VerlBatchFunctionsAndFurtherArguments) {
  RewardOptions options = python(R"(
def f(data_sources, solution_strs, ground_truths, extra_infos, bonus=0):
    assert data_sources == ["a", "b"] and extra_infos[1]["index"] == 4
    return [{"score": s == g, "acc": 1} if s == g else bonus for s, g in zip(solution_strs, ground_truths)]
)");
  options.kwargs = *parse_yaml("bonus: 0.25", "test");
  const auto outcomes = score_with(
      options,
      {make_sample(0, "x", {{"data_source", "a"}, {"reward_model", {{"ground_truth", "x"}}}}),
       make_sample(1, "y",
                   {{"data_source", "b"}, {"label", "z"}, {"extra_info", {{"index", 4}}}})});
  ASSERT_THAT(brief(outcomes), ElementsAre("1", "0.25")) << outcomes[0].error;
  EXPECT_EQ(outcomes[0].logs, (std::map<std::string, double>{{"acc", 1}}));
  options.kwargs = *parse_yaml("bonos: 1", "test");
  EXPECT_THAT(make_reward(options).status().message(), HasSubstr("no parameter 'bonos'"));
}

TEST_F(PythonReward, AsyncVerlFunctionsRunTogetherWithADeadlineEach) {
  RewardOptions options = python(R"(
import asyncio
running = set()
both = None
async def f(data_source, solution_str, ground_truth, extra_info):
    global both
    both = both or asyncio.Event()
    if solution_str == "hang": await asyncio.sleep(60)
    if solution_str == "raise": raise ValueError("no")
    running.add(solution_str)
    if len(running) == 2: both.set()
    await both.wait()
    return True
)");
  options.timeout_s = 2;
  const auto outcomes = score_with(options, {make_sample(0, "a"), make_sample(1, "hang"),
                                             make_sample(2, "raise"), make_sample(3, "b")});
  EXPECT_THAT(brief(outcomes), ElementsAre("1", "timeout", "error", "1"));
}

TEST_F(PythonReward, AWholeBatchFailsAndIsTriedAgainAsAWhole) {
  const RewardOptions options = [&] {
    RewardOptions out = python(R"(
import os
def f(prompts, completions, **columns):
    marker = __file__ + ".tried"
    if not os.path.exists(marker):
        open(marker, "w").close()
        return [1, "text"]
    return [len(completions)] * len(completions)
)");
    out.on_error = "retry";
    return out;
  }();
  std::vector<std::unique_ptr<Reward>> rewards;
  rewards.push_back(*make_reward(options));
  const auto totals = score_all(rewards, {options}, {make_sample(0, "a"), make_sample(1, "b")});
  ASSERT_TRUE(totals.ok()) << totals.status().message();
  EXPECT_THAT(totals->total, ElementsAre(2, 2));
  EXPECT_EQ(totals->retried, 2);
}

TEST_F(PythonReward, AHangingFunctionIsLeftWhenTheScoringEnds) {
  const auto reward =
      make_reward(python("import time\n"
                         "def f(prompts, completions, **columns):\n"
                         "    time.sleep(60)\n"));
  ASSERT_TRUE(reward.ok());
  ScoreWatch watch = quiet_watch();
  std::atomic<int> questions{0};
  watch.ended = [&] { return ++questions > 3; };
  const auto outcomes = (*reward)->score({make_sample(0, "x"), make_sample(1, "y")}, watch);
  ASSERT_TRUE(outcomes.ok());
  EXPECT_THAT(brief(*outcomes), ElementsAre("skipped", "skipped"));
}

TEST_F(PythonReward, AsyncFunctionAndImportOfANeighbour) {
  ASSERT_TRUE(write_file_atomic(join_path(folder_, "neighbour.py"), "BONUS = 3\n").ok());
  const auto outcomes = score_with(python("import neighbour\n"
                                          "async def f(prompts, completions, **kwargs):\n"
                                          "    return [neighbour.BONUS]\n"),
                                   {make_sample(0, "x")});
  EXPECT_THAT(brief(outcomes), ElementsAre("3"));
}

TEST_F(PythonReward, FailuresBecomeOutcomes) {
  RewardOptions options = python(R"(
import os, sys, time
def f(data_source, solution_str, ground_truth, extra_info):
    if solution_str == "raise": return {}["missing"]
    if solution_str == "hang": time.sleep(60)
    if solution_str == "none": return None
    if solution_str == "text": return "1"
    if solution_str == "true": return True
    if solution_str == "nan": return float("nan")
    if solution_str == "exit": sys.exit(3)
    if solution_str == "die": os._exit(4)
    return 0
)");
  options.timeout_s = 1;
  std::vector<RewardSample> samples;
  for (const char* word : {"raise", "none", "nan", "exit", "die", "hang", "fine", "text", "true"})
    samples.push_back(make_sample(static_cast<int64_t>(samples.size()), word));
  const auto outcomes = score_with(options, samples);
  EXPECT_THAT(brief(outcomes), ElementsAre("error", "error", "error", "error", "error", "timeout",
                                           "0", "error", "1"));
  EXPECT_EQ(outcomes[0].error, "KeyError: 'missing'");
  EXPECT_THAT(outcomes[1].error, HasSubstr("None"));
  EXPECT_THAT(outcomes[4].error, HasSubstr("status 4"));
}

TEST_F(PythonReward, ATracebackIsLoggedOncePerKindOfFailure) {
  RewardOptions options = python(
      "def helper(text):\n    raise ValueError('bad ' + text)\n"
      "def f(solution_str, **kwargs):\n"
      "    return {}['no'] if solution_str == 'key' else helper(solution_str)\n");
  options.workers = 2;
  std::vector<RewardSample> samples = {make_sample(1234, "sample"), make_sample(1235, "key")};
  for (int i = 0; i < 20; ++i) samples.push_back(make_sample(i, "sample"));
  testing::internal::CaptureStderr();
  score_with(options, samples);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, AllOf(HasSubstr("in helper"), HasSubstr("bad sample"), HasSubstr("KeyError")));
  size_t tracebacks = 0;
  for (size_t at = log.find("Traceback"); at != std::string::npos;
       at = log.find("Traceback", at + 1))
    ++tracebacks;
  EXPECT_EQ(tracebacks, 2u) << log;
}

TEST_F(PythonReward, UnusableFilesAreRefusedAtOnce) {
  const auto refusal = [](const RewardOptions& options) {
    return make_reward(options).status().message();
  };
  EXPECT_THAT(refusal(python("def g(): pass\n")), AllOf(HasSubstr("'f'"), HasSubstr("g")));
  EXPECT_THAT(refusal(python("def f(a, b): return 1\n")), HasSubstr("signature"));
  EXPECT_THAT(refusal(python("def f(:\n")), HasSubstr("SyntaxError"));
  RewardOptions missing = python("");
  missing.path += ".none";
  EXPECT_THAT(refusal(missing), HasSubstr("no such file"));
  EXPECT_EQ(make_reward(missing).status().code(), Code::kInvalidInput);
}

// Parameters without a default that nothing gives: columns of the data, for TRL's functions.
TEST_F(PythonReward, WhatItCannotBeCalledWithoutIsKnownAtItsStart) {
  const auto needs = [&](const std::string& text) {
    auto reward = make_reward(python(text));
    EXPECT_TRUE(reward.ok()) << reward.status().message();
    return dynamic_cast<NeedsColumns&>(**reward).needed_columns();
  };
  EXPECT_THAT(needs("def f(completions, answer, level, style='x', **rest): return []\n"),
              ElementsAre("answer", "level"));
  EXPECT_THAT(needs("def f(prompts, completions, completion_ids, trainer_state): return []\n"),
              ElementsAre());
  EXPECT_THAT(needs("def f(solution_str, ground_truth, bonus=1): return 0\n"), ElementsAre());
  RewardOptions given = python("def f(completions, answer): return []\n");
  given.kwargs = *parse_yaml("{answer: 3}", "x.yaml");
  EXPECT_TRUE(make_reward(given).ok());

  const auto refusal = [&](const std::string& text) {
    return make_reward(python(text)).status().message();
  };
  EXPECT_THAT(refusal("def f(solution_str, bonus): return 0\n"),
              HasSubstr("the parameter 'bonus' has no default"));
  EXPECT_THAT(refusal("def f(solution_str, /): return 0\n"), HasSubstr("positional only"));
  EXPECT_THAT(refusal("def f(completions, prompt): return []\n"), HasSubstr("take 'prompts'"));
}

TEST_F(PythonReward, SignatureCanBeSaid) {
  RewardOptions options = python("def f(**kwargs): return float(len(kwargs['solution_str']))\n");
  options.signature = "verl";
  EXPECT_THAT(brief(score_with(options, {make_sample(0, "abc")})), ElementsAre("3"));
}

}  // namespace
}  // namespace braid::inline reward
