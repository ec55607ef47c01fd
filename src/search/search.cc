#include "search/search.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "base/text.h"
#include "plan/validate.h"
#include "search/bench.h"
#include "search/edits.h"
#include "search/judge.h"
#include "search/simple.h"

namespace braid::inline search {
namespace {

// Annealing cools from accepting a loss of 5 % in one of e proposals to one of 0.05 %.
constexpr double kFirstLoss = 0.05;
constexpr double kLastLoss = 0.0005;
constexpr int64_t kAnnealingSteps = 50'000;
constexpr int64_t kProofWork = 1'000'000;
// A descent ends where no single change helps. A layout that needs room in memory, and a role that
// makes room by waiting on the host, help only together: where a descent ends depends on where it
// begins, and a unit makes several, as many as are short.
constexpr int64_t kFurtherDescents = 15, kFurtherValues = 100'000;
constexpr int64_t kLeastBoundUnits = 16, kMostBoundUnits = 64;  // worth of work for the bound
constexpr double kJudgingEnds = 0.85;  // of the time there is; the rest is for the bound
constexpr int kRounds = 3;             // of judging the neighbours of the best judged plan
// Before the search: how much memory plans may take by the evaluator to fit by the judge.
constexpr int kRoomRounds = 5;
constexpr int64_t kRoomUnits = 16;
constexpr double kRoomBelow = 0.98;
constexpr int kPolishRounds = 8;
constexpr size_t kBatch = 8;  // plans that are judged before the limits are looked at again
// Neighbours and edits are judged until so many devices have been simulated, in a longer search in
// proportion: as many plans of few devices as of many take the same time.
constexpr int64_t kMostSimulatedDevices = 12'000;
constexpr int64_t kUnitsOfSimulations = 64;
// By the judge, so much slower than the best plan, one plan of another valley is worth improving.
constexpr double kHopeful = 0.02;

optimize::PortfolioOptions portfolio_options(const SearchOptions& options) {
  optimize::PortfolioOptions out;
  out.method = options.method;
  out.seed = options.seed;
  out.proof_work = kProofWork;
  out.further_descents = kFurtherDescents, out.further_values = kFurtherValues;
  out.walk = {.steps = kAnnealingSteps, .inverse_temperature = {1 / kFirstLoss, 1 / kLastLoss}};
  return out;
}

using Plans = std::vector<std::pair<PlanCost, Choice>>;

// The choice and the best changes of each of its coordinates, by cost.
Plans neighbourhood(const PlanSpace& space, const Choice& choice, int64_t count) {
  const PlanDomain domain(space);
  Plans out = {{domain.state_with(choice).cost, choice}};
  for (int c = 0; c < space.num_coordinates(); ++c) {
    const std::vector<Alternative> values = alternatives(space, choice, c, count);
    for (const Alternative& other : values) {
      if (other.value == choice[c]) continue;
      Choice changed = choice;
      changed[c] = other.value;
      out.emplace_back(other.cost, std::move(changed));
    }
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  return out;
}

using Starts = std::vector<optimize::Start<Choice>>;  // in the order of units

// What a search under the evaluator alone gives.
struct Searched {
  Found found;
  Starts starts;
};

// What plans must fit into, with the keys that say so.
std::string memory_of(const PlanningProblem& problem) {
  std::string out = "device memory";
  if (problem.memory_limit_gib > 0)
    out += cat(" (plan.memory_limit_gib=", problem.memory_limit_gib, ")");
  if (!problem.may_offload) out += " with everything on the devices (plan.offload=never)";
  if (problem.host_memory_gib > 0 && problem.may_offload)
    out += cat(" and host memory (plan.host_memory_gib=", problem.host_memory_gib, ")");
  return out;
}

Status nothing_fits(const PlanningProblem& problem, bool proven,
                    const std::optional<PlanCost>& least) {
  const bool of_devices = problem.host_memory_gib <= 0;
  return {
      Code::kInfeasible,
      cat(proven ? cat("no plan fits into ", memory_of(problem))
                 : cat("no plan that fits into ", memory_of(problem), " was found"),
          least ? cat("; the best needs ", format_bytes(static_cast<double>(least->excess_bytes)),
                      of_devices ? " more per device" : " more per device or node")
                : std::string())};
}

Result<Searched> search_once(const PlanSpace& space, const SearchOptions& options) {
  const PlanDomain domain(space);
  optimize::Portfolio<PlanDomain> portfolio(domain, portfolio_options(options));
  const optimize::UnitReport units = run_units(portfolio, options.units);
  Searched out;
  Found& found = out.found;
  found.units = units.units;
  found.evaluations = portfolio.evaluations();
  found.bounds = portfolio.bounds();
  found.proven = portfolio.proven();
  for (const auto& step : portfolio.log())
    found.log.push_back({step.unit, step.elapsed_s, static_cast<double>(step.cost.time_us) / 1e6,
                         step.cost.excess_bytes == 0});
  for (const auto& [state, improves] : portfolio.starts())
    if (state.cost.excess_bytes == 0) out.starts.push_back({state.choice, improves});
  if (!portfolio.best() || portfolio.cost()->excess_bytes > 0)
    return nothing_fits(*space.problem, found.proven, portfolio.cost());
  found.choice = portfolio.best()->choice;
  found.cost = *portfolio.cost();
  found.best_cost_us = found.cost.time_us;
  found.lower_bound_us = portfolio.lower_bound();
  return out;
}

// What no plan takes less than by the simulator, whatever memory it leaves, if that is below
// limit_us. Best first, until as many units' worth of work is done or `stop` says so.
int64_t judged_bound_us(PlanSpace space, int64_t limit_us, int64_t units,
                        const std::function<bool()>& stop, int64_t& bounds) {
  for (size_t d = 0; d < space.capacity_bytes.size(); ++d)
    space.capacity_bytes[d] = kMemoryDoubt * space.whole_bytes[d];
  const auto root = std::make_shared<const PlanRoot>(space, limit_us, Moves::kNone);
  bounds += root->bounds;
  PlanTree tree(space, root);
  const int64_t piece = kProofWork / 4;
  const int64_t work = std::clamp(units, kLeastBoundUnits, kMostBoundUnits) * kProofWork;
  const int64_t least = optimize::least_cost(tree, limit_us, work, piece, stop);
  bounds += tree.bounds();
  return std::max(std::min(least, limit_us), std::min(root->bound, limit_us));
}

class Search {
 public:
  Search(PlanSpace& space, const SearchOptions& options, const Judge& judge)
      : space_(space),
        options_(options),
        room_(space),
        bench_(judge, options.units.threads, options.margin),
        margin_(options.margin) {
    room_.moves = std::make_shared<MoveMemo>();  // layouts that are added get numbers of its own
  }

  Result<Found> run() {
    BRAID_TRY(find_room());
    Result<Searched> searched = search_once(room_, options_);
    if (!searched.ok() && bench_.best() == nullptr) return searched.status();
    Found found;
    if (searched.ok()) found = std::move(searched->found);
    most_simulated_ *= std::max<int64_t>(1, found.units / kUnitsOfSimulations);
    BRAID_TRY(judge_all(searched.ok() ? searched->starts : Starts()));
    if (bench_.best() == nullptr) BRAID_TRY(without_margin());
    if (bench_.best() == nullptr) return too_large();
    return finish(std::move(found));
  }

 private:
  bool late() const { return options_.late && options_.late(kJudgingEnds); }
  bool is_spent() const {
    return late() ||
           static_cast<int64_t>(bench_.judged().size()) * space_.num_devices() > most_simulated_;
  }

  ExecutionPlan plan_at(const Choice& choice) const { return plan_of(room_, choice); }

  // ---- How much memory the evaluator may fill

  void set_capacity(double factor) {
    room_.capacity_bytes = margin_ > 0 ? space_.capacity_bytes : space_.whole_bytes;
    for (double& bytes : room_.capacity_bytes) bytes *= factor;
  }

  // Searches briefly until a plan of the evaluator fits by the judge, with the margin and, where no
  // plan leaves that, without. What this finds does not depend on the number of units that follow.
  Status find_room() {
    for (const double margin : {options_.margin, 0.0}) {
      margin_ = margin;
      bench_.set_margin(margin);
      double factor = 1;
      for (int round = 0; round < kRoomRounds && bench_.best() == nullptr; ++round) {
        set_capacity(factor);
        const std::optional<Choice> choice = brief_search();
        if (!choice) break;
        const ExecutionPlan plan = plan_at(*choice);
        BRAID_TRY(bench_.price({plan}));
        const Verdict& verdict = bench_.verdict(plan);
        const double allowed = (1 - margin) * std::max(1.0, verdict.capacity_bytes);
        factor *= kRoomBelow / std::max(1.0, verdict.peak_bytes / allowed);
      }
      if (bench_.best() != nullptr) return ok_status();
      if (options_.margin <= 0) break;
    }
    set_capacity(1);
    return ok_status();
  }

  std::optional<Choice> brief_search() const {
    SearchOptions brief = options_;
    for (const int64_t units : {int64_t{1}, kRoomUnits}) {
      brief.units.max_units = units;
      const Result<Searched> searched = search_once(room_, brief);
      if (searched.ok()) return searched->found.choice;
    }
    return std::nullopt;
  }

  // ---- Judging

  // Each plan that is better than those before by the evaluator, and what is around those that are
  // by the judge. The evaluator's order is not the judge's, and the fastest plan may lie in another
  // valley than the evaluator's best: what is around the first valleys' ends is judged too where
  // they are nearly as fast. Where time is short, from the last one on, and other valleys last.
  Status judge_all(const Starts& starts) {
    BRAID_TRY(judge_simple());
    if (!options_.late) {
      if (bench_.best() != nullptr) BRAID_TRY(improve(ExecutionPlan(bench_.best()->plan)));
      for (const auto& start : starts) BRAID_TRY(judge_start(start));
      return ok_status();
    }
    for (auto start = starts.rbegin(); start != starts.rend(); ++start) {
      if (start->improves) BRAID_TRY(bench_.price({plan_at(start->state)}));
      if (bench_.best() != nullptr && late()) break;
    }
    if (bench_.best() != nullptr && !late()) BRAID_TRY(improve(ExecutionPlan(bench_.best()->plan)));
    for (const auto& start : starts)
      if (!start.improves && !is_spent()) BRAID_TRY(judge_start(start));
    return ok_status();
  }

  bool scores(int call) const {
    const CallKind kind = space_.problem->graph.calls[room_.calls[call].call.value].kind;
    return kind != CallKind::kGenerate && kind != CallKind::kTrainStep;
  }

  // Of a plan's segment, by the judge.
  int64_t least_of_segment_us(const Assignment& plan, int segment) const {
    const std::vector<int>& calls = room_.segments[segment];
    if (!options_.hides_scoring ||
        std::none_of(calls.begin(), calls.end(), [&](int call) { return scores(call); }))
      return segment_us(room_, plan, segment, {}, Moves::kNone);
    int64_t longest_us = 0;
    for (const int call : calls)
      if (!scores(call)) longest_us = std::max(longest_us, plan.option[call]->time_us);
    return longest_us + (segment == 0 ? room_.fixed_us : 0);
  }

  // Whether the judge may find a plan to take less than that.
  bool may_take_less(const Choice& choice, double than_s) const {
    than_s = std::min(than_s, options_.limit_s);
    if (!options_.evaluator_bounds_judge || !std::isfinite(than_s)) return true;
    const Assignment plan = assignment_of(room_, choice);
    int64_t least_us = 0;
    for (size_t s = 0; s < room_.segments.size(); ++s)
      least_us += least_of_segment_us(plan, static_cast<int>(s));
    return kProvenShare * static_cast<double>(least_us) < static_cast<double>(to_us(than_s));
  }

  Status judge_start(const optimize::Start<Choice>& start) {
    const ExecutionPlan plan = plan_at(start.state);
    const double best_s = bench_.best() == nullptr ? HUGE_VAL : bench_.best()->verdict.step_s;
    if (!may_take_less(start.state, (1 + kHopeful) * best_s)) return ok_status();
    BRAID_TRY(bench_.price({plan}));
    if (bench_.best() == nullptr)
      return start.improves ? judge_neighbours(start.state, HUGE_VAL).status() : ok_status();
    const Verdict& verdict = bench_.verdict(plan);
    if (!bench_.accepts(verdict)) return ok_status();
    if (verdict.step_s < best_s) return improve(plan);
    const bool hopeful = !start.improves && verdict.step_s < (1 + kHopeful) * best_s;
    if (!hopeful || left_valley_) return ok_status();
    left_valley_ = true;
    return improve(plan);
  }

  Status judge_simple() {
    for (const Choice& choice : simple_choices(room_)) {
      if (late()) break;
      const double best_s = bench_.best() == nullptr ? HUGE_VAL : bench_.best()->verdict.step_s;
      if (!may_take_less(choice, (1 + std::max(kHopeful, options_.simpler)) * best_s)) continue;
      const ExecutionPlan plan = plan_at(choice);
      BRAID_TRY(bench_.price({plan}));
      if (bench_.accepts(bench_.verdict(plan))) simple_.push_back(plan);
    }
    return ok_status();
  }

  // Neighbours in the space, then edits, each round from the fastest plan that the one before saw.
  Status improve(const ExecutionPlan& from) {
    ExecutionPlan centre = from;
    for (int round = 0; round < kRounds && !is_spent(); ++round) {
      BRAID_ASSIGN(const Choice choice, include_plan(room_, centre));
      const Verdict& now = bench_.verdict(centre);
      const double than_s = bench_.accepts(now) ? now.step_s : HUGE_VAL;
      BRAID_ASSIGN(const std::vector<ExecutionPlan> priced, judge_neighbours(choice, than_s));
      if (!move_to_fastest(priced, centre)) break;
    }
    const int rounds = options_.polish ? kPolishRounds : 0;
    for (int round = 0; round < rounds && !is_spent(); ++round) {
      BRAID_ASSIGN(const std::vector<ExecutionPlan> priced, judge_edits(centre));
      if (!move_to_fastest(priced, centre)) break;
    }
    return ok_status();
  }

  // Whether one of the plans, all priced, is acceptable and faster than the centre, which it
  // becomes.
  bool move_to_fastest(const std::vector<ExecutionPlan>& plans, ExecutionPlan& centre) const {
    const Verdict& now = bench_.verdict(centre);
    double least_s = bench_.accepts(now) ? now.step_s : HUGE_VAL;
    const ExecutionPlan* fastest = nullptr;
    for (const ExecutionPlan& plan : plans) {
      const Verdict& verdict = bench_.verdict(plan);
      if (bench_.accepts(verdict) && verdict.step_s < least_s)
        least_s = verdict.step_s, fastest = &plan;
    }
    if (fastest != nullptr) centre = *fastest;
    return fastest != nullptr;
  }

  Result<std::vector<ExecutionPlan>> judge_neighbours(const Choice& choice, double than_s) {
    const int64_t share = std::max<int64_t>(1, (options_.judged + kRounds - 1) / kRounds);
    std::vector<ExecutionPlan> plans;
    int64_t taken = 0;
    for (const auto& [cost, other] : neighbourhood(room_, choice, share)) {
      if (taken >= share) break;
      if (cost.excess_bytes > 0) continue;
      ++taken;
      if (may_take_less(other, than_s)) plans.push_back(plan_at(other));
    }
    return price_in_batches(std::move(plans));
  }

  // Returns those that were priced before the limits were reached.
  Result<std::vector<ExecutionPlan>> price_in_batches(std::vector<ExecutionPlan> plans) {
    size_t priced = 0;
    while (priced < plans.size() && !is_spent()) {
      const size_t end = std::min(priced + kBatch, plans.size());
      BRAID_TRY(bench_.price({plans.begin() + static_cast<int64_t>(priced),
                              plans.begin() + static_cast<int64_t>(end)}));
      priced = end;
    }
    plans.resize(priced);
    return plans;
  }

  // ---- Edits

  Result<std::vector<ExecutionPlan>> judge_edits(const ExecutionPlan& plan) {
    std::vector<ExecutionPlan> hopeful;
    const Result<Verdict> base = estimate(plan);
    if (!base.ok()) return hopeful;
    for (ExecutionPlan& edited : single_edits(plan, *space_.problem, space_.axes))
      if (may_win(edited, *base)) hopeful.push_back(std::move(edited));
    return price_in_batches(std::move(hopeful));
  }

  Result<Verdict> estimate(const ExecutionPlan& plan) const {
    return evaluator_judge(*space_.problem, *space_.pricer)(plan);
  }

  // Whether the evaluator finds an edit no slower. It knows neither prefetching nor what an engine
  // makes do with.
  bool may_win(const ExecutionPlan& edited, const Verdict& base) const {
    for (const CallPlan& entry : edited.calls)
      if (space_.allowed && !space_.allowed(entry)) return false;
    for (const RolePlan& entry : edited.roles)
      if (space_.allowed_role && !space_.allowed_role(entry)) return false;
    const Result<Verdict> verdict = estimate(edited);
    if (!verdict.ok()) return false;
    double lax = kMemoryDoubt;
    for (const CallPlan& entry : edited.calls)
      if (find_call(space_.problem->graph, entry.call)->kind == CallKind::kGenerate &&
          entry.strategy.kv_budget_tokens == 0)
        lax = HUGE_VAL;
    const bool prefetches = std::any_of(edited.roles.begin(), edited.roles.end(),
                                        [](const auto& r) { return r.prefetch; });
    return verdict->peak_bytes <= lax * verdict->capacity_bytes &&
           (prefetches || verdict->step_s <= base.step_s);
  }

  // ---- Results

  // Nothing that leaves the margin was found: what fits without it.
  Status without_margin() {
    margin_ = 0;
    bench_.set_margin(0);
    return ok_status();
  }

  Status too_large() const {
    const JudgedPlan* least = bench_.smallest();
    if (least == nullptr) return nothing_fits(*space_.problem, false, std::nullopt);
    return {Code::kInfeasible, cat("no plan that fits into ", memory_of(*space_.problem),
                                   " was found: under the simulator the best needs ",
                                   format_bytes(least->verdict.peak_bytes), " of ",
                                   format_bytes(least->verdict.capacity_bytes), " of a device (",
                                   least->verdict.reason, ")")};
  }

  Result<Found> finish(Found found) {
    const JudgedPlan fastest = *bench_.best();
    const JudgedPlan proposed = simplest_near(fastest);
    found.plan = proposed.plan;
    found.verdict = proposed.verdict;
    if (!(proposed.plan == fastest.plan)) found.faster = fastest;
    found.margin = margin_;
    found.judged = bench_.judged();
    BRAID_ASSIGN(found.choice, include_plan(space_, found.plan));
    found.cost = evaluate(space_, assignment_of(space_, found.choice));
    found.lower_bound_us = 0, found.proven = false;
    if (!options_.bound) return found;
    const int64_t limit_us = to_us(fastest.verdict.step_s);
    found.lower_bound_us =
        judged_bound_us(space_, limit_us, found.units,
                        options_.late ? std::function<bool()>([this] { return options_.late(1); })
                                      : std::function<bool()>(),
                        found.bounds);
    found.proven = static_cast<double>(found.lower_bound_us) >=
                   kProvenShare * static_cast<double>(to_us(found.verdict->step_s));
    return found;
  }

  // Simple plans do not depend on the number of units, so a longer search turns from one to a
  // faster plan and never back.
  JudgedPlan simplest_near(const JudgedPlan& fastest) const {
    JudgedPlan out = fastest;
    const auto rank = [&](const JudgedPlan& one) {
      return std::make_tuple(complexity(one.plan, *space_.problem), one.verdict.step_s);
    };
    for (const ExecutionPlan& plan : simple_) {
      const JudgedPlan one{plan, bench_.verdict(plan)};
      if (!bench_.accepts(one.verdict) ||
          one.verdict.step_s > (1 + options_.simpler) * fastest.verdict.step_s)
        continue;
      if (rank(one) < rank(out)) out = one;
    }
    return out;
  }

  PlanSpace& space_;
  const SearchOptions& options_;
  PlanSpace room_;  // with less capacity, as far as the judge makes it necessary
  PlanBench bench_;
  double margin_;
  int64_t most_simulated_ = kMostSimulatedDevices;
  bool left_valley_ = false;  // a plan of another one has been improved
  std::vector<ExecutionPlan> simple_;
};

}  // namespace

std::vector<Alternative> alternatives(const PlanSpace& space, const Choice& choice, int coordinate,
                                      int64_t most) {
  const PlanDomain domain(space);
  PlanState state = domain.state_with(choice);
  std::vector<Alternative> out;
  const auto cheaper = [](const Alternative& a, const Alternative& b) {
    return a.cost != b.cost ? a.cost < b.cost : a.value < b.value;
  };
  for (int value = 0; value < domain.num_values(coordinate); ++value) {
    const bool full = static_cast<int64_t>(out.size()) >= most;
    if (full && !domain.may_cost_less(state, coordinate, value, out.front().cost)) continue;
    out.push_back({value, value == choice[coordinate]
                              ? state.cost
                              : domain.cost_with(state, coordinate, value)});
    std::push_heap(out.begin(), out.end(), cheaper);
    if (!full) continue;
    std::pop_heap(out.begin(), out.end(), cheaper);
    out.pop_back();
  }
  std::sort_heap(out.begin(), out.end(), cheaper);
  return out;
}

int complexity(const ExecutionPlan& plan, const PlanningProblem& problem) {
  std::set<std::tuple<std::vector<int32_t>, int, int, int, int>> layouts;
  int unusual = 0;
  for (const CallPlan& entry : plan.calls) {
    const Strategy& s = entry.strategy;
    std::vector<int32_t> devices;
    for (const DeviceId device : entry.mesh.devices) devices.push_back(device.value);
    layouts.emplace(std::move(devices), s.dp, s.tp, s.pp, s.cp);
    const bool generates = find_call(problem.graph, entry.call)->kind == CallKind::kGenerate;
    const int nodes = nodes_spanned(problem.cluster, entry.mesh);
    if (generates && nodes > 1 && s.pp > 1) unusual += s.pp;
  }
  return 4 * (static_cast<int>(layouts.size()) + unusual) + static_cast<int>(plan.roles.size());
}

Result<Found> search_plans(PlanSpace& space, const SearchOptions& options, const Judge& judge) {
  if (judge) return Search(space, options, judge).run();
  BRAID_ASSIGN(Searched searched, search_once(space, options));
  searched.found.plan = plan_of(space, searched.found.choice);
  return std::move(searched.found);
}

}  // namespace braid::inline search
