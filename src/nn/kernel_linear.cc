// Matrix products whose rows do not depend on the batch. Measured on AVX-512: rows of batches of 1,
// 2, 3, 5, 6, 7, 9, 10 or 11 may differ in bits from those of larger ones, so such batches are
// padded.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>

#include "nn/kernels.h"

namespace braid {
namespace {

// Small batches fill whole tiles of four rows, at least kMinRows.
int64_t padded_rows(int64_t rows) {
  if (rows <= kMinRows) return kMinRows;
  return rows < kMinRows + 4 ? kMinRows + 4 : rows;
}

}  // namespace

at::Tensor linear(const at::Tensor& x_TI, const at::Tensor& w_OI, const at::Tensor& b_O) {
  const int64_t rows = x_TI.size(0);
  const c10::optional<at::Tensor> bias =
      b_O.defined() ? c10::optional<at::Tensor>(b_O) : c10::nullopt;
  const int64_t wanted = padded_rows(rows);
  if (rows == wanted) return at::linear(x_TI, w_OI, bias);
  const at::Tensor padded = at::constant_pad_nd(x_TI, {0, 0, 0, wanted - rows}, 0);
  return at::linear(padded, w_OI, bias).narrow(0, 0, rows);
}

bool batch_invariance_holds() {
  const at::NoGradGuard no_grad;
  for (const int64_t width : {64, 256, 512}) {
    const at::Tensor x = at::randn({96, width}), w = at::randn({width, width});
    const at::Tensor whole = braid::linear(x, w, {});
    for (const int64_t rows : {1, 3, 8, 9, 10, 11, 12, 17, 32, 95})
      if (!at::equal(braid::linear(x.narrow(0, 0, rows).contiguous(), w, {}),
                     whole.narrow(0, 0, rows)))
        return false;
  }
  return true;
}

}  // namespace braid
