#include "cli/interrupt.h"

#include <csignal>

namespace espalier {
namespace {

// A signal handler can reach nothing else.
volatile std::sig_atomic_t interrupt_flag = 0;
struct sigaction previous_action;

void set_flag(int) {
  interrupt_flag = 1;
}

}  // namespace

InterruptGuard::InterruptGuard() {
  interrupt_flag = 0;
  struct sigaction action {};
  action.sa_handler = set_flag;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, &previous_action);
}

InterruptGuard::~InterruptGuard() {
  sigaction(SIGINT, &previous_action, nullptr);
}

bool InterruptGuard::interrupted() const {
  return interrupt_flag != 0;
}

}  // namespace espalier
