// Jobs whose updates begin with what has finished when a generation is handed over, against the
// same plan without: gradients are added up in another order, so all but the bits is the same.
// BRAID_TEST_FULL=1 runs every layout.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runs/job_testing.h"

namespace braid {
namespace {

using testing::HasSubstr;

std::vector<LayoutCase> streamed_cases() {
  const std::string apart =
      "  generate: {mesh: \"2,3\", dp: 2}\n"
      "  ref_logprob: {mesh: \"2,3\", dp: 2}\n";
  return {
      {"three", "grpo", "1x3",
       "  generate: {mesh: \"1,2\", dp: 2}\n"
       "  old_logprob: {mesh: \"0\"}\n"
       "  ref_logprob: {mesh: \"1,2\", dp: 2}\n"
       "  update_actor: {mesh: \"0\"}\n"},
      {"replicas", "grpo", "1x4",
       apart +
           "  old_logprob: {mesh: \"0,1\", dp: 2}\n"
           "  update_actor: {mesh: \"0,1\", dp: 2}\n"},
      {"tensors", "rloo", "1x4",
       apart +
           "  old_logprob: {mesh: \"2,3\", dp: 2}\n"
           "  update_actor: {mesh: \"0,1\", tp: 2}\n"},
      {"slices", "grpo", "1x4",
       apart +
           "  old_logprob: {mesh: \"0,1\", dp: 2}\n"
           "  update_actor: {mesh: \"0,1\", dp: 2, zero: 2, micro_tokens: 40}\n",
       false,
       {"algorithm.loss_agg=seq_mean_token_mean", "train.minibatches=1"}},
      {"stages", "grpo", "1x4",
       apart +
           "  old_logprob: {mesh: \"0,1\", pp: 2}\n"
           "  update_actor: {mesh: \"0,1\", pp: 2, micro_batches: 2}\n",
       true,
       {"train.epochs_per_rollout=2"}},
      {"parts", "reinforce_baseline", "1x4",
       apart +
           "  old_logprob: {mesh: \"0,1\", dp: 2}\n"
           "  update_actor: {mesh: \"0,1\", dp: 2, zero: 3}\n",
       true},
  };
}

class JobStreamedUpdate : public JobRun {
 protected:
  static std::vector<std::string> command_of(const LayoutCase& of, bool streams,
                                             const std::string& below = "6",
                                             const std::vector<std::string>& more = {}) {
    LayoutCase with = of;
    with.name = name_of(of, streams);
    with.calls += cat("fusion: {migrate_below_samples: ", below,
                      streams ? ", train_beside_generation: true" : "", "}\n");
    std::vector<std::string> options = {"plan.file=" + write_plan(with),
                                        "rollout.max_response_length=24", "train.minibatches=2",
                                        "algorithm.normalize_advantages=none",
                                        "algorithm.kl.in=loss",
                                        "data.train=task:sort_digits:8"};
    options.insert(options.end(), of.more.begin(), of.more.end());
    options.insert(options.end(), more.begin(), more.end());
    return job_command(with.name, of.algorithm, options);
  }
  static std::string name_of(const LayoutCase& of, bool streams) {
    return cat(streams ? "streamed-" : "whole-", of.name);
  }

  static double sum_of(const std::string& run, const std::string& metric) {
    double out = 0;
    for (const Json& row : metrics(run)) out += row.value(metric, 0.0);
    return out;
  }

  static void expect_near_weights(const std::string& a, const std::string& b) {
    const Tensors left = weights_of(path(a + "/export/actor")),
                  right = weights_of(path(b + "/export/actor"));
    ASSERT_EQ(left.size(), right.size());
    for (const auto& [name, tensor] : left)
      EXPECT_LE((tensor - right.at(name)).norm().item<double>(),
                kEquivalence * std::max(tensor.norm().item<double>(), 1e-4))
          << name;
  }
};

TEST_F(JobStreamedUpdate, LearnsTheSame) {
  for (const LayoutCase& of : streamed_cases()) {
    if (of.full && !full_tier()) continue;
    SCOPED_TRACE(of.name);
    const std::string whole = name_of(of, false), streamed = name_of(of, true);
    finish(command_of(of, false));
    if (HasFatalFailure()) return;
    same_kernels(whole, streamed);
    finish(command_of(of, true, of.name == "parts" ? "[8, 4]" : "6"));
    if (HasFatalFailure()) return;
    expect_near_weights(whole, streamed);
    EXPECT_GT(sum_of(streamed, "rollout/trained_early"), 0);
    EXPECT_EQ(sum_of(streamed, "sampling/left_out"), 0);
    for (const char* metric : {"policy/loss", "policy/grad_norm", "adv/std", "reward/raw_mean"})
      for (size_t step = 0; step < metrics(whole).size(); ++step) {
        const double one = metrics(whole)[step].value(metric, 0.0);
        EXPECT_NEAR(metrics(streamed)[step].value(metric, 0.0), one,
                    1e-4 * std::max(1.0, std::abs(one)))
            << metric << " of step " << step;
      }
  }
}

}  // namespace
}  // namespace braid
