#include "plan/plan_words.h"

#include <gtest/gtest.h>

#include "plan/plan_text.h"

namespace braid::inline plan {
namespace {

TEST(PlanWords, SayWhatEachCallDoesAndWhatWaitsOnTheHost) {
  ExecutionPlan plan;
  plan.devices = 4;
  CallPlan generate{"generate", *parse_mesh("0", nullptr), {}};
  CallPlan train{"update_actor", *parse_mesh("0-3", nullptr), {}};
  train.strategy.dp = 2;
  train.strategy.tp = 2;
  train.strategy.zero_stage = 1;
  train.strategy.micro_tokens = 512;
  plan.calls = {generate, train};
  RolePlan role;
  role.role = RoleId{"actor"};
  role.optimizer = Residency::kHost;
  plan.roles = {role};
  EXPECT_EQ(plan_words(plan),
            (std::vector<std::string>{
                "generate on device 0: the whole model on each device",
                "update_actor on devices 0-3: 2 copies, each with its share of the samples; each "
                "layer is split over 2 devices (tensor parallel); main weights and moments are "
                "shared out over 2 devices (ZeRO-1); micro-batches of at most 512 tokens",
                "optimizer of actor wait in host memory between their uses"}));
}

TEST(PlanWords, SayHowPipelinesRun) {
  ExecutionPlan plan;
  CallPlan train{"update_actor", *parse_mesh("0-1", nullptr), {}};
  train.strategy.pp = 2;
  train.strategy.micro_batches = 4;
  train.strategy.recompute = Recompute::kFull;
  plan.calls = {train};
  plan.fusion.train_schedules = true;
  EXPECT_EQ(plan_words(plan),
            (std::vector<std::string>{
                "update_actor on devices 0-1: the layers are in 2 pipeline stages, forwards and "
                "backwards in turn (1F1B); 4 micro-batches; the backward computes activations "
                "again (gradient checkpointing)",
                "the passes of two train calls are fused into one schedule"}));
}

}  // namespace
}  // namespace braid::inline plan
