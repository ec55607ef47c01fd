// An infer call of one rank: the ops of its forwards without gradients, and what they give, row by
// row. Not thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "nn/model.h"
#include "passes/begun_samples.h"
#include "passes/model_pass.h"
#include "program/partition.h"
#include "samples/response_rows.h"
#include "samples/sample_store.h"

namespace braid::inline passes {

// What a forward without gradients is asked for.
enum class Inferred {
  kLogprobs,  // [R] of the response tokens
  kValues,    // [R] of a scalar head, at the row before each response token
  kScores,    // [S] of a scalar head, at the last token of each sample
};

// What hidden states after the last layer give: f32 values packed in the order of `rows`.
// `temperature` divides the logits.
at::Tensor infer_hidden(Model& model, Inferred what, const ResponseRows& rows,
                        const at::Tensor& hidden_TH, double temperature);

// What an infer call executes on this rank.
struct InferWork {
  const Call* call = nullptr;
  Model* model = nullptr;
  Inferred what = Inferred::kLogprobs;
  const Partition* partition = nullptr;
  CallFrame frame;
  bool sums_gradients = false;  // the model has gradients that ranks sum, in other calls
  Expansion ops;
  Communicator* everyone = nullptr;  // for messages between stages
  Communicator* weights = nullptr;   // the ranks that bring weights together (ZeRO-3)
  Communicator* agrees = nullptr;    // those who end alike (ends_alike()), or null
  bool keeps_packed = true;          // as in TrainWork
  PassNeeds* needs = nullptr;        // of the call
  // What the partition has of samples that are scored in two parts, and the tokens of the first.
  PrefixPart part = PrefixPart::kNone;
  std::vector<int64_t> prefixes = {};
};

// What an infer call gave.
struct InferredRows {
  Rows rows;
  at::Tensor values;     // f32, packed in their order; undefined but on ranks of the last stage
  bool ran_out = false;  // of memory, on some rank: there are none
  std::string why;       // where that was on this rank
};

// The values of a scalar head, one of each row.
std::map<size_t, double> by_row(const InferredRows& inferred);

class Inference : private PassEnds {
 public:
  Inference(double temperature, bool share_prompts)
      : temperature_(temperature), packed_(share_prompts) {}

  // Whether the memory that the call's ops declare is there, as Training::reserve().
  static Result<bool> reserve(const InferWork& work);
  // Runs all ops of the call over the samples of the store; the model rests.
  Result<InferredRows> run(InferWork work, const SampleStore& store);
  // Samples of which beginnings were scored are kept for the rest, until they are forgotten.
  void forget_begun() { begun_.clear(); }
  // Frees what a failure left.
  void abandon();

 private:
  bool empty(int32_t micro_batch) const override { return rows_of_batch(micro_batch).empty(); }
  void passed_by(int64_t) override {}
  Result<TokenBatch> tokens(int32_t micro_batch) override;
  Status outputs(int32_t micro_batch, const at::Tensor& hidden_TH) override;
  Result<at::Tensor> loss(int32_t micro_batch) override;
  std::optional<int64_t> head_rows(int32_t micro_batch) const override {
    if (work_.what != Inferred::kLogprobs) return std::nullopt;
    return rows_in(micro_batch).count();
  }
  bool cached(int32_t micro_batch) const override {
    return begun_.cached(rows_of_batch(micro_batch));
  }
  const std::vector<KvLayer>& caches(int32_t micro_batch) override {
    return begun_.caches(micro_batch);
  }
  void drop() override;
  Rows rows_of_batch(int32_t micro_batch) const;
  // The micro-batch has passed a range of layers.
  void note_passed(int32_t micro_batch, ModelPass& pass);
  const ResponseRows& rows_in(int32_t micro_batch) const {
    return begun_.has(micro_batch) ? begun_.at(micro_batch) : packed_.at(micro_batch);
  }
  Status execute(const Op& op, ModelPass& pass, InferredRows* out);

  double temperature_;
  InferWork work_;
  const SampleStore* store_ = nullptr;
  PackedBatches packed_;
  BegunSamples begun_;
  std::map<int32_t, size_t> passed_;  // ranges of layers, by micro-batch
  Rows rows_;                         // that gave something so far
  std::vector<at::Tensor> parts_;
};

}  // namespace braid::inline passes
