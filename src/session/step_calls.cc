#include "session/step_calls.h"

#include <utility>

namespace braid::inline session {

StepCalls::StepCalls(const StepContext& step, Communicator* everyone, const RunData& data,
                     Scoring& scoring, std::function<Status()> checked)
    : account(step.program, step.rows, step.exchange),
      ahead(steps_ahead(step.program.graph) == 0
                ? nullptr
                : std::make_unique<StepsAhead>(step.config, step.program, everyone)),
      samples(step, account, ahead.get()),
      generation(step.config.rollout, step.config.train.seed, data.tokenizer_or_null()),
      carried(carried_steps(step.program.graph) == 0
                  ? nullptr
                  : std::make_unique<CarriedSamples>(step, samples, generation)),
      fetches(step, samples, data, carried.get(), std::move(checked)),
      generates(step, samples, generation, carried.get()),
      hand_over(step, generation),
      infers(step),
      rewards(step, infers, account, generation, scoring),
      computes(step, account),
      selects(step),
      trains(step),
      timeline(step.program, step.rank()),
      place(step, timeline),
      weights(step, place) {}

void StepCalls::begin_step() {
  selects.begin_step();
  hand_over.begin_step();
  trains.begin_step();
  weights.begin_step();
}

void StepCalls::abandon() {
  rewards.abandon();
  computes.abandon();
  hand_over.abandon();
  generation.abandon();
  if (ahead) ahead->abandon();
  infers.abandon();
  trains.abandon();
}

}  // namespace braid::inline session
