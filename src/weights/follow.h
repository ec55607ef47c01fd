// A role that follows another: its weights become those of the other, or move towards them. Not
// thread-safe.
#pragma once

#include "weights/load_models.h"

namespace braid::inline weights {

// Gives a role the f32 values that its average is kept in where its weights are of another type, at
// first those of its weights.
void keep_average(ModelInstance& role);

// target <- keep * target + (1 - keep) * source, number by number: both products and their sum are
// rounded to f32, so that the bits do not depend on how the weights are cut; keep 0 copies. Weights
// that are not f32 are rounded from the f32 average of keep_average(), which has what their own
// type would lose (a bf16 number does not move by less than a 256th of it). Where weights are
// slices, the ranks that share them call it together. Until it has succeeded the target is torn.
// kDeadline, kUnavailable: a message failed.
// REQUIRES: both have one layout, the source all tensors of the target; 0 <= keep < 1.
Status follow_weights(ModelInstance& target, ModelInstance& source, double keep);

}  // namespace braid::inline weights
