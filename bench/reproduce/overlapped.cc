#include "overlapped.h"

#include <algorithm>
#include <map>

#include "base/text.h"
#include "plan/validate.h"
#include "pricing/predict_generate.h"
#include "search/simulate.h"
#include "sim/overlap.h"

namespace braid::reproduce {
namespace {

constexpr const char* kEngine = "vllm";  // what the rows' efficiencies are filed under

bool states_enough(const Measurement& row) {
  return row.kind == MeasurementKind::kRlStep && row.phase == "total" && row.output_len &&
         row.prompt_len && row.max_output_len && row.dp && row.tp && row.pp && row.gen_tp &&
         row.n_gpus && row.gpus_per_node && row.train_gpus && row.prompts &&
         row.samples_per_prompt && row.mini_batch && row.precision == "bf16";
}

// What the cost model takes where a row states only a mean and a limit.
Result<double> length_spread(const std::string& gpu_key) {
  BRAID_ASSIGN(const GpuSpec gpu, find_gpu(gpu_key));
  return resolve_efficiency(committed_calibration(), efficiency_key(gpu, Precision::kBf16, kEngine))
      .length_spread;
}

DeviceMesh part(const Cluster& cluster, int first, int count) {
  return *contiguous_mesh(cluster, first, count);
}

// Where calls run: training on the first devices, generation on all or on the rest.
struct Meshes {
  DeviceMesh train, generate;
};

Meshes meshes_of(const Cluster& cluster, int train_gpus, bool apart) {
  const int all = device_count(cluster);
  return {part(cluster, 0, train_gpus),
          apart ? part(cluster, train_gpus, all - train_gpus) : whole_cluster(cluster)};
}

// Every call that is not generation in the training layout.
ExecutionPlan plan_of(const PlanningProblem& problem, const Meshes& meshes, const Strategy& train,
                      int gen_tp) {
  ExecutionPlan plan = plan_for(problem);
  for (const Call& call : problem.graph.calls) {
    if (!uses_model(call)) continue;
    CallPlan entry{call.name, meshes.train, train};
    if (call.kind == CallKind::kGenerate) {
      entry.mesh = meshes.generate;
      entry.strategy = {};
      entry.strategy.tp = gen_tp;
      entry.strategy.dp = static_cast<int>(meshes.generate.devices.size()) / gen_tp;
    } else if (call.kind != CallKind::kTrainStep) {
      entry.strategy.recompute = Recompute::kNone;
      if (entry.strategy.zero_stage != 3) entry.strategy.zero_stage = 0;
    }
    plan.calls.push_back(std::move(entry));
  }
  return plan;
}

// Colocated systems put the optimizer away while they generate; a reference waits on the host.
void put_away(const PlanningProblem& problem, bool colocated, ExecutionPlan* plan) {
  for (const RoleSpec& role : problem.graph.roles) {
    RolePlan entry{role.role};
    if (!role.trained) entry.weights = Residency::kHost;
    if (role.trained && colocated) entry.optimizer = Residency::kHost;
    plan->roles.push_back(entry);
  }
}

// Computing time of the calls of one simulated step that use a model, mean over their devices.
double busy_s(const Trace& trace, const Graph& graph, const std::string& suffix, bool generate) {
  double sum = 0;
  for (const Call& call : graph.calls)
    for (const CallSummary& summary : trace.calls)
      if (trace.call_names[summary.call.value] == call.name + suffix && uses_model(call) &&
          (call.kind == CallKind::kGenerate) == generate)
        sum += summary.busy_s;
  return sum;
}

}  // namespace

LengthDistribution cut_lognormal(double mean, double sigma, int64_t longest) {
  constexpr int kSteps = 512, kHalvings = 60;
  const auto limit = static_cast<double>(longest);
  const auto mean_after_cut = [&](double before) {
    double sum = 0;
    for (int i = 0; i < kSteps; ++i) sum += longer_share((i + 0.5) * limit / kSteps, before, sigma);
    return sum * limit / kSteps;
  };
  double low = mean, high = mean;
  while (mean_after_cut(high) < mean && high < 1e6 * limit) high *= 2;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (low + high) / 2;
    (mean_after_cut(middle) < mean ? low : high) = middle;
  }
  LengthDistribution lengths;
  lengths.kind = LengthDistribution::Kind::kLognormal;
  lengths.mean = low;
  lengths.sigma = sigma;
  lengths.longest = longest;
  return lengths;
}

std::vector<PhaseRun> phase_runs(const std::vector<Measurement>& rows) {
  std::map<std::pair<std::string, std::string>, PhaseRun> runs;
  for (const Measurement& row : rows) {
    if (row.kind != MeasurementKind::kRlStep || row.group.rfind("verl-", 0) != 0 || !row.value)
      continue;
    PhaseRun& run = runs[{row.group, row.placement}];
    run.group = row.group, run.placement = row.placement;
    if (row.phase == "total") run.total_s = *row.value;
    if (row.phase == "generate") run.generate_s = *row.value;
    if (row.phase == "logprob" || row.phase == "train") run.learn_s += *row.value;
  }
  std::vector<PhaseRun> out;
  for (const auto& [key, run] : runs)
    if (run.total_s > 0 && run.generate_s > 0 && run.learn_s > 0) out.push_back(run);
  return out;
}

std::vector<OverlapPair> overlap_pairs(const std::vector<Measurement>& rows) {
  std::map<std::string, std::vector<const Measurement*>> groups;
  for (const Measurement& row : rows)
    if (states_enough(row) && !row.group.empty()) groups[row.group].push_back(&row);
  std::vector<OverlapPair> out;
  for (const auto& [group, members] : groups) {
    const Measurement *colocated = nullptr, *overlapped = nullptr;
    for (const Measurement* row : members)
      (row->placement == "colocated" ? colocated : overlapped) = row;
    if (colocated != nullptr && overlapped != nullptr)
      out.push_back({group, *colocated, *overlapped});
  }
  return out;
}

Result<OverlapCase> overlap_case(const Measurement& row) {
  if (row.ep.value_or(1) > 1 || row.cp.value_or(1) > 1)
    return invalid_input("plans with expert or context parallelism are not made here");
  Experiment experiment;
  experiment.algorithm = "grpo";
  experiment.actor = row.model;
  experiment.gpu = row.gpu;
  experiment.devices_per_node = *row.gpus_per_node;
  experiment.nodes = *row.n_gpus / *row.gpus_per_node;
  experiment.prompts = static_cast<int64_t>(*row.prompts);
  experiment.samples_per_prompt = static_cast<int64_t>(*row.samples_per_prompt);
  experiment.minibatches =
      experiment.prompts * experiment.samples_per_prompt / static_cast<int64_t>(*row.mini_batch);
  experiment.prompt_tokens = static_cast<int64_t>(*row.prompt_len);
  experiment.old_logprobs = "recompute";
  const auto longest = static_cast<int64_t>(*row.max_output_len);
  BRAID_ASSIGN(const GpuSpec gpu, find_gpu(row.gpu));
  const Efficiency efficiency =
      resolve_efficiency(committed_calibration(), efficiency_key(gpu, Precision::kBf16, kEngine));
  experiment.response =
      cut_lognormal(*row.output_len, efficiency.length_spread, longest - experiment.prompt_tokens);
  OverlapCase out;
  BRAID_ASSIGN(out.problem, make_experiment(experiment));
  out.problem.train_engine = out.problem.generate_engine = kEngine;
  Strategy train;
  train.dp = *row.dp, train.tp = *row.tp, train.pp = *row.pp;
  train.sequence_parallel = train.tp > 1;
  train.zero_stage = train.dp > 1 ? 1 : 0;
  train.micro_tokens = longest;
  train.recompute = row.recompute == "full" ? Recompute::kFull : Recompute::kSelective;
  const bool apart = row.placement != "colocated";
  out.plan = plan_of(out.problem, meshes_of(out.problem.cluster, *row.train_gpus, apart), train,
                     *row.gen_tp);
  put_away(out.problem, !apart, &out.plan);
  out.plan.staleness = apart ? 1 : 0;
  return out;
}

Result<OverlapCase> verl_case(const VerlSetting& setting) {
  Experiment experiment;
  experiment.algorithm = "grpo";
  experiment.actor = setting.model;
  experiment.gpu = setting.gpu;
  experiment.nodes = setting.gpus / experiment.devices_per_node;
  experiment.prompts = setting.prompts;
  experiment.samples_per_prompt = setting.samples_per_prompt;
  experiment.minibatches = setting.minibatches;
  experiment.reference = false;
  const bool apart = setting.rollout_gpus > 0;
  experiment.old_logprobs = apart ? "sampler" : "recompute";
  BRAID_ASSIGN(const double spread, length_spread(setting.gpu));
  experiment.response = cut_lognormal(setting.mean_response, spread, setting.longest_response);
  OverlapCase out;
  BRAID_ASSIGN(out.problem, make_experiment(experiment));
  out.problem.train_engine = out.problem.generate_engine = kEngine;
  const int train_gpus = setting.gpus - setting.rollout_gpus;
  Strategy train;
  train.dp = train_gpus;
  train.zero_stage = 3;
  train.micro_tokens = experiment.prompt_tokens + setting.longest_response;
  train.recompute = Recompute::kFull;
  out.plan = plan_of(out.problem, meshes_of(out.problem.cluster, train_gpus, apart), train,
                     setting.gen_tp);
  put_away(out.problem, !apart, &out.plan);
  out.plan.staleness = apart ? 1 : 0;
  return out;
}

double mean_response_for(VerlSetting setting, double update_s) {
  constexpr int kHalvings = 12;
  double low = 200, high = 0.9 * static_cast<double>(setting.longest_response);
  for (int i = 0; i < kHalvings; ++i) {
    setting.mean_response = (low + high) / 2;
    const auto one = verl_case(setting);
    BRAID_CHECK(one.ok(), one.status().message());
    const auto verdict = simulate_plan(one->plan, one->problem, committed_calibration(), {});
    BRAID_CHECK(verdict.ok(), verdict.status().message());
    const double now_s = call_seconds(one->problem, *verdict, CallKind::kTrainStep);
    (now_s < update_s ? low : high) = setting.mean_response;
  }
  return (low + high) / 2;
}

Result<SteadyTime> steady_time(const OverlapCase& one, const Calibration& calibration) {
  OverlapOptions options;
  options.steps = 5;
  BRAID_ASSIGN(const OverlapResult result,
               simulate_steps(one.plan, one.problem, calibration, options));
  SteadyTime time;
  time.step_s = result.step_s;
  time.generate_s = busy_s(result.trace, one.problem.graph, "@2", true);
  time.learn_s = busy_s(result.trace, one.problem.graph, "@2", false);
  time.fits = !result.trace.overflow;
  return time;
}

}  // namespace braid::reproduce
