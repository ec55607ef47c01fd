#include "search/edits.h"

#include <algorithm>
#include <set>
#include <utility>

#include "plan/plan_fields.h"
#include "plan/validate.h"

namespace braid::inline search {
namespace {

using plan_fields::StrategyField;
using Kind = StrategyField::Kind;

constexpr int kEditTries = 200;  // of a random edit
constexpr int kMostChanges = 3;

int64_t sequences_of(const PlanningProblem& problem, const CallPlan& entry) {
  const Call& call = *find_call(problem.graph, entry.call);
  const bool trains = call.kind == CallKind::kTrainStep;
  const int64_t all = trains ? minibatch_samples(problem) : call_samples(problem, call);
  return std::max<int64_t>(1, all / std::max(1, entry.strategy.dp));
}

// Around a number of tokens that is there, and what several sequences have.
void add_token_values(const PlanningProblem& problem, int64_t now, std::set<int64_t>& values) {
  const auto mean = static_cast<int64_t>(mean_tokens(problem.workload.prompt) +
                                         mean_tokens(problem.workload.response));
  for (int64_t sequences = 1; sequences <= 4096; sequences *= 4) values.insert(sequences * mean);
  for (const int64_t percent : {50, 75, 90, 110, 125, 150, 200}) values.insert(now * percent / 100);
}

std::set<int64_t> values_of(const StrategyField& field, const CallPlan& entry,
                            const PlanningProblem& problem) {
  const int64_t now = field.get(entry.strategy);
  const std::string name = field.name;
  std::set<int64_t> values = {0, 1};
  for (size_t word = 2; word < field.words.size(); ++word)
    values.insert(static_cast<int64_t>(word));
  if (name == "zero") values.insert({2, 3});
  if (field.kind == Kind::kNumber) {
    values.insert({now / 2, now - 1, now + 1, now * 2});
    if (name == "micro_tokens" || name == "kv_budget_tokens")
      add_token_values(problem, now, values);
    if (name == "micro_batches" || name == "max_concurrent")
      for (const int64_t n : divisors(sequences_of(problem, entry))) values.insert(n);
    if (name == "interleave" || name == "zero_ranks" || name == "ep" || name == "expert_tp")
      values.insert({2, 4, 8, 16});
  }
  values.erase(now);
  return values;
}

// Not the precision, which changes results.
bool is_edited(const StrategyField& field) { return field.kind != Kind::kPrecision; }

bool is_allowed(const StrategyField& field, const FurtherAxes& axes) {
  const std::string name = field.name;
  if (name == "cp") return axes.context;
  return axes.experts || (name != "ep" && name != "expert_tp");
}

// Of the passes: the space has those that save something (search/space.h).
bool is_order(const StrategyField& field) { return std::string(field.name) == "schedule"; }

void keep_legal(const PlanningProblem& problem, ExecutionPlan edited,
                std::vector<ExecutionPlan>& out) {
  if (validate(edited, problem).ok()) out.push_back(std::move(edited));
}

// The role's entry, which is added where it is missing.
RolePlan& entry_of(ExecutionPlan& plan, const RoleId& role) {
  for (RolePlan& entry : plan.roles)
    if (entry.role == role) return entry;
  plan.roles.push_back({role});
  return plan.roles.back();
}

using RoleEdit = void (*)(RolePlan&);
constexpr RoleEdit kRoleEdits[] = {
    [](RolePlan& r) {
      r.weights = r.weights == Residency::kHost ? Residency::kDevice : Residency::kHost;
    },
    [](RolePlan& r) {
      r.optimizer = r.optimizer == Residency::kHost ? Residency::kDevice : Residency::kHost;
    },
    [](RolePlan& r) {
      r.timing = r.timing == OffloadTiming::kAfterLastCall ? OffloadTiming::kAfterEachCall
                                                           : OffloadTiming::kAfterLastCall;
    },
    [](RolePlan& r) { r.prefetch = !r.prefetch; },
};

// Entries that say nothing go, and "when" and "prefetch" of a role that stays.
void tidy(ExecutionPlan& plan) {
  for (RolePlan& entry : plan.roles)
    if (entry.weights == Residency::kDevice && entry.optimizer == Residency::kDevice)
      entry = {entry.role};
  plan.roles.erase(
      std::remove_if(plan.roles.begin(), plan.roles.end(),
                     [](const RolePlan& entry) { return entry == RolePlan{entry.role}; }),
      plan.roles.end());
}

template <typename T>
const T& pick(const std::vector<T>& from, RandomStream& random) {
  return from[static_cast<size_t>(random.below(from.size()))];
}

void change_field(CallPlan& entry, const PlanningProblem& problem, RandomStream& random) {
  const StrategyField& field = pick(plan_fields::strategy_fields(), random);
  if (!is_edited(field)) return;
  const std::set<int64_t> values = values_of(field, entry, problem);
  if (values.empty()) return;
  (void)field.set(entry.strategy, pick(std::vector<int64_t>(values.begin(), values.end()), random));
}

// What other sizes leave without a meaning.
void tidy_sizes(Strategy& s) {
  if (s.tp == 1) s.sequence_parallel = false;
  if (dense_copies(s) == 1) s.zero_stage = 0;
  if (s.pp == 1) s.schedule = PipelineOrder::kOneForwardOneBackward;
  s.zero_ranks = 0;
}

// A factor of one size goes to another; micro-batches follow so that their sizes stay.
void exchange_sizes(CallPlan& entry, RandomStream& random) {
  int Strategy::*const sizes[] = {&Strategy::dp, &Strategy::tp, &Strategy::pp, &Strategy::cp};
  int Strategy::*const from = sizes[random.below(4)];
  int Strategy::*const to = sizes[random.below(4)];
  const int factor = random.below(4) == 0 ? 4 : 2;
  Strategy& s = entry.strategy;
  if (from == to || s.*from % factor != 0) return;
  s.*from /= factor;
  s.*to *= factor;
  if (from == &Strategy::dp && random.below(2) == 0) s.micro_batches *= factor;
  if (to == &Strategy::dp && random.below(2) == 0 && s.micro_batches % factor == 0)
    s.micro_batches /= factor;
  tidy_sizes(s);
}

// Two more devices share the tokens of a sequence for two fewer of another size, or the reverse;
// each with micro-batches of as many sequences, and with as many micro-batches.
void add_context_edits(const ExecutionPlan& plan, size_t call, const PlanningProblem& problem,
                       std::vector<ExecutionPlan>& out) {
  for (int Strategy::*const other : {&Strategy::dp, &Strategy::tp, &Strategy::pp})
    for (const auto& [from, to] :
         {std::pair(other, &Strategy::cp), std::pair(&Strategy::cp, other)}) {
      if (plan.calls[call].strategy.*from % 2 != 0) continue;
      ExecutionPlan edited = plan;
      Strategy& s = edited.calls[call].strategy;
      s.*from /= 2, s.*to *= 2;
      tidy_sizes(s);
      keep_legal(problem, edited, out);
      if (other != &Strategy::dp || (from != other && s.micro_batches % 2 != 0)) continue;
      s.micro_batches = from == other ? s.micro_batches * 2 : s.micro_batches / 2;
      keep_legal(problem, std::move(edited), out);
    }
}

// A run of devices, dp as many as there are then.
void change_mesh(CallPlan& entry, const PlanningProblem& problem, RandomStream& random) {
  const int all = device_count(problem.cluster);
  Strategy& s = entry.strategy;
  const int part = s.tp * s.pp * s.cp;
  if (part < 1 || part > all) return;  // a field may be 0 between two changes
  const int count = part * (1 + static_cast<int>(random.below(static_cast<uint64_t>(all / part))));
  const auto first = static_cast<int>(random.below(static_cast<uint64_t>(all - count + 1)));
  entry.mesh = *contiguous_mesh(problem.cluster, first, count);
  s.dp = count / part;
  if (dense_copies(s) == 1) s.zero_stage = 0;
  s.zero_ranks = 0;
}

}  // namespace

std::vector<ExecutionPlan> single_edits(const ExecutionPlan& plan, const PlanningProblem& problem,
                                        const FurtherAxes& axes) {
  std::vector<ExecutionPlan> out;
  for (size_t c = 0; c < plan.calls.size(); ++c) {
    if (axes.context) add_context_edits(plan, c, problem, out);
    for (const StrategyField& field : plan_fields::strategy_fields()) {
      if (!is_edited(field) || is_order(field) || !is_allowed(field, axes)) continue;
      for (const int64_t value : values_of(field, plan.calls[c], problem)) {
        ExecutionPlan edited = plan;
        if (value < 0 || !field.set(edited.calls[c].strategy, value).ok()) continue;
        keep_legal(problem, std::move(edited), out);
      }
    }
  }
  for (const RoleSpec& spec : problem.graph.roles)
    for (const RoleEdit edit : kRoleEdits) {
      ExecutionPlan edited = plan;
      edit(entry_of(edited, spec.role));
      tidy(edited);
      if (!(edited == plan)) keep_legal(problem, std::move(edited), out);
    }
  return out;
}

ExecutionPlan random_edit(const ExecutionPlan& plan, const PlanningProblem& problem,
                          RandomStream& random) {
  for (int tried = 0; tried < kEditTries; ++tried) {
    ExecutionPlan edited = plan;
    const auto changes = 1 + random.below(kMostChanges);
    for (uint64_t i = 0; i < changes; ++i) {
      const auto kind = random.below(8);
      CallPlan& entry = edited.calls[random.below(edited.calls.size())];
      if (kind < 4) change_field(entry, problem, random);
      if (kind == 4) exchange_sizes(entry, random);
      if (kind == 5) change_mesh(entry, problem, random);
      if (kind > 5)
        kRoleEdits[random.below(4)](entry_of(edited, pick(problem.graph.roles, random).role));
    }
    tidy(edited);
    if (!(edited == plan) && validate(edited, problem).ok()) return edited;
  }
  return plan;
}

}  // namespace braid::inline search
