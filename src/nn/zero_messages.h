// What tensor-parallel ranks tell each other in a pass of a model, with zeros in the place of
// numbers: for a rank that has nothing to say and must not keep the others waiting. In the order of
// the passes themselves (decoder_layer.h, shared_head.h); nothing where a rank has whole layers.
// Not thread-safe. Failures of communication leave as CommunicationFailure.
#pragma once

#include <ATen/core/Tensor.h>

#include "nn/decoder_layer.h"
#include "nn/model.h"

namespace braid::inline nn {

class ZeroMessages {
 public:
  // Of a micro-batch of so many rows, among these ranks. REQUIRES: spec, options and group outlive
  // this.
  ZeroMessages(const ModelSpec& spec, const ModelOptions& options, const TensorParallelGroup& group,
               int64_t rows)
      : spec_(spec), options_(options), group_(group), rows_(rows) {}

  // Of a forward: embedding, layer, what follows the last one, head of a language model over some
  // of the rows.
  void enter_model() const;
  void pass_layer() const;
  void leave_layers() const;
  void pass_head(int64_t rows) const;

  // Of a backward.
  void return_head(int64_t rows) const;
  void return_layer(const LayerGradients& gradients) const;
  void return_to_model() const;

 private:
  bool speaks() const { return rows_ > 0 && group_.tp_size > 1; }
  bool has_shared_head() const { return speaks() && !spec_.scalar_head; }
  at::Tensor zeros(int64_t rows, int64_t columns, at::ScalarType type) const;
  void gather() const;
  void sum() const;

  const ModelSpec& spec_;
  const ModelOptions& options_;
  const TensorParallelGroup& group_;
  const int64_t rows_;
};

}  // namespace braid::inline nn
