// What of each tensor a tensor-parallel rank holds (Shoeybi et al., 2019, §3): whole attention
// heads, columns of the MLP, rows of the vocabulary. Unit u of n belongs to the rank r of R with
// n r / R <= u < n (r + 1) / R; with fewer key-value heads than ranks, neighbouring ranks share
// one. Pure values; thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "models/family.h"
#include "nn/index_range.h"
#include "nn/tensor_parallel.h"

namespace braid::inline nn {

// The units of n that a rank of the group holds; at least one.
IndexRange units_of_rank(int64_t n, const TensorParallelGroup& group);

// Over which ranks the gradient of a slice must be summed, because each computes a part of it.
enum class PartialGradient {
  kNone,    // complete on each rank
  kTensor,  // over all ranks of the group
  kShared,  // over the ranks that hold the same key-value heads
};

struct TensorShard {
  std::vector<int64_t> whole;      // shape of the whole tensor, a matrix as [out, in]
  int64_t dim = 0;                 // along which it is cut, if not here then by other ranks
  std::vector<IndexRange> pieces;  // that this rank holds, one after another; empty: all of it
  int64_t holders = 1;             // ranks of the group that hold equal slices
  int64_t holder = 0;              // this rank's number among them
  PartialGradient partial = PartialGradient::kNone;

  std::vector<int64_t> local_shape() const;
};

// An error names what does not divide: heads by the ranks, ranks by the key-value heads.
Status check_tensor_parallel(const ModelSpec& spec, const TensorParallelGroup& group);

// The same model with the sizes that one rank holds: heads, key-value heads, MLP width, vocabulary.
ModelSpec local_spec_of(const ModelSpec& spec, const TensorParallelGroup& group);

// Of each of these tensors of a model, by name.
std::map<std::string, TensorShard> tensor_shards(const ModelSpec& spec,
                                                 const std::vector<TensorSpec>& tensors,
                                                 const TensorParallelGroup& group);

// Of LoRA's A [rank, in] and B [out, rank] beside a matrix with this shard.
TensorShard lora_a_shard(const TensorShard& matrix, int64_t lora_rank,
                         const TensorParallelGroup& group);
TensorShard lora_b_shard(const TensorShard& matrix, int64_t lora_rank,
                         const TensorParallelGroup& group);

// The slice of a whole tensor; the whole one where nothing is cut.
at::Tensor take_shard(const at::Tensor& whole, const TensorShard& shard);

}  // namespace braid::inline nn
