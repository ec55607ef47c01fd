#include "search/priced_parts.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "cluster/mesh_shape.h"
#include "search/judge.h"
#include "search/strategies.h"

namespace braid::inline search {
namespace {

double fastest(const CallPricer& pricer, const std::function<bool(const CallPlan&)>& allowed,
               const Call& call, const DeviceMesh& mesh) {
  const MeshShape shape = shape_of(pricer.problem().cluster, mesh);
  const double capacity = pricer.capacity_bytes(shape.smallest());
  double least_s = INFINITY;
  for (const Strategy& strategy :
       strategies_of(pricer.problem(), call, shape.devices, shape.per_node)) {
    if (allowed && !allowed({call.name, mesh, strategy})) continue;
    const Result<CallPrice> price = pricer.price(call, mesh, strategy, capacity);
    if (price.ok() && price->least_bytes() <= capacity)
      least_s = std::min(least_s, price->time.total_s);
  }
  return least_s;
}

bool some_plan_fits(const PlanConstraints& constraints, const CallPricer& pricer,
                    const SpaceOptions& options) {
  const auto kept = keeping(constraints, options);
  if (!kept.ok()) return false;
  auto space = make_plan_space(pricer.problem(), pricer, *kept);
  if (!space.ok()) return false;
  SearchOptions search;
  search.units.max_units = search.units.threads = 1;
  search.judged = 1;
  search.polish = false;
  return search_plans(*space, search).ok();
}

}  // namespace

MeshSeconds fastest_seconds(const CallPricer& pricer,
                            std::function<bool(const CallPlan&)> allowed) {
  using Key = std::pair<std::string, std::vector<DeviceId>>;
  auto known = std::make_shared<std::map<Key, double>>();
  return [&pricer, allowed = std::move(allowed), known](const Call& call, const DeviceMesh& mesh) {
    const Key key{call.name, mesh.devices};
    const auto found = known->find(key);
    if (found != known->end()) return found->second;
    return known->emplace(key, fastest(pricer, allowed, call, mesh)).first->second;
  };
}

Result<PlanConstraints> priced_constraints(const MakeConstraints& make, const CallPricer& pricer,
                                           const SpaceOptions& options) {
  BRAID_ASSIGN(PlanConstraints by_work, make(MeshSeconds()));
  if (by_work.file || by_work.meshes.empty()) return by_work;
  const PlanConstraints sizes{{}, {}, by_work.strategies};
  BRAID_ASSIGN(const SpaceOptions kept, keeping(sizes, options));
  BRAID_ASSIGN(PlanConstraints by_price, make(fastest_seconds(pricer, kept.allowed)));
  if (by_price.meshes == by_work.meshes || some_plan_fits(by_price, pricer, options))
    return by_price;
  return by_work;
}

Result<PlanConstraints> priced_constraints(const Config& config, const CallPricer& pricer,
                                           const ReadText& read, const SpaceOptions& options) {
  return priced_constraints(
      [&](const MeshSeconds& seconds) {
        return constraints_by_seconds(config, pricer.problem(), read, seconds);
      },
      pricer, options);
}

}  // namespace braid::inline search
