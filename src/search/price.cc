#include "search/price.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/text.h"
#include "base/units.h"
#include "optimize/units.h"
#include "plan/plan_fields.h"
#include "pricing/memory.h"
#include "pricing/predict_generate.h"
#include "pricing/rl_engine.h"
#include "program/listed_messages.h"
#include "search/space.h"
#include "sim/slice_prices.h"

namespace braid::inline search {
namespace {

// A list of questions is one work unit.
class PriceUnits final : public optimize::UnitSource {
 public:
  explicit PriceUnits(std::vector<std::function<void()>> lists) : lists_(std::move(lists)) {}
  bool start(int64_t unit) override { return unit < std::ssize(lists_); }
  void run(int64_t unit) override { lists_[static_cast<size_t>(unit)](); }
  void finish(int64_t, double) override {}

 private:
  std::vector<std::function<void()>> lists_;
};

}  // namespace

Result<CallPricer> CallPricer::make(const PlanningProblem& problem, const Calibration& calibration,
                                    uint64_t seed) {
  CallPricer pricer;
  pricer.problem_ = &problem;
  pricer.lengths_ = draw_lengths(problem.workload, seed);
  pricer.forget();
  pricer.others_ = std::make_shared<std::vector<CallPricer>>();
  for (const Node& node : problem.cluster.nodes) {
    const auto known = [&](const Engines& engines) { return engines.gpu == node.gpu; };
    if (std::any_of(pricer.engines_.begin(), pricer.engines_.end(), known)) continue;
    for (const auto& [role, model] : problem.models)
      BRAID_TRY(peak_flops(node.gpu, model.precision).status().at(cat("role ", role)));
    BRAID_ASSIGN(DeviceModel train, make_device(node.gpu, Precision::kBf16, problem.train_engine,
                                                calibration, problem.generate_engine));
    BRAID_ASSIGN(DeviceModel generate,
                 make_device(node.gpu, Precision::kBf16, problem.generate_engine, calibration));
    pricer.engines_.push_back({node.gpu, std::move(train), std::move(generate)});
  }
  return pricer;
}

void CallPricer::forget() {
  timer_ = std::make_shared<CallTimer>(*problem_, lengths_);
  meter_ = std::make_shared<CallMeter>(*problem_, lengths_);
  known_ = std::make_shared<std::map<PriceKey, Result<CallPrice>>>();
  costs_ = std::make_shared<std::map<PriceKey, CallCost>>();
  slices_ = std::make_shared<std::map<PriceKey, std::vector<SliceBytes>>>();
}

const CallPricer::Engines& CallPricer::engines_of(const GpuSpec& gpu) const {
  for (const Engines& engines : engines_)
    if (engines.gpu == gpu) return engines;
  BRAID_CHECK(false, cat("no device ", gpu.key, " in the problem's cluster"));
}

DeviceModel CallPricer::device(const DeviceModel& engine, Precision precision) const {
  DeviceModel device = engine;
  device.precision = precision;
  return device;
}

CallPricer::PriceKey CallPricer::key_of(const Call& call, const DeviceMesh& run,
                                        const Strategy& strategy) {
  std::vector<int64_t> numbers = {run.devices.front().value,
                                  static_cast<int64_t>(run.devices.size())};
  for (const plan_fields::StrategyField& field : plan_fields::strategy_fields())
    numbers.push_back(field.get(strategy));
  numbers.insert(numbers.end(), strategy.stage_layers.begin(), strategy.stage_layers.end());
  return {call.name, std::move(numbers)};
}

CallCost CallPricer::cost(const Call& call, const CallPlan& plan, const MeshShape& shape) const {
  if (!is_run(plan.mesh)) return new_cost(call, plan, shape);
  PriceKey key = key_of(call, plan.mesh, without_batches(plan.strategy));
  auto found = costs_->find(key);
  if (found == costs_->end()) {
    if (costs_->size() >= kMostCosts) costs_->clear();
    found = costs_->emplace(std::move(key), new_cost(call, plan, shape)).first;
  }
  return found->second.with(plan.strategy);
}

CallCost CallPricer::new_cost(const Call& call, const CallPlan& plan,
                              const MeshShape& shape) const {
  const RoleModel& model = model_of(*problem_, call.role);
  const bool generates = call.kind == CallKind::kGenerate;
  std::vector<DeviceModel> kinds;
  for (const GpuSpec& gpu : shape.kinds) {
    const Engines& engines = engines_of(gpu);
    kinds.push_back(
        device(generates ? engines.generate : engines.train, precision_of(model, plan.strategy)));
  }
  return CallCost::make(call, plan, *problem_, std::move(kinds));
}

const Result<CallPrice>* CallPricer::known(const PriceKey& key, double most_bytes) const {
  const auto found = known_->find(key);
  if (found == known_->end()) return nullptr;
  const Result<CallPrice>& price = found->second;
  const bool answers = !price.ok() || price->timed || price->least_bytes() > most_bytes;
  return answers ? &price : nullptr;
}

void CallPricer::price_ahead(const std::vector<std::vector<PriceQuestion>>& lists) const {
  while (others_->size() + 1 < lists.size()) {
    others_->push_back(*this);
    others_->back().forget();
    others_->back().others_.reset();
  }
  std::vector<std::function<void()>> work;
  for (size_t i = 0; i < lists.size(); ++i) {
    const CallPricer& pricer = i == 0 ? *this : (*others_)[i - 1];
    std::vector<const PriceQuestion*> open;
    for (const PriceQuestion& one : lists[i])
      if (is_run(*one.mesh) &&
          known(key_of(*one.call, *one.mesh, one.strategy), one.most_bytes) == nullptr)
        open.push_back(&one);
    work.emplace_back([&pricer, open = std::move(open)] {
      for (const PriceQuestion* one : open)
        (void)pricer.price(*one->call, *one->mesh, one->strategy, one->most_bytes);
    });
  }
  PriceUnits units(std::move(work));
  run_units(units, {.threads = static_cast<int>(lists.size()), .stop = {}, .elapsed_s = {}});
  for (const CallPricer& other : *others_) {
    for (auto& [key, price] : *other.known_) known_->insert_or_assign(key, std::move(price));
    other.known_->clear();
  }
}

Result<CallPrice> CallPricer::price(const Call& call, const DeviceMesh& mesh,
                                    const Strategy& strategy, double most_bytes) const {
  if (!is_run(mesh)) return new_price(call, mesh, strategy, most_bytes);
  PriceKey key = key_of(call, mesh, strategy);
  if (const Result<CallPrice>* answer = known(key, most_bytes)) return *answer;
  return known_->insert_or_assign(std::move(key), new_price(call, mesh, strategy, most_bytes))
      .first->second;
}

Result<CallPrice> CallPricer::new_price(const Call& call, const DeviceMesh& mesh,
                                        const Strategy& strategy, double most_bytes) const {
  const MeshShape shape = shape_of(problem_->cluster, mesh);
  const bool generates = call.kind == CallKind::kGenerate;
  const RoleModel& model = model_of(*problem_, call.role);
  if (strategy.pp > model.spec.layers)
    return invalid_input(cat("pp ", strategy.pp, " exceeds the ", model.spec.layers, " layers"));
  const CallPlan plan{call.name, mesh, strategy};
  const CallCost cost = this->cost(call, plan, shape);
  if (generates) BRAID_TRY(check_serving(cost, shape.smallest()));
  CallPrice price;
  const CallMemory memory = meter_->memory(call, cost, *timer_);
  price.weight_bytes = memory.weights;
  price.optimizer_bytes = memory.optimizer;
  price.transient_bytes = memory.transient;
  price.timed = price.least_bytes() <= most_bytes;
  if (!price.timed) return price;
  price.time = timer_->time(call, plan, cost);
  price_slices(call, plan, cost, &price);
  return price;
}

// Of the stage that takes longest. What is gathered depends on the layout, not on where it lies.
void CallPricer::price_slices(const Call& call, const CallPlan& plan, const CallCost& cost,
                              CallPrice* price) const {
  const ParamLayout layout = param_layout(plan.mesh, plan.strategy);
  if (!layout.sharded) return;
  PriceKey key{call.role.value,
               {layout.dp, layout.tp, layout.pp, layout.interleave, layout.shards, layout.ep,
                layout.expert_tp}};
  key.second.insert(key.second.end(), layout.stage_layers.begin(), layout.stage_layers.end());
  const auto [stages, fresh] = slices_->try_emplace(std::move(key));
  if (fresh) {
    const ModelShape model = model_shape(*problem_, call.role);
    for (int stage = 0; stage < layout.pp; ++stage) {
      const size_t place = mesh_index(layout_grid(layout), {0, 0, stage});
      const DeviceId rank = layout.mesh.devices[place];
      stages->second.push_back(
          {gathered_weights(model, layout, rank), gathered_where_they_come(model, layout, rank)});
    }
  }
  for (const SliceBytes& stage : stages->second) {
    price->gather_s = std::max(price->gather_s, slice_gather(stage.gathered, cost).seconds);
    price->arrive_s = std::max(price->arrive_s, slice_gather(stage.arriving, cost).seconds);
  }
}

Status CallPricer::check_serving(const CallCost& cost, const GpuSpec& gpu) const {
  const Strategy& s = cost.strategy();
  if (own_expert_grid(s)) return ok_status();  // what experts apart leave is the meter's to say
  const RoleModel& model = cost.model();
  const NumberWidths widths = widths_of(precision_of(model, s));
  GenerateLayout layout;
  layout.tp = s.tp;
  layout.pp = s.pp;
  layout.weight_bytes = widths.weight;
  layout.kv_bytes = widths.cache;
  const Workload& load = problem_->workload;
  if (kv_capacity_tokens(model.spec, layout, gpu) >=
      mean_tokens(load.prompt) + mean_tokens(load.response))
    return ok_status();
  return {Code::kInfeasible,
          cat("weights and the cache of one sequence do not fit on ", s.tp * s.pp, " x ", gpu.key)};
}

double CallPricer::capacity_bytes(const GpuSpec& gpu, double share) const {
  const Efficiency& e = engines_of(gpu).train.efficiency;
  return share * usable_bytes(device_memory_bytes(*problem_, gpu), e) /
             std::sqrt(e.mem_reserve_factor) -
         e.mem_fixed_gib * kGib;
}

double CallPricer::cache_tokens(const Call& call, const DeviceMesh& mesh, const Strategy& strategy,
                                double bytes) const {
  const CallCost cost =
      this->cost(call, {call.name, mesh, strategy}, shape_of(problem_->cluster, mesh));
  double held = 0;
  for (int stage = 0; stage < strategy.pp; ++stage)
    held = std::max(held, cost.weight_bytes(mesh_index(strategy, {0, 0, stage})));
  const auto prefill =
      static_cast<double>(engine_batch_tokens(*problem_, SimOptions().generate_batch_tokens));
  return std::max(0.0, bytes - held - cost.prefill_bytes(prefill)) / cost.cache_bytes_per_token();
}

double CallPricer::host_copy_s(double bytes, const GpuSpec& gpu) const {
  return braid::host_copy_s(bytes, engines_of(gpu).train);
}

}  // namespace braid::inline search
