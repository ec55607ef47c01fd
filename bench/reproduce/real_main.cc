// Prints what ReaL published beside what Braid's search and simulator say. usage: reproduce_real
// [work units of each search = 32]
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "base/text.h"
#include "foreign/baselines/baselines.h"
#include "real.h"
#include "search/simulate.h"

namespace braid::reproduce {
namespace {

std::string percent(double share) {
  return std::isfinite(share) ? number(100 * share, 0) + " %" : "-";
}

std::string sizes(const std::string& actor, const std::string& critic) {
  return cat(actor, " + ", critic);
}

// Gains to average, of one response length or weighted.
struct Gains {
  double published = 0, ours = 0, restricted = 0, weight = 0;
  void add(const Gains& one, double by) {
    published += by * one.published, ours += by * one.ours, restricted += by * one.restricted;
    weight += by;
  }
  void print(const std::string& name) const {
    print_row({name, "", "", "", "", "", "", "", percent(published / weight),
               percent(ours / weight), percent(restricted / weight)});
  }
};

void gain_table(const char* title, const Calibration& calibration, int64_t units) {
  std::printf("\n%s\n\n", title);
  print_header({"actor + critic", "GPUs", "response", "heuristic s, published", "ours",
                "searched s, published", "ours", "ours, ReaL's options", "gain, published", "ours",
                "ours, ReaL's options"});
  std::map<int64_t, Gains> by_length;
  Gains by_gpus;
  for (const RealRow& row : real_rows()) {
    if (row.heuristic_s == 0) continue;
    const PlanningProblem problem = *make_experiment(real_experiment(row));
    const RealResult result = run_real(problem, calibration, {.units = units});
    const RealResult restricted =
        run_real(problem, calibration, {.units = units, .allowed = in_published_space});
    const Gains gains{row.heuristic_s / row.searched_s - 1, result.gain(), restricted.gain()};
    print_row({sizes(row.actor, row.critic), cat(row.gpus), cat(row.response_tokens),
               number(row.heuristic_s, 1), number(result.heuristic, 1), number(row.searched_s, 1),
               number(result.searched, 1), number(restricted.searched, 1), percent(gains.published),
               percent(gains.ours), percent(gains.restricted)});
    if (!std::isfinite(gains.ours) || !std::isfinite(gains.restricted)) continue;
    by_length[row.response_tokens].add(gains, 1);
    by_gpus.add(gains, row.gpus);
  }
  for (const auto& [length, gains] : by_length) gains.print(cat("mean, ", length));
  by_gpus.print("mean weighted by GPUs");
}

std::string ratio(const Result<ExecutionPlan>& plan, const PlanningProblem& problem,
                  const Calibration& calibration, double best_s) {
  if (!plan.ok()) return "none";
  const auto verdict = simulate_plan(*plan, problem, calibration, {});
  if (!verdict.ok()) return "none";
  return number(verdict->step_s / best_s, 2) + (verdict->fits ? "" : " (no memory)");
}

std::string published_ratio(double other_s, double best_s) {
  return other_s > 0 ? number(other_s / best_s, 2) : "-";
}

void systems_table(int64_t units) {
  std::printf("\nStep time of other systems' placements over the searched plan's\n\n");
  print_header({"actor + critic", "GPUs", "response", "DeepSpeed-Chat, published", "ours",
                "OpenRLHF, published", "ours", "NeMo-Aligner, ours", "verl, ours"});
  const Calibration& calibration = committed_calibration();
  for (const RealRow& row : real_rows()) {
    if (row.openrlhf_s == 0) continue;
    const PlanningProblem problem = *make_experiment(real_experiment(row));
    const auto searched = best_plan(problem, calibration, {.units = units});
    if (!searched.ok()) continue;
    const double best_s = searched->verdict.step_s;
    print_row({sizes(row.actor, row.critic), cat(row.gpus), cat(row.response_tokens),
               published_ratio(row.deepspeed_s, row.searched_s),
               ratio(deepspeed_chat_plan(problem), problem, calibration, best_s),
               published_ratio(row.openrlhf_s, row.searched_s),
               ratio(openrlhf_plan(problem), problem, calibration, best_s),
               ratio(nemo_aligner_plan(problem), problem, calibration, best_s),
               ratio(verl_hybrid_plan(problem), problem, calibration, best_s)});
  }
}

std::string seconds_or_memory(const Result<PlannedStep>& step) {
  return step.ok() && !step->verdict.fits ? "no memory" : number(step, 1);
}

void sweep_row(const Experiment& experiment, int64_t context, int64_t units) {
  const PlanningProblem problem = *make_experiment(experiment);
  const RealResult result = run_real(problem, committed_calibration(), {.units = units});
  const RealResult launched = run_real(problem, real_engine(), {.units = units});
  print_row({sizes(experiment.actor, experiment.critic), experiment.gpu,
             cat(experiment.nodes * experiment.devices_per_node), cat(context),
             cat(experiment.prompts), seconds_or_memory(result.heuristic),
             number(result.searched, 1), percent(result.gain()), percent(launched.gain())});
}

const std::vector<std::string>& sweep_header() {
  static const std::vector<std::string> header = {
      "actor + critic", "GPU",     "GPUs",
      "context",        "prompts", "heuristic s",
      "searched s",     "gain",    "gain, ReaL's constants"};
  return header;
}

// The second version's long contexts: its batch sizes and layouts were not available, so the tokens
// of a batch are kept at 2^20 on the H100 that its talk names.
void context_table(int64_t units) {
  constexpr int64_t kTokens = 1 << 20, kPrompt = 1024;
  std::printf("\nGain by context, prompts of 1024 tokens, 2^20 tokens per step, H100\n\n");
  print_header(sweep_header());
  struct Size {
    const char* actor;
    int nodes;
  };
  for (const Size& size : {Size{"llama2-7b", 1}, Size{"llama2-13b", 2}, Size{"codellama-34b", 4},
                           Size{"llama2-70b", 8}})
    for (const int64_t context : {2048, 4096, 8192}) {
      Experiment experiment;
      experiment.actor = size.actor;
      experiment.gpu = "h100-80g";
      experiment.nodes = size.nodes;
      experiment.prompts = kTokens / context;
      experiment.prompt_tokens = kPrompt;
      experiment.response = fixed_length(context - kPrompt);
      sweep_row(experiment, context, units);
    }
}

void cluster_table(int64_t units) {
  std::printf("\nGain by cluster size, responses of 384 tokens, 256 prompts\n\n");
  print_header(sweep_header());
  for (const char* actor : {"llama2-7b", "llama2-13b", "codellama-34b", "llama2-70b"})
    for (const int nodes : {1, 2, 4, 8, 16}) {
      Experiment experiment;
      experiment.actor = actor;
      experiment.nodes = nodes;
      experiment.response = fixed_length(384);
      sweep_row(experiment, 512, units);
    }
}

}  // namespace
}  // namespace braid::reproduce

int main(int argc, char** argv) {
  using namespace braid::reproduce;
  const int64_t units = argc > 1 ? std::atoll(argv[1]) : 32;
  gain_table("Searched plan over the symmetric heuristic, default engine",
             braid::committed_calibration(), units);
  gain_table("The same with the constants that the published 7B runs imply", real_engine(), units);
  systems_table(units);
  context_table(units);
  cluster_table(units);
  return 0;
}
