// Parts of named placements that are sized by price.
#include "plan/placement.h"

#include <gtest/gtest.h>

#include <cmath>

#include "plan/test_problem.h"

namespace braid::inline plan {
namespace {

double devices_of(const CallMeshes& meshes, const char* call) {
  return static_cast<double>(meshes.at(call).devices.size());
}

// Seconds that a call would take on one device. Others take none.
using Seconds = std::map<std::string, double>;

MeshSeconds in_proportion(Seconds seconds) {
  return [seconds = std::move(seconds)](const Call& call, const DeviceMesh& mesh) {
    const auto found = seconds.find(call.name);
    return found == seconds.end() ? 0.01 : found->second / static_cast<double>(mesh.devices.size());
  };
}

TEST(PricedParts, CallsSideBySideEndTogether) {
  const PlanningProblem problem = make_test_problem({.nodes = 4});
  const auto meshes = *placement_meshes(
      "interleaved", problem,
      {{}, in_proportion({{"update_actor", 96}, {"update_critic", 32}, {"values", 1}})});
  EXPECT_EQ(devices_of(meshes, "update_actor"), 24);
  EXPECT_EQ(devices_of(meshes, "update_critic"), 8);
  EXPECT_EQ(devices_of(meshes, "generate"), 32);
}

// A call that gains nothing beyond four devices leaves the others to the call beside it.
TEST(PricedParts, DevicesGoWhereTheyShortenACall) {
  const PlanningProblem problem = make_test_problem({.nodes = 4});
  const MeshSeconds seconds = [](const Call& call, const DeviceMesh& mesh) {
    const auto devices = static_cast<double>(mesh.devices.size());
    return call.name == "update_critic" ? 32 / std::min(4.0, devices) : 512 / devices;
  };
  const auto by_work = *placement_meshes("interleaved", problem);
  const auto meshes = *placement_meshes("interleaved", problem, {{}, seconds});
  EXPECT_EQ(devices_of(by_work, "update_critic"), 16);
  EXPECT_LE(devices_of(meshes, "update_critic"), 6);
  EXPECT_GE(devices_of(meshes, "update_critic"), 2);
}

// What works in turn is shortest as a sum, what works on different steps where both sides end
// together.
TEST(PricedParts, TurnsAreSizedByTheirSum) {
  const PlanningProblem problem = make_test_problem({.nodes = 4});
  const MeshSeconds seconds =
      in_proportion({{"generate", 900}, {"update_actor", 90}, {"update_critic", 10}});
  const auto in_turn = *placement_meshes("disaggregated", problem, {{}, seconds});
  EXPECT_EQ(devices_of(in_turn, "generate"), 24);
  const auto ahead = *placement_meshes("disaggregated", problem, {{}, seconds, true});
  EXPECT_EQ(devices_of(ahead, "generate"), 28);
}

TEST(PricedParts, WhatDoesNotFitGetsMoreDevices) {
  const PlanningProblem problem = make_test_problem({.nodes = 4});
  const MeshSeconds seconds = [](const Call& call, const DeviceMesh& mesh) {
    const bool large = call.role.value == "critic";
    return large && mesh.devices.size() < 20 ? INFINITY
                                             : 10.0 / static_cast<double>(mesh.devices.size());
  };
  const auto meshes = *placement_meshes("split", problem, {{}, seconds});
  EXPECT_GE(devices_of(meshes, "update_critic"), 20);
}

TEST(PricedParts, PartsKeepStatedSizes) {
  const PlanningProblem problem = make_test_problem({.nodes = 4});
  const PartSizing sizing{
      {{"update_actor", 4}, {"update_critic", 8}},
      in_proportion({{"update_actor", 50}, {"update_critic", 17}}),
  };
  const auto meshes = *placement_meshes("interleaved", problem, sizing);
  EXPECT_EQ(std::fmod(devices_of(meshes, "update_actor"), 4), 0);
  EXPECT_EQ(std::fmod(devices_of(meshes, "update_critic"), 8), 0);
}

}  // namespace
}  // namespace braid::inline plan
