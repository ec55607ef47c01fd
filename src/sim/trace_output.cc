#include "sim/trace_output.h"

#include <algorithm>
#include <cstdio>
#include <set>

#include "base/text.h"
#include "sim/timeline_page.h"

namespace braid::inline sim {
namespace {

constexpr double kMicro = 1e6;

std::string call_name(const Trace& trace, CallId call) {
  return call.value < 0 ? "" : trace.call_names[call.value];
}

std::string event_title(const Trace& trace, const TraceEvent& event) {
  std::string name = call_name(trace, event.call);
  if (event.kind != EventKind::kCall && event.kind != EventKind::kGenerate)
    name += cat(" ", event_name(event.kind));
  if (event.micro_batch >= 0) name += cat(" ", event.micro_batch);
  return name;
}

Json name_event(const char* what, int32_t device, int thread, const std::string& name) {
  return {
      {"ph", "M"}, {"name", what}, {"pid", device}, {"tid", thread}, {"args", {{"name", name}}}};
}

// A letter for each call, its own where possible.
std::vector<char> call_letters(const Trace& trace) {
  std::vector<char> letters;
  std::set<char> used;
  for (const std::string& name : trace.call_names) {
    char letter = 0;
    for (const char c : name + "abcdefghijklmnopqrstuvwxyz0123456789")
      if (letter == 0 && c != '_' && used.count(c) == 0) letter = c;
    used.insert(letter);
    letters.push_back(letter == 0 ? '?' : letter);
  }
  return letters;
}

std::string call_table(const Trace& trace, const std::vector<char>& letters) {
  std::string out = cat("step ", format_seconds(trace.step_s), ", devices compute ");
  char text[160];
  std::snprintf(text, sizeof text, "%.1f %% of it, peak memory %s%s\n", 100 * utilisation(trace),
                format_bytes(peak_bytes(trace)).c_str(),
                memory_problem(trace).empty() ? "" : " (does not fit)");
  out += text;
  // One unit for all, so that columns can be compared.
  const bool milliseconds = trace.step_s < 1;
  const char* unit = milliseconds ? "ms" : "s";
  const double scale = milliseconds ? 1e3 : 1;
  std::snprintf(text, sizeof text, "  %-16s %11s%s %11s%s %11s%s %11s%s\n", "call", "begin ", unit,
                "end ", unit, "takes ", unit, "computes ", unit);
  out += text;
  const int pad = milliseconds ? 13 : 12;
  for (const CallSummary& call : trace.calls) {
    std::snprintf(text, sizeof text, "%c %-16s %*.3f %*.3f %*.3f %*.3f\n", letters[call.call.value],
                  trace.call_names[call.call.value].c_str(), pad, scale * call.start_s, pad,
                  scale * call.end_s, pad, scale * call.seconds(), pad, scale * call.busy_s);
    out += text;
  }
  return out;
}

// Seconds of each call in each column of one device: [column][call].
std::vector<std::vector<double>> columns(const Trace& trace, DeviceId device, int width) {
  std::vector<std::vector<double>> out(width, std::vector<double>(trace.call_names.size(), 0));
  const double each = trace.step_s / width;
  for (const TraceEvent& event : trace.events) {
    if (event.device != device || event.track != TrackKind::kCompute || event.call.value < 0)
      continue;
    const int first = std::clamp(static_cast<int>(event.start_s / each), 0, width - 1);
    const int last = std::clamp(static_cast<int>(event.end_s / each), 0, width - 1);
    for (int c = first; c <= last; ++c)
      out[c][event.call.value] +=
          std::max(0.0, std::min(event.end_s, (c + 1) * each) - std::max(event.start_s, c * each));
  }
  return out;
}

}  // namespace

Json chrome_trace_json(const Trace& trace) {
  Json events = Json::array();
  std::set<std::pair<int32_t, int>> tracks;
  for (const TraceEvent& event : trace.events) {
    const int thread = static_cast<int>(event.track);
    tracks.insert({event.device.value, thread});
    Json args = {{"instruction", event.instruction}, {"kind", event_name(event.kind)}};
    if (event.peer.value >= 0) args["peer"] = event.peer.value;
    if (event.bytes > 0) args["bytes"] = event.bytes;
    events.push_back({{"ph", "X"},
                      {"name", event_title(trace, event)},
                      {"cat", event_name(event.kind)},
                      {"pid", event.device.value},
                      {"tid", thread},
                      {"ts", event.start_s * kMicro},
                      {"dur", (event.end_s - event.start_s) * kMicro},
                      {"args", args}});
  }
  for (size_t i = 0; i < trace.devices.size(); ++i) {
    const auto device = static_cast<int32_t>(i);
    events.push_back(name_event("process_name", device, 0, cat("device ", i)));
    for (const MemoryPoint& point : trace.devices[i].memory)
      events.push_back({{"ph", "C"},
                        {"name", "memory"},
                        {"pid", device},
                        {"ts", point.at_s * kMicro},
                        {"args", {{"bytes", point.use.total()}}}});
  }
  for (const auto& [device, thread] : tracks)
    events.push_back(
        name_event("thread_name", device, thread, track_name(static_cast<TrackKind>(thread))));
  return {{"traceEvents", events}, {"displayTimeUnit", "ms"}};
}

std::string gantt_text(const Trace& trace, int width) {
  const std::vector<char> letters = call_letters(trace);
  std::string out;
  for (size_t i = 0; i < trace.devices.size(); ++i) {
    char head[24];
    std::snprintf(head, sizeof head, "%4zu |", i);
    out += head;
    for (const auto& column : columns(trace, DeviceId{static_cast<int32_t>(i)}, width)) {
      const auto most = std::max_element(column.begin(), column.end());
      out += most == column.end() || *most <= 0 ? '.' : letters[most - column.begin()];
    }
    out += "|\n";
  }
  return out + call_table(trace, letters);
}

std::string timeline_html(const Trace& trace, const std::string& title) {
  Json events = Json::array();
  for (const TraceEvent& e : trace.events)
    events.push_back({e.device.value, static_cast<int>(e.track), e.start_s, e.end_s, e.call.value,
                      event_title(trace, e), e.peer.value, e.bytes});
  Json memory = Json::array();
  for (const DeviceSummary& device : trace.devices) {
    Json points = Json::array();
    for (const MemoryPoint& point : device.memory)
      points.push_back({point.at_s, point.use.total()});
    memory.push_back({{"points", points}, {"limit", device.limit_bytes}});
  }
  Json tracks = Json::array();
  for (int i = 0; i < kTrackKinds; ++i) tracks.push_back(track_name(static_cast<TrackKind>(i)));
  const Json data = {{"title", title},
                     {"step_s", trace.step_s},
                     {"calls", trace.call_names},
                     {"events", events},
                     {"memory", memory},
                     {"tracks", tracks},
                     {"summary", call_table(trace, call_letters(trace))}};
  // "</" would end the script early.
  std::string text = data.dump();
  for (size_t at = text.find("</"); at != std::string::npos; at = text.find("</", at + 3))
    text.replace(at, 2, "<\\/");
  std::string page = kTimelinePage;
  const std::string mark = "@DATA@";
  return page.replace(page.find(mark), mark.size(), text);
}

}  // namespace braid::inline sim
