// Prints what each part of the plan space adds, and the best plans of single systems beside ours.
// usage: reproduce_ablation [points = all] [perturbed points = 6] [first point = 0]
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "ablation.h"
#include "base/text.h"

namespace braid::reproduce {
namespace {

constexpr double kWorthIt = 1.02;  // gains below are listed
constexpr double kWithin = 1.03;   // that a plan may take longer under other prices
constexpr uint64_t kDraws = 2;     // of other prices

struct AblationRow {
  AblationPoint point;
  AblationResult result;
  double gain() const { return result.best_system_s() / result.ours.verdict.step_s; }
};

std::vector<std::string> names_of(const AblationPoint& point) {
  return {point.algorithm, point.model, cat(point.gpus), point.long_responses ? "long" : "short"};
}

void print_steps(const std::vector<AblationRow>& rows) {
  std::printf("\nSeconds of a step\n\n");
  std::vector<std::string> header = {"algorithm", "model", "GPUs", "responses"};
  header.insert(header.end(), ablation_steps().begin(), ablation_steps().end());
  print_header(header);
  for (const AblationRow& row : rows) {
    std::vector<std::string> cells = names_of(row.point);
    for (const double seconds : row.result.steps_s) cells.push_back(number(seconds, 2));
    print_row(cells);
  }
}

// Seconds of a system's best plan over ours, and of its published one.
void print_systems(const std::vector<AblationRow>& rows) {
  std::printf(
      "\nStep of the best plan of a system's space over ours, and of its published plan\n\n");
  std::vector<std::string> header = {"algorithm", "model", "GPUs", "responses", "ours s"};
  for (const SystemResult& system : rows.front().result.systems) {
    header.push_back(system.name);
    if (system.name != "rlhfuse") header.push_back(cat(system.name, ", published"));
  }
  header.push_back("gain");
  print_header(header);
  for (const AblationRow& row : rows) {
    const double ours_s = row.result.ours.verdict.step_s;
    std::vector<std::string> cells = names_of(row.point);
    cells.push_back(number(ours_s, 2));
    for (const SystemResult& system : row.result.systems) {
      cells.push_back(system.best ? number(system.best->verdict.step_s / ours_s, 2) : "no plan");
      if (system.name == "rlhfuse") continue;
      cells.push_back(!system.published        ? "none"
                      : system.published->fits ? number(system.published->step_s / ours_s, 2)
                                               : "no memory");
    }
    cells.push_back(number(row.gain(), 3));
    print_row(cells);
  }
}

void print_spread(const std::string& name, std::vector<double> values) {
  values.erase(std::remove_if(values.begin(), values.end(), [](double v) { return !(v < 1e9); }),
               values.end());
  std::sort(values.begin(), values.end());
  if (values.empty()) return;
  const auto at = [&](double share) {
    return number(values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))], 3);
  };
  const auto worth =
      std::count_if(values.begin(), values.end(), [](double value) { return value >= kWorthIt; });
  print_row({name, cat(values.size()), at(0), at(0.25), at(0.5), at(0.75), at(1), cat(worth)});
}

void print_gains(const std::vector<AblationRow>& rows) {
  std::printf(
      "\nHow many times as fast: each part over the step without, and ours over others\n\n");
  print_header({"", "points", "least", "lower quarter", "median", "upper quarter", "most",
                cat("at least ", number(kWorthIt, 2))});
  for (size_t step = 1; step < ablation_steps().size(); ++step) {
    std::vector<double> values;
    for (const AblationRow& row : rows)
      values.push_back(row.result.steps_s[step - 1] / row.result.steps_s[step]);
    print_spread(ablation_steps()[step], values);
  }
  std::vector<double> all;
  for (const AblationRow& row : rows) all.push_back(row.gain());
  print_spread("ours over the best system", all);
  for (size_t i = 0; i < rows.front().result.systems.size(); ++i) {
    std::vector<double> values;
    for (const AblationRow& row : rows)
      if (const auto& best = row.result.systems[i].best; best)
        values.push_back(best->verdict.step_s / row.result.ours.verdict.step_s);
    print_spread(cat("ours over ", rows.front().result.systems[i].name), values);
  }
  std::printf("\nBelow %s of the best system:\n\n", number(kWorthIt, 2).c_str());
  for (const AblationRow& row : rows)
    if (row.gain() < kWorthIt)
      std::printf("* %s: %s\n", words_of(row.point).c_str(), number(row.gain(), 3).c_str());
}

int print_regrets(const std::vector<AblationRow>& rows, size_t count, const SearchBudget& budget) {
  if (count == 0) return 0;
  std::printf("\nOur plan under other prices, over the best restricted plan found with these\n\n");
  print_header(
      {"algorithm", "model", "GPUs", "responses", "draw", "our step / the best's", "at most 1.03"});
  // Spread over all points, so that sizes and numbers of GPUs differ.
  const size_t few = std::min(count, rows.size());
  for (size_t k = 0; k < few; ++k)
    for (uint64_t draw = 1; draw <= kDraws; ++draw) {
      const size_t i = k * rows.size() / few;
      const auto problem = ablation_problem(rows[i].point);
      const auto ratio = regret(*problem, rows[i].result.ours.plan,
                                perturbed(committed_calibration(), draw), budget);
      if (!ratio.ok()) return std::fprintf(stderr, "%s\n", ratio.status().message().c_str()), 1;
      std::vector<std::string> cells = names_of(rows[i].point);
      cells.insert(cells.end(), {cat(draw), std::isfinite(*ratio) ? number(*ratio, 3) : "no memory",
                                 *ratio <= kWithin ? "yes" : "no"});
      print_row(cells);
    }
  return 0;
}

Result<std::vector<AblationRow>> run_points(size_t first, size_t count,
                                            const SearchBudget& budget) {
  const auto points = ablation_points();
  std::vector<AblationRow> rows;
  for (size_t i = first; i < std::min(points.size(), first + count); ++i) {
    const double begin_s = processor_s();
    BRAID_ASSIGN(const PlanningProblem problem, ablation_problem(points[i]));
    BRAID_ASSIGN(AblationResult result,
                 run_ablation(problem, committed_calibration(), budget, processor_s));
    std::fprintf(stderr, "%s: %s s of a processor, longest search %s (%s)\n",
                 words_of(points[i]).c_str(), number(processor_s() - begin_s, 1).c_str(),
                 number(result.longest_search_s, 1).c_str(), result.longest_search.c_str());
    rows.push_back({points[i], std::move(result)});
  }
  return rows;
}

}  // namespace
}  // namespace braid::reproduce

int main(int argc, char** argv) {
  using namespace braid::reproduce;
  const auto argument = [&](int i, size_t otherwise) {
    return argc > i ? static_cast<size_t>(std::atoll(argv[i])) : otherwise;
  };
  const SearchBudget budget;
  const auto rows = run_points(argument(3, 0), argument(1, ablation_points().size()), budget);
  if (!rows.ok()) return std::fprintf(stderr, "%s\n", rows.status().message().c_str()), 1;
  print_steps(*rows);
  print_systems(*rows);
  print_gains(*rows);
  return print_regrets(*rows, argument(2, 6), budget);
}
