// Every family under tensor, sequence and pipeline parallelism against one process.
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros_like.h>

#include "base/testing.h"
#include "comm/rank_testing.h"
#include "nn/parallel_testing.h"
#include "nn/zero_messages.h"

namespace braid::inline nn {
namespace {

constexpr double kEquivalence = 1e-5;  // relative L2
const char* const kFamilies[] = {"llama",  "llama3", "qwen2", "qwen3",     "mistral",     "gemma",
                                 "gemma2", "gemma3", "phi3",  "phi3-long", "qwen2-mixed", "gpt2"};

struct ParallelCase {
  std::string family;
  bool scalar_head = false;
  bool lora = false;
  KeptActivations kept = KeptActivations::kAll;
  std::vector<std::string> targets = {};  // of adapters, instead of those below
};

ModelSpec spec_of(const ParallelCase& test, const TestLayout& layout) {
  ModelSpec spec = small_spec(test.scalar_head ? test.family + "-score" : test.family);
  if (layout.stages() > 1) {
    spec.layers = 0;
    for (const int64_t layers : layout.stage_layers) spec.layers += layers;
  }
  return spec;
}

ModelOptions options_of(const ParallelCase& test) {
  ModelOptions options;
  options.seed = 5;
  options.kept = test.kept;
  if (!test.lora) return options;
  options.lora.rank = 3;
  options.lora.dropout = 0.25;
  options.lora.targets = test.targets;
  if (!test.targets.empty()) return options;
  options.lora.targets = {"q_proj", "k_proj", "v_proj", "o_proj", "up_proj", "down_proj"};
  if (test.family.rfind("phi3", 0) == 0)
    options.lora.targets = {"qkv_proj", "o_proj", "gate_up_proj", "down_proj"};
  if (test.family == "gpt2") options.lora.targets = {"c_attn", "c_proj", "c_fc"};
  const bool own_head = !small_spec(test.family).tied_embeddings;
  if (own_head) options.lora.targets.emplace_back("lm_head");
  return options;
}

void expect_gradients(const Model& part, const Model& whole) {
  const auto expected = by_name(whole);
  const auto& shards = dynamic_cast<const Decoder&>(part).shards();
  const double floor = 1e-4 * global_norm(whole);
  for (const auto& [name, parameter] : part.trainable_parameters()) {
    const at::Tensor& gradient = expected.at(name).grad();
    ASSERT_EQ(gradient.defined(), parameter.grad().defined()) << name;
    if (!gradient.defined()) continue;
    EXPECT_LE(relative_error(parameter.grad(), take_shard(gradient, shards.at(name)), floor),
              kEquivalence)
        << name;
  }
}

// Squares of the gradients that the ranks count, over all ranks of the layout.
void expect_norm(World& world, const Model& part, const Model& whole, int64_t ranks) {
  const std::set<std::string> uncounted = uncounted_tensors(part);
  double squares = 0;
  for (const auto& [name, parameter] : part.trainable_parameters())
    if (uncounted.count(name) == 0 && parameter.grad().defined())
      squares += std::pow(parameter.grad().norm().item<double>(), 2);
  std::vector<int64_t> members;
  for (int64_t rank = 0; rank < ranks; ++rank) members.push_back(rank);
  Communicator& all = **world.group(cat("layout", ranks), members);
  at::Tensor sum = at::full({1}, squares, at::kDouble);
  ASSERT_EQ(all.all_reduce(sum, Reduce::kSum, "squares").wait().message(), "");
  EXPECT_NEAR(std::sqrt(sum.item<double>()) / global_norm(whole), 1, kEquivalence);
}

// A gradient that this rank has no part of counts as zero.
at::Tensor defined_gradient(const std::string&, const at::Tensor& parameter) {
  at::Tensor leaf = parameter;
  if (!leaf.grad().defined()) leaf.mutable_grad() = at::zeros_like(leaf);
  return leaf.grad();
}

void sum_over_groups(const Model& part, const TestGroups& groups) {
  for (Communicator* over : {groups.tensor.communicator, groups.tensor.shared})
    if (over != nullptr) {
      ASSERT_EQ(sum_partial_gradients(part, *over, defined_gradient).message(), "");
    }
  if (groups.ends != nullptr) {
    ASSERT_EQ(sum_tied_gradients(part, *groups.ends, defined_gradient).message(), "");
  }
}

void expect_equal(World& world, const ParallelCase& test, const TestLayout& layout) {
  if (world.global_rank() >= layout.ranks()) return;
  SCOPED_TRACE(cat(test.family, test.scalar_head ? " score" : "", test.lora ? " lora" : "", " ",
                   layout.name()));
  const ModelSpec spec = spec_of(test, layout);
  ModelOptions options = options_of(test);
  auto whole = std::move(make_model(spec, options)).value();
  const TestGroups groups = make_groups(world, layout, spec);
  options.tensor_parallel = groups.tensor;
  options.ranges = {groups.range};
  auto made = make_model(spec, options);
  ASSERT_TRUE(made.ok()) << made.status().message();
  Model& part = **made;
  // Random initial values do not depend on the layout.
  for (const auto& [name, parameter] : part.parameters())
    EXPECT_TRUE(at::equal(parameter, take_shard(by_name(*whole).at(name),
                                                dynamic_cast<Decoder&>(part).shards().at(name))))
        << name;
  randomize(*whole);
  take_values(part, *whole);

  const TestBatch batch = make_batch(spec, 11);
  const TestLoss expected = loss_of(*whole, whole->forward(batch.tokens, nullptr), batch);
  expected.loss.backward();
  const TestLoss actual = run_stage(part, groups, batch);
  sum_over_groups(part, groups);
  if (actual.loss.defined()) {
    EXPECT_LE(relative_error(actual.loss.detach(), expected.loss.detach(), 1), kEquivalence);
    EXPECT_LE(relative_error(actual.outputs, expected.outputs, 0), kEquivalence);
  }
  expect_gradients(part, *whole);
  expect_norm(world, part, *whole, layout.ranks());
}

void all_families(World& world, const TestLayout& layout) {
  for (const char* family : kFamilies) {
    const ModelSpec spec = small_spec(family);
    // Refused: see WhatDoesNotDivideIsNamed.
    if (layout.tp > spec.kv_heads && family_of(spec).names.qkv.size() == 1) continue;
    expect_equal(world, {family}, layout);
  }
}

RANK_TEST(Parallel, TensorParallel2, 2) { all_families(world, {.tp = 2}); }
RANK_TEST(Parallel, SequenceParallel2, 2) {
  all_families(world, {.tp = 2, .sequence_parallel = true});
}
RANK_TEST(Parallel, Stages2, 2) { all_families(world, {.stage_layers = {1, 2}}); }
RANK_TEST(Parallel, ScalarHeadAndLora2, 2) {
  for (const char* family : kFamilies)
    for (const bool sequence : {false, true}) {
      expect_equal(world, {family, true, false}, {.tp = 2, .sequence_parallel = sequence});
      expect_equal(world, {family, false, true}, {.tp = 2, .sequence_parallel = sequence});
    }
  expect_equal(world, {"qwen3", true, true}, {.stage_layers = {2, 1}});
}
RANK_TEST(Parallel, Recomputed2, 2) {
  for (const KeptActivations kept :
       {KeptActivations::kInputs, KeptActivations::kWithoutAttention}) {
    expect_equal(world, {"qwen3", false, false, kept}, {.tp = 2});
    expect_equal(world, {"gpt2", false, false, kept}, {.tp = 2, .sequence_parallel = true});
  }
}

RANK_TEST(Parallel, TensorParallel4, 4) { all_families(world, {.tp = 4}); }
RANK_TEST(Parallel, SequenceParallel4, 4) {
  all_families(world, {.tp = 4, .sequence_parallel = true});
  // The backend's own sums.
  for (const bool sequence : {false, true})
    for (const char* family : {"llama", "gpt2"})
      expect_equal(world, {family}, {.tp = 4, .sequence_parallel = sequence, .native = true});
}
RANK_TEST(Parallel, Stages4, 4) { all_families(world, {.stage_layers = {1, 2, 1, 1}}); }
RANK_TEST(Parallel, Grid2x2, 4) {
  all_families(world, {.tp = 2, .stage_layers = {2, 1}});
  all_families(world, {.tp = 2, .stage_layers = {1, 2}, .sequence_parallel = true});
}
RANK_TEST(Parallel, SharedKeysWithLora4, 4) {
  for (const char* family : {"llama3", "gemma", "qwen3"})
    for (const bool sequence : {false, true})
      expect_equal(world, {family, false, true}, {.tp = 4, .sequence_parallel = sequence});
}

RANK_TEST(Parallel, Grid4x2, 8) {
  if (!full_tier()) {
    for (const char* family : {"gemma", "gpt2"})
      expect_equal(world, {family}, {.tp = 4, .stage_layers = {1, 1}});
    return;
  }
  all_families(world, {.tp = 4, .stage_layers = {1, 2}});
  all_families(world, {.tp = 4, .stage_layers = {2, 1}, .sequence_parallel = true});
  all_families(world, {.tp = 2, .stage_layers = {1, 2, 1, 1}});
}

// What went through a rank's groups, by kind.
using GroupTraffic = std::vector<std::pair<int64_t, int64_t>>;
GroupTraffic traffic_of(Communicator& group, const std::function<void()>& act) {
  group.reset_traffic();
  act();
  GroupTraffic out;
  for (int kind = 0; kind < static_cast<int>(Transfer::kCount); ++kind) {
    const Traffic& traffic = group.traffic(static_cast<Transfer>(kind));
    out.emplace_back(traffic.calls, traffic.given);
  }
  return out;
}

// A rank that passes a forward and its backward by does with the others what computing does, also
// where it had begun to: the others end as they would.
void expect_passed_by(World& world, const ParallelCase& test, const TestLayout& layout) {
  SCOPED_TRACE(cat(test.family, " ", layout.name(), " kept ", static_cast<int>(test.kept), " ",
                   test.lora ? "lora " : "", join(test.targets, ", ")));
  const ModelSpec spec = spec_of(test, layout);
  ModelOptions options = options_of(test);
  options.tensor_parallel = make_groups(world, layout, spec).tensor;
  const auto model = std::move(make_model(spec, options)).value();
  Communicator& group = *options.tensor_parallel.communicator;
  const TestBatch batch = make_batch(spec, 11);
  const int64_t rows = batch.tokens.tokens_T.size(0);
  TestLoss result;
  const auto forward = traffic_of(group, [&] {
    result = loss_of(*model, model->forward(batch.tokens, nullptr), batch, false);
  });
  const auto backward = traffic_of(group, [&] { result.loss.backward(); });
  const PassedBy pass{.rows = rows, .head_rows = rows};
  PassedBy back = pass;
  back.backward = true;
  EXPECT_EQ(traffic_of(group, [&] { model->pass_by(pass); }), forward);
  EXPECT_EQ(traffic_of(group, [&] { model->pass_by(back); }), backward);
  // The first rank passes by, also what it has begun, and the others compute.
  for (const bool begun : {false, true}) {
    if (group.index() != 0) {
      loss_of(*model, model->forward(batch.tokens, nullptr), batch, false).loss.backward();
      continue;
    }
    const int64_t before = group.begun();
    const ZeroMessages zeros(spec, model->options(), model->options().tensor_parallel, rows);
    if (begun) zeros.enter_model(), zeros.pass_layer();
    group.leave_out(group.begun() - before);
    model->pass_by(pass);
    EXPECT_FALSE(group.leaves_out());
    model->pass_by(back);
  }
}

RANK_TEST(Parallel, PassesByWhatOthersCompute2, 2) {
  for (const KeptActivations kept :
       {KeptActivations::kAll, KeptActivations::kInputs, KeptActivations::kWithoutAttention})
    for (const bool sequence : {false, true}) {
      expect_passed_by(world, {"qwen3", false, false, kept},
                       {.tp = 2, .sequence_parallel = sequence});
      expect_passed_by(world, {"gpt2", true, false, kept},
                       {.tp = 2, .sequence_parallel = sequence});
    }
}
// A backward ends below the lowest adapter, which is in a layer's attention, its MLP or the head.
RANK_TEST(Parallel, PassesByBackwardsToAdapters2, 2) {
  const std::vector<std::string> targets[] = {
      {}, {"q_proj"}, {"o_proj"}, {"up_proj"}, {"down_proj"}, {"lm_head"}, {"v_proj", "lm_head"}};
  for (const KeptActivations kept :
       {KeptActivations::kAll, KeptActivations::kInputs, KeptActivations::kWithoutAttention})
    for (const bool sequence : {false, true})
      for (const auto& of : targets)
        expect_passed_by(world, {"mistral", false, true, kept, of},
                         {.tp = 2, .sequence_parallel = sequence});
  for (const bool sequence : {false, true})
    expect_passed_by(world, {"gpt2", true, true}, {.tp = 2, .sequence_parallel = sequence});
}
RANK_TEST(Parallel, PassesByWhatOthersCompute4, 4) {
  for (const bool sequence : {false, true}) {
    expect_passed_by(world, {"llama"}, {.tp = 4, .sequence_parallel = sequence});
    expect_passed_by(world, {"gemma", true}, {.tp = 4, .sequence_parallel = sequence});
  }
}

RANK_TEST(Parallel, SlicesOfAFolder, 4) {
  for (const char* name : {"llama", "gemma", "gpt2", "qwen2-score"}) {
    const std::string folder = golden_folder(name);
    const auto whole = load_model(folder, {});
    ASSERT_TRUE(whole.ok()) << whole.status().message();
    const TestGroups groups = make_groups(world, {.tp = 4}, (*whole)->spec());
    LoadOptions options;
    options.model.tensor_parallel = groups.tensor;
    const auto part = load_model(folder, options);
    ASSERT_TRUE(part.ok()) << part.status().message();
    const auto& shards = dynamic_cast<Decoder&>(**part).shards();
    for (const auto& [tensor, parameter] : (*part)->parameters())
      EXPECT_TRUE(at::equal(parameter, take_shard(by_name(**whole).at(tensor), shards.at(tensor))))
          << name << " " << tensor;
  }
}

// Rows of a batch have the bits that they have alone, as in one process.
RANK_TEST(Parallel, RowsDoNotDependOnTheirBatch, 4) {
  const at::NoGradGuard no_grad;
  const ModelSpec spec = small_spec("llama");
  ModelOptions options;
  options.tensor_parallel = make_groups(world, {.tp = 4}, spec).tensor;
  const auto model = std::move(make_model(spec, options)).value();
  const std::vector<int32_t> a = {9, 8, 7, 100, 3}, b = {11, 12, 13, 14, 15, 16, 17};
  const at::Tensor both = model->forward(pack_sequences({a, b}, at::kCPU), nullptr);
  const at::Tensor alone = model->forward(pack_sequences({b}, at::kCPU), nullptr);
  EXPECT_TRUE(both.narrow(0, 5, 7).equal(alone));
  EXPECT_TRUE(logits(*model, both).narrow(0, 5, 7).equal(logits(*model, alone)));
}

TEST(TensorParallel, WhatDoesNotDivideIsNamed) {
  ModelSpec spec = small_spec("llama3");
  const auto message = [&](int64_t tp) {
    return check_tensor_parallel(spec, {.tp_rank = 0, .tp_size = tp}).message();
  };
  EXPECT_NE(message(3).find("4 attention heads"), std::string::npos) << message(3);
  spec.heads = 6, spec.kv_heads = 2;
  EXPECT_NE(message(3).find("2 key-value heads"), std::string::npos) << message(3);
  EXPECT_NE(message(2).find("needs their communicators"), std::string::npos) << message(2);
  spec = small_spec("phi3");
  EXPECT_NE(message(4).find("more ranks than key-value heads"), std::string::npos) << message(4);
}

}  // namespace
}  // namespace braid::inline nn
