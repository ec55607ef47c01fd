// What ranks write of a role is all of it, once, and what they read of it is what they hold.
#include "weights/held_slices.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/rand_like.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/text.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/save_share.h"
#include "comm/rank_testing.h"
#include "host/file.h"
#include "nn/decoder.h"
#include "nn/test_models.h"
#include "train/sharded_optimizer.h"

namespace braid::inline weights {
namespace {

// A part of a model with uninitialized weights, and AdamW of it.
ModelInstance part_of(const ModelSpec& spec, const ModelOptions& options) {
  ModelInstance out;
  out.model = std::make_unique<Decoder>(spec, options);
  out.optimizer = std::make_unique<AdamW>(out.model->trainable_parameters(), OptimizerConfig());
  return out;
}

// Random numbers in all of its weights and moments.
CheckpointState filled(const ModelInstance& role) {
  const at::NoGradGuard no_grad;
  const RoleSlices slices = held_slices(role);
  for (const auto* list : {&slices.weights, &slices.moments})
    for (const SavedSlice& slice : *list) {
      at::Tensor values = slice.values;
      values.copy_(at::rand_like(values));
    }
  CheckpointState out;
  out.tensors = {{"weights", slices.weights}, {"moments", slices.moments}};
  return out;
}

void read_into(const ModelInstance& role, CheckpointReader& saved) {
  const RoleSlices held = held_slices(role);
  EXPECT_EQ(saved.read("weights", held.weights), Status());
  EXPECT_EQ(saved.read("moments", held.moments), Status());
}

CheckpointState share_of(const ModelInstance& role, const Replica& replica) {
  RoleSlices own = own_slices(role, replica);
  CheckpointState out;
  out.tensors = {{"weights", std::move(own.weights)}, {"moments", std::move(own.moments)}};
  return out;
}

int64_t elements_of(const CheckpointState& state) {
  int64_t out = 0;
  for (const auto& [group, slices] : state.tensors)
    for (const SavedSlice& slice : slices) out += slice.values.numel();
  return out;
}

void expect_equal(CheckpointReader left, CheckpointReader right) {
  for (const char* group : {"weights", "moments"}) {
    const NamedTensors a = *left.whole(group), b = *right.whole(group);
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      EXPECT_EQ(a[i].first, b[i].first);
      EXPECT_TRUE(at::equal(a[i].second, b[i].second)) << group << " " << a[i].first;
    }
  }
}

// All parts of a layout take what they hold from one state; what they write together is that state,
// and has no number twice.
void expect_whole(const ModelSpec& spec, ModelOptions options, const CheckpointState& state,
                  int64_t tp, int64_t stages, int64_t replicas) {
  SCOPED_TRACE(cat("tp ", tp, ", stages ", stages, ", replicas ", replicas));
  CheckpointState all;
  for (int64_t rank = 0; rank < tp * stages * replicas; ++rank) {
    const int64_t stage = rank / tp % stages;
    options.tensor_parallel.tp_rank = rank % tp;
    options.tensor_parallel.tp_size = tp;
    options.ranges = {{spec.layers * stage / stages, spec.layers * (stage + 1) / stages}};
    const ModelInstance role = part_of(spec, options);
    CheckpointReader saved(state);
    read_into(role, saved);
    for (auto& [group, slices] : share_of(role, {rank / tp / stages, replicas}).tensors)
      for (SavedSlice& slice : slices) {
        slice.values = slice.values.clone();
        all.tensors[group].push_back(std::move(slice));
      }
  }
  EXPECT_EQ(elements_of(all), elements_of(state));
  expect_equal(state, std::move(all));
}

TEST(HeldSlices, EveryLayoutWritesTheWholeModelOnce) {
  for (const char* family : {"qwen2", "llama", "gpt2", "phi3", "gemma2"})
    for (const auto dtype : {at::kFloat, at::kBFloat16})
      for (const int64_t lora : {0, 2}) {
        SCOPED_TRACE(cat(family, " ", dtype, " lora ", lora));
        const ModelSpec spec = small_spec(family);
        ModelOptions options;
        options.dtype = dtype;
        options.lora = {lora, 4, {"all-linear"}};
        const ModelInstance whole = part_of(spec, options);
        const CheckpointState state = filled(whole);
        for (const int64_t tp : {1, 2})
          for (const int64_t stages : {1, 2})
            for (const int64_t replicas : {1, 2, 3})
              expect_whole(spec, options, state, tp, stages, replicas);
      }
}

int64_t bytes_of(const std::vector<SavedSlice>& slices) {
  int64_t out = 0;
  for (const SavedSlice& slice : slices) out += static_cast<int64_t>(slice.values.nbytes());
  return out;
}

// However large one tensor is: most of a small model with a vocabulary of a large one is that.
TEST(HeldSlices, ReplicasWriteEqualShares) {
  for (const char* family : {"qwen2", "llama"})
    for (const auto dtype : {at::kFloat, at::kBFloat16}) {
      ModelSpec spec = small_spec(family);
      spec.vocab = 4096;
      ModelOptions options;
      options.dtype = dtype;
      const ModelInstance role = part_of(spec, options);
      const RoleSlices all = held_slices(role);
      for (const int64_t ranks : {2, 3, 8})
        for (int64_t rank = 0; rank < ranks; ++rank) {
          SCOPED_TRACE(cat(family, " ", dtype, " rank ", rank, " of ", ranks));
          const RoleSlices own = own_slices(role, {rank, ranks});
          const RoleSlices across = own_slices(role, {0, 1, rank, ranks});
          EXPECT_NEAR(bytes_of(own.weights), bytes_of(all.weights) / ranks, 8);
          EXPECT_NEAR(bytes_of(own.moments), bytes_of(all.moments) / ranks, 8);
          EXPECT_EQ(bytes_of(across.weights), bytes_of(own.weights));
        }
    }
}

// Under ZeRO a rank owns runs of flat tensors: parts of rows too.
void expect_sharded(World& world, const at::ScalarType dtype, bool weights, int64_t lora) {
  SCOPED_TRACE(cat(dtype, weights ? " weights" : "", " lora ", lora));
  Communicator& group = **world.everyone();
  const ModelSpec spec = small_spec("qwen2");
  ModelOptions options;
  options.dtype = dtype;
  options.lora = {lora, 4, {"all-linear"}};
  const std::string folder = join_path(
      testing::TempDir(),
      cat("held-", world.membership().master_port, "-", weights, lora, dtype == at::kFloat));
  const ModelInstance whole = part_of(spec, options);
  const std::string from = join_path(folder, "from");
  const SavePlace to{join_path(folder, "to"), "the ranks of this test"};
  if (group.index() == 0) {
    ASSERT_TRUE(save_checkpoint(from, {1}, {}, filled(whole)).ok());
    ASSERT_EQ(prepare_save(to, {1}, 1), Status());
  }
  ASSERT_EQ(group.barrier("the state is written"), Status());
  ModelInstance role;
  role.model = std::make_unique<Decoder>(spec, options);
  MainGradientOptions cut;
  cut.sharded = true;
  cut.buckets.elements = 1000;
  role.gradients = std::make_unique<MainGradients>(role.model->trainable_parameters(), &group, cut);
  auto& decoder = dynamic_cast<Decoder&>(*role.model);
  if (weights) {
    role.shards = std::make_unique<WeightShards>(decoder, group, &role.gradients->layout());
    decoder.set_keeper(role.shards.get());
  }
  role.optimizer = std::make_unique<ShardedOptimizer>(*role.gradients, &group, OptimizerConfig(),
                                                      role.shards.get());
  CheckpointReader saved = *CheckpointReader::open(join_path(from, "step-000001"));
  read_into(role, saved);
  ASSERT_EQ(write_share(to, {1}, {group.index(), group.size()},
                        share_of(role, {group.index(), group.size()})),
            Status());
  if (group.index() == 0) {
    const auto path = commit_save(to, {1}, group.size(), {});
    ASSERT_TRUE(path.ok()) << path.status().message();
    expect_equal(*CheckpointReader::open(join_path(from, "step-000001")),
                 *CheckpointReader::open(*path));
  }
  ASSERT_EQ(group.barrier("the state is compared"), Status());
  decoder.set_keeper(nullptr);
  if (group.index() == 0) std::filesystem::remove_all(folder);
}

RANK_TEST(HeldSlices, SharesOfZeroAreTheWholeState, 3) {
  for (const auto dtype : {at::kFloat, at::kBFloat16})
    for (const bool weights : {false, true})
      for (const int64_t lora : {0, 2}) expect_sharded(world, dtype, weights, lora);
}

}  // namespace
}  // namespace braid::inline weights
