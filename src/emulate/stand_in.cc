#include "emulate/stand_in.h"

#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <limits>

#include "base/text.h"

namespace braid::inline emulate {
namespace {

constexpr int64_t kNumbers = kStandInBytes / sizeof(int64_t);

std::vector<StandIn> rows_of(const at::Tensor& table, int64_t count) {
  const at::Tensor rows = table.view({count, kNumbers});
  std::vector<StandIn> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(stand_in_of(rows[i]));
  return out;
}

// As many bytes however many members there are.
Result<std::vector<StandIn>> reduce_stand_ins(Communicator& group, const StandIn& mine,
                                              std::string_view name) {
  constexpr int64_t kNone = std::numeric_limits<int64_t>::min();
  const bool first = group.index() == 0;
  const at::Tensor all =
      at::tensor({mine.ready_ns, mine.what, -mine.what, first ? mine.length_ns : kNone}, at::kLong);
  BRAID_TRY(group.all_reduce(all, Reduce::kMax, name).wait());
  const auto* n = all.const_data_ptr<int64_t>();
  return std::vector<StandIn>{{n[0], n[1], n[3]}, {n[0], -n[2], n[3]}};
}

// Sums have room for each member's numbers.
at::Tensor own_row(Communicator& group, const StandIn& mine) {
  const at::Tensor out = at::zeros({group.size(), kNumbers}, at::kLong);
  out[group.index()].copy_(tensor_of(mine));
  return out;
}

}  // namespace

at::Tensor tensor_of(const StandIn& s) {
  return at::tensor({s.ready_ns, s.what, s.length_ns}, at::kLong);
}

StandIn stand_in_of(const at::Tensor& tensor) {
  const auto* n = tensor.const_data_ptr<int64_t>();
  return {n[0], n[1], n[2]};
}

Result<std::vector<StandIn>> exchange_stand_ins(Communicator& group, OpKind kind, int64_t root,
                                                const StandIn& mine, std::string_view name) {
  const int64_t size = group.size();
  switch (kind) {
    case OpKind::kBroadcast: {
      const at::Tensor told = tensor_of(mine);
      BRAID_TRY(group.broadcast(told, root, name).wait());
      return std::vector<StandIn>{stand_in_of(told), mine};
    }
    case OpKind::kAllGather: {
      const at::Tensor all = at::zeros({size, kNumbers}, at::kLong);
      BRAID_TRY(group.all_gather(all, tensor_of(mine).view({1, kNumbers}), name).wait());
      return rows_of(all, size);
    }
    case OpKind::kReduceScatter: {
      const at::Tensor row = own_row(group, mine).view({1, size * kNumbers});
      const at::Tensor sum = at::zeros({1, size * kNumbers}, at::kLong);
      BRAID_TRY(group.reduce_scatter(sum, row.repeat({size, 1}), name).wait());
      return rows_of(sum, size);
    }
    case OpKind::kAllToAll: {
      const at::Tensor in = tensor_of(mine).view({1, kNumbers}).repeat({size, 1});
      const at::Tensor out = at::zeros({size, kNumbers}, at::kLong);
      const std::vector<int64_t> ones(size, 1);
      BRAID_TRY(group.all_to_all(out, in, ones, ones, name).wait());
      return rows_of(out, size);
    }
    default:
      return reduce_stand_ins(group, mine, name);
  }
}

}  // namespace braid::inline emulate
