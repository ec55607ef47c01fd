#include "session/generate_calls.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "host/work_section.h"
#include "samples/step_metrics.h"
#include "session/call_balance.h"
#include "session/length_predictions.h"

namespace braid::inline session {

Status GenerateCalls::begin(const Call& call) {
  const CallId id = step_.id_of(call);
  BRAID_ASSIGN(std::unique_ptr<EngineRanks> ranks, step_.work.generation(id));
  if (carried_) carried_->begin_generation();
  CallRows& rows = samples_.rows(call);
  const int64_t step = step_.position.step;
  return generation_.begin(call, step_.models.model(id), std::move(ranks), samples_.store(call),
                           rows.mine(id, step, step_.rank()), step, rows.predicted());
}

Status GenerateCalls::advance(const Call& call, const std::function<Status()>& act) {
  const WorkSection section;
  const int64_t before = generation_.cuts();
  BRAID_TRY(act());
  if (generation_.cuts() > before) ++step_.record.repeats[call.name];
  return ok_status();
}

Status GenerateCalls::round(const Call& call) {
  return advance(call, [&] { return generation_.round(); });
}

Status GenerateCalls::agree(const Call& call) {
  return advance(call, [&] { return generation_.settle(); });
}

bool GenerateCalls::done(ExitCondition exit) const {
  return exit == ExitCondition::kEnoughGroups ? carried_->enough() : generation_.drained();
}

Status GenerateCalls::end(const Call& call) {
  SampleStore& store = samples_.store(call);
  if (carried_) BRAID_TRY(carried_->end_generation());
  BRAID_TRY(generation_.finish(store));
  const int64_t step = step_.position.step;
  if (CallSamples::ahead(call) && !carried_)
    store.set_counts(kWeightsVersion, std::vector<int64_t>(store.size(), step));
  const CallId id = step_.id_of(call);
  step_.record.ledger.expect(
      call.name, carried_ ? carried_->samples_taken() : static_cast<int64_t>(store.size()));
  if (!step_.rows.leads_replica(id, step_.rank())) return ok_status();
  const Rows mine =
      carried_ ? carried_->own_taken() : samples_.rows(call).mine(id, step, step_.rank());
  const std::string responses = store.responses_of(call);
  step_.record.ledger.computed(call.name, rows_with_tokens(store, responses, mine));
  if (responses == "response_ids") note_lengths(store, mine, samples_.metrics(call));
  return ok_status();
}

Status GenerateCalls::share(const Exchange& shared) {
  const Call& call = step_.call(shared.producer);
  BRAID_TRY(samples_.account(call).share(shared, step_.position.step).status());
  note_predictions(call);
  note_balance(step_, call, samples_.rows(call), samples_.store(call));
  return ok_status();
}

// What was predicted is known on all ranks, and now what became of it too: the first one says it.
void GenerateCalls::note_predictions(const Call& call) {
  const bool drawn =
      call.kind == CallKind::kGenerate && samples_.store(call).responses_of(call) == "response_ids";
  if (step_.rank() != 0 || !drawn) return;
  if (const auto found = length_correlation(step_.store, step_.rows.predicted()))
    step_.record.metrics["rollout/length_correlation"].add(*found);
}

}  // namespace braid::inline session
