#include "session/reward_calls.h"

#include <ATen/ops/tensor.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "algo/batch.h"
#include "base/text.h"
#include "host/work_section.h"
#include "plan/make_problem.h"
#include "samples/step_metrics.h"
#include "session/rank_report.h"

namespace braid::inline session {
namespace {

// Others are of responses that are not learnt from.
constexpr const char* kLearntRewards = "rewards";

}  // namespace

Status share_values(FieldExchange& exchange, std::map<size_t, double>* by_row) {
  if (exchange.ranks() == 1) return ok_status();
  BRAID_ASSIGN(const auto texts, exchange.gather_text(values_text(*by_row), "scores"));
  for (const std::string& text : texts) BRAID_TRY(add_values(text, by_row));
  return ok_status();
}

Result<InferredRows> RewardCalls::scored_by_model(const Call& call, SamplePart part) {
  if (!scoring_.reader_of(call.role.value)) return infer_.run_in_step(call, step_.store, part);
  const Rows own = step_.rows.mine(step_.id_of(call), step_.position.step, step_.rank(), part);
  BRAID_ASSIGN(const SampleStore read,
               scoring_.as_read_by(call, step_.program.graph, step_.store, own));
  return infer_.run_in_step(call, read, part);
}

Status RewardCalls::infer(const Call& call, SamplePart part) {
  // Replayed rollouts bring what reward models would say.
  const bool asks = asks_rewards(step_.config, step_.program.graph);
  if (is_reward_role(call.role.value) && !asks) return ok_status();
  BRAID_ASSIGN(const InferredRows done, scored_by_model(call, part));
  const std::string& field = call.writes.front().name;
  if (done.values.defined()) BRAID_TRY(step_.store.put_reals(field, done.rows, done.values));
  const bool own = field == "old_logprobs";  // not the reference's
  const bool reports = step_.rows.at(step_.id_of(call), step_.rank()).tp_rank == 0;
  if (reports && own) note_mismatch(step_.store, done.rows, step_.record.metrics);
  return ok_status();
}

bool RewardCalls::asks_beside_model(const Call& call) const {
  return step_.ranks() > 1 && uses_model(call) && asks_rewards(step_.config, step_.program.graph);
}

// Replayed rewards are where the rollouts were read, which need not be a rank of this call.
Status RewardCalls::reward(const Call& call) {
  if (!asks_rewards(step_.config, step_.program.graph)) return ok_status();
  const CallId id = step_.id_of(call);
  std::map<size_t, double> scores;
  if (uses_model(call)) {
    BRAID_ASSIGN(const InferredRows inferred, scored_by_model(call));
    if (step_.rows.leads_replica(id, step_.rank())) scores = by_row(inferred);
  }
  if (!asks_beside_model(call)) {
    const std::vector<Rows> asked = step_.rows.scored_by_rank(id, step_.position.step);
    return step_.talk.until_told(score(call, asked[step_.rank()], scores));
  }
  found_[id].of_model = std::move(scores);
  return ok_status();
}

// `by_row` is the call's own one, others have written fields.
Result<ModelScores> RewardCalls::model_scores(const Call& call, const Rows& rows,
                                              const std::map<size_t, double>& by_row) const {
  ModelScores out;
  if (!by_row.empty()) {
    std::vector<double>& own = out[*reward_model_index(step_.config)];
    for (const size_t row : rows) own.push_back(by_row.at(row));
  }
  for (const Call& before : step_.program.graph.calls) {
    if (before.kind != CallKind::kInfer || !is_reward_role(before.role.value)) continue;
    const std::string& field = before.writes.front().name;
    if (std::count(call.reads.begin(), call.reads.end(), field) == 0) continue;
    BRAID_ASSIGN(const at::Tensor scores, step_.store.reals(field, rows));
    out[*reward_model_index(step_.config, before.role.value)] = to_doubles(scores);
  }
  return out;
}

Status RewardCalls::score(const Call& call, const Rows& rows,
                          const std::map<size_t, double>& scores) {
  FoundScores& found = found_[step_.id_of(call)];
  found.rows = rows;
  if (rows.empty()) return ok_status();
  const WorkSection section;
  const SampleStore& store = step_.store;
  if (asks_rewards(step_.config, step_.program.graph)) {
    BRAID_ASSIGN(const ModelScores of_models, model_scores(call, rows, scores));
    BRAID_ASSIGN(found.scored, scoring_.score(call, store, rows, step_.position.step, of_models));
  } else {
    found.scored = Scoring::replayed(generation_.replayed(store.responses_of(call)), store, rows);
  }
  return scoring_.record(call, found.scored, store, rows, step_.position.step);
}

Result<ScoredSamples> RewardCalls::merged(const ScoredSamples& mine, const Rows& rows) {
  if (step_.ranks() == 1) return mine;
  const bool has = !step_.talk.keeps_failure() && !rows.empty();
  const std::string text = has ? scored_text(mine, rows) : "";
  BRAID_ASSIGN(const auto texts, step_.talk.gather_or_fail(text, "rewards"));
  return merge_scored(texts, step_.store.size());
}

// Samples that have no reward leave the step.
Status RewardCalls::keep(const Call& call, const ScoredSamples& scored) {
  SampleStore& store = step_.store;
  const std::vector<float> rewards(scored.total.begin(), scored.total.end());
  const Field& field = call.writes.front();
  BRAID_TRY(store.put_reals(field.name, store.all_rows(), at::tensor(rewards)));
  if (field.name == kLearntRewards) store.set_rewards(scored.by_name);
  if (step_.ranks() > 1) {
    // Before rows get other numbers: what calls before have made of them.
    const int32_t end = shared_before(step_.program.graph)[step_.id_of(call).value];
    for (int32_t before = 0; before < end; ++before)
      account_.note_written(CallId{before}, step_.position.step);
    step_.exchange.note_everywhere(field.name);
    step_.exchange.holdings().retain(scored.kept);
  }
  store.retain(scored.kept);
  for (auto& [other, pending] : found_) retain(scored.kept, &pending);
  step_.rows.forget();
  step_.talk.note_alike(store.size() == 0);
  if (store.size() == 0)
    return {Code::kStopped,
            "reward: no sample of the step can be used: rewards failed (on_error: drop) or do not "
            "apply (None); the warnings above say why"};
  return ok_status();
}

Status RewardCalls::share(const Call& call) {
  const CallId id = step_.id_of(call);
  const std::vector<Rows> asked = step_.rows.scored_by_rank(id, step_.position.step);
  const Rows& mine = asked[step_.rank()];
  std::map<size_t, double> scores = std::move(found_[id].of_model);
  const bool beside_model = asks_beside_model(call);
  if (beside_model) BRAID_TRY(share_values(step_.exchange, &scores));
  const auto begin = std::chrono::steady_clock::now();
  if (beside_model || !asks_rewards(step_.config, step_.program.graph))
    BRAID_TRY(step_.talk.until_told(score(call, mine, scores)));
  if (beside_model && !mine.empty())
    step_.record.seconds[call.name] +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const FoundScores found = std::exchange(found_[id], {});
  found_.erase(id);
  BRAID_ASSIGN(const ScoredSamples scored, merged(found.scored, found.rows));
  if (step_.rank() == 0 && call.writes.front().name == kLearntRewards)
    note_rewards(scored, step_.record.metrics);
  return keep(call, scored);
}

}  // namespace braid::inline session
