// What rotate() reads of a table on devices without a kernel of ours, found once for all layers.
#pragma once

#include <ATen/core/Tensor.h>

namespace braid::inline nn {

// f32 [T, 3, D/2]: cosines, negative and positive sines of each token of a batch, from a table of
// rope_table(). rotate() and split_heads() take it in place of the table on such devices.
at::Tensor rotation_rows(const at::Tensor& table, const at::Tensor& positions_T);

}  // namespace braid::inline nn
