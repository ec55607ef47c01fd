#include "host/stop_signal.h"

#include <signal.h>
#include <time.h>

#include <atomic>
#include <cstdint>

namespace braid::inline host {
namespace {

volatile sig_atomic_t g_signal = 0;
std::atomic<int64_t> g_signal_ns{0};  // lock-free, so that the handler may write it

int64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// A terminal sends its signal to every process of a job, and those that started the ranks pass it
// on: what comes so soon after the first is the same wish. A terminal that closes is no second one.
constexpr int64_t kSameWish_ns = 2'000'000'000;

void note_signal(int number) {
  const int64_t now_ns = monotonic_ns();
  int64_t first_ns = 0;
  // Whoever read our output may have ended with the terminal.
  if (number == SIGHUP) signal(SIGPIPE, SIG_IGN);
  if (g_signal_ns.compare_exchange_strong(first_ns, now_ns)) {
    g_signal = number;
  } else if (number != SIGHUP && now_ns - first_ns > kSameWish_ns) {
    signal(number, SIG_DFL);
    raise(number);
  }
}

}  // namespace

void catch_stop_signals() {
  struct sigaction action {};
  action.sa_handler = note_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (const int number : {SIGTERM, SIGINT}) sigaction(number, &action, nullptr);
  // nohup lets a program ignore that its terminal closes.
  struct sigaction before {};
  sigaction(SIGHUP, nullptr, &before);
  if (before.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);
}

std::string stop_signal() {
  if (g_signal == SIGTERM) return "SIGTERM";
  if (g_signal == SIGHUP) return "SIGHUP";
  return g_signal == SIGINT ? "SIGINT" : "";
}

double seconds_since_stop_signal() {
  const int64_t begin_ns = g_signal_ns;
  return begin_ns == 0 ? -1 : static_cast<double>(monotonic_ns() - begin_ns) / 1e9;
}

}  // namespace braid::inline host
