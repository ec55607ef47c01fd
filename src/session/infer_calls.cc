#include "session/infer_calls.h"

#include <utility>

#include "plan/make_problem.h"

namespace braid::inline session {
namespace {

// Of a call that does not train.
int64_t rows_in(const Partition& partition) {
  return std::ssize(partition.minibatches.front().rows);
}

}  // namespace

InferCalls::InferCalls(const StepContext& step)
    : step_(step),
      inference_(step.config.rollout.temperature, shares_prompts(step.config, step.program.graph)) {
}

Result<InferWork> InferCalls::work_of(const InferOf& what) {
  const CallId id = step_.id_of(what.call);
  if (!what.own_lengths)
    return what.work.inference(id, what.rows.partition(id, what.step, what.part), what.part);
  read_ = what.rows.partition_of(what.store, id, what.step, step_.rank(), what.part);
  return what.work.inference(id, read_, what.part);
}

Result<InferWork> InferCalls::reserved(const InferOf& what) {
  BRAID_ASSIGN(InferWork work, work_of(what));
  while (true) {
    BRAID_ASSIGN(const bool fits, Inference::reserve(work));
    if (fits || !cut_smaller(step_, what.call, what.rows, 0, kDeclared, what.part)) return work;
    BRAID_ASSIGN(work, work_of(what));
  }
}

Result<InferredRows> InferCalls::run(const InferOf& what) {
  BRAID_ASSIGN(InferWork work, reserved(what));
  BRAID_ASSIGN(InferredRows done, inference_.run(std::move(work), what.store));
  while (done.ran_out) {
    if (!cut_smaller(step_, what.call, what.rows, 0, done.why, what.part))
      return too_little_memory(done.why);
    BRAID_ASSIGN(work, reserved(what));
    BRAID_ASSIGN(done, inference_.run(std::move(work), what.store));
  }
  return done;
}

Result<InferredRows> InferCalls::run_in_step(const Call& call, const SampleStore& store,
                                             SamplePart part) {
  const CallId id = step_.id_of(call);
  SampleLedger& ledger = step_.record.ledger;
  ledger.expect(call.name, rows_in(step_.rows.partition(id, step_.position.step, part)));
  // Ranks that still generate have none of what has finished.
  if (begins_apart(step_.program, id, part) &&
      step_.rows.read_by_rank(id, step_.position.step, part)[step_.rank()].empty())
    return InferredRows();
  BRAID_ASSIGN(InferredRows done, run({call, store, step_.rows, step_.work, step_.position.step,
                                       &store != &step_.store, part}));
  if (step_.rows.at(id, step_.rank()).tp_rank == 0)
    ledger.computed(call.name, static_cast<int64_t>(done.rows.size()));
  return done;
}

}  // namespace braid::inline session
