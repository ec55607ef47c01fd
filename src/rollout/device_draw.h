// Drawing tokens where the logits are: on an accelerator, which sends the host sums over blocks of
// the vocabulary and one block of each row, in place of all logits.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "base/status.h"
#include "rollout/sampler.h"
#include "rollout/shared_draw.h"

namespace braid::inline rollout {

// Whether all rows can be drawn so: with the whole distribution, or greedily, and no logit changed.
bool draws_on_device(const std::vector<DrawRow>& rows);

// What sample_token() draws from rows of logits_RV (f32), but for the rounding of exponentials and
// sums. REQUIRES: draws_on_device(). Errors, of each row: as sample_token().
std::vector<Result<SampledToken>> draw_on_device(const std::vector<DrawRow>& rows,
                                                 const at::Tensor& logits_RV);

}  // namespace braid::inline rollout
