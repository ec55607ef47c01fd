#include "train/weight_shards.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <set>

#include "base/text.h"
#include "nn/storage.h"

namespace braid::inline train {
namespace {

using Named = std::pair<std::string, at::Tensor>;

std::vector<Named> others_than(const Decoder& decoder, const FlatBuckets* trained) {
  std::set<std::string> known;
  if (trained != nullptr)
    for (const BucketPlace& place : trained->places()) known.insert(place.name);
  std::vector<Named> out;
  for (Named& named : decoder.parameters())
    if (known.count(named.first) == 0) out.push_back(std::move(named));
  return out;
}

}  // namespace

WeightShards::WeightShards(Decoder& decoder, Communicator& group, const FlatBuckets* trained,
                           bool loaded)
    : group_(group), units_(decoder.units()) {
  const at::NoGradGuard no_grad;
  if (trained != nullptr) add(*trained, decoder, loaded);
  trained_ = buckets_.size();
  if (const std::vector<Named> others = others_than(decoder, trained); !others.empty()) {
    BucketOptions options;
    for (const auto& [name, tensor] : others) options.apart.push_back(decoder.unit_of(name));
    add(FlatBuckets(others, group.size(), options), decoder, loaded);
  }
  for (int64_t unit = 0; unit < units(); ++unit) leave(unit);
}

void WeightShards::add(const FlatBuckets& layout, const Decoder& decoder, bool loaded) {
  const size_t first = buckets_.size();
  buckets_.resize(first + layout.size());
  for (const BucketPlace& place : layout.places()) {
    // An alias with a version of its own: that the values went and came back changes no graph.
    BucketPlace alias{place.name, at::Tensor(place.parameter.variable_data()), place.bucket,
                      place.begin};
    const c10::Storage storage = alias.parameter.storage();
    BRAID_CHECK(storage.allocator() != nullptr, place.name + " does not own its memory");
    Unit& unit = units_[decoder.unit_of(place.name)];
    const size_t bucket = first + place.bucket;
    if (std::find(unit.buckets.begin(), unit.buckets.end(), bucket) == unit.buckets.end())
      unit.buckets.push_back(bucket);
    const bool known =
        std::any_of(unit.storages.begin(), unit.storages.end(), [&](const auto& other) {
          return other.first.unsafeGetStorageImpl() == storage.unsafeGetStorageImpl();
        });
    if (!known) unit.storages.emplace_back(storage, storage.nbytes());
    const int64_t size = layout.slice_size(place.bucket);
    const SlicePart own = FlatBuckets::part_of(place, group_.index() * size, size);
    kept_[place.name] = {own.in_parameter, own.in_parameter + own.size};
    buckets_[bucket].places.push_back(std::move(alias));
  }
  for (size_t i = 0; i < layout.size(); ++i) {
    buckets_[first + i].padded = layout.padded(i);
    const int64_t size = layout.slice_size(i);
    const Bucket& bucket = buckets_[first + i];
    slices_.push_back(loaded ? flat_of(bucket).narrow(0, group_.index() * size, size).clone()
                             : at::empty({size}, bucket.places[0].parameter.options()));
  }
}

std::vector<std::pair<int64_t, at::Tensor>> WeightShards::slices() const {
  std::vector<std::pair<int64_t, at::Tensor>> out;
  for (int64_t unit = 0; unit < units(); ++unit)
    for (const size_t bucket : units_[unit].buckets) out.emplace_back(unit, slices_[bucket]);
  return out;
}

// A bucket's values in whole, from tensors that have them.
at::Tensor WeightShards::flat_of(const Bucket& bucket) const {
  const at::Tensor flat = at::zeros({bucket.padded}, bucket.places[0].parameter.options());
  for (const BucketPlace& place : bucket.places)
    flat.narrow(0, place.begin, place.parameter.numel()).copy_(place.parameter.flatten());
  return flat;
}

void WeightShards::bring(int64_t unit) {
  if (const Status gathered = gather(unit); !gathered.ok()) throw CommunicationFailure(gathered);
}

void WeightShards::expect(int64_t index) {
  Unit& unit = units_[index];
  if (unit.whole) return;
  const at::NoGradGuard no_grad;
  for (size_t i = unit.coming.size(); i < unit.buckets.size(); ++i) {
    const size_t bucket = unit.buckets[i];
    const at::Tensor& own = slices_[bucket];
    unit.coming.push_back({at::empty({buckets_[bucket].padded}, own.options()), Pending()});
    unit.coming.back().pending =
        group_.all_gather(unit.coming.back().flat, own, cat("weights, bucket ", bucket));
  }
}

Status WeightShards::gather(int64_t index) {
  Unit& unit = units_[index];
  if (unit.whole) return ok_status();
  const at::NoGradGuard no_grad;
  expect(index);
  open(index);
  for (size_t i = 0; i < unit.coming.size(); ++i) {
    Coming& coming = unit.coming[i];
    BRAID_TRY(coming.pending.wait());
    for (const BucketPlace& place : buckets_[unit.buckets[i]].places)
      place.parameter.copy_(coming.flat.narrow(0, place.begin, place.parameter.numel())
                                .view(place.parameter.sizes()));
    coming.flat.reset();
  }
  unit.coming.clear();
  return ok_status();
}

void WeightShards::open(int64_t index) {
  Unit& unit = units_[index];
  if (unit.whole) return;
  unit.whole = true;  // first: where memory runs out, leave() frees what came
  for (const auto& [storage, bytes] : unit.storages) resize_storage(storage, bytes);
}

void WeightShards::close(int64_t index) {
  const at::NoGradGuard no_grad;
  for (const size_t bucket : units_[index].buckets) {
    const int64_t size = slices_[bucket].numel();
    slices_[bucket].copy_(flat_of(buckets_[bucket]).narrow(0, group_.index() * size, size));
  }
  leave(index);
}

std::optional<IndexRange> WeightShards::kept(const std::string& name) const {
  const auto found = kept_.find(name);
  BRAID_CHECK(found != kept_.end(), name + " is in no bucket");
  return found->second;
}

void WeightShards::leave(int64_t index) {
  Unit& unit = units_[index];
  // A pass that was given up: other ranks count on what this one has begun.
  for (Coming& coming : unit.coming) wait_or_throw(std::move(coming.pending));
  unit.coming.clear();
  if (!unit.whole) return;
  for (const auto& [storage, bytes] : unit.storages) resize_storage(storage, 0);
  unit.whole = false;
}

// Of the first `count` buckets.
std::vector<StateSlice> WeightShards::runs(const std::vector<at::Tensor>& slices,
                                           size_t count) const {
  std::vector<StateSlice> out;
  for (size_t i = 0; i < count; ++i) {
    const int64_t size = slices[i].numel();
    for (const BucketPlace& place : buckets_[i].places) {
      const SlicePart part = FlatBuckets::part_of(place, group_.index() * size, size);
      if (part.size > 0)
        out.push_back(
            {place.name, "", part.in_parameter, slices[i].narrow(0, part.in_slice, part.size)});
    }
  }
  return out;
}

}  // namespace braid::inline train
