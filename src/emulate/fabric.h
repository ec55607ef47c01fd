// The links of emulated devices, in memory that the ranks of this machine share: who uses which
// port from when to when. It repeats the rule of the simulator's ports (sim/task_graph.h): a
// transfer takes its ports together when all are free and keeps none while it waits; of those that
// want a port the one that was ready first gets it, of those ready at once the one of lower order.
// It knows no program and no trace: ranks come with what they are about to transfer.
//
// A transfer is a slot. One of its parties opens it and tells the others its number over the real
// transport; each passes through it, and leaves it when its end has come. Times are
// EmulatedClock's. A transfer is served `grace_ns` after it was ready, so that what is ready at the
// same time and arrives a little later is ordered by the rule and not by chance; it begins when it
// was ready all the same. Thread- and process-safe.
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
  double deadline_s = 300;  // of a wait for the other parties and for ports
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
    int32_t parties = 2;
    int64_t length_ns = 0;
    int64_t order = 0;
    std::vector<int32_t> ports;  // at most kMostPorts
  };
  static constexpr size_t kMostPorts = 256;
  // The number of a slot. Errors: none is free.
  Result<int32_t> open(const Transfer& transfer);

  struct Span {
    int64_t begin_ns = 0, end_ns = 0;
  };
  // This party is ready since `ready_ns`: waits until all are and the ports are free. kDeadline:
  // not in time.
  Result<Span> pass(int32_t slot, int64_t ready_ns);
  // Every party, once the end has come; the first frees the ports.
  void leave(int32_t slot);

 private:
  struct Shared;
  Fabric(Shared* shared, const FabricOptions& options);
  void serve(int64_t now_ns);  // REQUIRES: the mutex is held

  Shared* shared_;
  FabricOptions options_;
  EmulatedClock clock_;
};

}  // namespace braid::inline emulate
