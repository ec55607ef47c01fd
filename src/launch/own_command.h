// This command again, as the ranks of a job.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace braid::inline launch {

// Runs this command again, with `more` words behind it, as one process of this machine for each
// rank, to their end. Where a rank fails it has said why, and this process ends with its exit code.
Status run_as_ranks(int64_t ranks, const std::vector<std::string>& more = {});

}  // namespace braid::inline launch
