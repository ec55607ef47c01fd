#include "session/select_calls.h"

#include <algorithm>

#include "algo/batch.h"
#include "base/log.h"
#include "base/text.h"
#include "host/work_section.h"

namespace braid::inline session {

bool SelectCalls::filled() const {
  const int64_t most = step_.config.algorithm.max_draws;
  return drawn_.groups() >= step_.config.rollout.prompts_per_step ||
         (most > 0 && drawn_.draws() >= most);
}

void SelectCalls::note(int64_t groups, int64_t with_signal) {
  if (step_.rank() != 0) return;
  step_.record.metrics["sampling/no_signal_frac"].add(
      1 - static_cast<double>(with_signal) / static_cast<double>(groups),
      static_cast<double>(groups));
  if (!filled()) return;
  const int64_t left = drawn_.groups() - step_.config.rollout.prompts_per_step;
  step_.record.metrics["sampling/draws"].add(static_cast<double>(drawn_.draws()));
  step_.record.metrics["sampling/left_over"].add(static_cast<double>(std::max<int64_t>(0, left)));
  step_.record.metrics["sampling/missing"].add(static_cast<double>(std::max<int64_t>(0, -left)));
}

Status SelectCalls::too_few_groups() const {
  return {
      Code::kStopped,
      cat("algorithm.dynamic_sampling: of the prompts of ", drawn_.draws(),
          drawn_.draws() == 1 ? " draw " : " draws ", drawn_.groups(),
          drawn_.groups() == 1 ? " has" : " have",
          " responses whose rewards differ, and a step learns from ",
          step_.config.rollout.prompts_per_step,
          " (rollout.prompts_per_step). The prompts are too hard or too easy for the policy, or "
          "it has learnt what they teach: take others, more rollout.samples_per_prompt or a "
          "finer reward; or raise algorithm.max_draws, or set algorithm.on_shortage=train")};
}

void SelectCalls::give() {
  drawn_.give(step_.config.rollout.prompts_per_step, &step_.store, &step_.exchange.holdings());
  step_.rows.forget();
}

// What was sent has left before rows get other numbers, or the next draw forgets it.
Status SelectCalls::select() {
  const WorkSection section;
  BRAID_TRY(step_.exchange.end_step());
  const std::vector<int64_t> groups = step_.store.counts("groups");
  BRAID_ASSIGN(const at::Tensor rewards, step_.store.reals("rewards", step_.store.all_rows()));
  const std::vector<bool> kept = with_signal(to_doubles(rewards), groups);
  step_.store.retain(kept);
  step_.exchange.holdings().retain(kept);
  const int64_t left = count_groups(step_.store.counts("groups"));
  drawn_.take(step_.store, step_.exchange.holdings());
  note(count_groups(groups), left);
  if (!filled()) return ok_status();
  const int64_t found = drawn_.groups(), wanted = step_.config.rollout.prompts_per_step;
  if (found < wanted && (found == 0 || step_.config.algorithm.on_shortage == "error")) {
    step_.talk.note_alike(true);
    return too_few_groups();
  }
  if (found < wanted && step_.rank() == 0)
    log_warning(cat("step ", step_.position.step + 1, ": ", drawn_.draws(), " draws leave ", found,
                    " groups whose rewards differ, of ", wanted,
                    "; it learns from those (algorithm.on_shortage)"));
  return ok_status();
}

}  // namespace braid::inline session
