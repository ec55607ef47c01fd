#include "sim/trace.h"

#include <algorithm>

#include "base/text.h"
#include "base/units.h"

namespace braid::inline sim {

const char* track_name(TrackKind kind) {
  switch (kind) {
    case TrackKind::kCompute:
      return "compute";
    case TrackKind::kNvlinkOut:
      return "node_out";
    case TrackKind::kNvlinkIn:
      return "node_in";
    case TrackKind::kNetworkOut:
      return "network_out";
    case TrackKind::kNetworkIn:
      return "network_in";
    case TrackKind::kHostLink:
      return "host_link";
    case TrackKind::kHost:
      return "host";
  }
  return "?";
}

const char* event_name(EventKind kind) {
  static const char* const kNames[] = {"call",      "generate", "forward",      "backward",
                                       "optimizer", "reduce",   "reallocation", "exchange",
                                       "pipeline",  "load",     "offload"};
  return kNames[static_cast<int>(kind)];
}

const char* memory_owner_name(MemoryOwner owner) {
  static const char* const kNames[] = {"weights",     "gradients", "optimizer", "copies",
                                       "activations", "logits",    "kv_cache",  "gathered",
                                       "staging",     "fields",    "fixed"};
  return kNames[static_cast<int>(owner)];
}

double MemoryUse::total() const {
  double sum = 0;
  for (const double value : bytes) sum += value;
  return sum;
}

double utilisation(const Trace& trace) {
  if (trace.devices.empty() || trace.step_s <= 0) return 0;
  double busy = 0;
  for (const DeviceSummary& device : trace.devices) busy += device.busy_s;
  return busy / (trace.step_s * static_cast<double>(trace.devices.size()));
}

double peak_bytes(const Trace& trace) {
  double peak = 0;
  for (const DeviceSummary& device : trace.devices) peak = std::max(peak, device.peak_bytes);
  return peak;
}

std::vector<std::vector<double>> peaks_by_call(const Trace& trace) {
  std::vector<std::vector<double>> peaks(trace.calls.size(),
                                         std::vector<double>(trace.devices.size(), 0));
  for (size_t d = 0; d < trace.devices.size(); ++d) {
    const DeviceSummary& device = trace.devices[d];
    for (size_t i = 0; i < device.memory.size(); ++i) {
      // Only the last of several changes at one time lasts.
      const double from_s = device.memory[i].at_s;
      const double to_s = i + 1 < device.memory.size() ? device.memory[i + 1].at_s : trace.step_s;
      if (to_s <= from_s) continue;
      for (size_t c = 0; c < trace.calls.size(); ++c) {
        const auto span = trace.calls[c].spans.find(DeviceId{static_cast<int32_t>(d)});
        if (span == trace.calls[c].spans.end()) continue;
        const auto [start_s, end_s] = span->second;
        if (from_s < end_s && to_s > start_s)
          peaks[c][d] = std::max(peaks[c][d], device.memory[i].held_bytes);
      }
    }
  }
  return peaks;
}

std::string overflow_text(const Trace& trace, const MemoryOverflow& overflow) {
  std::vector<std::string> parts;
  for (int i = 0; i < kMemoryOwners; ++i) {
    const auto owner = static_cast<MemoryOwner>(i);
    if (overflow.point.use[owner] > 0)
      parts.push_back(cat(memory_owner_name(owner), " ", format_bytes(overflow.point.use[owner])));
  }
  std::string where = "before the step";
  if (overflow.point.instruction >= 0) where = cat("in instruction ", overflow.point.instruction);
  if (overflow.call.value >= 0) where += cat(" (", trace.call_names[overflow.call.value], ")");
  return cat("device ", overflow.device, " runs out of memory ", where, ": ", join(parts, " + "),
             " = ", format_bytes(overflow.point.use.total()),
             ", with the allocator's reserve above the limit of ",
             format_bytes(overflow.limit_bytes));
}

std::string memory_problem(const Trace& trace) {
  if (trace.overflow) return overflow_text(trace, *trace.overflow);
  for (size_t node = 0; node < trace.hosts.size(); ++node)
    if (const HostSummary& host = trace.hosts[node]; !host.fits())
      return cat("the host of node ", node, " runs out of memory: weights and optimizer states of ",
                 format_bytes(host.bytes),
                 " wait there, above plan.host_memory_gib = ", format_bytes(host.limit_bytes));
  return "";
}

namespace {

Json memory_json(const MemoryPoint& point) {
  Json out = {{"at_s", point.at_s}, {"instruction", point.instruction}};
  for (int i = 0; i < kMemoryOwners; ++i) {
    const auto owner = static_cast<MemoryOwner>(i);
    if (point.use[owner] != 0) out["bytes"][memory_owner_name(owner)] = point.use[owner];
  }
  return out;
}

}  // namespace

Json trace_summary_json(const Trace& trace) {
  Json out = {{"version", kOutputVersion},
              {"step_s", trace.step_s},
              {"utilisation", utilisation(trace)},
              {"peak_gib", peak_bytes(trace) / kGib},
              {"fits", memory_problem(trace).empty()},
              {"instructions", trace.instructions}};
  for (const CallSummary& call : trace.calls)
    out["calls"][trace.call_names[call.call.value]] = {{"start_s", call.start_s},
                                                       {"end_s", call.end_s},
                                                       {"seconds", call.seconds()},
                                                       {"busy_s", call.busy_s},
                                                       {"rounds", call.rounds}};
  out["devices"] = Json::array();
  for (const DeviceSummary& device : trace.devices)
    out["devices"].push_back({{"busy_s", device.busy_s},
                              {"transfer_s", device.transfer_s},
                              {"peak_gib", device.peak_bytes / kGib},
                              {"limit_gib", device.limit_bytes / kGib},
                              {"peak", memory_json(device.peak)}});
  out["hosts"] = Json::array();
  for (const HostSummary& host : trace.hosts)
    out["hosts"].push_back(
        {{"waiting_gib", host.bytes / kGib}, {"limit_gib", host.limit_bytes / kGib}});
  if (const std::string problem = memory_problem(trace); !problem.empty())
    out["overflow"] = problem;
  return out;
}

}  // namespace braid::inline sim
