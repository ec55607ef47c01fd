#include "emulate/rank_use.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <iterator>

#include "host/machine.h"

namespace braid::inline emulate {
namespace {

double open_files() {
  std::error_code error;
  const std::filesystem::directory_iterator files("/proc/self/fd", error);
  return error ? 0 : static_cast<double>(std::distance(begin(files), end(files)));
}

}  // namespace

RankUse use_so_far(const World& world) {
  RankUse out;
  for (int kind = 0; kind < static_cast<int>(Transfer::kCount); ++kind) {
    const auto transfer = static_cast<Transfer>(kind);
    const Traffic traffic = world.traffic(transfer);
    const auto calls = static_cast<double>(traffic.calls);
    out.calls += calls;
    if (transfer == Transfer::kSend || transfer == Transfer::kReceive) out.messages += calls;
    out.given += static_cast<double>(traffic.given);
    out.received += static_cast<double>(traffic.received);
  }
  out.store_requests = static_cast<double>(world.store_requests());
  out.open_files = open_files();
  out.wired_to = static_cast<double>(world.wired_to());
  out.peak_bytes = static_cast<double>(peak_memory_bytes());
  out.cpu_s = static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
  return out;
}

RankUse use_since(const RankUse& before, const RankUse& now) {
  RankUse out = now;
  out.calls -= before.calls;
  out.messages -= before.messages;
  out.given -= before.given;
  out.received -= before.received;
  out.store_requests -= before.store_requests;
  return out;
}

Result<std::vector<RankUse>> gather_use(Communicator& everyone, const RankUse& own) {
  const at::Tensor mine = at::zeros({kNumbersOfUse}, at::kDouble);
  const at::Tensor all = at::zeros({everyone.size() * kNumbersOfUse}, at::kDouble);
  const double numbers[kNumbersOfUse] = {own.calls,          own.messages,   own.round_calls,
                                         own.calls_of_each,  own.given,      own.received,
                                         own.store_requests, own.open_files, own.wired_to,
                                         own.peak_bytes,     own.cpu_s};
  std::copy(numbers, numbers + kNumbersOfUse, mine.mutable_data_ptr<double>());
  BRAID_TRY(everyone.all_gather(all, mine, "what ranks take").wait());
  std::vector<RankUse> out;
  const auto* n = all.const_data_ptr<double>();
  for (int64_t rank = 0; rank < everyone.size(); ++rank, n += kNumbersOfUse)
    out.push_back({n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7], n[8], n[9], n[10]});
  return out;
}

}  // namespace braid::inline emulate
