// Logging to standard error. Thread-safe. A line is the time of day, the level (in color on a
// terminal, unless NO_COLOR is set) and the message.
#pragma once

#include <string>

namespace braid::inline base {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

void log(LogLevel level, const std::string& message);
inline void log_debug(const std::string& message) { log(LogLevel::kDebug, message); }
inline void log_info(const std::string& message) { log(LogLevel::kInfo, message); }
inline void log_warning(const std::string& message) { log(LogLevel::kWarning, message); }
inline void log_error(const std::string& message) { log(LogLevel::kError, message); }

// Messages below this level are dropped; the initial level is kInfo.
void set_log_level(LogLevel level);

}  // namespace braid::inline base
