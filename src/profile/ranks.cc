#include "profile/ranks.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <chrono>
#include <numeric>

#include "base/text.h"
#include "pricing/collective.h"

namespace braid::inline profile {
namespace {

constexpr int64_t kBytes[] = {int64_t{1} << 12, int64_t{1} << 16, int64_t{1} << 20,
                              int64_t{1} << 24};

// How often: as often on every rank, or they would wait for each other without end.
int repetitions(int64_t bytes) { return bytes > (int64_t{1} << 21) ? 10 : 50; }

// The mean of so many after one that warms up: where ranks share cores, some exchanges wait for a
// slice of time and most do not, so a median says nothing of their sum.
Result<double> mean_of(int times, const std::function<Status()>& work) {
  using Clock = std::chrono::steady_clock;
  BRAID_TRY(work());
  const auto start = Clock::now();
  for (int i = 0; i < times; ++i) BRAID_TRY(work());
  return std::chrono::duration<double>(Clock::now() - start).count() / times;
}

// Numbers in f32 of which `bytes` are a whole number of equal parts.
at::Tensor buffer(int64_t bytes, int64_t parts) {
  return at::zeros({std::max<int64_t>(1, bytes / 4 / parts) * parts}, at::kFloat);
}

// One collective over a buffer of so many bytes; whole buffers count, as in nccl-tests.
Status run_collective(CollectiveOp op, Communicator& group, const at::Tensor& whole,
                      const at::Tensor& part) {
  switch (op) {
    case CollectiveOp::kAllReduce:
      return group.all_reduce(whole, Reduce::kSum, "a measurement").wait();
    case CollectiveOp::kAllGather:
      return group.all_gather(whole, part, "a measurement").wait();
    case CollectiveOp::kReduceScatter:
      return group.reduce_scatter(part, whole, "a measurement").wait();
    default:
      return group.broadcast(whole, group.members().front(), "a measurement").wait();
  }
}

Status measure_group(Communicator& group, Profile* profile) {
  const int64_t size = group.size();
  for (const CollectiveOp op : {CollectiveOp::kAllReduce, CollectiveOp::kAllGather,
                                CollectiveOp::kReduceScatter, CollectiveOp::kBroadcast})
    for (const int64_t bytes : kBytes) {
      const at::Tensor whole = buffer(bytes, size), part = at::zeros({whole.numel() / size});
      BRAID_ASSIGN(const double seconds, mean_of(repetitions(bytes), [&] {
                     return run_collective(op, group, whole, part);
                   }));
      profile->collectives.push_back({collective_name(op), static_cast<int>(size), true,
                                      static_cast<double>(whole.nbytes()), seconds});
    }
  return ok_status();
}

// There and back between two ranks, halved.
Result<double> send_s(Communicator& pair, int64_t bytes) {
  const at::Tensor data = buffer(bytes, 1);
  const bool first = pair.index() == 0;
  const int64_t peer = pair.members()[first ? 1 : 0];
  const auto send = [&] { return pair.send(data, peer, 0, "a measurement").wait(); };
  const auto receive = [&] { return pair.receive(data, peer, 0, "a measurement").wait(); };
  BRAID_ASSIGN(const double both, mean_of(repetitions(bytes), [&] {
                 BRAID_TRY(first ? send() : receive());
                 return first ? receive() : send();
               }));
  return both / 2;
}

}  // namespace

Status measure_communication(World& world, Profile* profile) {
  const int64_t ranks = world.world_size();
  std::vector<int64_t> sizes;
  for (int64_t size = 2; size < ranks; size *= 2)
    if (ranks % size == 0) sizes.push_back(size);
  sizes.push_back(ranks);
  for (const int64_t size : sizes) {
    std::vector<int64_t> members(size);
    std::iota(members.begin(), members.end(), world.global_rank() / size * size);
    BRAID_ASSIGN(Communicator* const group, world.group(cat("profile ", size), members));
    BRAID_TRY(measure_group(*group, profile));
  }
  const int64_t even = world.global_rank() / 2 * 2;
  if (ranks % 2 != 0 || even + 1 >= ranks) return ok_status();
  BRAID_ASSIGN(Communicator* const pair, world.group("profile pair", {even, even + 1}));
  BRAID_ASSIGN(const double latency, send_s(*pair, kBytes[0]));
  BRAID_ASSIGN(const double large, send_s(*pair, kBytes[3]));
  const double rate = static_cast<double>(kBytes[3]) / std::max(large - latency, 1e-9);
  profile->efficiencies["nvlink_latency_us"] = latency * 1e6;
  profile->efficiencies["pcie_share"] = rate / (profile->gpu.pcie_gbytes_per_s * 1e9);
  return ok_status();
}

Status average_over_ranks(World& world, Profile* profile) {
  std::vector<double*> numbers = {&profile->gpu.bf16_tflops, &profile->gpu.hbm_gbytes_per_s,
                                  &profile->gpu.pcie_gbytes_per_s};
  for (LayerTime& time : profile->layers) numbers.push_back(&time.seconds);
  for (CollectiveTime& time : profile->collectives) numbers.push_back(&time.seconds);
  for (auto& [name, value] : profile->efficiencies) numbers.push_back(&value);
  const at::Tensor all = at::zeros({static_cast<int64_t>(numbers.size())}, at::kDouble);
  for (size_t i = 0; i < numbers.size(); ++i) all.mutable_data_ptr<double>()[i] = *numbers[i];
  BRAID_ASSIGN(Communicator* const everyone, world.everyone());
  BRAID_TRY(everyone->all_reduce(all, Reduce::kSum, "measured times").wait());
  for (size_t i = 0; i < numbers.size(); ++i)
    *numbers[i] = all.const_data_ptr<double>()[i] / static_cast<double>(world.world_size());
  return ok_status();
}

}  // namespace braid::inline profile
