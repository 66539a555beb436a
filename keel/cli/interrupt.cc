#include "keel/cli/interrupt.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>

#include "keel/base/error.h"

namespace keel::cli {
namespace {

std::atomic<bool> requested{false};
static_assert(std::atomic<bool>::is_always_lock_free, "used in a signal handler");

extern "C" void on_signal(int) {
  if (requested.exchange(true)) _exit(130);
  constexpr char kText[] = "\nkeel: stopping at the next safe point; Ctrl-C again ends at once\n";
  [[maybe_unused]] const auto written = write(STDERR_FILENO, kText, sizeof(kText) - 1);
}

}  // namespace

void install_interrupt_handler() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  for (int signal : {SIGINT, SIGTERM}) {
    KEEL_CHECK(sigaction(signal, &action, nullptr) == 0, "no handler for signal {}", signal);
  }
}

bool interrupted() { return requested.load(std::memory_order_relaxed); }

}  // namespace keel::cli
