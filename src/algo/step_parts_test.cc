// Advantages of a step whose samples several ranks have: from each part, and the sums of all, comes
// what comes of the whole.
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>

#include <cmath>

#include "algo/batch.h"
#include "algo/functions.h"
#include "config/algorithm_traits.h"

namespace braid::inline algo {
namespace {

using PartNumbers = std::vector<double>;
using Samples = std::vector<size_t>;

// Five samples of two prompts.
AlgoBatch step_batch() {
  AlgoBatch out;
  out.response_lens = {3, 1, 2, 4, 2};
  out.groups = {5, 5, 8, 5, 8};
  int seed = 0;
  const auto numbers = [&](int64_t count) {
    PartNumbers values;
    for (int64_t i = 0; i < count; ++i) values.push_back(std::sin(1.7 * ++seed) - 0.3);
    return at::tensor(values, at::kDouble);
  };
  for (const char* field : {"rewards", "greedy_rewards"}) out.fields[field] = numbers(5);
  for (const char* field : {"old_logprobs", "ref_logprobs", "teacher_logprobs", "values",
                            "mismatched_logprobs", "mismatched_ref_logprobs"})
    out.fields[field] = numbers(12);
  return out;
}

// Some of its samples.
AlgoBatch picked(const AlgoBatch& whole, const Samples& samples) {
  AlgoBatch out;
  const std::vector<int64_t> begins = sample_begins(whole);
  for (const size_t s : samples) {
    out.response_lens.push_back(whole.response_lens[s]);
    out.groups.push_back(whole.groups[s]);
  }
  for (const auto& [name, tensor] : whole.fields) {
    const PartNumbers all = to_doubles(tensor);
    const bool tokens = all.size() > whole.groups.size();
    PartNumbers own;
    for (const size_t s : samples)
      own.insert(own.end(), all.begin() + static_cast<int64_t>(tokens ? begins[s] : s),
                 all.begin() + static_cast<int64_t>(tokens ? begins[s + 1] : s + 1));
    out.fields[name] = at::tensor(own, at::kDouble);
  }
  return out;
}

// With what all ranks know of the others.
AlgoBatch part_of(const AlgoBatch& whole, const Samples& samples) {
  AlgoBatch out = picked(whole, samples);
  out.step_rewards = *sample_numbers(whole, "rewards");
  out.step_groups = whole.groups;
  return out;
}

struct PartsOf {
  const char* name;  // of an algorithm
  ComputeFn function;
  bool of_groups = false;  // which stay whole
};
void PrintTo(const PartsOf& of, std::ostream* out) { *out << of.name; }

class StepParts : public testing::TestWithParam<PartsOf> {
 protected:
  ComputeResult run(const AlgoBatch& batch, AlgoState& state) const {
    return GetParam().function(batch, options_, state).value();
  }

  // Each part by itself, then with the sums of all.
  void expect_parts_make_the_whole(const std::vector<Samples>& parts) const {
    const AlgoBatch batch = step_batch();
    AlgoState state = start_;
    const ComputeResult whole = run(batch, state);
    StepSums sums;
    for (const Samples& part : parts) {
      AlgoState unused = start_;
      sums.merge(step_sums(numbers_of(run(part_of(batch, part), unused).sums)));
    }
    Metrics metrics;
    for (const Samples& part : parts) {
      AlgoBatch own = part_of(batch, part);
      own.step_sums = sums;
      AlgoState held = start_;
      const ComputeResult result = run(own, held);
      EXPECT_EQ(held, start_);
      note_step(sums, options_, held);
      ASSERT_EQ(held.size(), state.size());
      for (const auto& [name, value] : state) EXPECT_NEAR(held.at(name), value, 1e-14) << name;
      merge(metrics, result.metrics);
      AlgoBatch computed = batch;
      computed.fields = whole.fields;
      for (const auto& [name, values] : picked(computed, part).fields)
        EXPECT_THAT(to_doubles(result.fields.at(name)),
                    testing::Pointwise(testing::DoubleNear(1e-6), to_doubles(values)))
            << name;
    }
    ASSERT_EQ(metrics.size(), whole.metrics.size());
    for (const auto& [name, metric] : whole.metrics)
      EXPECT_NEAR(reported(name, metrics.at(name)), reported(name, metric), 1e-12) << name;
  }

  AlgorithmOptions options_ = default_options(GetParam().name);
  AlgoState start_;
};

TEST_P(StepParts, MakeTheWhole) {
  options_.kl.coef = 0.1;
  for (const char* normalize : {"none", "batch", "group"})
    for (const char* kl_in : {"loss", "reward"}) {
      SCOPED_TRACE(std::string(normalize) + " " + kl_in);
      options_.normalize_advantages = normalize, options_.kl.in = kl_in;
      const bool whole_groups = GetParam().of_groups || options_.normalize_advantages == "group";
      expect_parts_make_the_whole(whole_groups ? std::vector<Samples>{{2, 4}, {0, 1, 3}}
                                               : std::vector<Samples>{{1, 4}, {0}, {2, 3}});
    }
}

TEST_P(StepParts, MoveTheCoefficientAsTheWholeDoes) {
  options_.kl.coef = 0.1, options_.kl.in = "reward", options_.kl.controller = "adaptive";
  options_.kl.target = 0.05, options_.kl.horizon = 40;
  start_ = {{"kl_coef", 0.2}};
  expect_parts_make_the_whole({{2, 4}, {0, 1, 3}});
}

INSTANTIATE_TEST_SUITE_P(
    Functions, StepParts,
    testing::Values(PartsOf{"ppo", ppo_advantages}, PartsOf{"rloo", rloo_advantages, true},
                    PartsOf{"reinforce", reinforce_advantages},
                    PartsOf{"reinforce_plus_plus_baseline", reinforce_baseline_advantages},
                    PartsOf{"remax", remax_advantages}, PartsOf{"distill", distill_advantages},
                    PartsOf{"kto", kto_baseline}));

}  // namespace
}  // namespace braid::inline algo
