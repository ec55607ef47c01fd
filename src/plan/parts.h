// Parts of a cluster for groups of calls (plan/placement.h), with shares that are given or follow
// from work or prices. Pure; thread-safe but for what PartSizing::seconds says.
#pragma once

#include <vector>

#include "plan/placement.h"

namespace braid::inline plan {

using CallGroup = std::vector<const Call*>;  // that get the same devices

struct SharedPart {
  CallGroup calls;  // none: devices that stay free
  double share = 0;
};

// A part of the cluster for each group, added to `meshes`. Errors: those of divide_cluster().
Status give_parts(const PlanningProblem& problem, const CallUnits& units,
                  const std::vector<SharedPart>& groups, double slack, CallMeshes* meshes);

// The same for each group that has calls, in sizes that follow from work or prices.
Status give_sized_parts(const PlanningProblem& problem, const PartSizing& sizing,
                        const std::vector<CallGroup>& groups, CallMeshes* meshes);

}  // namespace braid::inline plan
