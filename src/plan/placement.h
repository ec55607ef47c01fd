// Which devices each call gets under the placements that have names, and the division of a cluster
// into disjoint parts. Pure; thread-safe.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/yaml.h"
#include "plan/problem.h"

namespace braid::inline plan {

using CallMeshes = std::map<std::string, DeviceMesh>;

// Splits a cluster into contiguous disjoint meshes in proportion to positive shares: whole nodes
// where there are at least as many as parts, else powers of two of devices (so that batches
// divide); every part gets at least one. Errors: more parts than devices.
Result<std::vector<DeviceMesh>> divide_cluster(const Cluster& cluster,
                                               const std::vector<double>& shares);

// The names that placement takes besides auto.
const std::vector<std::string>& placement_names();

// The meshes of a named placement:
//   colocated      every call on all devices (DeepSpeed-Chat)
//   interleaved    reference and reward on disjoint parts sized by their work, the rest on all
//                  devices (APP, arXiv 2312.11819)
//   disaggregated  generation on one part, everything else on the other, sized by work
//   split          actor and reference | critic and reward (NeMo-Aligner)
//   standalone     one part per role, sized by work (OpenRLHF)
// Errors: an unknown name, a cluster with too few devices.
Result<CallMeshes> placement_meshes(const std::string& name, const PlanningProblem& problem);

// The section `placement`: null or auto (no meshes), a name, or a map of roles and calls to device
// meshes, where a call goes before its role.
Result<CallMeshes> read_placement(const YamlNode& node, const PlanningProblem& problem);

// Floating-point operations of a call in one step; generation counts four times, since decoding is
// bound by memory. Only for sizing parts.
double call_work(const PlanningProblem& problem, const Call& call);

}  // namespace braid::inline plan
