// Fingerprints of weights that a run reads but does not train: they are not in its checkpoints, so
// continuing must notice where they are no longer the same. Not thread-safe: models page their
// weights in; libtorch's threads are used inside.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "base/json.h"
#include "config/options.h"
#include "dataflow/graph.h"
#include "weights/load_models.h"

namespace braid::inline identity {

// SHA-256 over names, dtypes, shapes and contents, as 64 hexadecimal digits; the same on any number
// of threads.
std::string weights_fingerprint(const std::vector<std::pair<std::string, at::Tensor>>& tensors);

// By role, {"sha256": ..., "key": the option that names the weights}: frozen roles, what stays
// below the adapters of a trained one, and the models of the list of rewards. Roles of which this
// rank has a part are left out. To be taken before the first update: a reference may share the
// actor's weights until then.
Json frozen_fingerprints(const Config& config, const Roles& roles, const RewardModels& rewards);

// The same of such roles of the graph, whichever ranks have them, by the files that they are loaded
// from: {"pieces_sha256": ..., "key": ...}, over names, dtypes, shapes and pieces of all tensors
// (host/file_fingerprint.h). It depends neither on the plan nor on how many files there are, and
// where. Random weights are left out. Errors name the key.
Result<Json> stored_fingerprints(const Config& config, const Graph& graph);

// The same of the libraries that compute losses or advantages of the user's, by "library of KEY".
// To be taken when they are opened: a file that is built again later is not what the run uses.
// Errors name the key.
Result<Json> own_function_fingerprints(const Config& config);

// Compares those of a checkpoint with this run's: the whole weights where both know them, else the
// pieces; what only one of them has is passed over. The error names role or library, key and
// remedy. Those whose key is in `allowed` may differ.
Status check_same_weights(const Json& saved, const Json& now,
                          const std::vector<std::string>& allowed);

}  // namespace braid::inline identity
