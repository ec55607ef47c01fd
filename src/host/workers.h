// A list of independent jobs on several threads. Jobs must not touch each other's data.
#pragma once

#include <cstddef>
#include <functional>

#include "base/status.h"

namespace braid::inline host {

// Calls job(worker, item) for every item in [0, items); calls of one worker run one after another.
// Returns the first failure by item; after one no further items are begun.
Status for_each_on_workers(size_t items, size_t workers,
                           const std::function<Status(size_t worker, size_t item)>& job);

}  // namespace braid::inline host
