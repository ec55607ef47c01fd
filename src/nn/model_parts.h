// A model whose tensors lie on several ranks, as a whole: which gradients are still parts of a sum,
// what each rank counts as its own, and whole tensors from slices. All ranks of a group call these
// functions together. Not thread-safe.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "nn/model.h"

namespace braid::inline nn {

// Whether the model is a part of one: a range of its layers, or slices.
bool is_part(const Model& model);
bool is_part(const ModelOptions& options);

// Of one trained parameter.
struct ParameterPart {
  std::string name;
  at::Tensor parameter;
  // Over these ranks its gradient must be summed after the backwards; null: it is complete.
  Communicator* sum = nullptr;
  // Whether this tensor-parallel rank counts it in a norm over all ranks: replicas count once.
  bool counted = true;
  // Parameters of one number are used at one time, those of a higher one later in a forward, and
  // their gradients are summed over the same ranks. Divided by kNumbersPerUnit: their unit.
  int64_t number = 0;
};
inline constexpr int64_t kNumbersPerUnit = 4;
std::vector<ParameterPart> trainable_parts(const Model& model);
// Whether passes of a range of the model's layers use parameters of this number.
bool uses_number(const Model& model, size_t range, int64_t number);

// Where a parameter's gradient is: a tensor of its shape, or an equal part of it on all ranks that
// it is summed over.
using GradientOf = std::function<at::Tensor(const std::string& name, const at::Tensor& parameter)>;

// Sums the gradients that are parts over one of their groups (one collective), in f32.
Status sum_partial_gradients(const Model& model, Communicator& over, const GradientOf& gradient);

// Sums the gradients of the tied embedding over the first and the last stage. `ends` is the group
// of this rank and its counterpart; a model that is not tied, or has both ends, needs no call.
Status sum_tied_gradients(const Model& model, Communicator& ends, const GradientOf& gradient);

// Trained tensors that this rank does not count in a norm over all ranks of a replica: another one
// holds an equal slice, or the other end of the pipeline the tied embedding.
std::set<std::string> uncounted_tensors(const Model& model);

// The tensor that both ends hold; undefined where there is none.
at::Tensor tied_embedding(const Model& model);

}  // namespace braid::inline nn
