// A trace: what ran where from when to when. The simulator makes one; a real run can fill the same
// type. Plain values. Invariants: events are sorted by (start, track), times are seconds from the
// beginning of the step.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/json.h"

namespace braid::inline sim {

// What a device has of its own: computation, each direction of each link, and the process on the
// host that feeds it.
enum class TrackKind { kCompute, kNvlinkOut, kNvlinkIn, kNetworkOut, kNetworkIn, kHostLink, kHost };
inline constexpr int kTrackKinds = 7;
const char* track_name(TrackKind kind);

enum class EventKind {
  kCall,          // a call without model, or one not cut into micro-batches
  kGenerate,      // a stream region of generation
  kForward,       // of one micro-batch on one stage
  kBackward,      // the same, recomputation included
  kOptimizer,     // optimizer step
  kReduce,        // gradients over data-parallel ranks, weights gathered again
  kReallocation,  // a message of parameters
  kExchange,      // a message of sample fields
  kPipeline,      // activations or their gradients between stages
  kLoad,          // state from host memory
  kOffload,       // state to host memory
};
const char* event_name(EventKind kind);

struct TraceEvent {
  EventKind kind = EventKind::kCall;
  TrackKind track = TrackKind::kCompute;
  DeviceId device;
  CallId call;  // -1: none
  double start_s = 0, end_s = 0;
  int32_t instruction = -1;  // in the list of the device
  int32_t micro_batch = -1;
  DeviceId peer{-1};  // messages
  double bytes = 0;   // messages
  friend bool operator==(const TraceEvent&, const TraceEvent&) = default;
};

// Who holds memory of a device.
enum class MemoryOwner {
  kWeights,      // home copies of the roles
  kGradients,    //
  kOptimizer,    // master weights and moments
  kCopies,       // weights in the layout of another call
  kActivations,  //
  kLogits,       //
  kKvCache,      //
  kGathered,     // blocks that ZeRO-3 holds unsharded
  kStaging,      // messages under way
  kFields,       // sample store
  kFixed,        // workspaces and communication buffers
};
inline constexpr int kMemoryOwners = 11;
const char* memory_owner_name(MemoryOwner owner);

struct MemoryUse {
  std::array<double, kMemoryOwners> bytes{};
  double& operator[](MemoryOwner owner) { return bytes[static_cast<size_t>(owner)]; }
  double operator[](MemoryOwner owner) const { return bytes[static_cast<size_t>(owner)]; }
  double total() const;
  friend bool operator==(const MemoryUse&, const MemoryUse&) = default;
};

struct MemoryPoint {
  double at_s = 0;
  int32_t instruction = -1;
  MemoryUse use;
  double held_bytes = 0;  // of `use`, allocator's reserve included
  friend bool operator==(const MemoryPoint&, const MemoryPoint&) = default;
};

struct DeviceSummary {
  double busy_s = 0;                // computing
  double transfer_s = 0;            // its busiest link
  double peak_bytes = 0;            // live tensors, allocator reserve included
  double limit_bytes = 0;           // what a process may use
  MemoryPoint peak;                 // where the peak is, and who holds what
  std::vector<MemoryPoint> memory;  // after every change; empty unless asked for
  friend bool operator==(const DeviceSummary&, const DeviceSummary&) = default;
};

struct CallSummary {
  CallId call;
  double start_s = 0, end_s = 0;  // first start and last end on any device
  double busy_s = 0;              // computing, mean over the devices of its mesh
  int64_t rounds = 0;             // of a stream region: executions of its body, most of any device
  std::map<DeviceId, std::pair<double, double>> spans;  // start and end on each of its devices
  double seconds() const { return end_s - start_s; }
  friend bool operator==(const CallSummary&, const CallSummary&) = default;
};

// The first place, in time, where a device runs out of memory.
struct MemoryOverflow {
  DeviceId device;
  CallId call;
  MemoryPoint point;
  double limit_bytes = 0;
  friend bool operator==(const MemoryOverflow&, const MemoryOverflow&) = default;
};

// State of roles that waits in the memory of a node's host.
struct HostSummary {
  double bytes = 0;
  double limit_bytes = 0;  // 0 = not limited
  bool fits() const { return limit_bytes <= 0 || bytes <= limit_bytes; }
  friend bool operator==(const HostSummary&, const HostSummary&) = default;
};

struct Trace {
  std::vector<std::string> call_names;  // of the graph
  double step_s = 0;
  std::vector<TraceEvent> events;  // empty unless asked for
  std::vector<DeviceSummary> devices;
  std::vector<HostSummary> hosts;  // by node
  std::vector<CallSummary> calls;
  std::optional<MemoryOverflow> overflow;
  int64_t instructions = 0;  // executed on all ranks: region bodies and schedule ops counted
  friend bool operator==(const Trace&, const Trace&) = default;
};

// Mean over devices of the time computing.
double utilisation(const Trace& trace);
double peak_bytes(const Trace& trace);  // of the fullest device
// Bytes at the peak of every device while each call runs on it, [call][device], allocator reserve
// included; 0 on devices that the call does not use. REQUIRES: the trace has its memory curves.
std::vector<std::vector<double>> peaks_by_call(const Trace& trace);
// "device 3 runs out of memory in instruction 17 (update_actor): weights 26.1 GiB + ... = 84.2 GiB,
// limit 78.9 GiB".
std::string overflow_text(const Trace& trace, const MemoryOverflow& overflow);

// The first device or host that runs out of memory, in words; "" where everything fits.
std::string memory_problem(const Trace& trace);

// Of the JSON that `braid simulate` and `braid plan` print: rises when a key changes its meaning or
// goes, not when one is added.
inline constexpr int kOutputVersion = 1;

// Step time, calls, utilisation and memory; no events.
Json trace_summary_json(const Trace& trace);

}  // namespace braid::inline sim
