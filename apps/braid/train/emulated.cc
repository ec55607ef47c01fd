#include "braid/train/emulated.h"

#include <cstdio>

#include "base/log.h"
#include "base/text.h"
#include "braid/config_inputs.h"
#include "checkpoint/run_folder.h"
#include "emulate/emulate.h"
#include "host/file.h"
#include "launch/job.h"
#include "plan/make_problem.h"
#include "pricing/measured.h"
#include "sim/recorded.h"
#include "sim/trace_output.h"

namespace braid {
namespace {

constexpr double kDeadline_s = 600;  // of a wait

// As braid simulate reads a configuration: no weights, no data.
Result<PlannedRun> planned_emulation(const Config& stated) {
  PlannedRun out;
  BRAID_ASSIGN(out.config, planning_config(stated));
  if (out.config.plan.automatic)
    return invalid_input(
        "plan.auto: emulated devices run a plan that is there; write it with 'braid plan CONFIG "
        "--out PLAN.yaml' and name it as plan.file");
  BRAID_ASSIGN(out.problem, make_problem(out.config, file_reader()));
  BRAID_ASSIGN(out.plan, configured_plan(out.config, *out.problem, file_reader()));
  if (!out.plan)
    return invalid_input(
        "device: emulated: no plan is stated; name one as plan.file, or set placement or parallel");
  take_engine_limits(out.config.rollout, nullptr, &*out.problem, &*out.plan);
  BRAID_ASSIGN(out.program, compile(*out.plan, *out.problem));
  BRAID_TRY(check_emulated_devices(out.program));
  out.config.device = "cpu";  // of the processes that stand for devices
  return out;
}

ListFault fault_named(const std::string& name) {
  if (name == "dropped_wait") return ListFault::kDroppedWait;
  return name == "swapped_messages" ? ListFault::kSwappedMessages : ListFault::kNone;
}

// The mean and the most of a number of all ranks.
Json over_ranks(const std::vector<RankUse>& use, double RankUse::*number) {
  double sum = 0, most = 0;
  for (const RankUse& rank : use) sum += rank.*number, most = std::max(most, rank.*number);
  return {{"mean", use.empty() ? 0 : sum / static_cast<double>(use.size())}, {"most", most}};
}

Json emulation_json(const Emulation& emulation, const TraceDifference& difference) {
  const TraceShape shape = shape_of(emulation.emulated);
  return {
      {"step",
       {{"predicted_s", emulation.predicted.step_s}, {"emulated_s", emulation.emulated.step_s}}},
      {"time_scale", emulation.time_scale},
      {"overhead", emulation.overhead},
      {"real_calls", emulation.real_calls},
      {"ranks",
       {{"number", emulation.use.size()},
        {"calls", over_ranks(emulation.use, &RankUse::calls)},
        {"messages", over_ranks(emulation.use, &RankUse::messages)},
        {"round_calls", over_ranks(emulation.use, &RankUse::round_calls)},
        {"calls_of_each", over_ranks(emulation.use, &RankUse::calls_of_each)},
        {"given_bytes", over_ranks(emulation.use, &RankUse::given)},
        {"received_bytes", over_ranks(emulation.use, &RankUse::received)},
        {"store_requests", over_ranks(emulation.use, &RankUse::store_requests)},
        {"open_files", over_ranks(emulation.use, &RankUse::open_files)},
        {"wired_to", over_ranks(emulation.use, &RankUse::wired_to)},
        {"peak_bytes", over_ranks(emulation.use, &RankUse::peak_bytes)},
        {"cpu_s", over_ranks(emulation.use, &RankUse::cpu_s)}}},
      {"fault", emulation.fault},
      {"waiting", shape.waiting},
      {"overlapped", shape.overlapped},
      {"ops",
       {{"paired", difference.ops},
        {"unpaired", difference.unpaired},
        {"mean", difference.mean},
        {"largest", difference.largest}}}};
}

// What the first rank prints and writes.
Status report(const Config& config, const Emulation& emulation) {
  const TraceDifference difference = compare_ops(emulation.predicted, emulation.emulated);
  const TraceShape shape = shape_of(emulation.emulated);
  std::fputs(emulation_text(emulation).c_str(), stderr);
  std::fprintf(stderr,
               "%lld ops and messages: their ends differ by %.1f %% of the step in the mean, %.1f "
               "%% at most; %lld have no counterpart\n",
               static_cast<long long>(difference.ops), 100 * difference.mean,
               100 * difference.largest, static_cast<long long>(difference.unpaired));
  std::fprintf(stderr, "devices wait for %.0f %% of the step, %.0f %% of what moves is hidden\n",
               100 * shape.waiting, 100 * shape.overlapped);
  std::fprintf(stderr,
               "a second of the model took %.4g s of this machine; the real communication delayed "
               "the step by %.1f %%\n",
               emulation.time_scale, 100 * emulation.overhead);
  if (!emulation.fault.empty()) log_warning(cat("runtime.fault: on purpose, ", emulation.fault));
  const std::string folder = run_folder(config);
  BRAID_TRY(make_folder(folder));
  BRAID_TRY(write_file_atomic(join_path(folder, "emulated.json"),
                              emulation_json(emulation, difference).dump(2) + "\n"));
  BRAID_TRY(write_file_atomic(join_path(folder, "emulated_trace.json"),
                              chrome_trace_json(emulation.emulated).dump() + "\n"));
  if (emulation.overhead > kMostOverhead)
    log_warning(cat("runtime.time_scale: the machine was too slow for ", emulation.time_scale,
                    "; a larger one makes the step truer"));
  return ok_status();
}

Status run_emulated_rank(World& world, const PlannedRun& planned) {
  const Config& config = planned.config;
  EmulationOptions options;
  options.time_scale = config.runtime.time_scale;
  options.jitter = config.runtime.jitter;
  options.fault = fault_named(config.runtime.fault);
  options.seed = static_cast<uint64_t>(config.train.seed);
  options.deadline_s = kDeadline_s;
  BRAID_ASSIGN(const Calibration calibration,
               with_profiles(committed_calibration(), *planned.problem, file_reader()));
  BRAID_ASSIGN(const Emulation emulation,
               emulate_step(world, planned.program, *planned.problem, calibration, options));
  const bool leads = world.global_rank() == 0;
  if (leads) BRAID_TRY(report(config, emulation));
  const std::string file = join_path(run_folder(config), "emulated.json");
  if (!emulation.misplaced.empty())
    return {Code::kStopped, cat("emulated step: what ranks exchange is out of its order: ",
                                emulation.misplaced.front(), "; all of it is in ", file,
                                " and emulated_trace.json")};
  if (leads) log_info(cat("done; ", file, " and emulated_trace.json"));
  return ok_status();
}

}  // namespace

Status train_emulated(const TrainArguments& arguments, const LoadedConfig& loaded) {
  if (!arguments.order.empty())
    return invalid_input(
        "--order: emulated devices write no list of instructions; 'braid simulate --order RANK' "
        "prints it");
  BRAID_ASSIGN(const PlannedRun planned, planned_emulation(loaded.config));
  if (arguments.print_program) {
    print_program(planned);
    return ok_status();
  }
  BRAID_ASSIGN(const auto membership, read_membership(process_environment()));
  if (arguments.dry_run) return ok_status();
  const auto ranks = static_cast<int64_t>(planned.program.ranks.size());
  if (!membership && ranks > 1) return launch_ranks(planned);
  return join_job(membership.value_or(Membership()), planned, loaded,
                  [&](World& world, bool* together) {
                    const Status ended = run_emulated_rank(world, planned);
                    *together = ended.ok();
                    return ended;
                  });
}

}  // namespace braid
