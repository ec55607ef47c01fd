// What a call has to do in one step: the micro-batches of a data-parallel rank, the order of their
// passes, the requests of a generation replica, messages between devices. Shared by the simulation
// of a step and by the prices of calls alone (sim/call_time.h), which are equal therefore. Pure;
// thread-safe.
#pragma once

#include <vector>

#include "program/expand.h"
#include "sim/call_cost.h"
#include "sim/simulate.h"

namespace braid::inline sim {

// The sample of the step that sequence i of a call over `samples` sequences belongs to.
int64_t sample_of(const SampleLengths& lengths, int64_t samples, int64_t i);
// Requests of a replica that has these rows of a generation call over `samples` sequences.
std::vector<BatchRequest> requests_of(const PlanningProblem& problem, const SampleLengths& lengths,
                                      int64_t samples, const SampleRows& rows);
// Limits of the engine; the cache budget is the strategy's, 0 if it has none.
BatchOptions batch_options(const PlanningProblem& problem, const Strategy& strategy,
                           const SimOptions& options);

// Pages that an engine of a reserving problem holds from its begin to its end; 0: as it needs them.
int64_t reserved_pages(const PlanningProblem& problem, const Strategy& strategy);

// Seconds of a message between two devices over the fastest link between them, and that link.
struct LinkTime {
  double seconds = 0;
  LinkKind link = LinkKind::kSame;
};
LinkTime link_time(const Cluster& cluster, DeviceId from, DeviceId to, double bytes,
                   const Efficiency& efficiency);

}  // namespace braid::inline sim
