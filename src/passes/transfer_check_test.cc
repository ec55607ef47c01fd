// What a model's passes give to the backends beside what their ops list, and lists that say less.
#include "passes/transfer_check.h"

#include <gmock/gmock.h>

#include "comm/rank_testing.h"
#include "nn/parallel_testing.h"

namespace braid::inline passes {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

struct PassCase {
  const char* family = "qwen2";
  TestLayout layout;
  at::ScalarType type = at::kFloat;
  Recompute recompute = Recompute::kNone;
  std::vector<std::string> adapted = {};  // targets of adapters
};

// A training call of one micro-batch on this rank, listed and computed.
struct Passes {
  CallPlacement where;
  ModelShape shape;
  CallTensors tensors;
  Expansion ops;
  TransferCounts sent;
  int64_t rows = 0;

  CallFrame frame() const { return {CallId{0}, CallKind::kTrainStep, &where, &shape}; }
  TransferCounts listed(const Expansion& of) const {
    TransferCounts out;
    for (const Op& op : of.ops)
      if (op.kind == OpKind::kForward || op.kind == OpKind::kBackward)
        add_listed(transfers_of(frame(), tensors, of, op, {rows, rows}), of, op, false, &out);
    return out;
  }
};

ModelShape shape_of(const ModelSpec& spec, const PassCase& test) {
  ModelShape out;
  out.layers = spec.layers, out.hidden = spec.hidden;
  out.kinds = kinds_of(tensor_map(spec));
  out.changed = out.kinds;
  if (!test.adapted.empty()) {
    out.changed = kinds_of(adapter_map(spec, 3, test.adapted));
    out.trained_share = 0.1;
  }
  out.widths = widths_of(test.type == at::kFloat ? Precision::kF32 : Precision::kBf16);
  out.reduction = test.layout.native ? Reduction::kNative : Reduction::kOrdered;
  return out;
}

std::unique_ptr<Passes> run_passes(World& world, const PassCase& test) {
  const ModelSpec spec = small_spec(test.family);
  auto out = std::make_unique<Passes>();
  for (int rank = 0; rank < test.layout.tp; ++rank)
    out->where.mesh.devices.push_back(DeviceId{rank});
  Strategy& strategy = out->where.strategy;
  strategy.tp = static_cast<int>(test.layout.tp);
  strategy.sequence_parallel = test.layout.sequence_parallel;
  strategy.recompute = test.recompute;
  out->where.copy = 0;
  out->shape = shape_of(spec, test);
  const TestGroups groups = make_groups(world, test.layout, spec);
  ModelOptions options;
  options.dtype = test.type;
  options.tensor_parallel = groups.tensor;
  if (test.recompute == Recompute::kFull) options.kept = KeptActivations::kInputs;
  if (!test.adapted.empty()) options.lora.rank = 3, options.lora.targets = test.adapted;
  out->tensors = call_tensors(spec, true, {options.lora.rank, options.lora.targets});
  const std::unique_ptr<Model> model = small_model(test.family, options);
  const TestBatch batch = make_batch(spec, 3);
  out->rows = batch.tokens.tokens_T.size(0);
  Partition partition;
  MiniBatch& minibatch = partition.minibatches.emplace_back();
  minibatch.micro_batches.resize(1);
  minibatch.micro_batches[0].push_back(SampleRows{0});
  minibatch.tokens.resize(1);
  minibatch.tokens[0].push_back(out->rows);
  out->ops = expand(out->frame(), DeviceId{static_cast<int>(world.global_rank())}, partition);
  const TransferWatch watch(&out->sent);
  const at::Tensor hidden = model->forward(batch.tokens, nullptr);
  loss_of(*model, hidden, batch, false).loss.backward();
  return out;
}

// The list says what was sent; with a collective too few, or other bytes of one, it does not.
void expect_listed(World& world, const PassCase& test) {
  SCOPED_TRACE(cat(test.family, " ", test.layout.name(), test.type == at::kFloat ? "" : " bf16"));
  const auto passes = run_passes(world, test);
  EXPECT_THAT(passes->sent, Not(IsEmpty()));
  EXPECT_EQ(transfer_differences(passes->listed(passes->ops), passes->sent), "");
  for (auto list : {&OpBody::forward, &OpBody::backward})
    for (size_t i = 0; i < (passes->ops.bodies[0].*list).size(); ++i) {
      Expansion fewer = passes->ops, wider = passes->ops;
      (fewer.bodies[0].*list)[i].times -= 1;
      InsideOp& inside = (wider.bodies[0].*list)[i];
      inside.bytes_per_token += 4, inside.multiple = 0;
      for (const Expansion* wrong : {&fewer, &wider})
        EXPECT_THAT(transfer_differences(passes->listed(*wrong), passes->sent),
                    HasSubstr("in group tensor-0-1"));
    }
}

RANK_TEST(TransferCheck, TwoTensorParallelRanksSendWhatIsListed, 2) {
  for (const bool sequence : {false, true})
    for (const bool native : {false, true}) {
      const TestLayout layout{.tp = 2, .sequence_parallel = sequence, .native = native};
      expect_listed(world, {"qwen2", layout});
      expect_listed(world, {"gpt2", layout, at::kBFloat16});
      expect_listed(world, {"llama", layout, at::kFloat, Recompute::kFull});
      expect_listed(world, {"qwen2-score", layout});
      for (const std::vector<std::string>& targets :
           {std::vector<std::string>{"q_proj"}, {"up_proj"}, {"down_proj", "o_proj"}}) {
        expect_listed(world, {"llama", layout, at::kFloat, Recompute::kNone, targets});
        expect_listed(world, {"llama", layout, at::kFloat, Recompute::kFull, targets});
      }
    }
}

RANK_TEST(TransferCheck, FourTensorParallelRanksSendWhatIsListed, 4) {
  for (const bool sequence : {false, true})
    for (const bool native : {false, true}) {
      const TestLayout layout{.tp = 4, .sequence_parallel = sequence, .native = native};
      expect_listed(world, {"qwen2", layout});
      expect_listed(world, {"gemma", layout, at::kBFloat16, Recompute::kFull});
    }
}

}  // namespace
}  // namespace braid::inline passes
