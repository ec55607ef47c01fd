#include "session/compute_calls.h"

#include <bit>
#include <chrono>
#include <utility>

#include "algo/batch.h"
#include "base/contains.h"
#include "host/work_section.h"

namespace braid::inline session {

namespace {

constexpr const char* kRewards = "rewards";  // those that samples are compared by

// What a rank says in the share: whether it has failed, then its sums, two words a number.
static_assert(kWordsOfSums == 1 + 2 * kStepSumNumbers);

std::vector<int32_t> words_of(int32_t failed, const StepSums& sums) {
  std::vector<int32_t> out = {failed};
  for (const double number : numbers_of(sums)) {
    const auto bits = std::bit_cast<uint64_t>(number);
    out.push_back(static_cast<int32_t>(bits >> 32));
    out.push_back(static_cast<int32_t>(bits));
  }
  return out;
}

StepSums sums_in(const std::vector<int32_t>& words) {
  std::vector<double> numbers;
  for (size_t at = 1; at < words.size(); at += 2) {
    const auto high = static_cast<uint32_t>(words[at]), low = static_cast<uint32_t>(words[at + 1]);
    numbers.push_back(std::bit_cast<double>(uint64_t{high} << 32 | low));
  }
  return step_sums(numbers);
}

}  // namespace

Result<ComputeResult> ComputeCalls::run(const Call& call, const Rows& rows, AlgoState& state,
                                        const std::optional<StepSums>& of_step) const {
  BRAID_ASSIGN(const ComputeFn function, find_compute(call.function));
  BRAID_ASSIGN(AlgoBatch batch, step_.store.gather(call.reads, rows));
  if (rows.size() < step_.store.size() && contains(call.reads, kRewards)) {
    BRAID_ASSIGN(const at::Tensor rewards, step_.store.reals(kRewards, step_.store.all_rows()));
    batch.step_rewards = to_doubles(rewards);
    batch.step_groups = step_.store.counts("groups");
  }
  batch.step_sums = of_step;
  return function(batch, step_.config.algorithm, state);
}

Result<Metrics> ComputeCalls::compute_rows(const Call& call, const Rows& rows, AlgoState& state,
                                           const std::optional<StepSums>& of_step) const {
  if (rows.empty()) return Metrics();
  BRAID_ASSIGN(ComputeResult result, run(call, rows, state, of_step));
  for (const Field& field : call.writes)
    BRAID_TRY(step_.store.put_reals(field.name, rows, result.fields.at(field.name)));
  return std::move(result.metrics);
}

// The first rank of the job hears what has changed of the state with the reports, for checkpoints.
Status ComputeCalls::finish(const Call& call, const std::optional<StepSums>& of_step) {
  const ComputedRows& rows =
      step_.rows.computed_by_rank(step_.id_of(call), step_.position.step)[step_.rank()];
  AlgoState& state = step_.position.algo;
  const AlgoState before = state;
  BRAID_ASSIGN(const Metrics metrics, compute_rows(call, rows_of(rows.reported), state, of_step));
  merge(step_.record.metrics, metrics);
  AlgoState others = before;
  BRAID_TRY(compute_rows(call, rows_of(rows.others), others, of_step).status());
  if (of_step) note_step(*of_step, step_.config.algorithm, state);
  for (const auto& [name, value] : state)
    if (const auto was = before.find(name); was == before.end() || was->second != value)
      step_.record.algo[name] = value;
  return ok_status();
}

Status ComputeCalls::compute_early(const Call& call, SamplePart part) {
  const Rows rows = step_.rows.mine(step_.id_of(call), step_.position.step, step_.rank(), part);
  if (rows.empty()) return ok_status();
  AlgoState unchanged = step_.position.algo;
  BRAID_ASSIGN(const ComputeFn function, find_compute(call.function));
  BRAID_ASSIGN(const AlgoBatch batch, step_.store.gather(call.reads, rows));
  BRAID_ASSIGN(const ComputeResult result, function(batch, step_.config.algorithm, unchanged));
  for (const Field& field : call.writes)
    BRAID_TRY(step_.store.put_reals(field.name, rows, result.fields.at(field.name)));
  return ok_status();
}

Status ComputeCalls::compute(const Call& call, SamplePart part) {
  const WorkSection section;
  if (of_hand_over(step_.program, step_.id_of(call), part)) return compute_early(call, part);
  if (!waits_for_sums(call)) return finish(call, std::nullopt);
  const CallId id = step_.id_of(call);
  const Rows reported =
      rows_of(step_.rows.computed_by_rank(id, step_.position.step)[step_.rank()].reported);
  own_[id] = {};
  if (reported.empty()) return ok_status();
  AlgoState unchanged = step_.position.algo;
  BRAID_ASSIGN(const ComputeResult result, run(call, reported, unchanged, std::nullopt));
  own_[id] = result.sums;
  return ok_status();
}

Result<StepSums> ComputeCalls::tell(const Exchange& shared, const StepSums& own) {
  const std::string& name = step_.call(shared.producer).name;
  const int32_t failed = step_.talk.failed_word();
  BRAID_ASSIGN(const auto said,
               account_.share(shared, step_.position.step, {words_of(failed, own), failed == 0}));
  BRAID_TRY(step_.talk.hear(said, "the end of " + name));
  StepSums all;
  for (const std::vector<int32_t>& rank : said) all.merge(sums_in(rank));
  return all;
}

Status ComputeCalls::share(const Exchange& shared) {
  const Call& call = step_.call(shared.producer);
  if (!waits_for_sums(call)) return step_.talk.all_well("the end of " + call.name);
  BRAID_ASSIGN(const StepSums all, tell(shared, own_[shared.producer]));
  own_.erase(shared.producer);
  if (!step_.takes_part(shared.producer)) return ok_status();
  const WorkSection section;
  const auto begin = std::chrono::steady_clock::now();
  BRAID_TRY(finish(call, all));
  step_.record.seconds[call.name] +=
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return ok_status();
}

}  // namespace braid::inline session
