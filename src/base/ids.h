// Strong identifiers: distinct types around an integer or a name, so that a request cannot be
// passed for a call.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <ostream>
#include <string>

namespace braid::inline base {

template <typename Tag, typename Value = int64_t>
struct Id {
  Value value{};
  friend auto operator<=>(const Id&, const Id&) = default;
  friend std::ostream& operator<<(std::ostream& out, const Id& id) { return out << id.value; }
};

using SampleId = Id<struct SampleIdTag>;  // one sequence of the rollout, unique within a run
using GroupId =
    Id<struct GroupIdTag>;  // samples of one prompt, or the two halves of a preference pair
using RequestId = Id<struct RequestIdTag>;     // one sequence inside a generation engine
using CallId = Id<struct CallIdTag, int32_t>;  // index of a function call in its dataflow graph
using InstructionId = Id<struct InstructionIdTag, int32_t>;  // index in a rank's instruction list
using DeviceId = Id<struct DeviceIdTag, int32_t>;            // global device number
using RoleId = Id<struct RoleIdTag, std::string>;  // "actor", "critic", "reference", "reward", ...

}  // namespace braid::inline base

template <typename Tag, typename Value>
struct std::hash<braid::Id<Tag, Value>> {
  size_t operator()(const braid::Id<Tag, Value>& id) const { return std::hash<Value>()(id.value); }
};
