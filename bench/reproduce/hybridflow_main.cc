// Prints what HybridFlow published about placements and transitions beside what Braid says. usage:
// reproduce_hybridflow [work units of each search = 4] [fewest GPUs of the placement tables = 0]
#include <cstdio>
#include <cstdlib>

#include "base/text.h"
#include "hybridflow.h"

namespace braid::reproduce {
namespace {

struct PlacementRow {
  const char* actor;
  const char* critic;
  int gpus;
  const char* published;  // the best placement
};

constexpr PlacementRow kPlacementRows[] = {
    {"llama2-7b", "llama2-7b", 16, "colocate"},
    {"llama2-7b", "llama2-7b", 32, "colocate"},
    {"llama2-7b", "llama2-7b", 64, "colocate"},
    {"llama2-7b", "llama2-7b", 96, "not stated"},
    {"llama2-7b", "llama2-7b", 128, "not stated"},
    {"llama2-13b", "llama2-13b", 16, "colocate"},
    {"llama2-13b", "llama2-13b", 32, "colocate"},
    {"llama2-13b", "llama2-13b", 64, "colocate"},
    {"llama2-13b", "llama2-13b", 96, "split"},
    {"llama2-13b", "llama2-13b", 128, "standalone (64 + 32 + 16 + 16)"},
    {"codellama-34b", "codellama-34b", 32, "colocate"},
    {"codellama-34b", "codellama-34b", 64, "colocate"},
    {"codellama-34b", "codellama-34b", 96, "split"},
    {"codellama-34b", "codellama-34b", 128, "split"},
    {"llama2-13b", "llama2-70b", 64, "colocate (+44.8 % on average up to here)"},
    {"llama2-13b", "llama2-70b", 96, "split"},
    {"llama2-13b", "llama2-70b", 128, "critic apart (64 + 64)"},
};

std::string placed_cell(const PlacedStep& placed) {
  if (!placed.step.ok()) return "does not fit";
  const bool divided = placed.allocation.find('+') != std::string::npos;
  return number(placed.step, 1) + (divided ? cat(" (", placed.allocation, ")") : "");
}

void placement_row(const PlacementRow& row, PlanLimits limits, bool published_layouts) {
  if (published_layouts) limits.allowed = in_published_layouts(row.actor, row.critic);
  const PlanningProblem problem =
      *make_experiment(hybridflow_experiment(row.actor, row.critic, row.gpus));
  std::vector<std::string> cells = {cat(row.actor, " + ", row.critic), cat(row.gpus),
                                    row.published};
  const char* best = "-";
  double best_s = 0;
  for (const Placement& placement : hybridflow_placements()) {
    const PlacedStep placed = best_allocation(problem, placement, limits);
    cells.push_back(placed_cell(placed));
    if (!placed.step.ok() || (best_s > 0 && placed.step->verdict.step_s >= best_s)) continue;
    best = placement.name, best_s = placed.step->verdict.step_s;
  }
  cells.push_back(best);
  PlanLimits free = limits;
  free.units = 8 * limits.units;
  cells.push_back(number(best_plan(problem, committed_calibration(), free), 1));
  print_row(cells);
}

void placement_table(const char* title, const PlanLimits& limits, bool published_layouts,
                     int fewest_gpus) {
  std::printf("\nStep seconds by placement (devices of the sets of the best allocation), %s\n\n",
              title);
  std::vector<std::string> header = {"actor + critic", "GPUs", "best, published"};
  for (const Placement& placement : hybridflow_placements()) header.push_back(placement.name);
  header.insert(header.end(), {"best, ours", "any plan"});
  print_header(header);
  for (const PlacementRow& row : kPlacementRows)
    if (row.gpus >= fewest_gpus) placement_row(row, limits, published_layouts);
}

struct MoveRow {
  Transition transition;
  const char* published;
};

void transition_table() {
  std::printf(
      "\nTransition from training (p-t-d) to generation, shares of the model per device\n\n");
  print_header({"model", "p-t-d", "generation tp", "DS-Chat", "HybridFlow-V", "HybridFlow",
                "Braid, neighbours", "Braid, strided", "Braid holds",
                "seconds published (HybridFlow, by eye)", "seconds ours, neighbours", "strided"});
  const MoveRow rows[] = {
      {{"llama2-7b", 8, 1, 2, 1}, "-"},     {{"llama2-7b", 8, 1, 2, 2}, "-"},
      {{"llama2-7b", 8, 1, 2, 4}, "-"},     {{"llama2-13b", 8, 1, 2, 4}, "-"},
      {{"llama2-7b", 8, 1, 16, 2}, "3.5"},  {{"llama2-13b", 8, 1, 16, 2}, "3.5"},
      {{"codellama-34b", 8, 2, 8, 4}, "5"}, {{"llama2-70b", 8, 4, 4, 8}, "9"}};
  for (const MoveRow& row : rows) {
    Transition t = row.transition;
    const PlanningProblem problem =
        *make_experiment(hybridflow_experiment(t.model, t.model, t.tp * t.pp * t.dp));
    const TransitionVolume v = transition_volume(t, problem.cluster);
    const double plain_s = transition_time(problem, t)->move_s;
    t.strided = true;
    const TransitionVolume strided = transition_volume(t, problem.cluster);
    const double strided_s = transition_time(problem, t)->move_s;
    print_row({t.model, cat(t.pp, "-", t.tp, "-", t.dp), cat(t.gen_tp), number(v.deepspeed, 3),
               number(v.gathered, 3), number(v.hybridflow, 3), number(v.received, 3),
               number(strided.received, 3), number(v.resident, 3), row.published,
               number(plain_s, 2), number(strided_s, 2)});
  }
}

void generation_table() {
  std::printf(
      "\nGeneration on 16 GPUs by tensor parallelism, training 1-8-2, everything "
      "colocated\n\n");
  print_header({"model", "generation tp", "seconds published (by eye)", "seconds ours"});
  const MoveRow rows[] = {{{"llama2-7b", 8, 1, 2, 1}, "-"},   {{"llama2-7b", 8, 1, 2, 2}, "33"},
                          {{"llama2-7b", 8, 1, 2, 4}, "-"},   {{"llama2-7b", 8, 1, 2, 8}, "86"},
                          {{"llama2-13b", 8, 1, 2, 2}, "-"},  {{"llama2-13b", 8, 1, 2, 4}, "145"},
                          {{"llama2-13b", 8, 1, 2, 8}, "220"}};
  for (const MoveRow& row : rows) {
    const Transition& t = row.transition;
    const PlanningProblem problem = *make_experiment(hybridflow_experiment(t.model, t.model, 16));
    print_row({t.model, cat(t.gen_tp), row.published,
               number(transition_time(problem, t)->generate_s, 1)});
  }
}

}  // namespace
}  // namespace braid::reproduce

int main(int argc, char** argv) {
  using namespace braid::reproduce;
  transition_table();
  generation_table();
  PlanLimits limits;
  limits.units = argc > 1 ? std::atoll(argv[1]) : 4;
  limits.judged = 4;
  const int fewest_gpus = argc > 2 ? std::atoi(argv[2]) : 0;
  placement_table("training and inference in the paper's layouts", limits, true, fewest_gpus);
  placement_table("any layout", limits, false, fewest_gpus);
  return 0;
}
