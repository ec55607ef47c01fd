// Shared by the runtime's tests: tiny runs on the generated task, seconds of everything.
#pragma once

#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "base/text.h"
#include "config/algorithm_traits.h"
#include "host/file.h"
#include "plan/make_problem.h"
#include "session/session.h"
#include "test_paths.h"

namespace braid::inline session {

inline std::string quickstart_model() {
  return cat(BRAID_SOURCE_DIR, "/examples/quickstart/model");
}

// A reward by a command of the rest of a sample's id by 3. It has none for the second of every so
// many samples, which leave the step.
inline RewardConfig reward_without_one_of(int64_t samples) {
  RewardConfig reward;
  reward.name = "third";
  reward.type = "command";
  reward.command = {"python3", "-c",
                    cat("import json, sys\n"
                        "for line in sys.stdin:\n"
                        "    id = json.loads(line)['id']\n"
                        "    answer = {'error': 'no'} if id % ",
                        samples,
                        " == 1 else {'reward': id % 3}\n"
                        "    print(json.dumps({'id': id, **answer}), flush=True)\n")};
  reward.on_error = "drop";
  return reward;
}

// A run with a rule reward: 4 prompts, responses of at most 6 tokens, 2 mini-batches.
inline Config tiny_run(const std::string& algorithm) {
  Config config;
  set_name_defaults(algorithm, 6, &config);
  config.run.dir = testing::TempDir();
  config.run.name = cat("runtime-test-", ::getpid());
  config.model.config = quickstart_model() + "/config.json";
  config.tokenizer.path = quickstart_model();
  config.data.train = "task:sort_digits";
  config.rollout.prompts_per_step = 4;
  config.rollout.samples_per_prompt = compares_groups(config.algorithm) ? 2 : 1;
  config.rollout.max_response_length = 6;
  config.train.minibatches = 2;
  config.train.micro_tokens = 40;
  config.train.threads = 2;
  config.optim.actor.lr = 1e-3;
  RewardConfig reward;
  reward.type = "rule";
  reward.rule = "digit_share";
  config.reward = {reward};
  return config;
}

// Half of the prompts that a step takes are in flight beside them, of responses that end at
// different times.
inline void carry_samples(Config* config) {
  config->rollout.in_flight = 1.5;
  config->rollout.max_concurrent = 5;
  config->rollout.max_response_length = 24;
  config->algorithm.tis_cap = 2;
}

inline Program program_of(const Config& config) { return *compile(*make_graph(config.algorithm)); }

// A run's program under a plan, given as text.
inline Program program_under(Config config, const std::string& plan) {
  config.plan.file = "plan";
  const auto read = [&plan](const std::string& path) -> Result<std::string> {
    return path == "plan" ? plan : read_file(path);
  };
  const auto problem = make_problem(config, read);
  EXPECT_TRUE(problem.ok()) << problem.status().message();
  const auto stated = configured_plan(config, *problem, read);
  EXPECT_TRUE(stated.ok()) << stated.status().message();
  const auto program = compile(**stated, *problem);
  EXPECT_TRUE(program.ok()) << program.status().message();
  return *program;
}

inline std::unique_ptr<Session> session_of(const Config& config, const Program& program) {
  auto session = Session::create(config, program);
  EXPECT_TRUE(session.ok()) << session.status().message();
  return std::move(session).value();
}

inline bool same_weights(const Session& a, const Session& b) {
  for (const auto& [role, state] : a.roles()) {
    const auto left = state.model->parameters(), right = b.roles().at(role).model->parameters();
    for (size_t i = 0; i < left.size(); ++i)
      if (!at::equal(left[i].second, right[i].second)) return false;
  }
  return true;
}

// A metrics row without what depends on the clock.
inline std::map<std::string, double> timeless(std::map<std::string, double> row) {
  for (auto it = row.begin(); it != row.end();) {
    const bool timed = it->first.rfind("time/", 0) == 0 || it->first.rfind("perf/", 0) == 0;
    it = timed ? row.erase(it) : std::next(it);
  }
  return row;
}

}  // namespace braid::inline session
