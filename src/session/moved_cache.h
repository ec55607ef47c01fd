// Keys and values of a sample on their way between ranks: one tensor, layer by layer, keys first.
// Not thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "passes/generation.h"

namespace braid::inline session {

// Messages that were begun, with what they carry.
using Transfers = std::vector<std::pair<at::Tensor, Pending>>;
Status wait_for_all(Transfers& transfers);

// Bytes of a token on this rank. REQUIRES: the generation is open.
int64_t token_bytes(const Generation& generation);
// A cache in one tensor.
at::Tensor flat_cache(const std::vector<KvLayer>& kv);
// Room for such a tensor of so many tokens.
at::Tensor room_for_flat(const Generation& generation, int64_t tokens);
// Writes what it has of so many tokens behind the first `begin` of a cache.
void fill_cache(const at::Tensor& flat, int64_t begin, int64_t tokens, std::vector<KvLayer>* kv);

}  // namespace braid::inline session
