// Traces for people and tools: Chrome trace JSON (Perfetto), a text Gantt chart, and an HTML page
// that needs nothing but itself. Pure.
#pragma once

#include <string>

#include "sim/trace.h"

namespace braid::inline sim {

// Trace Event Format, "JSON object format": a process per device, a thread per track, complete
// events in microseconds, memory as counters.
Json chrome_trace_json(const Trace& trace);

// One line per device, `width` characters for the step: the initial of the call that computes most
// in each of them, "." for waiting; then a legend and the table of calls.
std::string gantt_text(const Trace& trace, int width = 96);

// Timeline of all devices with their links, memory of each device, table of calls.
std::string timeline_html(const Trace& trace, const std::string& title);

}  // namespace braid::inline sim
