#include "session/job_evaluation.h"

#include <algorithm>
#include <set>

#include "algo/batch.h"
#include "passes/replica_round.h"
#include "plan/make_problem.h"
#include "scoring/score_samples.h"

namespace braid::inline session {

Result<EvalReport> JobEvaluation::run() {
  const RankModels::Everything here(step_.models);
  const CallId by = drawing_call();
  const std::vector<SampleRows> shares =
      partition_requests(evaluator_->responses(), step_.rows.frame(by).where->strategy);
  BRAID_ASSIGN(const std::vector<Generated> mine, draw(by, shares));
  EvaluatedSamples samples(step_.program.graph, step_.exchange.everyone(), evaluator_->responses(),
                           step_.config.eval.samples_per_prompt, drawn_by_rank(by, shares));
  BRAID_TRY(samples.share(mine));
  for (const Call* call : scoring_calls()) BRAID_TRY(score_by(*call, samples));
  BRAID_TRY(samples.bring_to_first());
  step_.talk.part();  // what fails from here on is the first rank's alone
  if (step_.rank() != 0) return EvalReport();
  BRAID_ASSIGN(const std::vector<Generated> drawn, samples.responses(samples.store().all_rows()));
  BRAID_ASSIGN(const std::vector<RewardSample> asked, evaluator_->samples(drawn));
  BRAID_ASSIGN(const Scores found, scores_of(asked, samples.store()));
  return evaluator_->report(asked, found, step_.position.step);
}

// The one that generates; else the one that learns, whose copy of the policy is there anyway.
CallId JobEvaluation::drawing_call() const {
  const auto& calls = step_.program.graph.calls;
  const auto first = [&](const auto& matches) {
    return std::find_if(calls.begin(), calls.end(), matches);
  };
  auto found = first([](const Call& call) { return call.kind == CallKind::kGenerate; });
  if (found == calls.end())
    found = first([](const Call& call) {
      return call.kind == CallKind::kTrainStep && call.role.value == "actor";
    });
  BRAID_CHECK(found != calls.end(), "a policy that answers learns");
  return step_.id_of(*found);
}

// The rows that each rank speaks for.
std::vector<SampleRows> JobEvaluation::drawn_by_rank(CallId call,
                                                     const std::vector<SampleRows>& shares) const {
  return step_.program.calls.empty() ? shares : on_heads(step_.program, call, shares);
}

// What this rank speaks for. The call's copy of the weights is brought up to date and goes as it
// goes after the call.
Result<std::vector<Generated>> JobEvaluation::draw(CallId call,
                                                   const std::vector<SampleRows>& shares) {
  BRAID_TRY(step_.models.fill_copy_of(call));
  std::vector<Generated> out;
  if (step_.takes_part(call)) {
    const SampleRows& own = shares[step_.rows.dp_rank(call, step_.rank())];
    BRAID_ASSIGN(const std::unique_ptr<EngineRanks> ranks, step_.work.generation(call));
    Model& policy = step_.models.model(call);
    BRAID_ASSIGN(out, evaluator_->generate(policy, ranks.get(), {own.begin(), own.end()},
                                           together(call, policy)));
    policy.rest();
    if (!step_.rows.leads_replica(call, step_.rank())) out.clear();
  }
  step_.models.forget(call);
  return out;
}

// Ranks that have slices of the weights bring them layer by layer, all of them in each round.
Evaluator::RoundsTogether JobEvaluation::together(CallId call, Model& policy) const {
  if (step_.ranks() == 1) return {};
  Communicator* const weights = step_.models.groups(call).weights;
  if (weights == nullptr) return {};
  return [weights, &policy](bool left) -> Result<bool> {
    BRAID_ASSIGN(const bool any, on_any_rank(left, weights, "whether responses are left"));
    if (any && !left) ReplicaRound::pass_by(policy);
    return any;
  };
}

// Those of reward models; of a step that scores twice, the first ones.
std::vector<const Call*> JobEvaluation::scoring_calls() const {
  std::vector<const Call*> out;
  std::set<std::string> roles;
  for (const Call& call : step_.program.graph.calls)
    if (call.kind != CallKind::kTrainStep && is_reward_role(call.role.value) &&
        roles.insert(call.role.value).second)
      out.push_back(&call);
  return out;
}

// On the ranks of the call, each of which gets the tokens of what it scores.
Status JobEvaluation::score_by(const Call& call, EvaluatedSamples& samples) {
  SampleStore& store = samples.store();
  store.set_lens_of(call, store.response_lens());
  CallRows rows(step_.config, step_.program, store);
  const CallId id = step_.id_of(call);
  const std::vector<SampleRows> needed = rows.by_rank(id, 0);
  BRAID_TRY(samples.bring(needed));
  const CallWork work(step_.program, step_.models, rows, step_.exchange.everyone(), needs_);
  InferredRows found;
  if (step_.takes_part(id)) {
    BRAID_ASSIGN(const SampleStore read, as_read_by(call, samples, rows_of(needed[step_.rank()])));
    BRAID_ASSIGN(found, infer_.run({call, read, rows, work, 0, true}));
  }
  const std::vector<SampleRows> said =
      step_.program.calls.empty() ? needed : rows.told_by_rank(id, 0);
  return samples.put(call.writes.front(), said, by_row(found));
}

// In the tokens of the call's model.
Result<SampleStore> JobEvaluation::as_read_by(const Call& call, EvaluatedSamples& samples,
                                              const Rows& rows) const {
  BRAID_ASSIGN(const std::vector<Generated> drawn, samples.responses(rows));
  BRAID_ASSIGN(std::vector<RewardSample> asked, evaluator_->samples(drawn));
  BRAID_ASSIGN(asked, as_read(scoring_.reader_of(call.role.value), std::move(asked)));
  const SampleStore& store = samples.store();
  return store_as_read(step_.program.graph, store, rows, store.responses_of(call),
                       std::move(asked));
}

// On the first rank: what the calls found, or what models that are no role say.
Result<JobEvaluation::Scores> JobEvaluation::scores_of(const std::vector<RewardSample>& asked,
                                                       const SampleStore& store) const {
  Scores out(step_.config.reward.size());
  const std::vector<const Call*> calls = scoring_calls();
  for (const Call* call : calls) {
    BRAID_ASSIGN(const at::Tensor values, store.reals(call->writes.front().name, store.all_rows()));
    out[*reward_model_index(step_.config, call->role.value)] = score_outcomes(to_doubles(values));
  }
  if (!calls.empty()) return out;
  const bool trains = asks_rewards(step_.config, step_.program.graph);
  return score_with(trains ? scoring_.models() : models_, scoring_.readers(), asked,
                    step_.config.train);
}

}  // namespace braid::inline session
