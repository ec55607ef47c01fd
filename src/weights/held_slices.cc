#include "weights/held_slices.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/ceil_div.h"
#include "base/text.h"
#include "nn/decoder.h"
#include "nn/model_parts.h"
#include "program/tensor_map.h"

namespace braid::inline weights {
namespace {

constexpr const char* kAverageState = "average";

// Whether ranks with equal weights own parts of them.
bool is_cut(const ModelInstance& role) {
  return role.shards || (role.gradients && role.gradients->sharded());
}

std::vector<StateSlice> whole_runs(const std::vector<std::pair<std::string, at::Tensor>>& tensors) {
  std::vector<StateSlice> out;
  for (const auto& [name, tensor] : tensors)
    out.push_back({name, "", 0, tensor.detach().view({-1})});
  return out;
}

std::vector<StateSlice> weight_runs(const ModelInstance& role, bool own) {
  if (role.shards) return role.follows ? role.shards->all_runs() : role.shards->trained_runs();
  if (!own || !is_cut(role)) return whole_runs(role.model->trainable_parameters());
  std::vector<StateSlice> out;
  for (const BucketPlace& place : role.gradients->places()) {
    const SlicePart part = role.gradients->owned_part(place);
    if (part.size > 0)
      out.push_back({place.name, "", part.in_parameter,
                     place.parameter.detach().view({-1}).narrow(0, part.in_parameter, part.size)});
  }
  return out;
}

std::vector<StateSlice> moment_runs(const ModelInstance& role) {
  if (role.optimizer) return role.optimizer->slices();
  if (role.average.empty()) return {};
  std::vector<StateSlice> out;
  if (role.shards) {
    out = role.shards->runs_of(role.average);
  } else {
    auto parameters = role.model->parameters();
    for (size_t i = 0; i < parameters.size(); ++i) parameters[i].second = role.average[i];
    out = whole_runs(parameters);
  }
  for (StateSlice& run : out) run.state = kAverageState;
  return out;
}

// The rectangles of the whole tensor that a run of the rank's part of it is. Each is one run too.
void add_slices(const Decoder& decoder, const StateSlice& run, std::vector<SavedSlice>* out) {
  const TensorShard& shard = decoder.shards().at(run.name);
  BRAID_CHECK(shard.whole.size() <= 2, cat(run.name, " is neither a matrix nor a vector"));
  const bool matrix = shard.whole.size() == 2, by_columns = shard.dim == 1 && !shard.pieces.empty();
  BRAID_CHECK(!by_columns || shard.pieces.size() == 1, cat(run.name, " has columns in pieces"));
  const std::vector<int64_t> local = shard.local_shape();
  const int64_t width = matrix ? local[1] : 1;
  const Interval columns =
      by_columns ? Interval{shard.pieces[0].begin, shard.pieces[0].end} : Interval{0, width};
  std::vector<IndexRange> pieces = shard.pieces;
  if (pieces.empty() || by_columns) pieces = {{0, local[0]}};
  const std::string name = run.state.empty() ? run.name : cat(run.name, ".", run.state);
  const int64_t end = run.begin + run.values.numel();
  std::vector<TensorRegion> regions;
  int64_t before = 0;
  for (const IndexRange& piece : pieces) {
    const int64_t size = piece.size() * width;
    const Interval wanted{std::max(run.begin - before, int64_t{0}), std::min(end - before, size)};
    add_rectangles(name, {piece.begin, piece.end}, columns, wanted, before, &regions);
    before += size;
  }
  for (const TensorRegion& region : regions) {
    std::vector<int64_t> offset = {region.rows.begin}, extent = {region.rows.size()};
    if (matrix) offset.push_back(region.columns.begin), extent.push_back(region.columns.size());
    const int64_t count = region.rows.size() * region.columns.size();
    out->emplace_back(name, shard.whole, std::move(offset),
                      run.values.narrow(0, region.begin - run.begin, count).view(extent));
  }
}

const Decoder& decoder_of_role(const ModelInstance& role) {
  const auto* decoder = dynamic_cast<const Decoder*>(role.model.get());
  BRAID_CHECK(decoder != nullptr, "a view or an offloaded copy has no slices");
  return *decoder;
}

std::vector<SavedSlice> slices_of(const Decoder& decoder, const std::vector<StateSlice>& runs) {
  std::vector<SavedSlice> out;
  for (const StateSlice& run : runs) add_slices(decoder, run, &out);
  return out;
}

// Of runs that `count` ranks hold, what this one writes: laid end to end they are cut into as many
// pieces of equal bytes, whatever the sizes of tensors are. An embedding may be more than a share.
std::vector<StateSlice> equal_share(std::vector<StateSlice> runs, int64_t self, int64_t count) {
  if (count == 1) return runs;
  int64_t total = 0, before = 0;
  for (const StateSlice& run : runs) total += static_cast<int64_t>(run.values.nbytes());
  std::vector<StateSlice> out;
  for (StateSlice& run : runs) {
    const auto width = static_cast<int64_t>(run.values.itemsize());
    const int64_t size = run.values.numel();
    // The first number that lies behind the shares of the ranks before.
    const auto first_of = [&](int64_t rank) {
      const int64_t bytes = total * rank / count - before;
      return ceil_div(std::clamp(bytes, int64_t{0}, size * width), width);
    };
    const int64_t begin = first_of(self), end = first_of(self + 1);
    before += size * width;
    if (begin == end) continue;
    run.begin += begin;
    run.values = run.values.narrow(0, begin, end - begin);
    out.push_back(std::move(run));
  }
  return out;
}

}  // namespace

RoleSlices held_slices(const ModelInstance& role) {
  const Decoder& decoder = decoder_of_role(role);
  return {slices_of(decoder, weight_runs(role, false)), slices_of(decoder, moment_runs(role))};
}

RoleSlices own_slices(const ModelInstance& role, const Replica& replica) {
  const Decoder& decoder = decoder_of_role(role);
  const bool cut = is_cut(role);
  const int64_t count = replica.across_ranks * (cut ? 1 : replica.data_ranks);
  const int64_t self = cut ? replica.across : replica.across * replica.data_ranks + replica.data;
  const std::set<std::string> others = uncounted_tensors(*role.model);
  const auto own = [&](std::vector<StateSlice> runs) {
    std::erase_if(runs, [&](const StateSlice& run) { return others.count(run.name) > 0; });
    return slices_of(decoder, equal_share(std::move(runs), self, count));
  };
  return {own(weight_runs(role, true)), own(moment_runs(role))};
}

}  // namespace braid::inline weights
