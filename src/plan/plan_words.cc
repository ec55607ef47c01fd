#include "plan/plan_words.h"

#include "base/text.h"
#include "plan/plan_text.h"

namespace braid::inline plan {
namespace {

using Words = std::vector<std::string>;

void add_pipeline(const Strategy& s, Words* out) {
  if (s.pp <= 1) return;
  std::string text = cat("the layers are in ", s.pp, " pipeline stages");
  if (s.interleave > 1) text += cat(" of ", s.interleave, " parts each");
  text += s.schedule == PipelineOrder::kAllForwardFirst ? ", all forwards first (GPipe)"
                                                        : ", forwards and backwards in turn (1F1B)";
  out->push_back(text);
}

void add_sharding(const Strategy& s, Words* out) {
  if (s.zero_stage == 0) return;
  const char* what = s.zero_stage == 1   ? "main weights and moments"
                     : s.zero_stage == 2 ? "gradients, main weights and moments"
                                         : "weights, gradients, main weights and moments";
  out->push_back(
      cat(what, " are shared out over ", zero_ranks(s), " devices (ZeRO-", s.zero_stage, ")"));
}

void add_batches(const Strategy& s, Words* out) {
  if (s.micro_tokens > 0)
    out->push_back(cat("micro-batches of at most ", s.micro_tokens, " tokens"));
  else if (s.micro_batches > 1)
    out->push_back(cat(s.micro_batches, " micro-batches"));
  if (s.recompute == Recompute::kFull)
    out->push_back("the backward computes activations again (gradient checkpointing)");
  if (s.recompute == Recompute::kSelective)
    out->push_back("the backward computes attention again (selective checkpointing)");
  if (s.kv_budget_tokens > 0)
    out->push_back(cat("a cache of ", s.kv_budget_tokens, " tokens for each copy"));
  if (s.max_concurrent > 0)
    out->push_back(cat("at most ", s.max_concurrent, " sequences at once for each copy"));
}

std::string call_words(const CallPlan& call) {
  const Strategy& s = call.strategy;
  Words parts;
  if (s.dp > 1) parts.push_back(cat(s.dp, " copies, each with its share of the samples"));
  if (s.tp > 1)
    parts.push_back(cat("each layer is split over ", s.tp, " devices (tensor parallel",
                        s.sequence_parallel ? ", sequence parallel)" : ")"));
  add_pipeline(s, &parts);
  if (s.cp > 1) parts.push_back(cat("sequences are split over ", s.cp, " devices"));
  if (s.ep > 1) parts.push_back(cat("experts are partitioned over ", s.ep, " devices"));
  add_sharding(s, &parts);
  add_batches(s, &parts);
  if (parts.empty()) parts.push_back("the whole model on each device");
  const bool one = s.dp * s.tp * s.pp * s.cp == 1;
  return cat(call.call, " on device", one ? " " : "s ", mesh_text(call.mesh), ": ",
             join(parts, "; "));
}

}  // namespace

std::vector<std::string> plan_words(const ExecutionPlan& plan) {
  Words out;
  for (const CallPlan& call : plan.calls) out.push_back(call_words(call));
  for (const RolePlan& role : plan.roles) {
    Words waits;
    if (role.weights == Residency::kHost) waits.push_back("weights");
    if (role.optimizer == Residency::kHost) waits.push_back("optimizer");
    if (!waits.empty())
      out.push_back(cat(join(waits, " and "), " of ", role.role.value,
                        " wait in host memory between their uses",
                        role.prefetch ? ", and come back beside the call before" : ""));
  }
  if (plan.fusion.train_schedules)
    out.push_back("the passes of two train calls are fused into one schedule");
  if (plan.fusion.migrate_below_samples != 0)
    out.push_back(cat("the generation is handed over when at most ", migration_text(plan.fusion),
                      " samples are left"));
  if (plan.fusion.train_beside_generation)
    out.push_back("the update begins with what has finished then");
  if (plan.fusion.predicted_lengths)
    out.push_back("samples are given to replicas by predicted lengths, the longest first");
  if (plan.fusion.train_beside_scoring > 0)
    out.push_back(cat("an update begins when the samples of ", plan.fusion.train_beside_scoring,
                      " of its mini-batches are scored, and the rest is beside it"));
  if (plan.fusion.sync_beside_training)
    out.push_back("the weights of the next generation come over behind its update");
  if (plan.staleness > 0)
    out.push_back(cat("rollouts may be ", plan.staleness, " steps older than the weights"));
  return out;
}

}  // namespace braid::inline plan
