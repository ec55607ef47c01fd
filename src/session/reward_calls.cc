#include "session/reward_calls.h"

#include <ATen/ops/tensor.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "algo/batch.h"
#include "base/text.h"
#include "comm/transfer_audit.h"
#include "host/work_section.h"
#include "interpret/interpreter.h"
#include "plan/make_problem.h"
#include "samples/step_metrics.h"

namespace braid::inline session {
namespace {

// Others are of responses that are not learnt from.
constexpr const char* kLearntRewards = "rewards";

// What a rank says of itself in the share of a reward (words_beside()), behind whether it failed.
enum Said : size_t { kTimeouts = 1, kErrors };

// Of a reward call: who is kept.
const std::string& kept_field(const Call& call) {
  for (const Field& field : call.writes)
    if (field.type == FieldType::kCount) return field.name;
  BRAID_CHECK(false, "call " + call.name + " says who is kept");
}

}  // namespace

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
Status RewardCalls::reward(const Call& call, SamplePart part) {
  if (!asks_rewards(step_.config, step_.program.graph)) return ok_status();
  const CallId id = step_.id_of(call);
  if (of_hand_over(step_.program, id, part)) return reward_early(call, part);
  std::map<size_t, double> scores;
  if (uses_model(call)) {
    BRAID_ASSIGN(const InferredRows inferred, scored_by_model(call));
    if (step_.rows.leads_replica(id, step_.rank())) scores = by_row(inferred);
  }
  if (asks_beside_model(call)) {
    found_[id].of_model = std::move(scores);
    return ok_status();
  }
  const std::vector<SampleRows> asked = step_.rows.asked_last(id, step_.position.step);
  return step_.talk.until_told(score(call, rows_of(asked[step_.rank()]), scores));
}

// Where they are not found, or a sample is dropped, all ranks hear of it when they are shared, and
// what was trained until then counts for nothing.
Status RewardCalls::reward_early(const Call& call, SamplePart part) {
  const CallId id = step_.id_of(call);
  const Rows rows = step_.rows.mine(id, step_.position.step, step_.rank(), part);
  if (rows.empty()) return ok_status();
  std::vector<float> totals(rows.size(), 0);
  const Status scored = guarded([&] { return score(call, rows, {}); });
  const FoundScores& found = found_[id];
  const size_t before = found.rows.size() - (scored.ok() ? rows.size() : 0);
  for (size_t i = 0; scored.ok() && i < rows.size(); ++i)
    if (found.scored.kept[before + i])
      totals[i] = static_cast<float>(found.scored.total[before + i]);
  BRAID_TRY(step_.talk.until_told(scored));
  return step_.store.put_reals(call.writes.front().name, rows, at::tensor(totals));
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
  if (rows.empty()) return ok_status();
  const WorkSection section;
  const SampleStore& store = step_.store;
  ScoredSamples scored;
  if (asks_rewards(step_.config, step_.program.graph)) {
    BRAID_ASSIGN(const ModelScores of_models, model_scores(call, rows, scores));
    BRAID_ASSIGN(scored, scoring_.score(call, store, rows, step_.position.step, of_models));
  } else {
    scored = Scoring::replayed(generation_.replayed(store.responses_of(call)), store, rows);
  }
  BRAID_TRY(scoring_.record(call, scored, store, rows, step_.position.step));
  append(rows, std::move(scored), &found);
  return ok_status();
}

// In the store, of the rows that this rank was asked about.
Status RewardCalls::put(const Call& call, const FoundScores& found) {
  SampleStore& store = step_.store;
  const std::vector<float> totals(found.scored.total.begin(), found.scored.total.end());
  const Field& field = call.writes.front();
  BRAID_TRY(store.put_reals(field.name, found.rows, at::tensor(totals)));
  if (field.name == kLearntRewards) store.set_rewards(found.rows, found.scored.by_name);
  if (step_.ranks() == 1) return ok_status();
  std::vector<int64_t> kept(store.size(), 0);
  for (size_t i = 0; i < found.rows.size(); ++i) kept[found.rows[i]] = found.scored.kept[i] ? 1 : 0;
  store.set_counts(kept_field(call), std::move(kept));
  return ok_status();
}

// Fails alike on all ranks where one of them has.
Result<RewardFailures> RewardCalls::tell(const Exchange& shared, const FoundScores& found) {
  const Call& call = step_.call(shared.producer);
  const int32_t failed = step_.talk.failed_word();
  if (failed == 0) BRAID_TRY(put(call, found));
  RewardFailures own{found.scored.timeouts, found.scored.errors};
  if (step_.ranks() == 1) return own;
  SaidBeside beside{{failed}, failed == 0};
  for (const int64_t word : {own.timeouts, own.errors})
    beside.words.push_back(static_cast<int32_t>(word));
  BRAID_ASSIGN(const auto said, account_.share(shared, step_.position.step, beside));
  BRAID_TRY(step_.talk.hear(said, "failed rewards"));
  RewardFailures all;
  for (const std::vector<int32_t>& rank : said)
    all.timeouts += rank[kTimeouts], all.errors += rank[kErrors];
  return all;
}

// Samples that have no reward leave the step.
Status RewardCalls::keep(const Call& call, const std::vector<bool>& kept) {
  SampleStore& store = step_.store;
  const int32_t end = shared_before(step_.program.graph)[step_.id_of(call).value];
  if (step_.ranks() > 1) {
    // Before rows get other numbers: what calls before have made of them.
    for (CallId before{0}; before.value < end; ++before.value)
      for (const SamplePart part : scores_beside(step_.program, before)
                                       ? parts_scored_for(step_.program, before, SamplePart::kEarly)
                                       : std::vector<SamplePart>{SamplePart::kAll})
        account_.note_written(before, step_.position.step, part);
    step_.exchange.holdings().retain(kept);
  }
  step_.rows.retain(kept, step_.position.step, CallId{end});
  store.retain(kept);
  for (auto& [other, pending] : found_) retain(kept, &pending);
  step_.talk.note_alike(store.size() == 0);
  if (store.size() == 0)
    return {Code::kStopped,
            "reward: no sample of the step can be used: rewards failed (on_error: drop) or do not "
            "apply (None); the warnings above say why"};
  return ok_status();
}

// Where the list has not been asked in the call itself.
Status RewardCalls::score_late(const Exchange& shared) {
  const Call& call = step_.call(shared.producer);
  const int64_t step = step_.position.step;
  std::map<size_t, double> scores = std::move(found_[shared.producer].of_model);
  if (asks_beside_model(call)) {
    BRAID_ASSIGN(scores, account_.tell_scores(shared, step, scores));
  } else if (asks_rewards(step_.config, step_.program.graph)) {
    return ok_status();
  }
  const Rows mine = step_.ranks() == 1 ? step_.store.all_rows() : account_.said_in(shared, step);
  const auto begin = std::chrono::steady_clock::now();
  BRAID_TRY(step_.talk.until_told(score(call, mine, scores)));
  if (asks_beside_model(call) && !mine.empty())
    step_.record.seconds[call.name] +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return ok_status();
}

Status RewardCalls::share(const Exchange& shared) {
  const Call& call = step_.call(shared.producer);
  BRAID_TRY(score_late(shared));
  const FoundScores found = std::exchange(found_[shared.producer], {});
  found_.erase(shared.producer);
  BRAID_ASSIGN(const RewardFailures failures, tell(shared, found));
  std::vector<bool> kept = found.scored.kept;
  if (step_.ranks() > 1) {
    const std::vector<int64_t> told = step_.store.counts(kept_field(call));
    kept.assign(told.begin(), told.end());
  }
  if (call.writes.front().name == kLearntRewards) {
    note_rewards(found.scored, step_.record.metrics);
    if (step_.rank() == 0) note_failures(failures, kept, step_.record.metrics);
  }
  return keep(call, kept);
}

}  // namespace braid::inline session
