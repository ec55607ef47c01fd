#include "predict/prediction.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>

#include "base/log.h"
#include "base/text.h"
#include "checkpoint/run_folder.h"
#include "host/clock.h"
#include "host/file.h"
#include "launch/auto_plan.h"
#include "plan/plan_text.h"
#include "search/migration.h"

namespace braid::inline predict {
namespace {

constexpr size_t kStepsBeforeSearch = 4;  // the first does not count
constexpr int64_t kSearchUnits = 8;
constexpr size_t kStepsBetweenChoices = 8;  // of when a generation is handed over
constexpr size_t kStepsOfChoice = 4;        // the last steps, whose lengths it is for
constexpr int kWaitForSearch_s = 10;        // at the end of a run
constexpr double kWorthSaying = 0.97;       // of the step: less is within the noise
// RUN/predicted.json is written anew so often, and at least so many times what it takes apart.
constexpr double kRecordEvery_s = 30;
constexpr double kRecordShare = 50;

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Without the first, which makes files, caches and connections.
std::vector<double> settled(const std::vector<double>& values) {
  return values.size() < 2 ? values : std::vector<double>(values.begin() + 1, values.end());
}

SampleLengths lengths_of(const SampleStore& store) {
  SampleLengths out;
  out.response = store.response_lens();
  const auto prompts = store.tokens("prompt_ids");
  if (!prompts.ok()) return {};
  for (const std::vector<int32_t>& prompt : **prompts)
    out.prompt.push_back(static_cast<int64_t>(prompt.size()));
  const auto known = [](const std::vector<int64_t>& lengths) {
    return std::all_of(lengths.begin(), lengths.end(), [](int64_t n) { return n > 0; });
  };
  return known(out.prompt) && known(out.response) ? out : SampleLengths();
}

// Owners of a device's memory as a run counts them (session/step_timeline.h).
const char* counted_as(MemoryOwner owner) {
  switch (owner) {
    case MemoryOwner::kWeights:
    case MemoryOwner::kCopies:
      return "weights";
    case MemoryOwner::kGradients:
      return "gradients";
    case MemoryOwner::kOptimizer:
      return "optimizer";
    case MemoryOwner::kActivations:
    case MemoryOwner::kLogits:
    case MemoryOwner::kGathered:
      return "activations";
    case MemoryOwner::kKvCache:
      return "KV cache";
    case MemoryOwner::kFields:
      return "samples";
    case MemoryOwner::kStaging:
    case MemoryOwner::kFixed:
      return "other";
  }
  return "other";
}

// The most bytes that each owner holds in a step. REQUIRES: the trace has its memory curves.
std::map<std::string, double> most_by_owner(const DeviceSummary& device) {
  std::map<std::string, double> out;
  for (const MemoryPoint& point : device.memory) {
    std::map<std::string, double> now;
    for (int owner = 0; owner < kMemoryOwners; ++owner)
      now[counted_as(static_cast<MemoryOwner>(owner))] += point.use.bytes[owner];
    for (const auto& [owner, bytes] : now)
      if (bytes > 0) out[owner] = std::max(out[owner], bytes);
  }
  return out;
}

// [[call, begin_s, end_s], ...] of a rank.
Json spans_of(const Trace& trace, size_t rank) {
  Json out = Json::array();
  for (const CallSummary& call : trace.calls)
    if (const auto found = call.spans.find(DeviceId{static_cast<int32_t>(rank)});
        found != call.spans.end())
      out.push_back({trace.call_names[call.call.value], found->second.first, found->second.second});
  return out;
}

template <typename T>
bool is_ready(const std::future<T>& future) {
  return future.valid() && future.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

// What happens in the search is nobody's hurry: training has the cores.
void step_back() { ::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), 19); }

struct SearchCase {
  PlanningProblem problem;
  Calibration calibration;
  SampleLengths lengths;
  double current_s = 0;   // of the present plan, at these costs
  int64_t staleness = 0;  // of the present plan: what waits in the run's queue is for it
  PlanConstraints keeps;  // what another plan has to keep
  std::string folder;     // of the run
  std::string plan_file;  // of the configuration
  std::string keys;       // with which it goes on under another plan, beside plan.file
  std::shared_ptr<const std::atomic<bool>> ended;  // the run has, and waits no longer
};

// A word that a shell takes as it is.
std::string shell_word(const std::string& text) {
  if (text.find_first_of(" \t\n'\"\\$`&;()<>|*?[]{}!#~") == std::string::npos) return text;
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

// A plan that was searched kept what else is stated; another one keeps it too. Where the
// configuration states the layout itself, another plan takes its place.
Status keep_stated(const PlannedRun& planned, SearchCase* now) {
  const Config& config = planned.config;
  const auto states = [](const YamlNode& node) { return node.kind != YamlNode::Kind::kNull; };
  if (planned.searched) {
    Config others = config;
    others.plan.file.clear();
    others.plan.staleness = now->staleness;
    BRAID_ASSIGN(now->keeps, executable_constraints(others, now->problem, now->calibration));
    now->keys = cat(" ", kKeysOfStatedPlan);
    return ok_status();
  }
  if (states(config.placement)) now->keys += " placement=null";
  if (states(config.parallel)) now->keys += " parallel=null";
  return ok_status();
}

Result<std::string> search_again(const SearchCase& now) {
  BRAID_ASSIGN(const std::vector<ExecutionPlan> plans,
               executable_plans(now.problem, now.calibration,
                                {.units = kSearchUnits,
                                 .threads = 1,
                                 .constraints = &now.keeps,
                                 .staleness = now.staleness,
                                 .synchronous = now.staleness == 0,
                                 .stop = [&now] { return now.ended->load(); }}));
  BRAID_ASSIGN(const Program program, compile(plans.front(), now.problem));
  SimOptions options;
  if (!now.lengths.prompt.empty()) options.lengths = now.lengths;
  BRAID_ASSIGN(const Trace trace, simulate(program, now.problem, now.calibration, options));
  char times[96];
  if (trace.step_s >= kWorthSaying * now.current_s) {
    std::snprintf(times, sizeof times, "%.4g s; the best other %.4g s", now.current_s,
                  trace.step_s);
    return cat("plan: no other is 3 % faster under measured costs: a step of ", times);
  }
  std::snprintf(times, sizeof times, "%.4g s for %.4g s", trace.step_s, now.current_s);
  std::string path = join_path(now.folder, "better_plan.yaml");
  if (path == now.plan_file) path = join_path(now.folder, "better_plan_2.yaml");  // it runs
  BRAID_TRY(write_file_atomic(path, plan_to_yaml(plans.front(), &now.problem.cluster)));
  return cat("plan: under measured costs another plan takes ", times, " a step: ", path,
             "; to go on with it: ", shell_word(cat("plan.file=", path)), now.keys,
             " checkpoint.resume=auto");
}

}  // namespace

void RunPrediction::note(Session& session, const std::map<std::string, double>& row) {
  if (!planned_.plan) return;
  steps_.push_back(row.at("time/step"));
  lengths_.push_back(lengths_of(session.store()));
  if (const auto draws = row.find("sampling/draws"); draws != row.end())
    draws_.push_back(draws->second);
  for (const Call& call : planned_.program.graph.calls)
    if (const auto found = row.find("time/" + call.name); found != row.end())
      calls_[call.name].push_back(found->second);
  for (const auto& [rank, bytes] : session.rank_peaks()) peaks_[rank].push_back(bytes);
  if (const double now = now_s(); steps_.size() >= 2 && now >= next_record_s_) {
    // What fails here is told at the end, where it fails too.
    if (const auto found = comparison(); found.ok()) (void)record(*found);
    const double took_s = now_s() - now;
    next_record_s_ = now + took_s + std::max(kRecordEvery_s, kRecordShare * took_s);
  }
  if (steps_.size() == kStepsBeforeSearch) begin_search();
  if (is_ready(found_)) say_found();
  if (planned_.chooses_migration) choose_migration(session);
}

Result<const Program*> RunPrediction::program() const {
  if (planned_.whole) return &planned_.program;
  if (!program_) {
    BRAID_ASSIGN(program_, compile(*planned_.plan, *planned_.problem));
  }
  return &*program_;
}

PlanningProblem RunPrediction::measured_problem() const {
  PlanningProblem out = *planned_.problem;
  if (!draws_.empty()) out.workload.draws = median(draws_);
  return out;
}

Result<Trace> RunPrediction::predicted(const Calibration& calibration, bool memory) const {
  BRAID_ASSIGN(const Program* const lists, program());
  const PlanningProblem problem = measured_problem();
  const double middle = median(settled(steps_));
  SimOptions options;
  options.memory_curve = memory;
  for (size_t step = 0; step < steps_.size(); ++step)
    if (steps_[step] == middle && !lengths_[step].prompt.empty()) options.lengths = lengths_[step];
  auto trace = simulate(*lists, problem, calibration, options);
  if (trace.ok() || !options.lengths) return trace;
  options.lengths.reset();  // of a step that dropped samples: no longer those of the workload
  return simulate(*lists, problem, calibration, options);
}

Result<std::map<std::string, double>> RunPrediction::measured_factors() const {
  BRAID_ASSIGN(const Calibration calibration, runtime_calibration(*planned_.problem));
  BRAID_ASSIGN(const Trace trace, predicted(calibration));
  std::map<std::string, std::pair<double, double>> seconds;  // predicted, measured
  for (const CallSummary& summary : trace.calls) {
    const Call& call = planned_.program.graph.calls[summary.call.value];
    const auto found = calls_.find(call.name);
    if (found == calls_.end() || !uses_model(call)) continue;
    const bool generates = call.kind == CallKind::kGenerate;
    auto& [predicted_s, measured_s] =
        seconds[generates
                    ? "rl_generate_factor"
                    : (call.kind == CallKind::kTrainStep ? "rl_train_factor" : "rl_infer_factor")];
    predicted_s += summary.seconds();
    measured_s += median(settled(found->second));
  }
  std::map<std::string, double> out;
  for (const auto& [name, pair] : seconds)
    if (pair.first > 0 && pair.second > 0) out[name] = pair.second / pair.first;
  return out;
}

void RunPrediction::begin_search() {
  const auto begin = [&]() -> Status {
    SearchCase now;
    now.problem = measured_problem();
    now.staleness = planned_.plan->staleness;
    now.folder = run_folder(planned_.config);
    now.plan_file = planned_.config.plan.file;
    now.ended = run_ended_;
    BRAID_ASSIGN(now.calibration, runtime_calibration(now.problem));
    BRAID_ASSIGN(now.calibration.own_values, measured_factors());
    BRAID_TRY(keep_stated(planned_, &now));
    BRAID_ASSIGN(const Trace trace, predicted(now.calibration));
    now.current_s = trace.step_s;
    if (!lengths_.back().prompt.empty()) now.lengths = lengths_.back();
    found_ = std::async(std::launch::async, [now = std::move(now)] {
      step_back();
      const auto text = search_again(now);
      return text.ok() ? *text
                       : cat("plan: no search under measured costs: ", text.status().message());
    });
    return ok_status();
  };
  if (const Status status = begin(); !status.ok())
    log_info(cat("plan: no search under measured costs: ", status.message()));
}

void RunPrediction::end_search() {
  if (!found_.valid()) return;
  if (found_.wait_for(std::chrono::seconds(kWaitForSearch_s)) == std::future_status::ready)
    return say_found();
  run_ended_->store(true);
  found_.wait();
  log_info("plan: the run ended before the search under measured costs, which is given up");
}

void RunPrediction::say_found() { log_info(found_.get()); }

std::vector<SampleLengths> RunPrediction::last_lengths() const {
  std::vector<SampleLengths> out;
  for (size_t i = lengths_.size(); i > 0 && out.size() < kStepsOfChoice; --i)
    if (!lengths_[i - 1].prompt.empty()) out.push_back(lengths_[i - 1]);
  return out;
}

void RunPrediction::choose_migration(Session& session) {
  if (is_ready(migration_)) {
    const Result<int64_t> below = migration_.get();
    if (!below.ok()) {
      log_info(cat("plan: fusion.migrate_below_samples: auto stays at ", session.hand_over_below(),
                   ": ", below.status().message()));
    } else if (*below != session.hand_over_below()) {
      session.set_hand_over_below(*below);
      log_info(cat("plan: fusion.migrate_below_samples: auto is ", *below, " from step ",
                   session.step() + 1, " on, by the lengths of the last steps"));
    }
  }
  if (steps_.size() % kStepsBetweenChoices != 0 || migration_.valid()) return;
  SimulationOptions recorded;
  recorded.steps = last_lengths();
  const auto costs = runtime_calibration(*planned_.problem);
  if (recorded.steps.empty() || !costs.ok()) return;
  Calibration calibration = *costs;
  if (const auto factors = measured_factors(); factors.ok()) calibration.own_values = *factors;
  migration_ = std::async(
      std::launch::async,
      [plan = *planned_.plan, problem = measured_problem(), calibration = std::move(calibration),
       recorded = std::move(recorded)]() -> Result<int64_t> {
        step_back();
        BRAID_ASSIGN(const std::vector<MigrationPoint> curve,
                     migration_curve(plan, problem, calibration, recorded));
        return fastest_of(curve).below;
      });
}

Result<Json> RunPrediction::comparison() const {
  BRAID_ASSIGN(const Calibration calibration, runtime_calibration(*planned_.problem));
  BRAID_ASSIGN(const Trace trace, predicted(calibration, true));
  Json calls = Json::array(), ranks = Json::array();
  for (const CallSummary& call : trace.calls) {
    const std::string& name = trace.call_names[call.call.value];
    const auto found = calls_.find(name);
    if (found == calls_.end()) continue;
    calls.push_back({{"call", name},
                     {"predicted_s", call.seconds() < 1e-9 ? 0 : call.seconds()},
                     {"measured_s", median(settled(found->second))}});
  }
  for (const auto& [rank, peaks] : peaks_)
    ranks.push_back({{"rank", rank},
                     {"predicted_bytes", trace.devices[rank].peak_bytes},
                     {"measured_bytes", median(settled(peaks))},
                     {"owners", most_by_owner(trace.devices[rank])},
                     {"spans", spans_of(trace, rank)}});
  return Json{{"step", {{"predicted_s", trace.step_s}, {"measured_s", median(settled(steps_))}}},
              {"calls", calls},
              {"ranks", ranks}};
}

Status RunPrediction::record(const Json& comparison) const {
  return write_file_atomic(join_path(run_folder(planned_.config), "predicted.json"),
                           comparison.dump(2) + "\n");
}

Result<std::string> RunPrediction::write(const std::map<int64_t, double>& saving_peaks) {
  if (!planned_.plan || steps_.empty()) return std::string();
  BRAID_ASSIGN(Json out, comparison());
  for (Json& rank : out["ranks"])
    if (const auto found = saving_peaks.find(rank["rank"].get<int64_t>());
        found != saving_peaks.end())
      rank["measured_saving_bytes"] = found->second;
  BRAID_TRY(record(out));
  std::string text = "predicted | measured, seconds\n";
  const auto line = [&](const std::string& name, const Json& of) {
    char numbers[64];
    std::snprintf(numbers, sizeof numbers, "%10.4g | %10.4g  ", of["predicted_s"].get<double>(),
                  of["measured_s"].get<double>());
    text += numbers + name + "\n";
  };
  for (const Json& call : out["calls"]) line(call["call"].get<std::string>(), call);
  line("step", out["step"]);
  return text;
}

}  // namespace braid::inline predict
