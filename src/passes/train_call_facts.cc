#include "passes/train_call_facts.h"

namespace braid::inline passes {
namespace {

constexpr const char* kCritic = "critic";

}  // namespace

int64_t waiting_steps(const Config& config, const Graph& graph, const RoleId& role) {
  // The graph's roles: a rank need not hold the critic.
  const bool waits = find_role(graph, RoleId{kCritic}) != nullptr && role.value != kCritic;
  return waits ? config.critic.warmup_steps : 0;
}

std::string metric_prefix(const Call& call) {
  return (call.metrics.empty() ? call.role.value : call.metrics) + "/";
}

}  // namespace braid::inline passes
