// Shared by tests of whole runs: processes of the braid program on a tiny model.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/manifest.h"
#include "config/algorithm_traits.h"
#include "host/file.h"
#include "host/process.h"
#include "host/sha256.h"
#include "host/testing.h"
#include "test_paths.h"

namespace braid {

inline constexpr double kRunDeadline_s = 300;

inline const std::string& runs_folder() {
  static const std::string folder = join_path(testing::TempDir(), cat("runs-", ::getpid()));
  return folder;
}

// A kind of run is an algorithm, or one with more behind a '-'.
inline std::string algorithm_of(const std::string& kind) { return kind.substr(0, kind.find('-')); }

class RunProcess : public testing::TestWithParam<const char*> {
 protected:
  // An uninterrupted run of 4 steps that records its rollouts, made once for all tests; its name.
  static std::string whole(const std::string& kind) {
    const std::string name = "whole-" + kind;
    if (!path_exists(path(name + "/export"))) finish(command(name, kind, {"rollout.record=true"}));
    return name;
  }

  // What a kind adds to its algorithm.
  static std::vector<std::string> options_of(const std::string& kind) {
    if (kind == "ppo-lora" || kind == "grpo-lora-bf16") {  // adapters need trained weights below
      std::vector<std::string> out = {"lora.rank=4",
                                      "model.path=" + path(whole("ppo") + "/export/actor")};
      if (kind == "grpo-lora-bf16") out.push_back("model.dtype=bf16");
      return out;
    }
    if (kind.starts_with("dpo-")) return {"algorithm.preference_loss=" + kind.substr(4)};
    if (kind == "rm-squared_error")
      return {"algorithm.reward_loss=squared_error",
              cat("data.train=", BRAID_SOURCE_DIR, "/examples/algorithms/scores.jsonl")};
    if (kind == "rm-cross_entropy") return {"algorithm.reward_loss=cross_entropy"};
    if (kind == "distill") return {"teacher.path=" + path(whole("ppo") + "/export/actor")};
    // A plan of all calls needs the reference that some algorithms lack by themselves.
    if (default_options(kind).kl.coef == 0 && kind != "online_dpo")
      return {"algorithm.kl.coef=0.01"};
    if (kind == "ppo-bf16") return {"model.dtype=bf16"};
    if (kind == "ppo-adaptive")
      return {"algorithm.kl.controller=adaptive", "algorithm.kl.target=0.01",
              "algorithm.kl.horizon=40"};
    return {};
  }

  // The command line of a tiny run; 4 steps with a checkpoint after each unless overridden.
  static std::vector<std::string> command(const std::string& name, const std::string& kind,
                                          const std::vector<std::string>& more = {}) {
    const std::string algorithm = algorithm_of(kind);
    const std::string model = std::string(BRAID_SOURCE_DIR) + "/examples/quickstart/model";
    std::vector<std::string> out = {
        BRAID_BINARY,
        "train",
        "run.dir=" + folder_,
        "run.name=" + name,
        "algorithm.name=" + algorithm,
        "model.config=" + model + "/config.json",
        "tokenizer.path=" + model,
        "data.train=task:sort_digits",
        "rollout.prompts_per_step=4",
        cat("rollout.samples_per_prompt=", compares_groups(default_options(algorithm)) ? 2 : 1),
        "rollout.max_response_length=6",
        "reward=[{type: rule, rule: digit_share}]",
        "optim.actor.lr=1e-3",
        "train.minibatches=2",
        "train.threads=2",
        "train.total_steps=4",
        "checkpoint.every_steps=1",
        "log.tensorboard=false"};
    for (const std::vector<std::string>& options : {options_of(kind), more})
      out.insert(out.end(), options.begin(), options.end());
    return out;
  }

  static std::unique_ptr<ChildProcess> start(const std::vector<std::string>& argv) {
    auto child = ChildProcess::start({argv, 0});
    EXPECT_TRUE(child.ok()) << child.status().message();
    return std::move(child).value();
  }

  // Signals a process; one that was waited for has no number any more, and -1 would be everyone.
  static void send(const ChildProcess& child, int signal) {
    ASSERT_GT(child.pid(), 0) << "the process has ended";
    ::kill(child.pid(), signal);
  }

  // Waits for a process that runs; its output is not read.
  static Finished ending(ChildProcess& child) {
    const auto end = child.wait(deadline_in(kRunDeadline_s));
    return {end.ok() ? *end : end.status().message(), {}, child.take_errors()};
  }

  static void finish(const std::vector<std::string>& argv) {
    const Finished run = run_program(argv);
    ASSERT_EQ(run.end, "exited with status 0") << run.errors;
  }

  // The command line in a shell after `before`, with standard error in the output.
  static CommandOutcome shell(const std::string& before, const std::vector<std::string>& argv) {
    std::string line = before;
    for (const std::string& word : argv) line += " '" + word + "'";
    return run_shell(line + " 2>&1");
  }

  static std::string path(const std::string& name) { return join_path(folder_, name); }

  // Steps that are complete, by the metrics, and steps that the newest checkpoint holds.
  static int64_t steps_complete(const std::string& name) {
    const std::string file = path(name + "/metrics.jsonl");
    const std::string text = path_exists(file) ? *read_file(file) : "";
    return std::count(text.begin(), text.end(), '\n');
  }
  static int64_t steps_kept(const std::string& name) {
    const auto all = *list_checkpoints(path(name + "/checkpoints"));
    return all.empty() ? 0 : all.back().at.step;
  }

  // Rows of metrics.jsonl without the numbers that depend on the clock.
  static std::vector<Json> metrics(const std::string& name) {
    std::vector<Json> rows = read_rows(path(name + "/metrics.jsonl"));
    for (Json& row : rows)
      for (auto it = row.begin(); it != row.end();) {
        const bool timed = it.key().rfind("time/", 0) == 0 || it.key().rfind("perf/", 0) == 0;
        it = timed ? row.erase(it) : std::next(it);
      }
    return rows;
  }

  // SHA-256 of all files below a folder, by their names within it.
  static std::map<std::string, std::string> hashes(const std::string& folder) {
    std::map<std::string, std::string> out;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
      if (entry.is_regular_file())
        out[std::filesystem::relative(entry.path(), folder).string()] =
            sha256_hex(*read_file(entry.path().string()));
    return out;
  }

  // A fresh run may measure that another matrix library is faster, which rounds differently. It
  // takes over the choices of a run that is over.
  static void same_kernels(const std::string& from, const std::string& to) {
    ASSERT_TRUE(make_folder(path(to)).ok());
    ASSERT_TRUE(
        write_file_atomic(path(to + "/kernels.txt"), *read_file(path(from + "/kernels.txt"))).ok());
  }

  // Both runs ended with the same metrics, exports, weights and optimizer states.
  void expect_same_run(const std::string& a, const std::string& b) const {
    EXPECT_EQ(metrics(a), metrics(b));
    EXPECT_EQ(hashes(path(a + "/export")), hashes(path(b + "/export")));
    const Manifest left = *read_manifest(path(a + "/checkpoints/step-000004"));
    const Manifest right = *read_manifest(path(b + "/checkpoints/step-000004"));
    for (const auto& [file, entry] : left.files) {
      if (file == "state.json") continue;  // it names the run; compared below
      EXPECT_EQ(entry.sha256, right.files.at(file).sha256) << file;
    }
    const auto numbers = [&](const std::string& run) {
      Json out = *checkpoint_numbers(path(run + "/checkpoints/step-000004"));
      for (const char* name : {"options", "files"}) out.erase(name);
      return out;
    };
    EXPECT_EQ(numbers(a), numbers(b));
  }

  static inline const std::string folder_ = runs_folder();
};

// Removes the runs when all tests are through: they share the uninterrupted ones.
class RunsCleanup : public testing::Environment {
 public:
  void TearDown() override { std::filesystem::remove_all(runs_folder()); }
};
inline testing::Environment* const kRunsCleanup =
    testing::AddGlobalTestEnvironment(new RunsCleanup());

}  // namespace braid
