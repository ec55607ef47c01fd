// The weights of a model as slices, one on each data-parallel rank (ZeRO-3, Rajbhandari et al.,
// 2020, §5.3). Its tensors keep their places and shapes, but have memory only between bring() and
// leave() of their unit; so a graph that autograd has recorded stays valid while they are away. Of
// a unit that is expected the values come, beside what computes, to memory of their own. Not
// thread-safe. All ranks of the group expect and bring the same units in the same order.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "nn/decoder.h"
#include "nn/weight_keeper.h"
#include "train/flat_buckets.h"

namespace braid::inline train {

class WeightShards : public WeightKeeper {
 public:
  // Keeps this rank's slices of the decoder's weights and lets the rest go. Trained parameters lie
  // as `trained` has them (null: there are none), the others unit by unit. Without `loaded` there
  // are no values yet: open() and close() bring them. REQUIRES: no other model
  // has the memory of these weights; group and decoder outlive this.
  WeightShards(Decoder& decoder, Communicator& group, const FlatBuckets* trained,
               bool loaded = true);
  WeightShards(const WeightShards&) = delete;
  WeightShards& operator=(const WeightShards&) = delete;

  void bring(int64_t unit) override;
  void expect(int64_t unit) override;
  void leave(int64_t unit) override;
  // bring() that returns its failure.
  Status gather(int64_t unit);
  void open(int64_t unit) override;
  void close(int64_t unit) override;
  std::optional<IndexRange> kept(const std::string& name) const override;
  int64_t units() const { return static_cast<int64_t>(units_.size()); }

  // This rank's slice of a bucket of `trained`, in the weights' dtype: what bring() gathers.
  const at::Tensor& slice(size_t bucket) const { return slices_[bucket]; }
  size_t buckets() const { return buckets_.size(); }
  const std::vector<size_t>& buckets_of(int64_t unit) const { return units_[unit].buckets; }
  // This rank's slices, of all weights, each with the units that bring() gathers it for.
  std::vector<std::pair<int64_t, at::Tensor>> slices() const;
  // What this rank keeps of the trained parameters, and of all of them.
  std::vector<StateSlice> trained_runs() const { return runs(slices_, trained_); }
  std::vector<StateSlice> all_runs() const { return runs(slices_, buckets_.size()); }
  // Of values that lie as the parameters do: `slices` has this rank's of each bucket.
  std::vector<StateSlice> runs_of(const std::vector<at::Tensor>& slices) const {
    return runs(slices, buckets_.size());
  }

 private:
  // Tensors that are gathered together.
  struct Bucket {
    std::vector<BucketPlace> places;  // parameters as aliases that autograd does not watch
    int64_t padded = 0;
  };
  // A bucket's values on their way.
  struct Coming {
    at::Tensor flat;
    Pending pending;
  };
  struct Unit {
    std::vector<size_t> buckets;
    std::vector<std::pair<c10::Storage, size_t>> storages;  // with their bytes
    std::vector<Coming> coming;                             // of its buckets
    bool whole = true;
  };

  void add(const FlatBuckets& layout, const Decoder& decoder, bool loaded);
  at::Tensor flat_of(const Bucket& bucket) const;
  std::vector<StateSlice> runs(const std::vector<at::Tensor>& slices, size_t count) const;

  Communicator& group_;
  std::vector<Bucket> buckets_;             // those of `trained`, then the others
  size_t trained_ = 0;                      // how many the former are
  std::vector<at::Tensor> slices_;          // of each bucket
  std::map<std::string, IndexRange> kept_;  // by name: what is in this rank's slice
  std::vector<Unit> units_;
};

}  // namespace braid::inline train
