// A measured profile: times of layers and collectives by shape on one machine. Where it covers a
// shape, its times replace those that the cost model derives from the catalogue. Written by `braid
// profile`, read by the cost model. Plain values.
#pragma once

#include <map>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "cluster/gpu.h"
#include "models/size.h"

namespace braid::inline pricing {

// What was timed. A pass of one layer or of the output head with its loss, or the optimizer.
enum class ProfileOp {
  kLayerForward,
  kLayerBackward,
  kLayerDecode,
  kHeadForward,
  kHeadBackward,
  kOptimizer
};
const char* profile_op_name(ProfileOp op);

// What decides the time of a layer and a head: models that agree in it share measurements, whatever
// their names and numbers of layers.
std::string layer_shape(const ModelSize& model);

struct LayerTime {
  ProfileOp op = ProfileOp::kLayerForward;
  std::string model;  // layer_shape() of the model
  int tp = 1;
  double tokens = 0;   // of the pass; decode: sequences in the batch; optimizer: parameters
  double context = 0;  // tokens that one token attends to, mean; 0 where it does not matter
  double seconds = 0;
  friend bool operator==(const LayerTime&, const LayerTime&) = default;
};

struct CollectiveTime {
  std::string op;  // "all_reduce", "all_gather", "reduce_scatter", "send"
  int members = 2;
  bool inside_node = true;
  double bytes = 0;
  double seconds = 0;
  friend bool operator==(const CollectiveTime&, const CollectiveTime&) = default;
};

struct Profile {
  GpuSpec gpu;  // key "this-machine", or the catalogue's
  Precision precision = Precision::kF32;
  std::string engine;  // "braid"
  // Knobs (pricing/efficiency.h) that were measured too, by name, in their units.
  std::map<std::string, double> efficiencies;
  std::vector<LayerTime> layers;
  std::vector<CollectiveTime> collectives;
  friend bool operator==(const Profile&, const Profile&) = default;
};
std::ostream& operator<<(std::ostream& out, const Profile& profile);

Json profile_json(const Profile& profile);
// Errors name the entry and the rule: unknown operation, a time or size that is not positive and
// finite.
Result<Profile> profile_from_json(const Json& json);

// Time of an operation of the same layer shape, linear in tokens between measured counts and in
// context between measured contexts. Above the largest count it grows in proportion; below the
// smallest one of a context it shrinks as at the shortest context, below all counts it holds.
// Outside the measured contexts the nearest two are extended. A tensor-parallel degree that was not
// measured takes its share of degree 1. Nothing where the profile has no entry of that operation
// and shape.
std::optional<double> profiled_layer_s(const Profile& profile, const LayerTime& wanted);
// Time of an optimizer step over so many parameters, at the rate of the largest one measured.
std::optional<double> profiled_optimizer_s(const Profile& profile, double parameters);
// Likewise for a collective of the same operation and members, in bytes.
std::optional<double> profiled_collective_s(const Profile& profile, const CollectiveTime& wanted);

}  // namespace braid::inline pricing
