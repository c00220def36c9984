#include "cli/shutdown_signals.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "base/error.h"

namespace espalier {

ShutdownSignals::ShutdownSignals() {
  sigemptyset(&signals_);
  sigaddset(&signals_, SIGTERM);
  sigaddset(&signals_, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals_, &before_);
  signal_descriptor_ = signalfd(-1, &signals_, SFD_CLOEXEC | SFD_NONBLOCK);
  wake_descriptor_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (signal_descriptor_ < 0 || wake_descriptor_ < 0) device_error("signalfd: {}", std::strerror(errno));
}

ShutdownSignals::~ShutdownSignals() {
  close(signal_descriptor_);
  close(wake_descriptor_);
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

ShutdownSignals::Heard ShutdownSignals::wait() {
  pollfd waits[] = {{signal_descriptor_, POLLIN, 0}, {wake_descriptor_, POLLIN, 0}};
  while (poll(waits, 2, -1) < 0)
    if (errno != EINTR) device_error("poll: {}", std::strerror(errno));
  if (waits[0].revents != 0) {
    signalfd_siginfo signal{};
    [[maybe_unused]] const auto taken = read(signal_descriptor_, &signal, sizeof signal);
    return Heard::signal;
  }
  std::uint64_t wakes = 0;
  [[maybe_unused]] const auto taken = read(wake_descriptor_, &wakes, sizeof wakes);
  return Heard::wake;
}

void ShutdownSignals::wake() noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = write(wake_descriptor_, &one, sizeof one);
}

}  // namespace espalier
