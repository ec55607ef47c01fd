#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

namespace braid::inline base {
namespace {

spdlog::level::level_enum spdlog_level(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto created = spdlog::stderr_color_mt("braid");
    created->set_pattern("%H:%M:%S %^%l%$ %v");
    return created;
  }();
  return *instance;
}

}  // namespace

void log(LogLevel level, const std::string& message) {
  logger().log(spdlog_level(level), spdlog::string_view_t(message.data(), message.size()));
}

void set_log_level(LogLevel level) { logger().set_level(spdlog_level(level)); }

}  // namespace braid::inline base
