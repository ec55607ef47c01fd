// The rollouts of later steps, which a generation makes ahead of those who learn from them: the
// samples that it works on, and those that wait for their step, with who holds what of them. All
// ranks have the same steps in it. Not thread-safe.
#pragma once

#include <deque>
#include <string>

#include "checkpoint/checkpoint.h"
#include "samples/field_account.h"
#include "session/open_step.h"
#include "session/step_context.h"

namespace braid::inline session {

class StepsAhead {
 public:
  // `everyone`: all ranks of the job, or null for one. REQUIRES: the references outlive this.
  StepsAhead(const Config& config, const Program& program, Communicator* everyone);

  // Steps whose rollouts wait.
  int64_t waiting() const { return static_cast<int64_t>(queue_.size()); }
  // How many have to wait when `step` steps are complete: those that the run still has, up to the
  // program's staleness.
  int64_t wanted(int64_t step) const;

  // The samples that the generation works on.
  SampleStore& store() { return store_; }
  CallRows& rows() { return rows_; }
  FieldAccount& account() { return account_; }
  FieldExchange& exchange() { return exchange_; }
  // What it reports of them, which is of the step that learns from them.
  Metrics& metrics() { return metrics_; }

  // They are made: they wait behind the others.
  void put();
  // Of the first step that waits: its samples, who holds them, its metrics. They stay until drop().
  void copy_first(SampleStore* store, FieldHoldings* holdings, Metrics* metrics) const;
  void drop_first() { queue_.pop_front(); }
  // Leaves what a failure left of the samples that the generation worked on.
  void abandon();

  // The steps that wait, on the first rank in whole, by all ranks together, with what the data say
  // of them; and takes them from what that gave, on any rank in whole.
  Result<Json> save(NamedTensors& tensors, SampleReader& reader);
  Status load(const Json& json, const NamedTensors& tensors);

 private:
  struct Waiting {
    SampleStore store;
    FieldHoldings holdings;
    Metrics metrics;  // of this rank
  };
  Status gather(Waiting& step);

  const Config& config_;
  const Program& program_;
  SampleStore store_;
  CallRows rows_;
  FieldExchange exchange_;
  FieldAccount account_;
  Metrics metrics_;
  std::deque<Waiting> queue_;
};

// What to say of a run whose losses take the present policy for the one that sampled; "" where
// there is nothing to say.
std::string uncorrected_text(const Config& config, const Graph& graph);
// The most steps that a sample may be older than the weights that learn from it: those that the
// program's rollouts are ahead, and that its generation carries samples for.
int64_t most_age(const Program& program);
// Whether all samples are recent enough to be learnt from in the step after `step` complete ones:
// no older than most_age() allows. The error names the first that is not.
Status check_versions(const SampleStore& store, const Program& program, int64_t step);
// staleness/*: how many steps older than the weights that learn from them these samples are.
void note_versions(const SampleStore& store, const Rows& rows, const Program& program, int64_t step,
                   Metrics& metrics);

}  // namespace braid::inline session
