#include "launch/job.h"

#include <algorithm>
#include <cstdio>

#include "base/log.h"
#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/run_folder.h"
#include "config/load.h"
#include "config/stall_limit.h"
#include "device/device.h"
#include "host/file.h"
#include "host/sha256.h"
#include "identity/run_identity.h"
#include "interpret/interpreter.h"
#include "launch/auto_plan.h"
#include "launch/own_command.h"
#include "plan/executable.h"
#include "plan/make_problem.h"
#include "plan/placement.h"
#include "plan/plan_text.h"
#include "plan/validate.h"
#include "search/migration.h"
#include "sim/simulate.h"
#include "weights/load_models.h"
#include "weights/roles.h"

namespace braid::inline launch {
namespace {

bool is_stated(const YamlNode& node) { return node.kind != YamlNode::Kind::kNull; }
bool is_auto(const YamlNode& node) {
  return node.kind == YamlNode::Kind::kScalar && node.scalar == "auto";
}

bool states_layout(const Config& config) {
  const auto states = [](const YamlNode& node) { return is_stated(node) && !is_auto(node); };
  return !config.plan.file.empty() || states(config.placement) || states(config.parallel);
}

// Where launch_ranks() writes the plan that it searched for its ranks.
std::string searched_plan(const Config& config) {
  return join_path(run_folder(config), "plan.yaml");
}

// Without what is said for planning alone: a run has the sizes of its weights and its own engine.
Config as_trained(Config config) {
  if (!config.model.path.empty() || !config.model.config.empty()) config.model.size.clear();
  config.critic.size.clear();
  config.reference.size.clear();
  for (RewardConfig& reward : config.reward) reward.size.clear();
  config.plan.train_engine.clear();
  config.plan.generate_engine.clear();
  return config;
}

// Keys of the engine that the plan decides where it says them.
Config with_plan(Config config, const ExecutionPlan& plan, const PlanningProblem& problem) {
  for (const Call& call : problem.graph.calls) {
    if (!uses_model(call)) continue;
    if (call.kind != CallKind::kGenerate) continue;
    const Strategy& strategy = call_plan(plan, call.name).strategy;
    if (strategy.kv_budget_tokens > 0) config.rollout.kv_budget_tokens = strategy.kv_budget_tokens;
    if (strategy.max_concurrent > 0) config.rollout.max_concurrent = strategy.max_concurrent;
  }
  return config;
}

// Every tensor of the models, for weights that move between layouts.
Status add_specs(const Config& config, PlanningProblem* problem) {
  for (const RoleSpec& role : problem->graph.roles) {
    const auto found = problem->models.find(role.role.value);
    if (found == problem->models.end()) continue;
    if (is_scorer(role) && !needs_rewards(config, problem->graph)) continue;
    BRAID_ASSIGN(const Origin origin, role_origin(config, role));
    BRAID_ASSIGN(
        found->second.spec,
        origin_spec(origin, role.scalar_head, role.value_head).at(cat("role ", role.role)));
    found->second.lora_targets = config.lora.targets;
  }
  return ok_status();
}

// A plan that is predicted to overrun the memory of devices or hosts is refused before any weights
// load. What a device has must be known: stated as a limit, a GPU's, or measured by a profile.
Status check_plan_memory(PlannedRun& run) {
  const PlanningProblem& problem = *run.problem;
  const auto known = [](const Node& node) { return !node.gpu.unsure; };
  const std::vector<Node>& nodes = problem.cluster.nodes;
  const bool limited =
      problem.memory_limit_gib > 0 || std::all_of(nodes.begin(), nodes.end(), known);
  if (!limited && problem.host_memory_gib == 0) return ok_status();
  run.priced = true;
  if (!run.whole) return ok_status();
  BRAID_ASSIGN(const Calibration calibration, runtime_calibration(problem));
  BRAID_ASSIGN(Trace trace, simulate(run.program, problem, calibration, {}));
  if (!limited) trace.overflow.reset();
  return check_memory(trace).at("plan");
}

// The rank whose list alone this process needs; none: it makes the plan, or the plan is for another
// number of ranks.
std::optional<DeviceId> own_list(const std::optional<Membership>& membership, int devices) {
  if (!membership || membership->world_size == 1 || membership->world_size != devices)
    return std::nullopt;
  const bool makes_plan = membership->global_rank == 0 && membership->started_by != kOwnLauncher;
  if (makes_plan) return std::nullopt;
  return DeviceId{static_cast<int32_t>(membership->global_rank)};
}

// The plan compiled. REQUIRES: it and the problem are there.
Result<PlannedRun> with_program(PlannedRun run, const std::optional<Membership>& membership) {
  BRAID_TRY(check_executable(*run.plan, run.problem->graph));
  run.config = with_plan(run.config, *run.plan, *run.problem);
  BRAID_TRY(add_specs(run.config, &*run.problem));
  // Whatever devices the plan was made for: these ones run it.
  if (run.config.device == "cpu" && run.config.train.reduction == "auto")
    run.problem->reduction = Reduction::kOrdered;
  const std::optional<DeviceId> rank = own_list(membership, run.plan->devices);
  run.whole = !rank;
  if (rank) {
    BRAID_ASSIGN(run.program, compile_rank(*run.plan, *run.problem, *rank));
  } else {
    BRAID_ASSIGN(run.program, compile(*run.plan, *run.problem));
  }
  if (run.program.ranks.size() > 1) BRAID_TRY(check_local_devices(run.config.device, 1));
  BRAID_TRY(check_plan_memory(run));
  return run;
}

// A search at the prices of other devices finds a plan for those.
Status check_searched_devices(const Config& config, const Cluster& cluster) {
  const GpuSpec& gpu = cluster.nodes.front().gpu;
  const bool of_cpus = gpu.architecture == "cpu", on_cpu = config.device == "cpu";
  if (of_cpus == on_cpu) return ok_status();
  return invalid_input(
      cat("cluster names ", gpu.key, ", and device is ", config.device,
          ", so the plan would be the best one for other devices than those that train; ",
          on_cpu ? "write gpu: this-machine or a profile of it ('braid profile'), or device=cuda; "
                   "'braid plan' searches for devices that are elsewhere"
                 : "name the GPU as cluster.gpu, such as h100-80g"));
}

// Ranks that another program started would all search, on the same cores, and only the first of
// them knows whether what it has found fits into memory.
Status check_one_searches(const std::optional<Membership>& membership) {
  if (!membership || membership->world_size == 1) return ok_status();
  return invalid_input(
      cat(membership->started_by, " started ", membership->world_size,
          " processes, each of which would search for itself; search once, by 'braid plan CONFIG "
          "--out PLAN.yaml', and start them with plan.file=PLAN.yaml ",
          kKeysOfStatedPlan));
}

// By a search among the plans that keep what placement and parallel say.
Result<PlannedRun> planned_automatically(const Config& config,
                                         const std::optional<Membership>& membership) {
  if (!config.plan.file.empty())
    return invalid_input("plan.file states a plan already; remove one of them");
  BRAID_TRY(check_one_searches(membership));
  if (!is_stated(config.cluster))
    return invalid_input(
        "cluster is missing, so nobody knows how many ranks there are; for two on this "
        "machine write cluster={gpu: this-machine, nodes: 1, gpus_per_node: 2}");
  PlannedRun out;
  out.config = config;
  out.searched = out.priced = true;
  BRAID_ASSIGN(out.problem, make_problem(as_trained(config), file_reader()));
  BRAID_TRY(check_searched_devices(config, out.problem->cluster));
  // The fastest of what was found that can be compiled for this runtime.
  BRAID_ASSIGN(const Calibration calibration, runtime_calibration(*out.problem));
  BRAID_ASSIGN(const PlanConstraints constraints,
               executable_constraints(config, *out.problem, calibration));
  BRAID_ASSIGN(const std::vector<ExecutionPlan> plans,
               executable_plans(*out.problem, calibration,
                                {.constraints = &constraints, .staleness = config.plan.staleness}));
  Status refused;
  for (const ExecutionPlan& plan : plans) {
    out.plan = plan;
    auto run = with_program(out, membership);
    if (run.ok()) return run;
    refused = run.status();
  }
  return refused;
}

// Options by their keys first, which can be named. Secrets are compared by the text alone.
Status agree_on_start(World& world, const PlannedRun& planned, const LoadedConfig& loaded) {
  constexpr const char* kRemedy = "start all ranks with the same program, files and arguments";
  Claims options;
  const Json flat = flat_options(loaded.config);
  for (const auto& [key, value] : flat.items())
    options[cat("has ", key)] = cat("'", value.get<std::string>(), "'");
  BRAID_TRY(world.agree("configuration", options, kRemedy));
  BRAID_ASSIGN(const std::string binary, binary_hash());
  const auto digest = [](const std::string& hash) { return cat("with SHA-256 ", hash); };
  const std::string plan =
      planned.plan ? plan_to_yaml(*planned.plan, &planned.problem->cluster) : "";
  const std::string hash = plan_hash(planned.program, plan);
  return world.agree("program",
                     {{"runs the binary", digest(binary)},
                      {"has a configuration", digest(sha256_hex(yaml_text(loaded.resolved)))},
                      {"has a plan and a compiler", cat("with hash ", hash)}},
                     kRemedy);
}

// Counts of devices are the catalogue's unless somebody states them; one process that names the
// profile of its machine has one.
Config as_one_device(Config config) {
  YamlNode& cluster = config.cluster;
  if (cluster.kind != YamlNode::Kind::kMap || states_layout(config) ||
      cluster.find("profile") == nullptr)
    return config;
  for (const char* key : {"nodes", "gpus_per_node"})
    if (cluster.find(key) != nullptr) return config;
  for (const char* key : {"nodes", "gpus_per_node"})
    cluster.map.emplace_back(key, YamlNode(YamlNode::Kind::kScalar, "1", false, cluster.origin));
  return config;
}

// What one process does without a plan: the configuration says how passes are cut.
ExecutionPlan plan_of_one_process(const PlanningProblem& problem, const Config& config) {
  ExecutionPlan plan = trivial_plan(problem);
  for (CallPlan& entry : plan.calls) {
    const CallKind kind = find_call(problem.graph, entry.call)->kind;
    if (kind == CallKind::kGenerate) {
      entry.strategy.max_concurrent = config.rollout.max_concurrent;
      entry.strategy.kv_budget_tokens = config.rollout.kv_budget_tokens;
      continue;
    }
    entry.strategy.micro_tokens = config.train.micro_tokens;
    if (kind == CallKind::kTrainStep && config.train.recompute)
      entry.strategy.recompute = Recompute::kFull;
  }
  return plan;
}

}  // namespace

bool states_plan(const Config& config) {
  return searching_key(config) != nullptr || states_layout(config);
}

Result<PlannedRun> plan_run(const Config& config, const std::optional<Membership>& membership) {
  if (!config.plan.graph.empty())
    return invalid_input(
        "plan.graph: training runs the graph of algorithm.name; own graphs are for planning");
  PlannedRun out;
  out.config = config;
  out.searched = out.priced = config.plan.file == searched_plan(config);
  if (states_plan(config) || is_stated(config.cluster))
    BRAID_TRY(parse_device(config.device, "device").status());
  if (const char* key = searching_key(config); key != nullptr) {
    auto planned = planned_automatically(config, membership);
    if (!planned.ok()) return Status(planned.status()).at(key);
    return planned;
  }
  if (is_stated(config.cluster) || states_layout(config)) {
    BRAID_ASSIGN(out.problem, make_problem(as_one_device(as_trained(config)), file_reader()));
    BRAID_ASSIGN(out.plan, configured_plan(config, *out.problem, file_reader()));
    const int devices = device_count(out.problem->cluster);
    if (!out.plan && devices != 1)
      return invalid_input(
          cat("cluster: has ", devices,
              " devices, and no plan says how to use them; 'braid plan CONFIG --out "
              "PLAN.yaml' proposes one for plan.file, or set placement or parallel"));
  }
  // One process needs no plan, but what was measured of its machine says what it will take.
  if (!out.plan && out.problem && !out.problem->cluster.nodes.front().profile.empty())
    out.plan = plan_of_one_process(*out.problem, config);
  if (out.plan && out.plan->fusion.migrate_below_samples == kAutoMigration) {
    BRAID_ASSIGN(const Calibration calibration, runtime_calibration(*out.problem));
    BRAID_ASSIGN(out.plan, with_chosen_migration(*out.plan, *out.problem, calibration));
    out.chooses_migration = out.plan->fusion.migrate_below_samples > 0;
    log_info(cat("plan: fusion.migrate_below_samples: auto is ",
                 out.plan->fusion.migrate_below_samples, " here"));
  }
  if (out.plan) return with_program(std::move(out), membership);
  BRAID_ASSIGN(const Graph graph, configured_graph(config));
  BRAID_ASSIGN(out.program, compile(graph));
  return out;
}

void print_program(const PlannedRun& planned) {
  std::printf("%shash %s\n", program_text(planned.program).c_str(),
              program_hash(planned.program).c_str());
}

Status launch_ranks(const PlannedRun& planned) {
  const auto ranks = static_cast<int64_t>(planned.program.ranks.size());
  BRAID_TRY(check_local_devices(planned.config.device, ranks));
  std::vector<std::string> more;
  if (const char* key = searching_key(planned.config); key != nullptr) {
    // The ranks need not search again. A run that writes there now keeps its plan.
    const std::string path = searched_plan(planned.config);
    {
      BRAID_ASSIGN(const FileHandle claim, claim_folder(run_folder(planned.config), "run.name"));
      BRAID_TRY(write_file_atomic(path, plan_to_yaml(*planned.plan, &planned.problem->cluster)));
    }
    log_info(cat(key, ": the plan is in ", path));
    more = split(kKeysOfStatedPlan, ' ');
    more.push_back(cat("plan.file=", path));
  }
  return run_as_ranks(ranks, more);
}

Status join_job(const Membership& membership, const PlannedRun& planned, const LoadedConfig& loaded,
                const std::function<Status(World&, bool* together)>& run) {
  if (membership.global_rank != 0) set_log_level(LogLevel::kWarning);
  WorldOptions options;
  options.deadline_s = wait_limit_s(planned.config);
  options.join_s = planned.config.runtime.join_s;
  options.watchdog.stall_s = stall_limit_s(planned.config, 0);
  BRAID_ASSIGN(const std::unique_ptr<World> world, World::join(membership, options));
  bool together = false;
  const Status ended = guarded([&]() -> Status {
    BRAID_TRY(use_local_device(planned.config.device, membership.local_rank));
    BRAID_TRY(agree_on_start(*world, planned, loaded));
    return run(*world, &together);
  });
  if (world->refused()) return ended;
  if (!together) return world->fail(ended);
  const Status left = world->leave();
  return ended.ok() ? left : ended;
}

}  // namespace braid::inline launch
