// A model whose tensors lie on several ranks, as a whole: which gradients are still parts of a sum,
// what each rank counts as its own, and the whole model on one rank for export. All ranks of a
// group call these functions together. Not thread-safe.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "nn/model.h"

namespace braid {

// Of one trained parameter.
struct ParameterPart {
  std::string name;
  at::Tensor parameter;
  // Over these ranks its gradient must be summed after the backwards; null: it is complete.
  Communicator* sum = nullptr;
  // Whether this tensor-parallel rank counts it in a norm over all ranks: replicas count once.
  bool counted = true;
};
std::vector<ParameterPart> trainable_parts(const Model& model);

// Sums the gradients that are parts (one collective per group of ranks), in f32. Gradients that are
// undefined on a rank count as zero there and are defined afterwards.
Status sum_partial_gradients(const Model& model);

// Sums the gradients of the tied embedding over the first and the last stage. `ends` is the group
// of this rank and its counterpart; a model that is not tied, or has both ends, needs no call.
Status sum_tied_gradients(const Model& model, Communicator& ends);
// The tensor that both ends hold; undefined where there is none.
at::Tensor tied_embedding(const Model& model);

// The whole model on rank `root` (null elsewhere), in the stages' dtype and on the host: slices are
// gathered over the tensor-parallel ranks, then the first of each stage sends to root. `stages`
// holds the ranks with tp_rank 0, one of each stage in their order, root first; null for one stage.
Result<std::unique_ptr<Model>> gather_model(const Model& model, Communicator* stages);

}  // namespace braid
