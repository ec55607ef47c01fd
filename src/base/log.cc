#include "base/log.h"

#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "base/log_observer.h"
#include "base/text.h"

namespace braid::inline base {
namespace {

struct LevelStyle {
  const char* name;
  const char* color;  // an escape sequence of terminals
};

constexpr std::array<LevelStyle, 4> kStyles = {{{"debug", "\033[36m"},
                                                {"info", "\033[32m"},
                                                {"warning", "\033[1;33m"},
                                                {"error", "\033[1;31m"}}};
constexpr const char* kPlain = "\033[m";

std::atomic<LogLevel> lowest_level = LogLevel::kInfo;
std::atomic<LogObserver> observer = nullptr;

bool shows_colors() {
  const char* terminal = std::getenv("TERM");
  return ::isatty(STDERR_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr &&
         terminal != nullptr && std::string_view(terminal) != "dumb";
}

std::string time_of_day() {
  const time_t now = ::time(nullptr);
  tm parts = {};
  ::localtime_r(&now, &parts);
  std::array<char, sizeof("23:59:60")> text = {};
  return {text.data(), ::strftime(text.data(), text.size(), "%H:%M:%S", &parts)};
}

}  // namespace

void log(LogLevel level, const std::string& message) {
  if (level < lowest_level) return;
  static const bool colors = shows_colors();
  const LevelStyle& style = kStyles.at(static_cast<size_t>(level));
  const std::string line = cat(time_of_day(), " ", colors ? style.color : "", style.name,
                               colors ? kPlain : "", " ", message, "\n");
  // In one write: lines of several threads and processes do not mix.
  std::fwrite(line.data(), 1, line.size(), stderr);
  if (const LogObserver told = observer) told(level, message);
}

void set_log_observer(LogObserver told) { observer = told; }

void set_log_level(LogLevel level) { lowest_level = level; }

}  // namespace braid::inline base
