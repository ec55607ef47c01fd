#include <unistd.h>

#include <array>
#include <utility>

#include "base/text.h"
#include "comm/watchdog.h"
#include "host/file.h"

namespace braid::inline comm {
namespace {

struct ProcessStat {
  char state = 0;
  std::string start;  // clock ticks after the start of the system: tells a reused number apart
};

// proc(5), /proc/PID/stat: fields 3 and 22; the name in field 2 may hold blanks and brackets.
ProcessStat read_stat(int64_t pid) {
  const auto text = read_file(cat("/proc/", pid, "/stat"));
  if (!text.ok()) return {};
  const size_t end = text->rfind(')');
  if (end == std::string::npos || end + 2 >= text->size()) return {};
  const std::vector<std::string> fields = split(text->substr(end + 2), ' ');
  if (fields.size() < 20 || fields[0].empty()) return {};
  return {fields[0][0], fields[19]};
}

std::string machine_identity() {
  const auto text = read_file("/proc/sys/kernel/random/boot_id");
  // Containers of one machine number their processes apart.
  std::array<char, 64> space{};
  const ssize_t size = ::readlink("/proc/self/ns/pid", space.data(), space.size());
  if (!text.ok() || size <= 0) return "unknown";
  return cat(trim(*text), "/", std::string_view(space.data(), size));
}

// State and number of a process of this machine.
std::pair<ProcessState, pid_t> look_at(const std::string& identity) {
  const std::vector<std::string> parts = split(identity, ' ');
  int64_t pid = 0;
  if (parts.size() != 3 || !parse_int(parts[1], &pid) || parts[2].empty() ||
      parts[0] == "unknown" || parts[0] != machine_identity())
    return {ProcessState::kElsewhere, -1};
  const ProcessStat stat = read_stat(pid);
  const auto number = static_cast<pid_t>(pid);
  if (stat.state == 0 || stat.start != parts[2] || stat.state == 'Z' || stat.state == 'X')
    return {ProcessState::kGone, number};
  const bool stopped = stat.state == 'T' || stat.state == 't';
  return {stopped ? ProcessState::kStopped : ProcessState::kRunning, number};
}

}  // namespace

std::string process_identity() {
  return cat(machine_identity(), " ", ::getpid(), " ", read_stat(::getpid()).start);
}

std::string process_text(const std::string& identity) {
  const auto [state, pid] = look_at(identity);
  return state == ProcessState::kElsewhere ? std::string("a process of another machine")
                                           : cat("process ", pid, " of this machine");
}

ProcessState process_state(const std::string& identity) { return look_at(identity).first; }

std::optional<pid_t> living_process(const std::string& identity) {
  const auto [state, pid] = look_at(identity);
  const bool lives = state == ProcessState::kRunning || state == ProcessState::kStopped;
  return lives ? std::optional<pid_t>(pid) : std::nullopt;
}

}  // namespace braid::inline comm
