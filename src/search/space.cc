#include "search/space.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "base/contains.h"
#include "base/text.h"
#include "batching/cache_pages.h"
#include "plan/validate.h"
#include "program/exchange.h"

namespace braid::inline search {
namespace {

// ---- Graph

// For each call of the graph the model calls that it waits for, through calls without a model.
std::vector<std::vector<int>> model_dependencies(const Graph& graph,
                                                 const std::vector<int>& space_index) {
  const auto direct = dependencies(graph);
  std::vector<std::vector<int>> reached(graph.calls.size());
  for (size_t c = 0; c < graph.calls.size(); ++c) {
    std::vector<int>& mine = reached[c];
    for (const CallId before : direct[c]) {
      const int index = space_index[before.value];
      if (index >= 0) mine.push_back(index);
      if (index < 0)
        mine.insert(mine.end(), reached[before.value].begin(), reached[before.value].end());
    }
    std::sort(mine.begin(), mine.end());
    mine.erase(std::unique(mine.begin(), mine.end()), mine.end());
  }
  return reached;
}

// What comes to a call in exchanges.
double input_bytes(const PlanningProblem& problem, CallId id) {
  double bytes = 0;
  for (int32_t i = 0; i < id.value; ++i) {
    const Call& producer = problem.graph.calls[i];
    const auto samples = static_cast<double>(call_samples(problem, producer));
    const std::vector<std::string> fields = exchanged_fields(problem.graph, CallId{i}, id);
    for (const Field& field : producer.writes)
      if (std::count(fields.begin(), fields.end(), field.name) > 0)
        bytes += samples * field_bytes(problem.workload, field);
  }
  return bytes;
}

int role_index(PlanSpace& space, const PlanningProblem& problem, const RoleId& role) {
  for (size_t r = 0; r < space.roles.size(); ++r)
    if (space.roles[r].role == role) return static_cast<int>(r);
  RoleSpace added;
  added.role = role;
  const RoleModel& model = model_of(problem, role);
  const RoleSpec* spec = find_role(problem.graph, role);
  const double bytes = precision_bytes(model.precision) *
                       (model.trainable.lora ? trainable_fraction(model.spec, model.trainable) : 1);
  added.layers = model.spec.layers;
  for (const TensorKind& kind : tensor_kinds(model.spec, spec)) {
    const double moved = bytes * static_cast<double>(kind.elements);
    const auto layers = static_cast<double>(kind.layer_end - kind.layer_begin);
    added.layer_bytes += moved * layers / static_cast<double>(added.layers);
    if (layers == 0) (kind.first ? added.first_bytes : added.last_bytes) += moved;
  }
  space.roles.push_back(added);
  return static_cast<int>(space.roles.size()) - 1;
}

void add_calls(const PlanningProblem& problem, PlanSpace& space) {
  const Graph& graph = problem.graph;
  std::vector<int> space_index(graph.calls.size(), -1);
  int next = 0;
  for (size_t c = 0; c < graph.calls.size(); ++c)
    if (uses_model(graph.calls[c])) space_index[c] = next++;
  const auto after = model_dependencies(graph, space_index);
  for (size_t c = 0; c < graph.calls.size(); ++c) {
    if (space_index[c] < 0) continue;
    const Call& call = graph.calls[c];
    CallSpace added;
    added.call = CallId{static_cast<int32_t>(c)};
    added.role = role_index(space, problem, call.role);
    added.after = after[c];
    added.input_bytes = input_bytes(problem, added.call);
    RoleSpace& role = space.roles[added.role];
    const bool trains = call.kind == CallKind::kTrainStep;
    if (role.calls.empty() || (trains && !role.trained)) role.home = space_index[c];
    role.trained |= trains;
    role.calls.push_back(space_index[c]);
    space.calls.push_back(std::move(added));
  }
}

// Where ranks that ask rewards wait for scores (scored_by_rank() in program/exchange.h).
void add_reward_stops(const PlanningProblem& problem, PlanSpace& space) {
  const Graph& graph = problem.graph;
  const auto index_of = [&](CallId id) {
    for (int c = 0; c < space.num_calls(); ++c)
      if (space.calls[c].call == id) return c;
    return -1;
  };
  const auto waits_for = dependencies(graph);
  for (size_t c = 0; c < graph.calls.size(); ++c) {
    const CallId id{static_cast<int32_t>(c)};
    if (graph.calls[c].kind != CallKind::kReward || uses_model(graph.calls[c])) continue;
    RewardStop stop;
    stop.generation = index_of(generation_of(graph, id));
    stop.one_rank = problem.rewards_together;
    for (const CallId before : waits_for[c])
      if (const int score = index_of(before); score >= 0 && score != stop.generation)
        stop.scores.push_back(score);
    while (stop.before < space.num_calls() && space.calls[stop.before].call.value < id.value)
      ++stop.before;
    if (stop.generation >= 0 && !stop.scores.empty()) space.reward_stops.push_back(std::move(stop));
  }
}

void finish_roles(const PlanningProblem& problem, PlanSpace& space) {
  for (RoleSpace& role : space.roles) {
    role.stays = {Stay()};
    const RoleModel& model = model_of(problem, role.role);
    for (size_t other = 0; other < space.roles.size(); ++other)
      if (space.roles[other].role.value == model.shares_weights_with)
        role.shares = static_cast<int>(other);
    role.copies_stay = !role.trained || model.trainable.lora;
    if (!problem.may_offload) continue;
    const bool state = role.trained && !model.trainable.lora;
    if (state) role.stays.push_back({false, true, true});
    if (role.shares >= 0) continue;
    if (state) role.stays.push_back({true, false, true});
    role.stays.push_back({true, role.trained, role.trained});
  }
}

// A segment ends after call k when every later call waits, directly or not, for all calls up to k.
void find_segments(PlanSpace& space) {
  const int count = space.num_calls();
  std::vector<std::vector<bool>> ancestor(count, std::vector<bool>(count, false));
  for (int c = 0; c < count; ++c)
    for (const int before : space.calls[c].after) {
      ancestor[c][before] = true;
      for (int a = 0; a < before; ++a)
        if (ancestor[before][a]) ancestor[c][a] = true;
    }
  const auto is_barrier = [&](int last) {
    for (int later = last + 1; later < count; ++later)
      for (int c = 0; c <= last; ++c)
        if (!ancestor[later][c]) return false;
    return true;
  };
  space.segments.emplace_back();
  for (int c = 0; c < count; ++c) {
    space.segment_of.push_back(static_cast<int>(space.segments.size()) - 1);
    space.segments.back().push_back(c);
    if (c + 1 < count && is_barrier(c)) space.segments.emplace_back();
  }
}

// ---- Devices

void add_devices(const PlanningProblem& problem, const CallPricer& pricer, double margin,
                 PlanSpace& space) {
  const Cluster& cluster = problem.cluster;
  space.node_of = nodes_of(cluster);
  for (size_t d = 0; d < space.node_of.size(); ++d) {
    const GpuSpec& gpu = cluster.nodes[space.node_of[d]].gpu;
    space.capacity_bytes.push_back(pricer.capacity_bytes(gpu, 1 - margin));
    space.whole_bytes.push_back(pricer.capacity_bytes(gpu));
    if (d == 0 || space.capacity_bytes[d] != space.capacity_bytes[d - 1])
      space.capacity_steps.push_back(static_cast<int>(d));
  }
}

MoveRates node_rates(const Node& node, const CallPricer& pricer) {
  const Efficiency& e = pricer.train_efficiency(node.gpu);
  const bool nvlink = node.gpu.nvlink_gbytes_per_s > 0 &&
                      nvlink_domain_devices(node.gpu, node.devices) >= node.devices;
  MoveRates rates;
  rates.inside = 1e9 * (nvlink ? node.gpu.nvlink_gbytes_per_s * e.nvlink_ring_share
                               : node.gpu.pcie_gbytes_per_s * e.pcie_share);
  rates.network = std::max(1.0, node.nic_gbps_per_gpu * 1e9 / 8 * e.network_share);
  rates.host = 1e9 / std::max(1e-9, pricer.host_copy_s(1e9, node.gpu));
  rates.latency_s = 1e-6 * e.network_latency_us;
  rates.rack = node.nvlink_domain;
  return rates;
}

// ---- Options

// Of a call's time, with another order of its passes.
constexpr double kLeastOrderGain = 0.9995;

// Of the cache that an engine has room for with nothing beside it.
constexpr double kCacheShares[] = {1, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2};

struct Priced {
  int32_t strategy = 0;
  Strategy value;
  CallPrice price;
  std::vector<StageSpan> spans;  // of price.time
};

// What the layout of parameters depends on.
auto layout_key(const Strategy& s) {
  return std::make_tuple(s.tp, s.pp, s.interleave, s.zero_stage == 3 ? zero_ranks(s) : 1, s.ep,
                         expert_tp(s));
}

// Device time of a call's passes, without the waiting of its stages.
int64_t work_us(const CallTime& time, int64_t devices) {
  double busy_s = 0;
  for (const StageTime& stage : time.stages) busy_s += stage.busy_s;
  return static_cast<int64_t>(1e6 * busy_s * static_cast<double>(devices) /
                              static_cast<double>(time.stages.size()));
}

std::vector<StageSpan> spans_of(const CallTime& time) {
  std::vector<StageSpan> spans;
  for (const StageTime& stage : time.stages) {
    const double need = time.joint ? time.total_s - stage.start_s : stage.busy_s;
    spans.push_back({to_us(stage.end_s), to_us(need)});
  }
  return spans;
}

PlanOption option_of(const Priced& priced, int32_t first, int32_t devices) {
  PlanOption option;
  option.first = first;
  option.end = first + devices;
  option.strategy = priced.strategy;
  option.tp = priced.value.tp;
  option.pp = priced.value.pp;
  option.interleave = priced.value.interleave;
  option.replicas = priced.value.dp;
  option.shards = priced.value.zero_stage == 3 ? zero_ranks(priced.value) : 1;
  option.joint = priced.price.time.joint;
  option.time_us = to_us(priced.price.time.total_s);
  option.gather_us = to_us(priced.price.gather_s);
  option.arrive_us = to_us(priced.price.arrive_s);
  option.weight_bytes = priced.price.weight_bytes;
  option.optimizer_bytes = priced.price.optimizer_bytes;
  option.transient_bytes = priced.price.transient_bytes;
  return option;
}

// An option comes after all that may dominate it.
auto pruning_order(const Priced& p) {
  return std::make_tuple(p.price.time.total_s, p.price.transient_bytes, p.price.weight_bytes,
                         p.price.optimizer_bytes, p.strategy);
}

// The options of one call on one mesh shape, without those that another dominates. Fields come at
// `rate` at worst, bytes/s.
class ShapePruner {
 public:
  ShapePruner(const PlanSpace& in, const CallSpace& of, double rate) : role_(in.roles[of.role]) {
    most_fields_s_ = of.input_bytes / rate;
    layout_matters_ = role_.calls.size() > 1 || role_.shares >= 0;
    for (const RoleSpace& other : in.roles) layout_matters_ |= other.shares == of.role;
  }

  std::vector<Priced> prune(std::vector<Priced> all) const {
    std::sort(all.begin(), all.end(),
              [](const Priced& a, const Priced& b) { return pruning_order(a) < pruning_order(b); });
    std::vector<Priced> kept;
    for (Priced& priced : all)
      if (std::none_of(kept.begin(), kept.end(),
                       [&](const Priced& better) { return dominates(better, priced); }))
        kept.push_back(std::move(priced));
    return kept;
  }

 private:
  bool dominates(const Priced& a, const Priced& b) const {
    if (a.price.time.total_s > b.price.time.total_s ||
        a.price.optimizer_bytes > b.price.optimizer_bytes ||
        a.price.transient_bytes > b.price.transient_bytes)
      return false;
    if (layout_key(a.value) == layout_key(b.value)) return is_never_later(a, b);
    return !layout_matters_ && a.price.weight_bytes <= b.price.weight_bytes && is_never_later(a, b);
  }

  // Whether A's stages end no later than B's on every device, whenever devices become free.
  bool is_never_later(const Priced& a, const Priced& b) const {
    const size_t stages = a.spans.size();
    if (stages != b.spans.size() || a.price.time.joint != b.price.time.joint) return false;
    for (size_t i = 0; i < stages; ++i)
      for (size_t j = i; j < stages; ++j)
        if (path_us(a, i, j) + (i == 0 ? later_fields_us(a, b) : 0) > path_us(b, i, j))
          return false;
    return true;
  }
  // How much later A's fields may be on the first stage: over fewer replicas each takes more.
  int64_t later_fields_us(const Priced& a, const Priced& b) const {
    if (a.value.dp >= b.value.dp) return 0;
    return static_cast<int64_t>(
        std::ceil(1e6 * most_fields_s_ * (1.0 / a.value.dp - 1.0 / b.value.dp) + 1));
  }
  // From when the devices of stage i are free to the end of stage j.
  static int64_t path_us(const Priced& p, size_t i, size_t j) {
    return p.spans[i].need_us + p.spans[j].end_us - p.spans[i].end_us;
  }

  const RoleSpace& role_;
  double most_fields_s_ = 0;  // to bring the fields to one replica
  bool layout_matters_;       // weights move, or another role uses them in place
};

struct MeshClass {
  MeshShape shape;
  std::vector<DeviceMesh> meshes;  // of this shape
};

std::vector<MeshClass> mesh_classes(const Cluster& cluster, const std::vector<DeviceMesh>& more) {
  std::vector<MeshClass> classes;
  std::vector<DeviceMesh> meshes = candidate_meshes(cluster);
  for (const DeviceMesh& mesh : more)
    if (!contains(meshes, mesh)) meshes.push_back(mesh);
  for (const DeviceMesh& mesh : meshes) {
    const MeshShape shape = shape_of(cluster, mesh);
    auto found = std::find_if(classes.begin(), classes.end(),
                              [&](const MeshClass& known) { return known.shape == shape; });
    if (found == classes.end()) found = classes.insert(classes.end(), {shape, {}});
    found->meshes.push_back(mesh);
  }
  return classes;
}

class OptionBuilder {
 public:
  OptionBuilder(const CallPricer& pricer, const SpaceOptions& options, PlanSpace& space)
      : pricer_(pricer),
        options_(options),
        space_(space),
        classes_(mesh_classes(space.problem->cluster, options.meshes)) {
    for (const Node& node : space.problem->cluster.nodes)
      node_rates_.push_back(node_rates(node, pricer));
  }

  // Prices the options of all calls in several threads: whole calls in each, so that what a call's
  // options have in common is computed once.
  void price_ahead() const {
    if (options_.threads < 2 || options_.only != nullptr) return;
    std::vector<std::vector<PriceQuestion>> of_calls;
    for (const CallSpace& call : space_.calls)
      of_calls.push_back(questions(space_.problem->graph.calls[call.call.value]));
    std::stable_sort(of_calls.begin(), of_calls.end(),
                     [](const auto& a, const auto& b) { return a.size() > b.size(); });
    std::vector<std::vector<PriceQuestion>> lists(static_cast<size_t>(options_.threads));
    for (auto& of_call : of_calls) {
      auto& shortest =
          *std::min_element(lists.begin(), lists.end(),
                            [](const auto& a, const auto& b) { return a.size() < b.size(); });
      shortest.insert(shortest.end(), std::make_move_iterator(of_call.begin()),
                      std::make_move_iterator(of_call.end()));
    }
    pricer_.price_ahead(lists);
  }

  Status build(int index) {
    CallSpace& call = space_.calls[index];
    if (options_.only != nullptr) return build_only(index);
    Refusal refusal;
    for (const MeshClass& meshes : classes_) add_shape(index, meshes, &refusal);
    if (!call.options.empty()) {
      std::stable_sort(call.options.begin(), call.options.end(),
                       [](const auto& a, const auto& b) { return a.time_us < b.time_us; });
      return ok_status();
    }
    const Call& graph_call = space_.problem->graph.calls[call.call.value];
    const double capacity = std::max(0.0, space_.capacity_bytes.front());
    return {
        Code::kInfeasible,
        cat("call ", graph_call.name, " (", graph_call.role, ") fits on no mesh of the cluster: ",
            std::isfinite(refusal.least_bytes)
                ? cat("its smallest option needs ", format_bytes(refusal.least_bytes),
                      " per device of ", format_bytes(capacity))
                : refusal.message)};
  }

 private:
  // Why options were turned down: the least memory asked for, or what the cost model said last.
  struct Refusal {
    double least_bytes = INFINITY;
    std::string message = "no strategy divides its sizes";
  };

  Status build_only(int index) {
    CallSpace& call = space_.calls[index];
    const Call& graph_call = space_.problem->graph.calls[call.call.value];
    const CallPlan& entry = call_plan(*options_.only, graph_call.name);
    BRAID_ASSIGN(
        const CallPrice price,
        pricer_.price(graph_call, entry.mesh, entry.strategy).at(cat("call ", entry.call)));
    const Priced priced{static_cast<int32_t>(call.strategies.size()), entry.strategy, price,
                        spans_of(price.time)};
    call.strategies.push_back(entry.strategy);
    add_option(call, priced, entry.mesh.devices.front().value, add_spans(priced));
    return ok_status();
  }

  // A call on each of the meshes, to be asked about.
  std::vector<CallPlan> entries_on(const Call& call, const MeshClass& meshes) const {
    std::vector<CallPlan> out;
    if (!options_.allowed) return out;
    for (const DeviceMesh& mesh : meshes.meshes) out.push_back({call.name, mesh, {}});
    return out;
  }

  bool allowed(CallPlan& entry, const Strategy& strategy) const {
    entry.strategy = strategy;
    return options_.allowed(entry);
  }

  // Whether meshes of a shape may have a strategy. As conditions are on the mesh and on the
  // strategy, one that may have some, which `at` remembers, stands for all.
  bool allowed_somewhere(const Strategy& strategy, std::vector<CallPlan>& entries,
                         CallPlan** at) const {
    if (!options_.allowed) return true;
    if (*at != nullptr) return allowed(**at, strategy);
    for (CallPlan& entry : entries)
      if (allowed(entry, strategy)) *at = &entry;
    return *at != nullptr;
  }

  std::vector<PriceQuestion> questions(const Call& call) const {
    std::vector<PriceQuestion> out;
    for (const MeshClass& meshes : classes_) {
      const DeviceMesh& mesh = meshes.meshes.front();
      const double most = kMemoryDoubt * pricer_.capacity_bytes(meshes.shape.smallest());
      std::vector<CallPlan> entries = entries_on(call, meshes);
      CallPlan* allowed_at = nullptr;
      std::vector<Strategy> all = strategies_on(call, mesh, meshes.shape);
      for (Strategy& s : all)
        if (allowed_somewhere(s, entries, &allowed_at))
          out.push_back({&call, &mesh, std::move(s), most});
    }
    return out;
  }

  void add_shape(int index, const MeshClass& meshes, Refusal* refusal) {
    CallSpace& call = space_.calls[index];
    const Call& graph_call = space_.problem->graph.calls[call.call.value];
    const double capacity = pricer_.capacity_bytes(meshes.shape.smallest());
    const DeviceMesh& mesh = meshes.meshes.front();
    std::vector<CallPlan> entries = entries_on(graph_call, meshes);
    std::vector<Priced> fitting;
    CallPlan* allowed_at = nullptr;
    for (const Strategy& s : strategies_on(graph_call, mesh, meshes.shape)) {
      if (!allowed_somewhere(s, entries, &allowed_at)) continue;
      const Result<CallPrice> price = pricer_.price(graph_call, mesh, s, kMemoryDoubt * capacity);
      ++space_.enumerated;
      if (!price.ok()) {
        refusal->message = price.status().message();
        continue;
      }
      refusal->least_bytes = std::min(refusal->least_bytes, price->least_bytes());
      if (price->least_bytes() > kMemoryDoubt * capacity) continue;
      note_least(graph_call.kind, price->time, meshes.shape.devices, s.dp, &call);
      fitting.push_back({static_cast<int32_t>(fitting.size()), s, *price, spans_of(price->time)});
    }
    drop_slow_orders(fitting);
    if (options_.prune) fitting = ShapePruner(space_, call, least_rate()).prune(std::move(fitting));
    std::vector<int32_t> spans;
    for (Priced& priced : fitting) {
      priced.strategy = static_cast<int32_t>(call.strategies.size());
      call.strategies.push_back(priced.value);
      spans.push_back(add_spans(priced));
    }
    for (size_t m = 0; m < meshes.meshes.size() && !fitting.empty(); ++m) {
      if (!entries.empty() && !allowed(entries[m], fitting[0].value)) continue;
      const int32_t first = meshes.meshes[m].devices.front().value;
      for (size_t i = 0; i < fitting.size(); ++i) add_option(call, fitting[i], first, spans[i]);
    }
  }

  // What bounds count that hold beyond the space.
  static void note_least(CallKind kind, const CallTime& time, int64_t devices, int replicas,
                         CallSpace* call) {
    const auto lower = [](int64_t* least, int64_t us) {
      *least = *least > 0 ? std::min(*least, us) : us;
    };
    if (kind == CallKind::kTrainStep) lower(&call->least_work_us, work_us(time, devices));
    if (kind == CallKind::kGenerate)
      lower(&call->least_drawn_us, to_us(replicas > 1 ? time.longest_alone_s : time.total_s));
  }

  // All forwards first keep the activations of all micro-batches. They are left out where a layout
  // with another order is as fast on these devices: the bound is the same, and the space small.
  static void drop_slow_orders(std::vector<Priced>& fitting) {
    const auto usual = [](const Priced& p) {
      return p.value.schedule == PipelineOrder::kOneForwardOneBackward;
    };
    double least_s = HUGE_VAL;
    for (const Priced& priced : fitting)
      if (usual(priced)) least_s = std::min(least_s, priced.price.time.total_s);
    std::erase_if(fitting, [&](const Priced& priced) {
      return !usual(priced) && priced.price.time.total_s > kLeastOrderGain * least_s;
    });
  }

  static bool same_sizes(const Strategy& a, const Strategy& b) {
    return a.dp == b.dp && a.tp == b.tp && a.ep == b.ep && a.expert_tp == b.expert_tp;
  }

  // Where the caches of all sequences at once do not fit, engines with a budget that preempt.
  std::vector<Strategy> strategies_on(const Call& call, const DeviceMesh& mesh,
                                      const MeshShape& shape) const {
    std::vector<Strategy> all =
        strategies_of(*space_.problem, call, shape.devices, shape.per_node, space_.axes);
    if (call.kind != CallKind::kGenerate) return all;
    const Workload& load = space_.problem->workload;
    const int64_t longest = longest_tokens(load.prompt) + longest_tokens(load.response);
    const size_t unlimited = all.size();
    for (size_t i = 0; i < unlimited; ++i) {
      Strategy s = all[i];
      if (i > 0 && same_sizes(all[i - 1], s)) continue;  // not the most at once
      const double most =
          pricer_.cache_tokens(call, mesh, s, pricer_.capacity_bytes(shape.smallest()));
      const int64_t wanted = s.max_concurrent * longest;
      for (const double share : kCacheShares) {
        const auto pages = static_cast<int64_t>(share * most) / kPageTokens;
        s.kv_budget_tokens = pages * kPageTokens;
        if (s.kv_budget_tokens < longest || s.kv_budget_tokens >= wanted) continue;
        all.push_back(s);
      }
    }
    return all;
  }

  int32_t add_spans(const Priced& priced) {
    space_.spans.insert(space_.spans.end(), priced.spans.begin(), priced.spans.end());
    return static_cast<int32_t>(space_.spans.size() - priced.spans.size());
  }

  // The slowest that fields may travel at anywhere.
  double least_rate() const {
    MoveRates least = node_rates_.front();
    for (const MoveRates& rates : node_rates_) least = slower(least, rates);
    return std::min(least.inside, least.network);
  }

  // Of the devices of a mesh.
  int32_t add_rates(int32_t first, int32_t devices) {
    const int32_t last = std::min(first + devices, space_.num_devices()) - 1;
    MoveRates rates = node_rates_[space_.node_of[first]];
    for (int32_t n = space_.node_of[first] + 1; n <= space_.node_of[last]; ++n)
      rates = slower(rates, node_rates_[n]);
    const auto known = std::find(space_.rates.begin(), space_.rates.end(), rates);
    const auto index = static_cast<int32_t>(known - space_.rates.begin());
    if (known == space_.rates.end()) space_.rates.push_back(rates);
    return index;
  }

  void add_option(CallSpace& call, const Priced& priced, int32_t first, int32_t spans) {
    const Strategy& s = priced.value;
    const int32_t devices = s.dp * s.cp * s.tp * s.pp;
    PlanOption option = option_of(priced, first, devices);
    option.spans = spans;
    option.rates = add_rates(first, devices);
    for (const StageSpan& span : priced.spans) option.area_us += span.need_us * devices / s.pp;
    option.layout = layout_of(call.role, first, devices, s);
    call.options.push_back(option);
  }

  // In a space that is added to, layouts keep their numbers.
  int32_t layout_of(int role, int32_t first, int32_t devices, const Strategy& s) {
    const auto key = [&](int32_t from, int32_t count, const Strategy& of) {
      return std::make_tuple(role, from, count, layout_key(of));
    };
    const auto next = static_cast<int32_t>(layouts_.size());
    if (options_.only == nullptr)
      return layouts_.emplace(key(first, devices, s), next).first->second;
    int32_t most = -1;
    for (const CallSpace& call : space_.calls)
      for (const PlanOption& option : call.options) {
        most = std::max(most, option.layout);
        if (call.role == role && key(option.first, option.devices(),
                                     call.strategies[option.strategy]) == key(first, devices, s))
          return option.layout;
      }
    return most + 1;
  }

  const CallPricer& pricer_;
  const SpaceOptions& options_;
  PlanSpace& space_;
  std::vector<MeshClass> classes_;
  std::vector<MoveRates> node_rates_;
  std::map<std::tuple<int, int32_t, int32_t, decltype(layout_key(Strategy{}))>, int32_t> layouts_;
};

RolePlan role_plan_of(const RoleSpace& role, Stay stay) {
  RolePlan plan;
  plan.role = role.role;
  if (stay.optimizer_on_host) plan.optimizer = Residency::kHost;
  if (stay.weights_on_host) plan.weights = Residency::kHost;
  if (stay.after_each_call) plan.timing = OffloadTiming::kAfterEachCall;
  plan.prefetch = stay.prefetch;
  return plan;
}

// The option of a call's plan; a new one at the end where there is none.
Result<int> include_call(PlanSpace& space, int index, const CallPlan& entry) {
  CallSpace& call = space.calls[index];
  const int32_t first = entry.mesh.devices.front().value;
  const auto end = first + static_cast<int32_t>(entry.mesh.devices.size());
  for (size_t i = 0; i < call.options.size(); ++i)
    if (call.options[i].first == first && call.options[i].end == end &&
        call.strategies[call.options[i].strategy] == entry.strategy)
      return static_cast<int>(i);
  ExecutionPlan only;
  only.calls = {entry};
  BRAID_TRY(OptionBuilder(*space.pricer, {.only = &only, .allowed = {}}, space).build(index));
  return static_cast<int>(call.options.size()) - 1;
}

}  // namespace

int64_t to_us(double seconds) { return std::llround(seconds * 1e6); }

MoveRates slower(const MoveRates& a, const MoveRates& b) {
  return {std::min(a.inside, b.inside), std::min(a.network, b.network), std::min(a.host, b.host),
          std::max(a.latency_s, b.latency_s), a.rack == b.rack ? a.rack : -1};
}

double rate_between_nodes(const MoveRates& rates) {
  return rates.rack >= 0 ? rates.inside : rates.network;
}

double field_rate(const PlanSpace& space, const PlanOption& from, const PlanOption& to) {
  const MoveRates rates = slower(space.rates[from.rates], space.rates[to.rates]);
  const int32_t first = std::min(from.first, to.first), last = std::max(from.end, to.end) - 1;
  const bool one_node = space.node_of[first] == space.node_of[last];
  return one_node ? rates.inside : rate_between_nodes(rates);
}

int64_t longest_call_us(const PlanSpace& space) {
  int64_t longest = 0;
  for (const CallSpace& call : space.calls)
    longest = std::max(longest, call.options.front().time_us);
  return longest;
}

Result<PlanSpace> make_plan_space(const PlanningProblem& problem, const CallPricer& pricer,
                                  const SpaceOptions& options) {
  PlanSpace space;
  space.problem = &problem;
  space.pricer = &pricer;
  space.axes = options.axes;
  space.allowed = options.allowed;
  space.allowed_role = options.allowed_role;
  space.moves = std::make_shared<MoveMemo>();
  add_calls(problem, space);
  finish_roles(problem, space);
  for (RoleSpace& role : space.roles)
    std::erase_if(role.stays, [&](const Stay& stay) {
      return stay != Stay() && space.allowed_role && !space.allowed_role(role_plan_of(role, stay));
    });
  find_segments(space);
  add_reward_stops(problem, space);
  add_devices(problem, pricer, options.margin, space);
  if (generates(problem.graph))
    space.fixed_us = std::llround(
        1e6 * pricer.train_efficiency(problem.cluster.nodes.front().gpu).rl_step_host_s);
  OptionBuilder builder(pricer, options, space);
  builder.price_ahead();
  for (int c = 0; c < space.num_calls(); ++c) BRAID_TRY(builder.build(c));
  return space;
}

Stay stay_of(const RolePlan& role) {
  return {role.weights == Residency::kHost, role.optimizer == Residency::kHost,
          role.timing == OffloadTiming::kAfterEachCall, role.prefetch};
}

bool is_run(const DeviceMesh& mesh) {
  for (size_t i = 1; i < mesh.devices.size(); ++i)
    if (mesh.devices[i].value != mesh.devices[i - 1].value + 1) return false;
  return true;
}

Result<Choice> include_plan(PlanSpace& space, const ExecutionPlan& plan) {
  Choice choice;
  for (int c = 0; c < space.num_calls(); ++c) {
    const CallPlan& entry =
        call_plan(plan, space.problem->graph.calls[space.calls[c].call.value].name);
    BRAID_ASSIGN(const int value, include_call(space, c, entry));
    choice.push_back(value);
  }
  for (RoleSpace& role : space.roles) {
    const Stay stay = stay_of(role_plan(plan, role.role));
    auto known = std::find(role.stays.begin(), role.stays.end(), stay);
    if (known == role.stays.end()) known = role.stays.insert(known, stay);
    choice.push_back(static_cast<int>(known - role.stays.begin()));
  }
  return choice;
}

ExecutionPlan plan_of(const PlanSpace& space, const Choice& choice) {
  ExecutionPlan plan = plan_for(*space.problem);
  for (int c = 0; c < space.num_calls(); ++c) {
    const CallSpace& call = space.calls[c];
    const PlanOption& option = call.options[choice[c]];
    CallPlan entry;
    entry.call = space.problem->graph.calls[call.call.value].name;
    for (int32_t d = option.first; d < option.end; ++d) entry.mesh.devices.push_back(DeviceId{d});
    entry.strategy = call.strategies[option.strategy];
    plan.calls.push_back(std::move(entry));
  }
  for (size_t r = 0; r < space.roles.size(); ++r) {
    const RoleSpace& role = space.roles[r];
    const Stay stay = role.stays[choice[space.calls.size() + r]];
    if (stay != Stay()) plan.roles.push_back(role_plan_of(role, stay));
  }
  return plan;
}

}  // namespace braid::inline search
