// Messages between emulated ranks: a stand-in through the real c10d calls, the time on links that
// the ranks share. A message begins at once, and who has begun it waits for it as for a real one,
// perhaps much later: its time passes meanwhile. Thread-safe but for set_clock().
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <tuple>

#include "comm/world.h"
#include "emulate/fabric.h"
#include "emulate/rank_trace.h"
#include "emulate/stand_in.h"
#include "sim/step_prices.h"

namespace braid::inline emulate {

// Of a transfer, by what its parties know alike.
uint64_t transfer_key(std::initializer_list<int64_t> numbers);

class EmulatedLinks {
 public:
  // REQUIRES: all outlive this and what begin() gives.
  EmulatedLinks(World& world, Communicator& everyone, Fabric& fabric, const StepPrices& prices,
                RankTrace& trace)
      : world_(world), everyone_(everyone), fabric_(fabric), prices_(prices), trace_(trace) {}

  void set_clock(const EmulatedClock& clock) { clock_ = clock; }

  struct Message {  // this rank's side
    bool sends = false;
    DeviceId peer;
    int32_t channel = 0;  // of the group of all ranks
    double bytes = 0;
    int64_t what = 0;  // equal on both ranks, which find out where it is not
    int64_t order = 0;
    // Begins when both ranks are ready, and both wait until it has passed; else the sender's
    // readiness counts alone, and it waits for nothing.
    bool meets = false;
    EventKind event = EventKind::kPipeline;
    CallId call{-1};
    std::string name;
  };
  // Told the end when who has begun the message waits for it.
  using Passed = std::function<void(int64_t end_ns)>;
  // This rank is ready since then.
  Pending begin(const Message& message, int64_t ready_ns, Passed passed);

 private:
  class PassingMessage;
  uint64_t next_key(const Message& message);
  Status come(const Message& message, uint64_t key, int64_t ready_ns, const StandIn& mine);
  void note(const Message& message, const Fabric::Span& span);
  DeviceId rank() const { return DeviceId{static_cast<int32_t>(world_.global_rank())}; }

  World& world_;
  Communicator& everyone_;
  Fabric& fabric_;
  const StepPrices& prices_;
  RankTrace& trace_;
  EmulatedClock clock_;
  std::mutex mutex_;
  std::map<std::tuple<bool, DeviceId, int32_t>, int64_t> begun_;  // by direction, peer and channel
};

}  // namespace braid::inline emulate
