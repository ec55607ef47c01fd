// Which devices each call gets under the placements that have names, and under shares and lists of
// devices. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/yaml.h"
#include "config/options.h"
#include "plan/make_problem.h"
#include "plan/problem.h"

namespace braid::inline plan {

using CallMeshes = std::map<std::string, DeviceMesh>;
// By call: the product of the sizes that `parallel` states for it. Its devices are a multiple.
using CallUnits = std::map<std::string, int64_t>;

// By call, the fields of its strategy that are stated (PlanConstraints::strategies).
CallUnits units_of(const std::map<std::string, std::map<std::string, int64_t>>& strategies);

// Seconds of a call alone on given devices, infinity where it fits with no layout that it may have.
using MeshSeconds = std::function<double(const Call&, const DeviceMesh&)>;

// What the parts of a named placement are sized by.
struct PartSizing {
  CallUnits units = {};
  MeshSeconds seconds = {};  // none: by floating-point operations
  bool ahead = false;        // the calls of a step wait for none of the others: with staleness
};

// The names that placement takes besides auto.
const std::vector<std::string>& placement_names();

// The meshes of a named placement, for every call that uses a model. Parts are runs of devices that
// cover the cluster, sized by the work of their calls (plan/divide.h); where prices are given, that
// and divisions that would make parts end together, or their sum least, if calls took in proportion
// to the devices that they have are priced, and the one whose calls end first is taken:
//   colocated      every call on all devices (DeepSpeed-Chat)
//   interleaved    calls that do not wait for each other on parts of their own, by role: frozen
//                  models beside the values, the updates of actor and critic; calls that are alone,
//                  and the actor's log-probs where two other models score, on all devices
//                  (APP, arXiv 2312.11819)
//   disaggregated  training on one part, generation and inference on the other; models that train
//                  have copies there that take their weights after each step (APP)
//   split          actor and reference | critic and reward (NeMo-Aligner)
//   standalone     one part per role (OpenRLHF)
// Errors: an unknown name, a cluster with too few devices, a graph with nothing to separate.
Result<CallMeshes> placement_meshes(const std::string& name, const PlanningProblem& problem,
                                    const PartSizing& sizing = {});

// The section `placement`: null or auto (no meshes), a name, or a map of roles and calls to device
// meshes or shares of the devices (0.25, 25%), where a call goes before its role. Shares get runs
// of devices in the order written, until they sum up to all; then the next begins at the first.
Result<CallMeshes> read_placement(const YamlNode& node, const PlanningProblem& problem,
                                  const PartSizing& sizing = {});

// plan_constraints() (plan/make_problem.h) with the parts of a named placement sized by these
// seconds (none: by floating-point operations, as there).
Result<PlanConstraints> constraints_by_seconds(const Config& config, const PlanningProblem& problem,
                                               const ReadText& read, const MeshSeconds& seconds);

// The key that asks for a search of the plan ("plan.auto", "placement: auto"), or null. Devices
// that nobody counts are one, which leaves nothing to place.
const char* searching_key(const Config& config);

}  // namespace braid::inline plan
