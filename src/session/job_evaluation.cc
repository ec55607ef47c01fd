#include "session/job_evaluation.h"

#include <algorithm>

#include "base/text.h"
#include "comm/rank_texts.h"
#include "plan/make_problem.h"
#include "scoring/evaluate.h"
#include "scoring/score_samples.h"
#include "weights/roles.h"

namespace braid::inline session {
namespace {

using Scores = std::vector<std::vector<RewardOutcome>>;

// With a reward model, samples of a step or of an evaluation.
bool is_scoring(const Call& call) {
  return call.kind != CallKind::kTrainStep && is_reward_role(call.role.value);
}

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

Result<EvalReport> JobEvaluation::run() {
  const RankModels::Everything here(step_.models);
  BRAID_ASSIGN(const std::vector<Generated> drawn, responses());
  if (!scored_by_calls()) {
    step_.talk.part();  // what fails from here on is the first rank's alone
    if (step_.rank() != 0) return EvalReport();
  }
  BRAID_ASSIGN(const std::vector<RewardSample> samples, evaluator_->samples(drawn));
  BRAID_ASSIGN(const Scores found, scores(samples));
  step_.talk.part();
  return step_.rank() == 0 ? evaluator_->report(samples, found, step_.position.step) : EvalReport();
}

// Whether calls of reward models score, on ranks of their own.
bool JobEvaluation::scored_by_calls() const {
  const auto& calls = step_.program.graph.calls;
  return std::any_of(calls.begin(), calls.end(), is_scoring);
}

// On the first rank all of them, and on every rank where calls score.
Result<std::vector<Generated>> JobEvaluation::responses() {
  const auto& calls = step_.program.graph.calls;
  const auto generate = std::find_if(calls.begin(), calls.end(), [](const Call& call) {
    return call.kind == CallKind::kGenerate;
  });
  std::vector<Generated> mine;
  if (generate == calls.end()) {
    BRAID_ASSIGN(mine, responses_of_first_rank());
  } else {
    BRAID_ASSIGN(mine, responses_in_layout(step_.id_of(*generate)));
  }
  Communicator* const all = step_.exchange.everyone();
  const auto hear = [&](const std::string& text) { return add_generated(text, &mine); };
  const char* const what = "responses";
  BRAID_TRY(merge_to_first(all, {[&] { return generated_text(mine); }, hear}, what));
  if (all == nullptr || !scored_by_calls()) return mine;
  BRAID_ASSIGN(const std::string text,
               text_of_first(all, step_.rank() == 0 ? generated_text(mine) : "", what));
  if (step_.rank() == 0) return mine;
  mine.clear();
  BRAID_TRY(add_generated(text, &mine));
  return mine;
}

// Of the replica of the call that this rank speaks for; the call's copy of the weights is brought
// up to date and goes as it goes after the call.
Result<std::vector<Generated>> JobEvaluation::responses_in_layout(CallId generate) {
  BRAID_TRY(step_.models.fill_copy_of(generate));
  std::vector<Generated> out;
  if (step_.takes_part(generate)) {
    const SampleRows own = partition_requests(
        evaluator_->responses(),
        step_.rows.frame(generate).where->strategy)[step_.rows.dp_rank(generate, step_.rank())];
    BRAID_ASSIGN(const std::unique_ptr<EngineRanks> ranks, step_.work.generation(generate));
    Model& policy = step_.models.model(generate);
    BRAID_ASSIGN(out, evaluator_->generate(policy, ranks.get(), {own.begin(), own.end()}));
    policy.rest();
    if (!step_.rows.leads_replica(generate, step_.rank())) out.clear();
  }
  step_.models.forget(generate);
  return out;
}

// A graph that does not generate has no layout for it: the first rank has the whole policy.
Result<std::vector<Generated>> JobEvaluation::responses_of_first_rank() {
  const std::string actor = "actor";
  if (step_.models.whole_on_first(actor)) {
    if (step_.rank() != 0) return std::vector<Generated>();
    return evaluator_->generate(*step_.models.roles().at(actor).model, nullptr,
                                evaluator_->numbers());
  }
  BRAID_ASSIGN(const NamedTensors learnt, step_.models.gather(actor));
  if (step_.rank() != 0) return std::vector<Generated>();
  BRAID_ASSIGN(const ModelInstance whole,
               whole_with(*find_role(step_.program.graph, RoleId{actor}), step_.config, learnt));
  return evaluator_->generate(*whole.model, nullptr, evaluator_->numbers());
}

// By the model of a call, on its ranks.
Result<std::vector<double>> JobEvaluation::scores_by(const Call& call,
                                                     const std::vector<RewardSample>& samples) {
  SampleStore store(step_.program.graph);
  BRAID_ASSIGN(const std::vector<RewardSample> read,
               as_read(scoring_.reader_of(call.role.value), samples));
  BRAID_TRY(put_samples(read, store.responses_of(call), store));
  CallRows rows(step_.config, step_.program, store);
  const CallWork work(step_.program, step_.models, rows, step_.exchange.everyone(), needs_);
  const CallId id = step_.id_of(call);
  InferredRows found;
  if (step_.takes_part(id)) {
    BRAID_ASSIGN(found, infer_.run({call, store, rows, work, 0}));
  }
  std::map<size_t, double> by_number = by_row(found);
  if (!rows.leads_replica(id, step_.rank())) by_number.clear();
  if (step_.ranks() > 1) {
    std::vector<Rows> said;
    for (const SampleRows& each : rows.told_by_rank(id, 0)) said.push_back(rows_of(each));
    BRAID_ASSIGN(by_number, step_.exchange.gather_numbers(said, by_number, "scores"));
  }
  std::vector<double> values;
  for (size_t number = 0; number < samples.size(); ++number) values.push_back(by_number.at(number));
  return values;
}

// By the calls of reward models; of models that are no role, on the first rank.
Result<Scores> JobEvaluation::scores(const std::vector<RewardSample>& samples) {
  Scores out(step_.config.reward.size());
  bool any = false;
  for (const Call& call : step_.program.graph.calls) {
    // Of a step that scores twice, the first ones.
    if (!is_scoring(call)) continue;
    std::vector<RewardOutcome>& found = out[*reward_model_index(step_.config, call.role.value)];
    any = true;
    if (!found.empty() || samples.empty()) continue;
    BRAID_ASSIGN(const std::vector<double> values, scores_by(call, samples));
    found = score_outcomes(values);
  }
  if (any) return out;
  const bool trains = asks_rewards(step_.config, step_.program.graph);
  return score_with(trains ? scoring_.models() : models_, scoring_.readers(), samples,
                    step_.config.train);
}

}  // namespace braid::inline session
