// Jobs whose ranks do not find the same files under one name, as on two machines: two processes in
// two folders, with relative paths. They are refused before anything begins, on every rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "runs/job_testing.h"

namespace braid {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
namespace fs = std::filesystem;

class JobInputs : public JobRun {
 protected:
  struct TwoEnds {
    CommandOutcome ranks[2];
    const std::string& output(int rank) const { return ranks[rank].output; }
  };

  static std::string place(int rank, const std::string& name) {
    return path(cat("machine-", rank, "/", name));
  }

  // What both "machines" have: models, a tokenizer, data and a reward in relative paths.
  static void make_machines() {
    if (path_exists(place(1, "reward.py"))) return;
    const std::string trained = path(recorded("ppo", "") + "/export/");
    for (const int rank : {0, 1}) {
      ASSERT_TRUE(make_folder(place(rank, "runs")).ok());
      for (const char* copy : {"model", "reference"})
        fs::copy(trained + "actor", place(rank, copy), fs::copy_options::recursive);
      fs::copy(trained + "critic", place(rank, "scorer"), fs::copy_options::recursive);
      std::ofstream data(place(rank, "data.jsonl"));
      for (int i = 0; i < 32; ++i) data << "{\"prompt\": \"sort " << 1000 + 37 * i << "=\"}\n";
      std::ofstream(place(rank, "reward.py"))
          << "def score(completions, **kwargs):\n    return [len(c) % 5 for c in completions]\n";
    }
  }

  static std::vector<std::string> options() {
    return {"model.path=model",
            "tokenizer.path=model",
            "reference.path=reference",
            "data.train=data.jsonl",
            "run.dir=runs",
            "reward=[{type: python, path: reward.py, function: score, weight: 0.5}, {type: model, "
            "path: scorer}]",
            "parallel={dp: 2}",
            "train.total_steps=1"};
  }

  // Runs a rank in each machine's folder; `own` are further options of rank 1.
  static TwoEnds run_two(const std::string& name, const std::vector<std::string>& more,
                         const std::vector<std::string>& own = {}, int folder_of_second = 1) {
    static int port = 20000 + ::getpid() % 10000;
    ++port;
    const auto run = [&](int rank) {
      std::vector<std::string> all = options();
      all.insert(all.end(), more.begin(), more.end());
      if (rank == 1) all.insert(all.end(), own.begin(), own.end());
      const std::string where = place(rank == 0 ? 0 : folder_of_second, "");
      return shell(cat("cd ", where, " && RANK=", rank, " WORLD_SIZE=2 LOCAL_RANK=", rank,
                       " LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=", port, " "),
                   job_command(name, "grpo", all));
    };
    TwoEnds ends;
    std::thread second([&] { ends.ranks[1] = run(1); });
    ends.ranks[0] = run(0);
    second.join();
    return ends;
  }

  // All ranks end as with any other mistake of the configuration, with one message.
  static void expect_refused(const TwoEnds& ends, const std::string& what) {
    for (const int rank : {0, 1}) {
      EXPECT_EQ(ends.ranks[rank].exit_code, 2) << ends.output(rank);
      EXPECT_EQ(error_lines(ends.output(rank)), 1) << ends.output(rank);
      EXPECT_THAT(ends.output(rank), HasSubstr(what));
    }
  }
};

// Changes the last bit of the last number of a file of weights, or an end of line of another file,
// for its lifetime.
class OldCopy {
 public:
  explicit OldCopy(std::string path) : path_(std::move(path)), before_(*read_file(path_)) {
    std::string other = before_;
    if (path_.ends_with(".safetensors")) other[other.size() - 4] ^= 1;
    if (!path_.ends_with(".safetensors")) other += "\n";
    EXPECT_TRUE(write_file_atomic(path_, other).ok());
  }
  ~OldCopy() { EXPECT_TRUE(write_file_atomic(path_, before_).ok()); }
  OldCopy(const OldCopy&) = delete;
  OldCopy& operator=(const OldCopy&) = delete;

 private:
  std::string path_, before_;
};

// Found by one rank alone before it meets the other, which was started by another program: both end
// with it, and none waits for one that does not come.
TEST_F(JobInputs, WhatOneRankFindsBeforeTheyMeetEndsBoth) {
  make_machines();
  const std::vector<std::string> patient = {"runtime.join_s=3600"};
  // Only the first rank looks whether the plan fits into memory.
  const TwoEnds first =
      run_two("unfit", {"plan.memory_limit_gib=0.001", "runtime.join_s=3600"}, {});
  EXPECT_THAT(first.output(0), HasSubstr("braid: error: plan: device 0 runs out of memory"));
  EXPECT_THAT(first.output(1),
              HasSubstr("braid: error: rank 0 failed: plan: device 0 runs out of memory"));
  const TwoEnds second = run_two("unread", patient, {"train.total_steps=several"});
  EXPECT_THAT(second.output(0),
              HasSubstr("braid: error: rank 1 failed: command line: train.total_steps"));
  EXPECT_THAT(second.output(1), HasSubstr("braid: error: command line: train.total_steps"));
  for (const TwoEnds* ends : {&first, &second})
    for (const int rank : {0, 1}) {
      EXPECT_EQ(ends->ranks[rank].exit_code, 2) << ends->output(rank);
      EXPECT_EQ(error_lines(ends->output(rank)), 1) << ends->output(rank);
    }
}

TEST_F(JobInputs, FilesThatDifferBetweenRanksAreNamed) {
  make_machines();
  const std::vector<std::pair<std::string, std::string>> files = {
      {"model.path", "model/model.safetensors"},
      {"model.path", "model/config.json"},
      {"reference.path", "reference/model.safetensors"},
      {"reward[1].path", "scorer/model.safetensors"},
      {"reward[0].path", "reward.py"},
      {"tokenizer.path", "model/tokenizer.json"},
      {"data.train", "data.jsonl"}};
  for (const auto& [key, file] : files) {
    SCOPED_TRACE(file);
    const OldCopy old(place(1, file));
    const std::string named = key == "data.train" ? file : file.substr(file.rfind('/') + 1);
    const TwoEnds ends = run_two("differ", {});
    expect_refused(ends, cat("rank 1 reads ", key, ": ", named, " as "));
    EXPECT_THAT(ends.output(0), AllOf(HasSubstr(", rank 0 as "), HasSubstr("with SHA-256 "),
                                      HasSubstr("all ranks must read the same files")));
    EXPECT_EQ(steps_complete("differ"), 0);
  }
  const OldCopy old(place(1, "model/model.safetensors"));
  expect_refused(run_two("base", {"lora.rank=4"}),
                 "rank 1 reads model.path: model.safetensors as ");
}

TEST_F(JobInputs, EqualFilesInTwoFoldersAreTrainedOn) {
  make_machines();
  const TwoEnds ends = run_two(
      "equal", {"train.total_steps=2", "run.dir=" + fs::absolute(place(0, "runs")).string()});
  for (const int rank : {0, 1}) EXPECT_EQ(ends.ranks[rank].exit_code, 0) << ends.output(rank);
}

// Of each rank the records of the data that it has read in the last step of a job.
std::vector<int64_t> records_read(const std::string& ranks_file) {
  const std::string rows = *read_file(ranks_file);
  const Json row = *parse_json(rows.substr(rows.rfind('\n', rows.size() - 2) + 1), ranks_file);
  std::vector<int64_t> out;
  for (const Json& rank : row["ranks"]) out.push_back(rank["records_read"].get<int64_t>());
  return out;
}

// A quarter, so that all know how long the rows are, and those that are generated, scored and
// learnt from.
TEST_F(JobInputs, ARankReadsItsShareOfAStepAndWhatItWorksOn) {
  const std::vector<std::string> more = {"parallel={dp: 4}", "train.total_steps=2",
                                         "rollout.prompts_per_step=16"};
  finish(job_command("reads-sft", "sft", more));
  if (HasFatalFailure()) return;
  for (const int64_t read : records_read(path("reads-sft/ranks.jsonl"))) {
    EXPECT_GE(read, 4);
    EXPECT_LE(read, 8);
  }
  finish(job_command("reads-grpo", "grpo", more));
  if (HasFatalFailure()) return;
  for (const int64_t read : records_read(path("reads-grpo/ranks.jsonl"))) {
    EXPECT_GE(read, 4);
    EXPECT_LT(read, 16);
  }
}

// Every rank writes its share of a checkpoint there.
TEST_F(JobInputs, RunFoldersThatAreNotSharedAreRefused) {
  make_machines();
  expect_refused(run_two("apart", {}), "the run folder must be shared by all ranks");
  EXPECT_EQ(steps_complete("apart"), 0);
  const TwoEnds first =
      run_two("shared", {"checkpoint.every_steps=1", "checkpoint.resume=auto"}, {}, 0);
  ASSERT_EQ(first.ranks[0].exit_code, 0) << first.output(0);
  const std::vector<std::string> more = {"train.total_steps=2", "checkpoint.resume=auto"};
  expect_refused(run_two("shared", more),
                 "rank 1 resumes from step 0, rank 0 from step 1: the run folder must be shared");
  const TwoEnds shared = run_two("shared", more, {}, 0);
  for (const int rank : {0, 1}) EXPECT_EQ(shared.ranks[rank].exit_code, 0) << shared.output(rank);
}

TEST_F(JobInputs, AnOptionThatDiffersIsNamedWithItsValues) {
  make_machines();
  const TwoEnds ends = run_two("options", {"train.seed=3"}, {"train.seed=4", "optim.actor.lr=0.5"});
  expect_refused(ends, "rank 1 has train.seed '4', rank 0 '3'");
  EXPECT_THAT(ends.output(0), HasSubstr("rank 1 has optim.actor.lr '0.5', rank 0 '0.05'"));
  EXPECT_THAT(ends.output(0), Not(HasSubstr("SHA-256")));
}

// Ranks compile their own lists alone, and compare what all of them are made of.
TEST_F(JobInputs, PlansThatDifferAreNamedByTheirHashes) {
  make_machines();
  for (const int rank : {0, 1}) {
    std::ofstream(place(rank, "plan.yaml"))
        << "graph: grpo\ndevices: 1x2\ncalls:\n"
        << everywhere("grpo", "dp: 2", rank == 0 ? "dp: 2" : "tp: 2");
  }
  const TwoEnds ends =
      run_two("plans", {"plan.file=plan.yaml", "parallel=null",
                        "reward=[{type: python, path: reward.py, function: score}]"});
  expect_refused(ends, "rank 1 has a plan and a compiler with hash ");
  EXPECT_THAT(ends.output(0), HasSubstr(", rank 0 with hash "));
}

}  // namespace
}  // namespace braid
