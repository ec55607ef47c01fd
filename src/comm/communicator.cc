#include "comm/communicator.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "base/text.h"
#include "comm/group_backend.h"
#include "comm/position.h"
#include "comm/started_work.h"
#include "comm/store_handle.h"
#include "device/tensor_memory.h"
#include "host/work_section.h"

namespace braid::inline comm {
namespace {

std::chrono::milliseconds timeout_of(const CommunicatorContext& context) {
  return std::chrono::milliseconds(static_cast<int64_t>(context.deadline_s * 1000));
}

// Gloo's tag. Tensors of a device never meet those of the host: over NCCL they would not either.
int tag_of(const at::Tensor& data, int32_t channel) {
  return 2 * channel + (data.is_cpu() ? 0 : 1);
}

// How a transfer of a device ended; nothing while it is on its way.
std::optional<Status> ended(c10d::Work& work) {
  if (!work.isCompleted()) return std::nullopt;
  try {
    if (const auto failure = work.exception()) std::rethrow_exception(failure);
    return Status();
  } catch (const std::exception& error) {
    return Status(Code::kUnavailable, short_message(error));
  }
}

c10d::ReduceOp reduce_op(Reduce reduce) {
  switch (reduce) {
    case Reduce::kSum:
      return c10d::ReduceOp::SUM;
    case Reduce::kMax:
      return c10d::ReduceOp::MAX;
    case Reduce::kMin:
      return c10d::ReduceOp::MIN;
  }
  return c10d::ReduceOp::SUM;
}

// Lets what the device is given from here on wait for a transfer that it makes.
Status follow(const StartedWork& work) {
  try {
    work.work->wait();
    const std::shared_ptr<const std::vector<int64_t>> peers(work.with, &work.with->ranks);
    work.context.board->follow({operation_text(work), peers, work.context.deadline_s,
                                [made = work.work] { return ended(*made); }});
    return {};
  } catch (const std::exception& error) {
    return transfer_failure(work, short_message(error), work.is_late());
  }
}

}  // namespace

Pending::Pending() = default;
Pending::Pending(std::unique_ptr<StartedWork> work) : work_(std::move(work)) {}
Pending::Pending(Pending&&) noexcept = default;
Pending& Pending::operator=(Pending&&) noexcept = default;
Pending::~Pending() = default;

Status Pending::wait() {
  if (work_ == nullptr) return {};
  const WorkSection section;
  const std::unique_ptr<StartedWork> work = std::move(work_);
  if (!work->failed.ok()) return work->failed;
  if (work->followed) return follow(*work);
  const PositionBoard::Waiting waiting(*work->context.board, operation_text(*work),
                                       work->with->ranks);
  try {
    // Collectives got the deadline when they began; they need no second one.
    if (!(work->is_message() ? work->work->wait(timeout_of(work->context)) : work->work->wait()))
      return transfer_failure(*work, "aborted", work->is_late());
    work->passage.arrive();
    return {};
  } catch (const std::exception& error) {
    return transfer_failure(*work, short_message(error), work->is_late());
  }
}

void wait_or_throw(Pending pending) {
  if (const Status status = pending.wait(); !status.ok()) throw CommunicationFailure(status);
}

Communicator::Communicator(std::string name, std::vector<int64_t> members,
                           CommunicatorContext context, std::unique_ptr<GroupBackend> backend)
    : name_(std::move(name)),
      members_(std::move(members)),
      context_(context),
      backend_(std::move(backend)) {
  const auto self = std::find(members_.begin(), members_.end(), context_.global_rank);
  BRAID_CHECK(self != members_.end(), cat("rank is no member of group ", name_));
  BRAID_CHECK(std::set(members_.begin(), members_.end()).size() == members_.size(),
              cat("a rank is twice in group ", name_));
  BRAID_CHECK(members_.size() == 1 || backend_ != nullptr, "a group of several needs a backend");
  index_ = self - members_.begin();
  std::vector<int64_t> others = members_;
  others.erase(others.begin() + index_);
  others_ = std::make_shared<TransferPeers>(std::move(others), name_);
}
Communicator::~Communicator() = default;

int Communicator::place_of(int64_t global_rank) const {
  const auto found = std::find(members_.begin(), members_.end(), global_rank);
  BRAID_CHECK(found != members_.end(), cat("rank ", global_rank, " is no member of ", name_));
  return static_cast<int>(found - members_.begin());
}

void Communicator::count(Transfer transfer, const at::Tensor& given, const at::Tensor& received) {
  const auto bytes = [](const at::Tensor& tensor) {
    BRAID_CHECK(!tensor.defined() || tensor.is_contiguous(), "only contiguous tensors travel");
    return tensor.defined() ? static_cast<int64_t>(tensor.nbytes()) : 0;
  };
  const std::lock_guard lock(backend_->starting);
  Traffic& traffic = traffic_[static_cast<size_t>(transfer)];
  ++traffic.calls;
  traffic.given += bytes(given), traffic.received += bytes(received);
}

void Communicator::reset_traffic() {
  traffic_ = {};
  sent_bytes_.clear();
}

c10d::Backend& Communicator::backend_of(const Order& order) {
  if (!order.device.is_cuda() || !has_nccl()) return *backend_->host;
  auto& nccl = backend_->nccl[order.lane];
  if (nccl == nullptr) {
    auto connected = connect_nccl(*context_.store, {.name = cat(name_, "/", order.lane),
                                                    .place = static_cast<int>(index_),
                                                    .size = static_cast<int>(size()),
                                                    .deadline_s = context_.deadline_s});
    if (!connected.ok()) throw CommunicationFailure(connected.status());
    nccl = *connected;
  }
  return *nccl;
}

template <typename Start>
Pending Communicator::start(const Order& order, const Start& start) {
  const bool together = order.peer < 0;
  if (together && left_out_ > 0) {
    --left_out_;
    return {};
  }
  const WorkSection section;
  auto work = std::make_unique<StartedWork>();
  work->context = context_;
  work->transfer = order.transfer;
  work->tensor = order.tensor;
  work->with = together ? others_ : std::make_shared<TransferPeers>(std::vector{order.peer}, name_);
  work->started = std::chrono::steady_clock::now();
  const std::lock_guard lock(backend_->starting);
  try {
    c10d::Backend& backend = backend_of(order);
    work->passage.direct = &backend != backend_->host.get();
    work->followed = work->passage.direct && !nccl_holds_host_up();
    work->work = start(backend, work->passage);
    if (together) ++begun_;
    if (TransferWatch::any())
      TransferWatch::note({order.transfer, name_, order.peer, order.channel, order.bytes});
  } catch (const std::exception& error) {
    if (is_out_of_memory(error)) throw;  // before anything was sent: the caller may try again
    work->failed = transfer_failure(*work, short_message(error), work->is_late());
  }
  return Pending(std::move(work));
}

Communicator::Order Communicator::message(Transfer transfer, std::string_view tensor,
                                          const at::Tensor& data, int64_t peer,
                                          int32_t channel) const {
  const bool to_higher = (context_.global_rank < peer) == (transfer == Transfer::kSend);
  return {transfer,
          tensor,
          data.device(),
          peer,
          cat("channel ", channel, to_higher ? " upwards" : " downwards"),
          channel,
          static_cast<int64_t>(data.nbytes())};
}

Communicator::Order Communicator::together(Transfer transfer, std::string_view tensor,
                                           const at::Tensor& whole) {
  Order out{transfer, tensor, whole.device()};
  out.bytes = static_cast<int64_t>(whole.nbytes());
  return out;
}

Pending Communicator::all_reduce(const at::Tensor& inout, Reduce reduce, std::string_view tensor) {
  if (size() == 1 || inout.numel() == 0) return {};
  count(Transfer::kAllReduce, inout, inout);
  return start(together(Transfer::kAllReduce, tensor, inout),
               [&](c10d::Backend& backend, Passage& passage) {
                 std::vector<at::Tensor> list = {passage.changed(inout)};
                 c10d::AllreduceOptions options;
                 options.reduceOp = reduce_op(reduce);
                 options.timeout = timeout_of(context_);
                 return backend.allreduce(list, options);
               });
}

Pending Communicator::reduce_scatter(const at::Tensor& out, const at::Tensor& in,
                                     std::string_view tensor) {
  BRAID_CHECK(in.numel() == out.numel() * size(), "reduce_scatter: sizes");
  if (in.numel() == 0) return {};
  if (size() == 1) {
    out.copy_(in.view(out.sizes()));
    return {};
  }
  count(Transfer::kReduceScatter, in, out);
  return start(together(Transfer::kReduceScatter, tensor, in),
               [&](c10d::Backend& backend, Passage& passage) {
                 at::Tensor to = passage.taken(out).view({-1}), from = passage.given(in).view({-1});
                 c10d::ReduceScatterOptions options;
                 options.timeout = timeout_of(context_);
                 return backend._reduce_scatter_base(to, from, options);
               });
}

Pending Communicator::all_gather(const at::Tensor& out, const at::Tensor& in,
                                 std::string_view tensor) {
  BRAID_CHECK(out.numel() == in.numel() * size(), "all_gather: sizes");
  if (in.numel() == 0) return {};
  if (size() == 1) {
    out.copy_(in.view(out.sizes()));
    return {};
  }
  count(Transfer::kAllGather, in, out);
  return start(together(Transfer::kAllGather, tensor, out),
               [&](c10d::Backend& backend, Passage& passage) {
                 at::Tensor to = passage.taken(out).view({-1}), from = passage.given(in).view({-1});
                 if (!passage.direct && !backend_->gathers) {
                   // Gloo's own takes as much memory as `out`, but on a thread of its own, where a
                   // lack of it comes too late: the others are within the operation.
                   at::Tensor copies = from.repeat({size()});
                   passage.held.push_back(copies);
                   c10d::AllToAllOptions options;
                   options.timeout = timeout_of(context_);
                   std::vector<int64_t> equal;
                   return backend.alltoall_base(to, copies, equal, equal, options);
                 }
                 c10d::AllgatherOptions options;
                 options.timeout = timeout_of(context_);
                 return backend._allgather_base(to, from, options);
               });
}

Pending Communicator::broadcast(const at::Tensor& inout, int64_t root, std::string_view tensor) {
  const int place = place_of(root);
  if (size() == 1 || inout.numel() == 0) return {};
  const bool gives = root == context_.global_rank;
  count(Transfer::kBroadcast, gives ? inout : at::Tensor(), gives ? at::Tensor() : inout);
  return start(together(Transfer::kBroadcast, tensor, inout),
               [&](c10d::Backend& backend, Passage& passage) {
                 std::vector<at::Tensor> list = {passage.changed(inout)};
                 c10d::BroadcastOptions options;
                 options.rootRank = place;
                 options.timeout = timeout_of(context_);
                 return backend.broadcast(list, options);
               });
}

Pending Communicator::all_to_all(const at::Tensor& out, const at::Tensor& in,
                                 std::vector<int64_t> out_rows, std::vector<int64_t> in_rows,
                                 std::string_view tensor) {
  if (size() == 1) {
    if (out.numel() > 0) out.copy_(in);
    return {};
  }
  count(Transfer::kAllToAll, in, out);
  return start(together(Transfer::kAllToAll, tensor, in),
               [&](c10d::Backend& backend, Passage& passage) {
                 at::Tensor to = passage.taken(out), from = passage.given(in);
                 c10d::AllToAllOptions options;
                 options.timeout = timeout_of(context_);
                 return backend.alltoall_base(to, from, out_rows, in_rows, options);
               });
}

Pending Communicator::send(const at::Tensor& data, int64_t to, int32_t channel,
                           std::string_view tensor) {
  const int place = place_of(to);
  BRAID_CHECK(to != context_.global_rank, "a rank sends itself nothing");
  if (data.numel() == 0) return {};
  count(Transfer::kSend, data, {});
  {
    const std::lock_guard lock(backend_->starting);
    sent_bytes_[to] += static_cast<int64_t>(data.nbytes());
  }
  return start(message(Transfer::kSend, tensor, data, to, channel),
               [&](c10d::Backend& backend, Passage& passage) {
                 std::vector<at::Tensor> list = {passage.given(data)};
                 return backend.send(list, place, tag_of(data, channel));
               });
}

Pending Communicator::receive(const at::Tensor& data, int64_t from, int32_t channel,
                              std::string_view tensor) {
  const int place = place_of(from);
  BRAID_CHECK(from != context_.global_rank, "a rank receives nothing from itself");
  if (data.numel() == 0) return {};
  count(Transfer::kReceive, {}, data);
  return start(message(Transfer::kReceive, tensor, data, from, channel),
               [&](c10d::Backend& backend, Passage& passage) {
                 std::vector<at::Tensor> list = {passage.taken(data)};
                 return backend.recv(list, place, tag_of(data, channel));
               });
}

Status Communicator::barrier(std::string_view where) {
  if (size() == 1) return {};
  return start({Transfer::kBarrier, where},
               [&](c10d::Backend& backend, Passage&) {
                 c10d::BarrierOptions options;
                 options.timeout = timeout_of(context_);
                 return backend.barrier(options);
               })
      .wait();
}

}  // namespace braid::inline comm
