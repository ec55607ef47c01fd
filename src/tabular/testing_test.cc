#include "tabular/testing.h"

#include "tabular/price.h"

namespace braid::tabular {
namespace {

struct CallShape {
  const char* name;
  const char* role;
  const char* kind;
  std::vector<std::string> depends_on;
};

const std::vector<std::vector<CallShape>>& shapes() {
  static const std::vector<std::vector<CallShape>> kAll = {
      {{"gen", "actor", "generate", {}},
       {"rew", "reward", "infer", {"gen"}},
       {"cinf", "critic", "infer", {"gen"}},
       {"atrain", "actor", "train_step", {"gen", "rew", "cinf"}},
       {"ctrain", "critic", "train_step", {"gen", "rew", "cinf"}}},
      {{"gen", "actor", "generate", {}},
       {"rew", "reward", "infer", {"gen"}},
       {"ref", "ref", "infer", {"gen"}},
       {"atrain", "actor", "train_step", {"rew", "ref"}}},
      {{"greedy", "actor", "generate", {}},
       {"gen", "actor", "generate", {}},
       {"rew", "reward", "infer", {"gen", "greedy"}},
       {"atrain", "actor", "train_step", {"gen", "rew"}}},
      {{"gen", "actor", "generate", {}},
       {"r1", "reward", "infer", {"gen"}},
       {"r2", "cost", "infer", {"gen"}},
       {"r3", "ref", "infer", {"gen"}},
       {"r4", "judge", "infer", {"r1"}},
       {"atrain", "actor", "train_step", {"r2", "r3", "r4"}}},
      {{"a", "actor", "generate", {}},
       {"b", "ref", "infer", {"a"}},
       {"c", "reward", "infer", {"b"}},
       {"d", "critic", "infer", {"c"}}},
      {{"ctrain", "critic", "train_step", {"cinf", "rew"}},
       {"gen", "actor", "generate", {}},
       {"cinf", "critic", "infer", {"gen"}},
       {"rew", "reward", "infer", {"gen"}},
       {"atrain", "actor", "train_step", {"rew"}}},
      {{"ref", "ref", "infer", {}},
       {"rew", "reward", "infer", {}},
       {"sft", "actor", "train_step", {"ref"}},
       {"ctrain", "critic", "train_step", {"rew"}}},
      {{"gen", "actor", "generate", {}},
       {"cinf", "critic", "infer", {"gen"}},
       {"ctrain", "critic", "train_step", {"cinf"}},
       {"score", "judge", "infer", {"ctrain"}}}};
  return kAll;
}

OrderedJson random_option(int num_devices, RandomStream& random) {
  const int devices = 1 << random.below(num_devices >= 4 ? 3 : 2);
  const int first = static_cast<int>(random.below(uint64_t(num_devices - devices + 1)));
  const int tp = devices > 1 && random.below(2) == 1 ? 2 : 1;
  const int pp = devices / tp > 1 && random.below(2) == 1 ? 2 : 1;
  const auto fixed = static_cast<int64_t>(random.below(12));
  return {{"first_device", first},
          {"num_devices", devices},
          {"pp", pp},
          {"tp", tp},
          {"dp", devices / tp / pp},
          {"time_us", 1 + random.below(6) * 4 / uint64_t(devices) + random.below(3)},
          {"peak_bytes", fixed + static_cast<int64_t>(random.below(12))},
          {"static_bytes", fixed}};
}

// One row in five is absent, and rows between equal layouts have a time that must not be used.
OrderedJson random_moves(RandomStream& random) {
  OrderedJson rows = OrderedJson::array();
  const std::vector<std::vector<int>> layouts = {{1, 1, 1}, {1, 1, 2}, {1, 2, 1}, {2, 1, 1},
                                                 {1, 1, 4}, {1, 2, 2}, {2, 1, 2}, {2, 2, 1}};
  for (const auto& src : layouts)
    for (const auto& dst : layouts)
      if (random.below(5) > 0)
        rows.push_back(
            {{"model_size", 7}, {"src", src}, {"dst", dst}, {"time_us", random.below(4)}});
  return rows;
}

}  // namespace

OrderedJson random_problem_json(const RandomProblem& wanted) {
  RandomStream random(wanted.seed, static_cast<uint64_t>(wanted.shape));
  OrderedJson calls = OrderedJson::array();
  for (const CallShape& call : shapes()[wanted.shape]) {
    OrderedJson options = OrderedJson::array();
    for (int i = 0; i < wanted.options; ++i)
      options.push_back(random_option(wanted.devices, random));
    calls.push_back({{"name", call.name},
                     {"role", call.role},
                     {"kind", call.kind},
                     {"model_size", 7},
                     {"depends_on", call.depends_on},
                     {"options", options}});
  }
  return {{"name", "random"},
          {"num_devices", wanted.devices},
          {"device_memory_bytes", wanted.capacity},
          {"iterations", 3},
          {"calls", calls},
          {"realloc_us", random_moves(random)}};
}

Problem random_problem(const RandomProblem& wanted) {
  Result<Problem> problem = parse_problem(random_problem_json(wanted).dump(), "random");
  BRAID_CHECK(problem.ok(), problem.status().message());
  return std::move(problem).value();
}

Plan random_plan(const Problem& problem, RandomStream& random) {
  Plan plan;
  for (const Call& call : problem.calls)
    plan.push_back(static_cast<int>(random.below(call.options.size())));
  return plan;
}

std::optional<int64_t> enumerate_optimum(const Problem& problem) {
  std::optional<int64_t> best_us;
  Plan plan(problem.calls.size(), 0);
  for (size_t call = 0; call < plan.size();) {
    const Price price = price_plan(problem, plan);
    if (price.feasible && (!best_us || price.cost_us < *best_us)) best_us = price.cost_us;
    for (call = 0; call < plan.size(); ++call) {
      if (++plan[call] < static_cast<int>(problem.calls[call].options.size())) break;
      plan[call] = 0;
    }
  }
  return best_us;
}

}  // namespace braid::tabular
