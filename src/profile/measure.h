// What `braid profile` measures of a model: passes, decode steps, heads, the optimizer and memory,
// whole and as one of several tensor-parallel ranks computes them. One thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "pricing/profile.h"
#include "profile/bench.h"
#include "profile/machine.h"

namespace braid::inline profile {

// Sizes at which the operations of a model are timed; none is empty but tp.
struct ProfileSizes {
  std::vector<int64_t> tokens, lengths;          // of passes, of their sequences
  std::vector<int64_t> batches, contexts;        // sequences of decode steps, their cached tokens
  std::vector<int64_t> tp;                       // ranks that share the model, beside the whole
  std::function<void(const std::string&)> note;  // is told what is left out
};

// Whether so many tensor-parallel ranks have equal shares, which one of them can be measured for.
bool shares_evenly(const ModelSize& size, int64_t tp);

// All of it, for a device of these rates. REQUIRES: shares_evenly() of each tp.
Result<Profile> measure_model(const ProfileSizes& sizes, const ModelSpec& model,
                              const ProfileBench& bench, const MachineRates& rates);

}  // namespace braid::inline profile
