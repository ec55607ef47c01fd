// Samples of which an infer call scores the beginning first and the rest later
// (program/scored_prefixes.h): micro-batches of them over caches, and between the parts of the call
// their keys and values on this rank and, on ranks of the last stage, what the call gave. Not
// thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/ids.h"
#include "nn/model.h"
#include "program/scored_prefixes.h"
#include "rollout/kv_pool.h"
#include "samples/response_rows.h"
#include "samples/sample_store.h"

namespace braid::inline passes {

// A part of a call whose samples these are.
struct BegunPart {
  CallId call;
  PrefixPart part = PrefixPart::kNone;
  std::vector<int64_t> prefixes;  // tokens of each sample, by row
  const SampleStore* store = nullptr;
  std::string responses;  // the field of whole responses
  Model* model = nullptr;
};

class BegunSamples {
 public:
  // Begins a part, also anew: what an earlier try of it kept goes.
  void begin(BegunPart part);
  // Whether a micro-batch of the part is over caches.
  bool cached(const Rows& rows) const;

  // Of such a micro-batch, packed at its first use. Errors: those of the store.
  Result<const ResponseRows*> packed(int32_t micro_batch, const Rows& rows);
  bool has(int32_t micro_batch) const { return batches_.count(micro_batch) > 0; }
  const ResponseRows& at(int32_t micro_batch) const { return batches_.at(micro_batch).packed; }
  // Room for its keys and values, with those of the beginnings. REQUIRES: it is packed.
  const std::vector<KvLayer>& caches(int32_t micro_batch);
  // The call gave these values of its tokens: kept of beginnings, which gives an undefined tensor;
  // with those of the beginnings in front of each sample's where it is the rest.
  at::Tensor take_values(int32_t micro_batch, const at::Tensor& values);
  // It has passed all layers that this rank has.
  void end_batch(int32_t micro_batch);
  // Memory ran out in the part, which is tried again: what was kept in it goes.
  void give_up() {
    batches_.clear();
    if (part_.part == PrefixPart::kBeginnings) begun_.erase(part_.call);
  }
  // The part has ended on all its micro-batches: of the rest nothing is kept.
  void end();
  // Memory has run out: micro-batches that are open go.
  void drop() { batches_.clear(); }
  // Nothing is kept of any call.
  void clear();

 private:
  struct Batch {
    Rows rows;
    ResponseRows packed;
    std::unique_ptr<KvPool> pool;
  };
  struct Begun {
    std::vector<KvLayer> kv;  // keys and values [tokens, K, D] by layer
    at::Tensor values;
  };

  bool rests() const { return part_.part == PrefixPart::kRest; }
  int64_t sample(size_t row) const { return part_.store->sample(row).id.value; }
  const std::vector<std::vector<int32_t>>& pages(int32_t micro_batch) const {
    return at(micro_batch).batch.attention.page_tables;
  }
  void bring_beginnings(int32_t micro_batch);

  BegunPart part_;
  std::map<int32_t, Batch> batches_;
  std::map<CallId, std::map<int64_t, Begun>> begun_;  // by sample
};

}  // namespace braid::inline passes
