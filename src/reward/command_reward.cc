// Rewards computed by child processes: the types command and python.
#include "base/log.h"
#include "base/text.h"
#include "base/yaml_json.h"
#include "host/workers.h"
#include "reward/batches.h"
#include "reward/json_worker.h"
#include "reward/needed_columns.h"
#include "reward/python_reward_script.h"

namespace braid::inline reward {
namespace {

class ProcessReward : public Reward, public NeedsColumns {
 public:
  ProcessReward(const WorkerOptions& options, int64_t workers) {
    const auto tracebacks = std::make_shared<TracebackLog>();
    for (int64_t i = 0; i < workers; ++i) workers_.emplace_back(options, tracebacks);
  }

  Status start_first() {
    BRAID_TRY(workers_.front().start({}));
    batch_ = workers_.front().ready().batch;
    return ok_status();
  }
  const std::string& batch() const { return batch_; }
  const std::vector<std::string>& needed_columns() const override {
    return workers_.front().ready().columns;
  }

  std::vector<std::vector<size_t>> batches(
      const std::vector<RewardSample>& samples) const override {
    return cut_batches(samples, batch_);
  }

  Result<std::vector<RewardOutcome>> score(const std::vector<RewardSample>& samples,
                                           const ScoreWatch& watch) override {
    std::vector<RewardOutcome> outcomes(samples.size());
    const std::vector<std::vector<size_t>> all = batches(samples);
    BRAID_TRY(
        for_each_on_workers(all.size(), workers_.size(), [&](size_t worker, size_t item) -> Status {
          if (watch.ended()) return ok_status();
          std::vector<const RewardSample*> together;
          for (const size_t index : all[item]) together.push_back(&samples[index]);
          BRAID_ASSIGN(auto scored, workers_[worker].ask(together, watch));
          for (size_t i = 0; i < scored.size(); ++i) {
            watch.scored(scored[i]);
            outcomes[all[item][i]] = std::move(scored[i]);
          }
          return ok_status();
        }));
    return outcomes;
  }

 private:
  std::vector<JsonLineWorker> workers_;
  std::string batch_ = "sample";
};

WorkerOptions worker_options(const RewardOptions& options, std::vector<std::string> argv) {
  WorkerOptions worker;
  worker.name = reward_name(options);
  worker.process.argv = std::move(argv);
  worker.process.memory_limit_bytes = options.memory_mb << 20;
  worker.timeout_s = options.timeout_s;
  return worker;
}

}  // namespace

Result<std::unique_ptr<Reward>> make_command_reward(const RewardOptions& options) {
  return std::unique_ptr<Reward>(
      new ProcessReward(worker_options(options, options.command), options.workers));
}

Result<std::unique_ptr<Reward>> make_python_reward(const RewardOptions& options) {
  Json settings = {{"signature", options.signature}, {"batch", options.batch}};
  settings["completions"] = options.completions;
  settings["timeout_s"] = options.timeout_s;
  const Json kwargs = json_of_yaml(options.kwargs);
  settings["kwargs"] = kwargs.is_null() ? Json::object() : kwargs;
  WorkerOptions worker = worker_options(options, {"python3", "-c", std::string(kPythonRewardScript),
                                                  options.path, options.function, settings.dump()});
  worker.batched = true;
  auto reward = std::make_unique<ProcessReward>(worker, options.workers);
  BRAID_TRY(reward->start_first());
  if (options.workers > 1 && reward->batch() == "step")
    log_info(cat("reward '", reward_name(options), "': workers: ", options.workers,
                 " has no use with batch: step, which is one call; batch: group gives each worker "
                 "the samples of a prompt"));
  return std::unique_ptr<Reward>(std::move(reward));
}

}  // namespace braid::inline reward
