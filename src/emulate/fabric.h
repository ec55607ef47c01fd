// The links of emulated devices, in memory that the ranks of this machine share: who uses which
// port from when to when. It repeats the rule of the simulator's ports (sim/task_graph.h): a
// transfer takes its ports together when all are free and keeps none while it waits; of those that
// want a port the one that was ready first gets it, of those ready at once the one of lower order.
// It knows no program and no trace: ranks come with what they are about to transfer.
//
// A transfer has a key, which its parties make of what they know alike. Each of them comes to it,
// since when it is ready, and goes on; one says what is transferred. Who awaits the transfer learns
// when it began and ends. Times are EmulatedClock's, and nobody has to wait for a transfer to
// begin: those that have come are served in the order of the rule, as of their own times, whenever
// someone awaits one. A transfer is served `grace_ns` after it was ready, so that what is ready at
// the same time and comes a little later is ordered by the rule and not by chance; it begins when
// it was ready all the same. Thread- and process-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "comm/communicator.h"
#include "emulate/clock.h"

namespace braid::inline emulate {

struct FabricOptions {
  int32_t ports = 0;
  int64_t grace_ns = 2000000;
  double deadline_s = 300;  // of a wait until a transfer begins
};

class Fabric {
 public:
  // All ranks of `everyone` together; they are processes of one machine. Errors: no shared memory.
  static Result<std::unique_ptr<Fabric>> share(Communicator& everyone,
                                               const FabricOptions& options);
  ~Fabric();
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;

  // The clock of the step, once it is known; before any transfer.
  void set_clock(const EmulatedClock& clock) { clock_ = clock; }

  struct Transfer {
    int32_t parties = 1;  // that it waits for
    int32_t awaited = 1;  // by so many; then its key is free again
    int64_t length_ns = 0;
    int64_t order = 0;
    std::vector<int32_t> ports;  // at most kMostPorts
  };
  static constexpr size_t kMostPorts = 256;
  // This party comes to a transfer, ready since then. `transfer`: of the party that says what it
  // is; null of the others. REQUIRES: the key is not 0. Errors: too many transfers.
  Status come(uint64_t key, int64_t ready_ns, const Transfer* transfer);

  struct Span {
    int64_t begin_ns = 0, end_ns = 0;
  };
  // When it passes, once it has begun. kDeadline: not in time.
  Result<Span> await(uint64_t key);
  // Both, of a transfer that all parties await.
  Result<Span> pass(uint64_t key, int64_t ready_ns, const Transfer* transfer);

 private:
  struct Shared;
  struct Slot;
  struct Port;
  Fabric(Shared* shared, const FabricOptions& options);
  // REQUIRED below: the mutex is held.
  Result<int32_t> slot_of(uint64_t key);
  int64_t begin_of(const Slot& slot) const;
  bool serve_one(int64_t now_ns);

  Shared* shared_;
  FabricOptions options_;
  EmulatedClock clock_;
};

}  // namespace braid::inline emulate
