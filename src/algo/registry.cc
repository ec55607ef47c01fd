// The explicit tables of algorithm functions.
#include "algo/functions.h"
#include "algo/own_functions.h"
#include "base/text.h"

namespace braid::inline algo {
namespace {

const std::map<std::string, ComputeFn>& computes() {
  static const std::map<std::string, ComputeFn> table = {
      {"ppo_advantages", ppo_advantages},
      {"grpo_advantages", grpo_advantages},
      {"rloo_advantages", rloo_advantages},
      {"reinforce_advantages", reinforce_advantages},
      {"reinforce_baseline_advantages", reinforce_baseline_advantages},
      {"best_and_worst", best_and_worst},
      {"kto_baseline", kto_baseline},
      {"remax_advantages", remax_advantages},
      {"distill_advantages", distill_advantages},
      {"sampler_logprobs", sampler_logprobs}};
  return table;
}

const std::map<std::string, LossFn>& losses() {
  static const std::map<std::string, LossFn> table = {{"policy", policy_loss},
                                                      {"cispo", cispo_loss},
                                                      {"value", value_loss},
                                                      {"sft", sft_loss},
                                                      {"pairwise", pairwise_loss},
                                                      {"squared_error", squared_error_loss},
                                                      {"cross_entropy", cross_entropy_loss},
                                                      {"preference", preference_loss},
                                                      {"odds_ratio", odds_ratio_loss},
                                                      {"kto", kto_loss},
                                                      {"policy_and_value", policy_and_value_loss}};
  return table;
}

template <typename Fn>
Result<Fn> find(const std::map<std::string, Fn>& table, const std::string& kind,
                const std::string& name) {
  if (const auto found = table.find(name); found != table.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [known, unused] : table) names.push_back(known);
  return not_found(
      cat("unknown ", kind, " ", name, did_you_mean(name, names), "; known: ", join(names, ", ")));
}

}  // namespace

Result<ComputeFn> find_compute(const std::string& name) {
  if (is_own_function(name)) return own_advantages(name);
  return find(computes(), "compute function", name);
}

Result<LossFn> find_loss(const std::string& name) {
  if (is_own_function(name)) return own_loss(name);
  return find(losses(), "loss", name);
}

}  // namespace braid::inline algo
