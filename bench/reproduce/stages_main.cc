// Prints RLHFuse's end-to-end setting: generation with scoring and training, each without and with
// its fusion, and plans as other systems make them. usage: reproduce_stages [limit of
// responses; 0: all three] [units of ReaL's search; 0: no other systems]
#include <cstdio>
#include <cstdlib>

#include "base/text.h"
#include "stages.h"

namespace braid::reproduce {
namespace {

// What a fusion gains: "-" where something does not fit.
std::string gain(double without_s, double with_s) { return number(without_s / with_s, 2); }

void print_row_of(const FusedRow& row, const StagesInputs& inputs) {
  const auto r = run_stages(row, inputs);
  if (!r.ok()) {
    std::printf("%s + %s: %s\n", row.actor.c_str(), row.critic.c_str(),
                r.status().message().c_str());
    return;
  }
  print_row({cat(row.actor, " + ", row.critic), cat(row.response_tokens),
             cat(r->generate_tp, ", ", r->score_tp), number(r->base.generate_s, 2),
             number(r->base.rollout_s - r->base.generate_s, 2), number(r->handed.rollout_s, 2),
             cat(r->plan.fusion.migrate_below_samples),
             gain(r->base.rollout_s, r->handed.rollout_s), number(r->base.train_s, 2),
             number(r->fused.train_s, 2), gain(r->base.train_s, r->fused.train_s),
             number(r->base.step_s, 2), number(r->both.step_s, 2),
             gain(r->base.step_s, r->both.step_s), number(r->infer_factor, 1)});
}

void print_rows(const char* what, const std::vector<FusedRow>& rows, const StagesInputs& inputs) {
  std::printf("\n%s\n\n", what);
  print_header({"actor + critic", "limit", "tp of generation, scoring", "generation s",
                "scoring after it s", "both handed over s", "at samples", "gain (1.2-1.6)",
                "training s", "fused s", "gain (1.2-1.3)", "step s", "with both s",
                "gain (1.2-1.4)", "scoring stretched"});
  for (const FusedRow& row : rows) print_row_of(row, inputs);
}

// Beside plans as other systems make them.
void print_others(const std::vector<FusedRow>& rows, const StagesInputs& inputs, int64_t units) {
  std::printf("\nother systems' plans: step seconds, and over that with both fusions\n\n");
  print_header({"actor + critic", "limit", "both s", "DeepSpeed-Chat s, mini-batch 64",
                "mini-batch 256", "ratio (2.5-3.7)", "ReaL s", "ratio (1.4-2.4)"});
  for (const FusedRow& row : rows) {
    const auto ours = run_stages(row, inputs);
    const auto small = deepspeed_step(row, inputs, kPublishedMiniBatch);
    const auto large = deepspeed_step(row, inputs, 256);
    const auto real = real_step(row, inputs, {.units = units, .judged = 4});
    if (!ours.ok()) continue;
    const double both_s = ours->both.step_s;
    print_row({cat(row.actor, " + ", row.critic), cat(row.response_tokens), number(both_s, 2),
               small.ok() ? number(small, 2) : "cannot run", number(large, 2),
               large.ok() ? gain(large->verdict.step_s, both_s) : "-", number(real, 2),
               real.ok() ? gain(real->verdict.step_s, both_s) : "-"});
  }
}

}  // namespace
}  // namespace braid::reproduce

int main(int argc, char** argv) {
  using namespace braid::reproduce;
  const int64_t limit = argc > 1 ? std::atol(argv[1]) : 0;
  const int64_t units = argc > 2 ? std::atol(argv[2]) : 0;
  std::vector<FusedRow> rows;
  for (const FusedRow& row : fused_rows())
    if (limit == 0 || row.response_tokens == limit) rows.push_back(row);
  print_rows("lengths whose 99.9th percentile is ten times the median, and the limit", rows,
             tailed_lengths());
  StagesInputs stretched = tailed_lengths();
  stretched.scoring_share = 0.25;
  stretched.constants = {{"rl_step_host_s", 1e-3}};
  print_rows("the same with scoring stretched to a quarter of the generation, without host time",
             rows, stretched);
  if (units > 0) print_others(rows, tailed_lengths(), units);
}
