// Losses and advantages from libraries that 'braid build-loss' makes (algo/own_loss.h). Opened once
// in a process and never closed. Thread-safe.
#pragma once

#include <string>

#include "algo/algorithm.h"

namespace braid::inline algo {

struct OwnLossEntry;
struct OwnAdvantagesEntry;

// Whether a graph's function is a library and no name.
inline bool is_own_function(const std::string& name) { return name.ends_with(".so"); }

// The loss of a library in the place of the tokens' losses of policy_loss(): weights of
// truncated importance sampling, KL and entropy terms, aggregation and metrics are Braid's. At
// the first call for a library it is tried on a few drawn tokens in float64: its gradient must be
// that of central differences (1e-6), finite and of every token alone or of its sample. Errors name
// the file and what is wrong with it.
Result<LossFn> own_loss(const std::string& path);

// That trial of a loss; `path` is its name in errors.
Status check_own_loss(const std::string& path, const OwnLossEntry& entry);

// Whether a metric's name is, or may become, one of Braid's own (docs/metrics.md): no function of a
// library may give it.
bool is_metric_of_braid(const std::string& name);

// Advantages of a library, tried like a loss at the first call. In: rewards [S], and old_logprobs
// [R], ref_logprobs [R] where the graph has them. Out: advantages [R].
Result<ComputeFn> own_advantages(const std::string& path);

// The trial of advantages: of drawn samples of two prompts they must be finite, one for each token,
// and the same for the same samples.
Status check_own_advantages(const std::string& path, const OwnAdvantagesEntry& entry);

}  // namespace braid::inline algo
