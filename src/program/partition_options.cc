#include "program/partition_options.h"

namespace braid::inline program {

PartitionOptions partition_options(const Graph& graph, const Call& call,
                                   const PartitionedStep& step) {
  PartitionOptions out;
  out.trains = call.kind == CallKind::kTrainStep;
  out.seed = step.seed, out.step = step.step;
  out.epochs = step.epochs, out.minibatches = step.minibatches;
  // Groups of generated samples are else compared before, over the whole rollout.
  out.whole_groups = out.trains && (call.compares_samples || !generates(graph));
  out.share_prompts = step.share_prompts;
  out.keep_near = step.train_engine.empty();
  return out;
}

}  // namespace braid::inline program
