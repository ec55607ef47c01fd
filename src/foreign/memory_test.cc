// Shares of device memory of other frameworks' engines against tokens of cache.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/text.h"
#include "foreign/foreign.h"
#include "plan/validate.h"

namespace braid::inline foreign {
namespace {

Result<ImportedPlan> import_verl_with(int tp, const char* share) {
  BRAID_ASSIGN(const Framework* verl, find_framework("verl"));
  const ForeignKeys keys = {{"actor_rollout_ref.model.path", "Qwen/Qwen2.5-3B-Instruct"},
                            {"algorithm.adv_estimator", "grpo"},
                            {"data.train_batch_size", "64"},
                            {"data.max_prompt_length", "512"},
                            {"data.max_response_length", "1024"},
                            {"actor_rollout_ref.actor.ppo_mini_batch_size", "64"},
                            {"actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu", "1"},
                            {"actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu", "1"},
                            {"actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu", "1"},
                            {"actor_rollout_ref.rollout.gpu_memory_utilization", share},
                            {"actor_rollout_ref.rollout.tensor_model_parallel_size", cat(tp)},
                            {"trainer.nnodes", "1"},
                            {"trainer.n_gpus_per_node", "8"}};
  ImportOptions options;
  options.gpu = "a100-80g";
  return verl->import_keys(keys, options);
}

// Two key-value heads: more than two ranks hold each of them more than once.
TEST(ServingMemory, TheCacheIsCutIntoItsHeads) {
  for (const int tp : {1, 2, 4, 8}) {
    const auto imported = import_verl_with(tp, "0.6");
    ASSERT_TRUE(imported.ok()) << imported.status().message();
    const ModelSize& size = imported->problem.models.at("actor").spec;
    ASSERT_EQ(size.kv_heads, 2);
    const double room =
        0.6 * find_gpu("a100-80g")->hbm_bytes - 2.0 * static_cast<double>(total_params(size)) / tp;
    const auto tokens =
        static_cast<double>(call_plan(imported->plan, "generate").strategy.kv_budget_tokens);
    EXPECT_NEAR(tokens * kv_bytes_per_token(size, 2) / std::min(tp, 2) / room, 1, 1e-3) << tp;
    EXPECT_TRUE(imported->problem.reserves_cache);
  }
}

TEST(ServingMemory, ExportInvertsTheImport) {
  const Framework* verl = *find_framework("verl");
  for (const int tp : {1, 4, 8}) {
    const auto imported = import_verl_with(tp, "0.62");
    ASSERT_TRUE(imported.ok()) << imported.status().message();
    const auto exported = verl->export_plan(imported->problem, imported->plan);
    const ForeignKeys keys(exported.keys.begin(), exported.keys.end());
    EXPECT_EQ(keys.at("actor_rollout_ref.rollout.gpu_memory_utilization"), "0.62") << tp;
  }
}

}  // namespace
}  // namespace braid::inline foreign
