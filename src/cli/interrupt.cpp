#include "cli/interrupt.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <string_view>

#include "base/error.h"

namespace espalier {
namespace {

// A signal handler can reach nothing else. The pipe carries one byte per interrupt to whoever waits for input: a flag
// alone could be set just before the wait begins, on any thread, and would be missed.
volatile std::sig_atomic_t interrupt_flag = 0;
int wake_pipe[2] = {-1, -1};
struct sigaction previous_action;

void on_interrupt(int) {
  const int saved = errno;
  interrupt_flag = 1;
  [[maybe_unused]] const auto written = write(wake_pipe[1], "", 1);
  errno = saved;
}

// A bar of progress that stands there is wiped first.
bool on_terminal = false;

void end_at_once(int number) {
  const std::string_view line = number == SIGINT ? "espalier: interrupted\n" : "espalier: ended by SIGTERM\n";
  constexpr std::string_view kWipe = "\r\x1b[K";
  [[maybe_unused]] auto written = on_terminal ? write(STDERR_FILENO, kWipe.data(), kWipe.size()) : 0;
  written = write(STDERR_FILENO, line.data(), line.size());
  _exit(128 + number);
}

}  // namespace

void end_on_signals() {
  on_terminal = isatty(STDERR_FILENO) != 0;
  struct sigaction action {};
  action.sa_handler = end_at_once;
  sigfillset(&action.sa_mask);
  for (const int number : {SIGINT, SIGTERM}) {
    struct sigaction before {};
    sigaction(number, nullptr, &before);
    if (before.sa_handler != SIG_IGN) sigaction(number, &action, nullptr);
  }
}

InterruptGuard::InterruptGuard() {
  if (pipe2(wake_pipe, O_CLOEXEC | O_NONBLOCK) != 0) device_error("pipe2: {}", std::strerror(errno));
  interrupt_flag = 0;
  struct sigaction action {};
  action.sa_handler = on_interrupt;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, &previous_action);
}

InterruptGuard::~InterruptGuard() {
  sigaction(SIGINT, &previous_action, nullptr);
  close(wake_pipe[0]);
  close(wake_pipe[1]);
}

bool InterruptGuard::interrupted() const {
  return interrupt_flag != 0;
}

void InterruptGuard::clear() {
  interrupt_flag = 0;
  char drained[64];
  while (read(wake_pipe[0], drained, sizeof drained) > 0) {
  }
}

bool InterruptGuard::wait_for_input(int descriptor) {
  pollfd waits[] = {{descriptor, POLLIN, 0}, {wake_pipe[0], POLLIN, 0}};
  while (poll(waits, 2, -1) < 0)
    if (errno != EINTR) device_error("poll: {}", std::strerror(errno));
  return waits[1].revents == 0;
}

}  // namespace espalier
