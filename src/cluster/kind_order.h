// A fixed order of a cluster's nodes: those of one kind next to each other and the kinds always in
// the same order, so that what is planned does not depend on how nodes are listed. Pure;
// thread-safe.
#pragma once

#include <string>

#include "cluster/cluster.h"

namespace braid::inline cluster {

// The same nodes in that order, faster kinds first; nodes of a kind keep theirs.
Cluster in_kind_order(Cluster cluster);
// "devices 0-15: h100-80g, 16-23: a100-80g".
std::string device_numbers_text(const Cluster& cluster);

}  // namespace braid::inline cluster
