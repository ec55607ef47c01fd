#include "emulate/emulate.h"

#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/text.h"
#include "emulate/emulated_rank.h"
#include "emulate/list_fault.h"

namespace braid::inline emulate {
namespace {

constexpr int64_t kMostRanks = 128;
constexpr double kShortestStep_s = 2;    // of this machine
constexpr int kTrials = 12;              // of the time that a real call takes
constexpr int64_t kLead_ns = 300000000;  // from the agreement on the begin to the begin
constexpr int64_t kNumbersOfEvent = 9;

Status check_world(const World& world, const Program& program) {
  const auto ranks = static_cast<int64_t>(program.ranks.size());
  if (ranks != world.world_size())
    return invalid_input(cat("the plan is for ", ranks, " devices, this job has ",
                             world.world_size(), " processes"));
  BRAID_TRY(check_emulated_devices(program));
  if (!world.membership().one_machine())
    return invalid_input("device: emulated: all ranks must run on one machine");
  return ok_status();
}

// Seconds of a collective of each group of this rank, while the others make theirs.
Result<std::map<const Communicator*, double>> measure_collectives(
    const std::vector<Communicator*>& groups) {
  std::map<const Communicator*, double> out;
  for (Communicator* const group : groups) {
    int64_t begin = 0;
    for (int i = -1; i < kTrials; ++i) {  // at the first the members wait for each other
      if (i == 0) begin = EmulatedClock::machine_ns();
      BRAID_TRY(exchange_stand_ins(*group, OpKind::kAllReduce, 0, {}, "trial").status());
    }
    out[group] = static_cast<double>(EmulatedClock::machine_ns() - begin) * 1e-9 / kTrials;
  }
  return out;
}

// Seconds of a message, when every rank sends one to the next.
Result<double> measure_message(Communicator& everyone) {
  const int64_t size = everyone.size(), me = everyone.index();
  const at::Tensor out = tensor_of({}), in = tensor_of({});
  const int64_t begin = EmulatedClock::machine_ns();
  for (int i = 0; i < kTrials && size > 1; ++i) {
    Pending sent = everyone.send(out, (me + 1) % size, 0, "trial");
    BRAID_TRY(everyone.receive(in, (me + size - 1) % size, 0, "trial").wait());
    BRAID_TRY(sent.wait());
  }
  return static_cast<double>(EmulatedClock::machine_ns() - begin) * 1e-9 / kTrials;
}

// The largest of a number of all ranks.
Result<double> largest(Communicator& everyone, double number) {
  const at::Tensor all = at::tensor({number}, at::kDouble);
  BRAID_TRY(everyone.all_reduce(all, Reduce::kMax, "largest").wait());
  return all.item<double>();
}

// The first rank says when the step begins and how fast time runs.
Result<EmulatedClock> agree_on_clock(Communicator& everyone, double stretch) {
  const at::Tensor clock = at::tensor(
      {static_cast<double>(EmulatedClock::machine_ns() + kLead_ns), stretch}, at::kDouble);
  BRAID_TRY(everyone.broadcast(clock, everyone.members()[0], "begin of the step").wait());
  const auto* n = clock.const_data_ptr<double>();
  return EmulatedClock(static_cast<int64_t>(n[0]), n[1]);
}

at::Tensor table_of(const std::vector<TraceEvent>& events) {
  const at::Tensor out =
      at::zeros({static_cast<int64_t>(events.size()), kNumbersOfEvent}, at::kDouble);
  auto* row = out.data_ptr<double>();
  for (const TraceEvent& e : events) {
    const double numbers[kNumbersOfEvent] = {static_cast<double>(e.kind),
                                             static_cast<double>(e.track),
                                             static_cast<double>(e.device.value),
                                             static_cast<double>(e.call.value),
                                             e.start_s,
                                             e.end_s,
                                             static_cast<double>(e.micro_batch),
                                             static_cast<double>(e.peer.value),
                                             e.bytes};
    row = std::copy(numbers, numbers + kNumbersOfEvent, row);
  }
  return out;
}

TraceEvent event_of_row(const double* n) {
  TraceEvent e;
  e.kind = static_cast<EventKind>(n[0]), e.track = static_cast<TrackKind>(n[1]);
  e.device = DeviceId{static_cast<int32_t>(n[2])}, e.call = CallId{static_cast<int32_t>(n[3])};
  e.start_s = n[4], e.end_s = n[5];
  e.micro_batch = static_cast<int32_t>(n[6]), e.peer = DeviceId{static_cast<int32_t>(n[7])};
  e.bytes = n[8];
  return e;
}

// The events of all ranks.
Result<std::vector<TraceEvent>> gather_events(Communicator& everyone,
                                              const std::vector<TraceEvent>& mine) {
  BRAID_ASSIGN(const double most, largest(everyone, static_cast<double>(mine.size())));
  const auto rows = static_cast<int64_t>(most) + 1;  // the first says how many follow
  const at::Tensor own = at::zeros({rows, kNumbersOfEvent}, at::kDouble);
  own[0][0] = static_cast<double>(mine.size());
  if (!mine.empty()) own.narrow(0, 1, static_cast<int64_t>(mine.size())).copy_(table_of(mine));
  const at::Tensor all = at::zeros({everyone.size() * rows, kNumbersOfEvent}, at::kDouble);
  BRAID_TRY(everyone.all_gather(all, own, "events of the step").wait());
  std::vector<TraceEvent> out;
  const auto* n = all.const_data_ptr<double>();
  for (int64_t rank = 0; rank < everyone.size(); ++rank, n += rows * kNumbersOfEvent)
    for (int64_t i = 1; i <= static_cast<int64_t>(n[0]); ++i)
      out.push_back(event_of_row(n + i * kNumbersOfEvent));
  return out;
}

// Spans of calls become summaries, the rest stays events.
Trace trace_of(const Program& program, std::vector<TraceEvent> events, double step_s) {
  Trace trace;
  trace.step_s = step_s;
  trace.devices.resize(program.ranks.size());
  for (size_t i = 0; i < program.graph.calls.size(); ++i) {
    trace.call_names.push_back(program.graph.calls[i].name);
    trace.calls.push_back({CallId{static_cast<int32_t>(i)}, 0, 0, 0, 0, {}});
  }
  for (const TraceEvent& e : events) {
    CallSummary& call = trace.calls[e.call.value];
    if (e.kind == EventKind::kCall) {
      call.start_s = call.spans.empty() ? e.start_s : std::min(call.start_s, e.start_s);
      call.end_s = std::max(call.end_s, e.end_s);
      auto& span = call.spans.try_emplace(e.device, e.start_s, e.end_s).first->second;
      span = {std::min(span.first, e.start_s), std::max(span.second, e.end_s)};  // of all parts
      continue;
    }
    const bool computes = e.track == TrackKind::kCompute && e.kind != EventKind::kReduce;
    if (computes) trace.devices[e.device.value].busy_s += e.end_s - e.start_s;
    if (computes) call.busy_s += e.end_s - e.start_s;
    trace.events.push_back(e);
  }
  for (CallSummary& call : trace.calls)
    if (!call.spans.empty()) call.busy_s /= static_cast<double>(call.spans.size());
  std::sort(trace.events.begin(), trace.events.end(), [](const auto& a, const auto& b) {
    return std::pair(a.start_s, a.device) < std::pair(b.start_s, b.device);
  });
  return trace;
}

Status add_result(Communicator& everyone, const Program& program, const EmulatedRank& rank,
                  Emulation* out) {
  BRAID_ASSIGN(const double step_s, largest(everyone, rank.real_end_s()));
  BRAID_ASSIGN(const double device_s, largest(everyone, rank.device_end_s()));
  BRAID_ASSIGN(std::vector<TraceEvent> events, gather_events(everyone, rank.events()));
  BRAID_ASSIGN(const double misplaced,
               largest(everyone, static_cast<double>(rank.misplaced().size())));
  out->misplaced = rank.misplaced();
  if (misplaced > 0 && out->misplaced.empty()) out->misplaced.push_back("on another rank");
  out->overhead = device_s > 0 ? (step_s - device_s) / device_s : 0;
  out->emulated = trace_of(program, std::move(events), step_s);
  return ok_status();
}

// Everything that a step needs, in the order in which it may go again.
struct StepParts {
  BrokenLists lists;  // or right ones
  std::unique_ptr<StepPrices> prices;
  std::unique_ptr<Fabric> fabric;
  std::unique_ptr<EmulatedRank> rank;
};

Status make_rank(World& world, const PlanningProblem& problem, const EmulationOptions& options,
                 StepParts* parts) {
  const Program& program = parts->lists.program;
  BRAID_TRY(parts->prices->prepare());
  BRAID_ASSIGN(Communicator * everyone, world.everyone());
  BRAID_ASSIGN(RankWork work,
               make_rank_work(program, *parts->prices, world, parts->lists.change_ops));
  FabricOptions links;
  links.ports = static_cast<int32_t>(program.ranks.size()) * kTrackKinds;
  links.deadline_s = options.deadline_s;
  BRAID_ASSIGN(parts->fabric, Fabric::share(*everyone, links));
  parts->rank = std::make_unique<EmulatedRank>(program, problem, *parts->prices, world,
                                               *parts->fabric, std::move(work),
                                               EmulatedRank::Options{options.jitter, options.seed});
  return parts->rank->prepare();
}

// The first rank looks for the place; the others hear of it.
Result<FaultPlace> agree_on_fault(Communicator& everyone, const Program& program,
                                  const PlanningProblem& problem, const Calibration& calibration,
                                  const SimOptions& simulation, const Trace& right,
                                  ListFault fault) {
  Result<FaultPlace> found = FaultPlace();
  if (everyone.index() == 0)
    found = find_fault(program, problem, calibration, simulation, right, fault, kNear);
  FaultPlace place = found.ok() ? *found : FaultPlace();
  const at::Tensor row = at::tensor({static_cast<int32_t>(place.kind), place.call.value,
                                     place.rank.value, place.entry, place.first, place.second},
                                    at::kInt);
  BRAID_TRY(everyone.broadcast(row, everyone.members()[0], "what is wrong with the lists").wait());
  BRAID_TRY(found.status());
  const auto* n = row.const_data_ptr<int32_t>();
  place.kind = static_cast<FaultPlace::Kind>(n[0]);
  place.call = CallId{n[1]}, place.rank = DeviceId{n[2]}, place.entry = n[3];
  place.first = n[4], place.second = n[5];
  if (place.kind != FaultPlace::kNowhere) return place;
  return Status(Code::kUnavailable, "the first rank found no fault");  // it says why
}

// The step begins soon, and is long enough for the real calls.
Result<EmulatedClock> choose_clock(Communicator& everyone, const EmulatedRank& rank,
                                   const EmulationOptions& options, Emulation* out) {
  BRAID_ASSIGN(const double calls,
               largest(everyone, static_cast<double>(rank.real_calls().count())));
  out->real_calls = static_cast<int64_t>(calls);
  BRAID_ASSIGN(const double step_s, largest(everyone, out->predicted.step_s));
  RealCalls::Seconds real;
  BRAID_TRY(everyone.barrier("before the step"));
  BRAID_ASSIGN(real.collective, measure_collectives(rank.groups()));
  BRAID_TRY(everyone.barrier("before the step"));
  BRAID_ASSIGN(real.message, measure_message(everyone));
  double scale = options.time_scale;
  if (scale == 0 && step_s > 0) {
    BRAID_ASSIGN(const double stretch,
                 largest(everyone, rank.real_calls().least_stretch(real, kMostOverhead * step_s)));
    scale = std::max(kShortestStep_s / step_s, stretch);
  }
  BRAID_ASSIGN(const EmulatedClock clock, agree_on_clock(everyone, scale > 0 ? scale : 1));
  out->time_scale = clock.stretch();
  return clock;
}

}  // namespace

Status check_emulated_devices(const Program& program) {
  if (program.ranks.size() <= static_cast<size_t>(kMostRanks)) return ok_status();
  return invalid_input(cat("device: emulated: the plan is for ", program.ranks.size(),
                           " devices, at most ", kMostRanks, " are emulated"));
}

Result<Emulation> emulate_step(World& world, const Program& program, const PlanningProblem& problem,
                               const Calibration& calibration, const EmulationOptions& options) {
  Emulation out;
  SimOptions simulation;
  simulation.seed = options.seed;
  simulation.events = true;
  StepParts parts;
  const auto run = [&]() -> Status {
    BRAID_TRY(check_world(world, program));
    if (world.global_rank() == 0) {
      BRAID_ASSIGN(out.predicted, simulate(program, problem, calibration, simulation));
    }
    BRAID_ASSIGN(Communicator * everyone, world.everyone());
    parts.lists = {program, options.change_ops};
    if (options.fault != ListFault::kNone) {
      BRAID_ASSIGN(const FaultPlace place,
                   agree_on_fault(*everyone, program, problem, calibration, simulation,
                                  out.predicted, options.fault));
      parts.lists = break_lists(program, place, DeviceId{static_cast<int>(world.global_rank())});
      out.fault = fault_text(program, place);
    }
    parts.prices =
        std::make_unique<StepPrices>(parts.lists.program, problem, calibration, simulation,
                                     draw_lengths(problem.workload, options.seed));
    BRAID_TRY(make_rank(world, problem, options, &parts));
    BRAID_ASSIGN(const EmulatedClock clock, choose_clock(*everyone, *parts.rank, options, &out));
    const RankUse before = use_so_far(world);
    BRAID_TRY(parts.rank->run(clock));
    RankUse use = use_since(before, use_so_far(world));
    use.round_calls = static_cast<double>(parts.rank->round_calls());
    use.calls_of_each =
        use.calls - use.round_calls + static_cast<double>(parts.rank->calls_of_each_round());
    BRAID_ASSIGN(out.use, gather_use(*everyone, use));
    return add_result(*everyone, program, *parts.rank, &out);
  };
  // The others must know before the threads of this rank have run into their deadlines.
  const Status ran = run();
  if (!ran.ok()) return world.fail(ran);
  return out;
}

}  // namespace braid::inline emulate
