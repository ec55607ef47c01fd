// What tensor-parallel ranks do together inside of the passes of a body: collectives at the borders
// of the region that they share (Shoeybi et al., 2019, section 3; with sequence parallelism
// Korthikanti et al., 2022, section 4.2), as nn/tensor_parallel.h does them. Pure; thread-safe.
#pragma once

#include <vector>

#include "batching/sampling_messages.h"
#include "program/model_shape.h"
#include "program/op.h"

namespace braid::inline program {

// Whether a backward gives the gradient of a layer's input, of what its attention adds to, and of
// its output (nn/decoder_layer.h, LayerGradients).
struct LayerFlow {
  bool input = true, middle = true, output = true;
};
// Of the layers of a body, whose input another part has given unless it begins the model.
std::vector<LayerFlow> layer_flows(const OpBody& body, const TrainedParts& trained);

struct TensorExchange {
  int32_t group = -1;  // of the ranks, in Expansion::groups
  int ranks = 2;
  bool sequence_parallel = false;
  Reduction reduction = Reduction::kNative;
  double number_bytes = 2, row_bytes = 0;  // of a number and of a row of hidden states
};

// What drawing a token does, for each row, where ranks share so large a vocabulary: what they tell
// each other of it (batching/sampling_messages.h), or whole logits, in f32.
std::vector<InsideOp> list_draw(const TensorExchange& exchange, int64_t vocabulary,
                                const SamplingNeeds& needs);

// Appends what the passes of the body do; with the head of a language model where `vocabulary`.
void list_tensor_exchanges(const TensorExchange& exchange, const TrainedParts& trained,
                           bool vocabulary, OpBody* body);

}  // namespace braid::inline program
