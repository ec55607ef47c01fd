#include "runtime/stop_signal.h"

#include <signal.h>

namespace braid {
namespace {

volatile sig_atomic_t g_signal = 0;

void note_signal(int number) { g_signal = number; }

}  // namespace

void catch_stop_signals() {
  struct sigaction action {};
  action.sa_handler = note_signal;
  action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
}

std::string stop_signal() {
  if (g_signal == SIGTERM) return "SIGTERM";
  return g_signal == SIGINT ? "SIGINT" : "";
}

}  // namespace braid
