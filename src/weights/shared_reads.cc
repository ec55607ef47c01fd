#include "weights/shared_reads.h"

#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "plan/make_problem.h"
#include "program/local_parts.h"
#include "program/placement.h"
#include "reward/reward.h"
#include "weights/load_models.h"

namespace braid::inline weights {
namespace {

// Of a copy: ranks of one slice have read the same, whichever replica they are of.
struct SliceOfCopy {
  int32_t copy = -1;
  int stage = 0, tp_rank = 0, shard = 0;

  std::string name() const {
    return cat("copy ", copy, ", stage ", stage, ", tp ", tp_rank, ", shard ", shard);
  }
};

// The slice of a rank, and whether it is of the first replica.
std::pair<SliceOfCopy, bool> slice_of(const Program& program, int32_t copy, DeviceId rank) {
  const ParamLayout& layout = program.copies[copy].layout;
  const auto at = place_in_grid(layout, rank);
  BRAID_CHECK(at.has_value(), "a rank reads for copies that it has");
  const int shards = layout.sharded ? layout.shards : 1;
  return {{copy, at->stage, at->tp_rank, at->dp_rank % shards}, at->dp_rank / shards == 0};
}

// The rank of the first replica that has a slice.
int64_t first_rank(const Program& program, const SliceOfCopy& slice) {
  const ParamLayout& layout = program.copies[slice.copy].layout;
  const GridPosition at{slice.shard, slice.tp_rank, slice.stage};
  return layout.mesh.devices[mesh_index(layout_grid(layout), at)].value;
}

bool holds_layer(const ParamLayout& layout, int64_t layers, int stage, int64_t layer) {
  for (int chunk = 0; chunk < layout.interleave; ++chunk) {
    const Interval held = part_layers(layout, layers, int64_t{chunk} * layout.pp + stage);
    if (layer >= held.begin && layer < held.end) return true;
  }
  return false;
}

bool share_layers(const ParamLayout& a, int stage_a, const ParamLayout& b, int stage_b,
                  int64_t layers) {
  for (int64_t layer = 0; layer < layers; ++layer)
    if (holds_layer(a, layers, stage_a, layer) && holds_layer(b, layers, stage_b, layer))
      return true;
  return false;
}

// Slices of another copy of as many layers that have something of this one. Where data-parallel
// ranks cut slices further (ZeRO-3) none is known to.
std::vector<SliceOfCopy> overlapping(const Program& program, const SliceOfCopy& own, int32_t other,
                                     int64_t layers) {
  const ParamLayout &mine = program.copies[own.copy].layout, &theirs = program.copies[other].layout;
  std::vector<SliceOfCopy> out;
  if (mine.sharded || theirs.sharded) return out;
  const int first = own.tp_rank * theirs.tp / mine.tp;
  const int last = ((own.tp_rank + 1) * theirs.tp - 1) / mine.tp;
  for (int stage = 0; stage < theirs.pp; ++stage) {
    if (!share_layers(mine, own.stage, theirs, stage, layers)) continue;
    for (int tp_rank = first; tp_rank <= last; ++tp_rank) out.push_back({other, stage, tp_rank, 0});
  }
  return out;
}

// Slices of the same copy that have something of this one: tensors that are not cut, heads that
// neighbours share, an embedding at both ends of a pipeline.
std::vector<SliceOfCopy> beside(const Program& program, const SliceOfCopy& own) {
  const ParamLayout& layout = program.copies[own.copy].layout;
  std::vector<SliceOfCopy> out;
  if (layout.sharded) return out;
  SliceOfCopy other = own;
  if (own.tp_rank > 0) {
    --other.tp_rank;
    out.push_back(other);
  }
  if (own.stage > 0 && own.stage == layout.pp - 1) {
    other = {own.copy, 0, own.tp_rank, 0};
    out.push_back(other);
  }
  return out;
}

// Where a copy is loaded from.
struct Source {
  Origin origin;
  std::string key;
};

Result<Source> source_of(const Config& config, const Program& program, int32_t copy) {
  const RoleSpec* const role = find_role(program.graph, program.copies[copy].role);
  Source out;
  BRAID_ASSIGN(out.origin, role_origin(config, *role));
  const std::string& name = role->role.value;
  const auto index = is_scorer(*role) ? reward_model_index(config, name) : std::nullopt;
  out.key = index ? cat("reward[", *index, "].path") : origin_key(config, name);
  return out;
}

// Whether a copy is loaded from files by those who hold it; else a reallocation fills it.
bool is_loaded(const Config& config, const Program& program, const WeightCopy& copy) {
  return copy.home || config.lora.rank > 0 || !changes(program.graph, copy.role);
}

// The first copy that is loaded from the same files as one, maybe itself.
Result<int32_t> first_of_files(const Config& config, const Program& program, int32_t copy,
                               const Origin& origin) {
  for (int32_t before = 0; before < copy; ++before) {
    if (!is_loaded(config, program, program.copies[before])) continue;
    BRAID_ASSIGN(const Source other, source_of(config, program, before));
    if (other.origin == origin) return before;
  }
  return copy;
}

// All that a rank has read from some files: a role may share what was read for another one, on this
// rank or on others.
Result<ReadBlocks> read_from(const Config& config, const Program& program, const CopyReads& reads,
                             const Origin& origin) {
  ReadBlocks out;
  for (const auto& [copy, blocks] : reads) {
    BRAID_ASSIGN(const Source source, source_of(config, program, copy));
    if (source.origin == origin) out.insert(blocks.begin(), blocks.end());
  }
  return out;
}

// The claims of a copy that the rank has a part of.
Result<PartClaims> claims_of(const Config& config, const Program& program, int32_t copy,
                             DeviceId rank, const CopyReads& reads) {
  const auto [slice, first] = slice_of(program, copy, rank);
  BRAID_ASSIGN(const Source source, source_of(config, program, copy));
  BRAID_ASSIGN(const int32_t other, first_of_files(config, program, copy, source.origin));
  BRAID_ASSIGN(const Source named, source_of(config, program, other));
  BRAID_ASSIGN(const ReadBlocks blocks, read_from(config, program, reads, source.origin));
  PartClaims out{slice.name(), first, {}, {}, {}};
  for (const auto& [block, digest] : blocks)
    out.claims[cat("reads ", named.key, ": ", block)] = cat("with SHA-256 ", digest);
  if (!first) {
    out.waits_for = {first_rank(program, slice)};
    return out;
  }
  const int64_t layers = find_shape(program, program.copies[copy].role)->layers;
  for (const SliceOfCopy& each :
       other == copy ? beside(program, slice) : overlapping(program, slice, other, layers)) {
    out.overlapping.push_back(each.name());
    out.waits_for.push_back(first_rank(program, each));
  }
  return out;
}

}  // namespace

Status agree_on_reads(World& world, const Config& config, const Program& program,
                      const CopyReads& reads) {
  const DeviceId self{static_cast<int>(world.global_rank())};
  std::vector<PartClaims> parts;
  for (int32_t copy = 0; copy < static_cast<int32_t>(program.copies.size()); ++copy) {
    const WeightCopy& held = program.copies[copy];
    if (!is_loaded(config, program, held) || !place_in_mesh(held.layout, self)) continue;
    BRAID_ASSIGN(PartClaims claims, claims_of(config, program, copy, self, reads));
    parts.push_back(std::move(claims));
  }
  return world.agree_on_parts("weights", parts, kSameFiles);
}

}  // namespace braid::inline weights
