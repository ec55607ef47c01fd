#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <tuple>

#include "base/text.h"
#include "emulate/emulate.h"

namespace braid::inline emulate {
namespace {

using OpKey = std::tuple<DeviceId, EventKind, TrackKind, CallId, int32_t, DeviceId>;

// Ends of the events that are alike, in their order.
std::map<OpKey, std::vector<double>> ends_of(const Trace& trace) {
  std::map<OpKey, std::vector<double>> out;
  for (const TraceEvent& e : trace.events)
    if (e.track != TrackKind::kHost)
      out[{e.device, e.kind, e.track, e.call, e.micro_batch, e.peer}].push_back(e.end_s);
  for (const CallSummary& call : trace.calls)
    for (const auto& [device, span] : call.spans)
      out[{device, EventKind::kCall, TrackKind::kCompute, call.call, -1, DeviceId{-1}}].push_back(
          span.second);
  for (auto& [key, ends] : out) std::sort(ends.begin(), ends.end());
  return out;
}

using Spans = std::vector<std::pair<double, double>>;

// Sorted and without gaps or overlaps within.
Spans joined(Spans spans) {
  std::sort(spans.begin(), spans.end());
  Spans out;
  for (const auto& span : spans) {
    if (!out.empty() && span.first <= out.back().second)
      out.back().second = std::max(out.back().second, span.second);
    else
      out.push_back(span);
  }
  return out;
}

double length_of(const Spans& spans) {
  double sum = 0;
  for (const auto& [begin, end] : spans) sum += end - begin;
  return sum;
}

double common_length(const Spans& a, const Spans& b) {
  double sum = 0;
  for (const auto& x : a)
    for (const auto& y : b)
      sum += std::max(0.0, std::min(x.second, y.second) - std::max(x.first, y.first));
  return sum;
}

}  // namespace

TraceDifference compare_ops(const Trace& predicted, const Trace& emulated) {
  TraceDifference out;
  auto expected = ends_of(predicted), seen = ends_of(emulated);
  int64_t near = 0;
  double sum = 0;
  for (const auto& [key, ends] : expected) {
    const std::vector<double>& others = seen[key];
    const size_t common = std::min(ends.size(), others.size());
    out.unpaired += static_cast<int64_t>(std::max(ends.size(), others.size()) - common);
    for (size_t i = 0; i < common; ++i) {
      const double difference = std::abs(ends[i] - others[i]) / predicted.step_s;
      out.largest = std::max(out.largest, difference);
      sum += difference;
      if (difference <= 0.1) ++near;
    }
    out.ops += static_cast<int64_t>(common);
  }
  // Of the messages between stages the simulator's trace has those of the first tensor-parallel
  // rank.
  for (const auto& [key, ends] : seen)
    if (expected.count(key) == 0 && std::get<EventKind>(key) != EventKind::kPipeline)
      out.unpaired += static_cast<int64_t>(ends.size());
  if (out.ops > 0) out.mean = sum / static_cast<double>(out.ops);
  if (out.ops > 0) out.within = static_cast<double>(near) / static_cast<double>(out.ops);
  return out;
}

TraceShape shape_of(const Trace& trace) {
  std::map<DeviceId, Spans> computing, moving;
  for (const TraceEvent& e : trace.events) {
    if (e.track == TrackKind::kHost) continue;
    const bool computes = e.track == TrackKind::kCompute && e.kind != EventKind::kReduce;
    (computes ? computing : moving)[e.device].push_back({e.start_s, e.end_s});
  }
  double busy = 0, moved = 0, hidden = 0;
  for (auto& [device, spans] : computing) busy += length_of(spans = joined(spans));
  for (auto& [device, spans] : moving) {
    spans = joined(spans);
    moved += length_of(spans);
    hidden += common_length(spans, computing[device]);
  }
  const double all = trace.step_s * static_cast<double>(trace.devices.size());
  return {all > 0 ? 1 - busy / all : 0, moved > 0 ? hidden / moved : 0};
}

std::string emulation_text(const Emulation& emulation) {
  std::string out = " predicted |   emulated, seconds of the model\n";
  const auto line = [&](const std::string& name, double predicted, double emulated) {
    char numbers[64];
    std::snprintf(numbers, sizeof numbers, "%10.4g | %10.4g  ", predicted, emulated);
    out += numbers + name + "\n";
  };
  const Trace &a = emulation.predicted, &b = emulation.emulated;
  for (size_t i = 0; i < a.calls.size(); ++i)
    if (!a.calls[i].spans.empty())
      line(a.call_names[i], a.calls[i].seconds(), b.calls[i].seconds());
  line("step", a.step_s, b.step_s);
  return out;
}

}  // namespace braid::inline emulate
