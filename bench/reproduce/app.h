// APP (arXiv 2312.11819): its setting, LLaMA of 7B to 65B with adapters of rank 128, prompts and
// answers of 256 tokens, beside co-located models under ZeRO-3 whose training engine generates.
// Published: up to 11 times as fast.
#pragma once

#include "restrictions.h"

namespace braid::reproduce {

struct AppRow {
  const char* model;
  int gpus;
  double nic_gbps_per_gpu;      // not published
  int64_t samples_per_gpu = 8;  // not published
};
std::vector<AppRow> app_rows();
Result<PlanningProblem> app_problem(const AppRow& row);

struct AppTimes {
  // Co-located under ZeRO-3: a step, and of it the generation, in which every token of an answer
  // gathers all weights once.
  double gathered_s = 0, gathered_generate_s = 0;
  bool gathered_fits = true;
  double hybrid_s = 0;  // the same plan with weights that are whole while it generates
  Result<WholeFound> app = invalid_input("not searched"), ours = invalid_input("not searched");
};
Result<AppTimes> run_app(const AppRow& row, const Calibration& calibration,
                         const SearchBudget& budget);

}  // namespace braid::reproduce
