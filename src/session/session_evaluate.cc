// Evaluation within a job: the responses are drawn in the layout of the call that generates, each
// replica its share of them, and scored in that of the reward call.
#include <algorithm>

#include "base/text.h"
#include "plan/make_problem.h"
#include "scoring/evaluate.h"
#include "scoring/score_samples.h"
#include "session/session.h"
#include "weights/roles.h"

namespace braid::inline session {
namespace {

using Scores = std::vector<std::vector<RewardOutcome>>;

std::string generated_text(const std::vector<Generated>& responses) {
  Json out = Json::array();
  for (const Generated& each : responses)
    out.push_back({each.sample.value, each.finish == Finish::kLength, each.response_ids});
  return out.dump();
}

Status add_generated(const std::string& text, std::vector<Generated>* out) {
  BRAID_ASSIGN(const Json rows, parse_json(text, "responses of a rank"));
  for (const Json& row : rows) {
    Generated& each = out->emplace_back();
    each.sample = SampleId{row[0].get<int64_t>()};
    each.finish = row[1].get<bool>() ? Finish::kLength : Finish::kStop;
    each.response_ids = row[2].get<std::vector<int32_t>>();
  }
  return ok_status();
}

}  // namespace

Result<EvalReport> Session::evaluate() {
  BRAID_CHECK(evaluator_ != nullptr, "no evaluation is configured");
  BRAID_TRY(announce(Command::kEvaluate));
  return take_evaluation();
}

Result<EvalReport> Session::take_evaluation() {
  const RankModels::Everything here(*models_);
  BRAID_ASSIGN(const std::vector<Generated> responses, evaluated_responses());
  BRAID_ASSIGN(const std::vector<RewardSample> samples, evaluator_->samples(responses));
  BRAID_ASSIGN(const Scores scores, evaluated_scores(samples));
  together_ = false;
  return rank() == 0 ? evaluator_->report(samples, scores, step()) : EvalReport();
}

// On every rank all of them.
Result<std::vector<Generated>> Session::evaluated_responses() {
  const auto& calls = program_.graph.calls;
  const auto generate = std::find_if(calls.begin(), calls.end(), [](const Call& call) {
    return call.kind == CallKind::kGenerate;
  });
  std::vector<Generated> mine;
  if (generate == calls.end()) {
    BRAID_ASSIGN(mine, responses_of_first_rank());
  } else {
    BRAID_ASSIGN(mine, responses_in_layout(id_of(*generate)));
  }
  if (exchange_.ranks() == 1) return mine;
  BRAID_ASSIGN(const auto texts, exchange_.gather_text(generated_text(mine), "responses"));
  std::vector<Generated> all;
  for (const std::string& text : texts) BRAID_TRY(add_generated(text, &all));
  return all;
}

// Of the replica of the call that this rank speaks for; the call's copy of the weights is brought
// up to date and goes as it goes after the call.
Result<std::vector<Generated>> Session::responses_in_layout(CallId generate) {
  BRAID_TRY(models_->fill_copy_of(generate));
  std::vector<Generated> out;
  if (takes_part(generate)) {
    const SampleRows own =
        deal_requests(evaluator_->responses(),
                      rows_.frame(generate).where->strategy)[rows_.dp_rank(generate, rank())];
    BRAID_ASSIGN(const std::unique_ptr<EngineRanks> ranks, work_.generation(generate));
    Model& policy = models_->model(generate);
    BRAID_ASSIGN(out, evaluator_->generate(policy, ranks.get(), {own.begin(), own.end()}));
    policy.rest();
    if (!rows_.leads_replica(generate, rank())) out.clear();
  }
  models_->forget(generate);
  return out;
}

// A graph that does not generate has no layout for it: the first rank has the whole policy.
Result<std::vector<Generated>> Session::responses_of_first_rank() {
  const std::string actor = "actor";
  if (models_->whole_on_first(actor)) {
    if (rank() != 0) return std::vector<Generated>();
    return evaluator_->generate(*roles().at(actor).model, nullptr, evaluator_->numbers());
  }
  BRAID_ASSIGN(const RoleTensors learnt, models_->gather(actor));
  if (rank() != 0) return std::vector<Generated>();
  BRAID_ASSIGN(const ModelInstance whole,
               whole_with(*find_role(program_.graph, RoleId{actor}), config_, learnt));
  return evaluator_->generate(*whole.model, nullptr, evaluator_->numbers());
}

// By the model of a call, on its ranks.
Result<std::vector<double>> Session::evaluated_by(const Call& call,
                                                  const std::vector<RewardSample>& samples) {
  SampleStore store(program_.graph);
  BRAID_ASSIGN(const std::vector<RewardSample> read,
               as_read(scoring_.reader_of(call.role.value), samples));
  BRAID_TRY(put_samples(read, store.responses_of(call), store));
  CallRows rows(config_, program_, store);
  const CallWork work(program_, *models_, rows, everyone(), needs_);
  const CallId id = id_of(call);
  InferredRows found;
  if (takes_part(id)) {
    BRAID_ASSIGN(found, inferred({call, store, rows, work, 0}));
  }
  std::map<size_t, double> by_number = by_row(found);
  if (!rows.leads_replica(id, rank())) by_number.clear();
  BRAID_TRY(share_values(&by_number));
  std::vector<double> values;
  for (size_t number = 0; number < samples.size(); ++number) values.push_back(by_number.at(number));
  return values;
}

// By the calls of reward models; of models that are no role, on the first rank.
Result<Scores> Session::evaluated_scores(const std::vector<RewardSample>& samples) {
  Scores out(config_.reward.size());
  bool any = false;
  for (const Call& call : program_.graph.calls) {
    // Of a step that scores twice, the first ones.
    if (call.kind == CallKind::kTrainStep || !is_reward_role(call.role.value)) continue;
    std::vector<RewardOutcome>& scores = out[*reward_model_index(config_, call.role.value)];
    any = true;
    if (!scores.empty() || samples.empty()) continue;
    BRAID_ASSIGN(const std::vector<double> values, evaluated_by(call, samples));
    scores = score_outcomes(values);
  }
  if (any) return out;
  const bool trains = asks_rewards(config_, program_.graph);
  return score_with(trains ? scoring_.models() : eval_models_, scoring_.readers(), samples,
                    config_.train);
}

}  // namespace braid::inline session
