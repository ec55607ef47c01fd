// An infer call of one rank: forwards of micro-batches without gradients, and what they gave, row
// by row, until it is collected. begin(), forward() for each micro-batch, collect(). Not
// thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "nn/model.h"
#include "runtime/sample_store.h"

namespace braid {

// What a forward without gradients is asked for.
enum class Inferred {
  kLogprobs,  // [R] of the response tokens
  kValues,    // [R] of a scalar head, at the row before each response token
  kScores,    // [S] of a scalar head, at the last token of each sample
};

// One forward of the given prompts and responses; f32 values packed in the order of `rows`.
// `temperature` divides the logits.
at::Tensor infer_rows(Model& model, Inferred what, const TokenLists& prompts,
                      const TokenLists& responses, const Rows& rows, double temperature);

class Inference {
 public:
  explicit Inference(double temperature) : temperature_(temperature) {}

  // Opens a call of so many micro-batches. REQUIRES: the model outlives collect().
  void begin(Model& model, Inferred what, size_t micro_batches);
  Status forward(const SampleStore& store, const Rows& rows);
  // Writes all that was forwarded to the field; the model rests.
  Status collect(SampleStore& store, const std::string& field);
  // Frees what an open call holds, as after a failure.
  void abandon();

 private:
  double temperature_;
  Model* model_ = nullptr;  // of the open call
  Inferred what_ = Inferred::kLogprobs;
  Rows rows_;  // forwarded so far
  std::vector<at::Tensor> parts_;
};

}  // namespace braid
