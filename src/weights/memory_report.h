// Who holds the memory of a rank, and what would make it less, for the message that ends a run
// which does not fit. Pure functions of what they are given.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "config/options.h"
#include "weights/rank_models.h"

namespace braid::inline weights {

// Bytes by owner, of one rank.
struct MemoryUseOfRank {
  std::vector<std::pair<std::string, int64_t>> weights;  // "weights of actor"
  int64_t optimizer = 0;                                 // main weights and moments
  int64_t gradients = 0;
  int64_t cache = 0;        // at its full size
  int64_t activations = 0;  // of the longest micro-batch, as far as it came
  int64_t other = 0;
};
// What the models hold now; `held`: all that tensors hold now.
MemoryUseOfRank memory_use(const RankModels& models, int64_t held);

// "weights of actor 12.3 MiB, ...".
std::string memory_use_text(const MemoryUseOfRank& use);

// What of the run decides which keys would help.
struct MemoryKeys {
  bool recomputes = false;
  int64_t copies = 1;   // data-parallel ranks that hold the same optimizer state
  bool shards = false;  // they share it already
  bool adapters = false;
  bool narrow = false;  // 16-bit weights
};
// The three keys that save most, the first most of all: "train.micro_tokens".
std::vector<std::string> keys_that_help(const MemoryUseOfRank& use, const MemoryKeys& keys);

}  // namespace braid::inline weights
