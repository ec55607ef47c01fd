// SIGTERM, SIGINT and SIGHUP as a wish to stop after the present step. Process-wide; the flag may
// be read from any thread.
#pragma once

#include <string>

namespace braid::inline host {

// From now on the first of these signals is noted; SIGTERM or SIGINT more than two seconds later
// ends the process at once, as it would without this call. SIGHUP stays ignored where it was
// (nohup).
void catch_stop_signals();

// "SIGTERM", "SIGINT" or "SIGHUP" once one arrived, else "".
std::string stop_signal();

// Seconds since it was first noted; below 0 where none was.
double seconds_since_stop_signal();

}  // namespace braid::inline host
