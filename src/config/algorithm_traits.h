// What the name of an algorithm decides beside its graph: the defaults that keys have under it, and
// which keys mean something to it. One table in algorithm_traits.cc. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "config/algorithm_options.h"

namespace braid::inline config {

struct Config;

struct AlgorithmTraits {
  // The samples of a prompt are each other's baseline: one alone has none.
  bool compares_groups = false;
  // Advantages come from rewards per token, from which a KL penalty can be subtracted; else from
  // the reward of a sample, where the penalty can only be in the loss.
  bool rewards_tokens = false;
  // Rewards of later tokens are discounted (gamma).
  bool discounts = false;
  // The list of rewards may be empty: there is something else to learn from.
  bool rewards_optional = false;
  // It learns from responses of the data; nothing is generated.
  bool given = false;
  // The loss compares two responses to a prompt, which stay in one mini-batch.
  bool pairs = false;
};

// The traits of a name; of an unknown one those of an algorithm without rewards.
AlgorithmTraits algorithm_traits(const std::string& name);

// Whether a sample needs others of its prompt: the algorithm compares them, or
// normalize_advantages is group.
bool compares_groups(const AlgorithmOptions& options);

// Sets what the name decides, before a configuration is read: default_options(), and the options
// whose default depends on the longest response too (constant_norm's tokens under dr_grpo, the
// penalty of the last fifth of a response under dapo). `max_response_length` in tokens.
void set_name_defaults(const std::string& name, int64_t max_response_length, Config* config);

}  // namespace braid::inline config
