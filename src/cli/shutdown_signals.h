// SIGTERM and SIGINT as something to wait for, beside whatever other threads have to say. While one lives the signals
// end nothing; threads that are started meanwhile inherit that. One at a time, made before any thread.
#pragma once

#include <csignal>

namespace espalier {

class ShutdownSignals {
 public:
  ShutdownSignals();
  ~ShutdownSignals();
  ShutdownSignals(const ShutdownSignals&) = delete;
  ShutdownSignals& operator=(const ShutdownSignals&) = delete;

  enum class Heard { signal, wake };
  // Waits for either. Several calls of wake() may be heard as one.
  Heard wait();
  // From any thread.
  void wake() noexcept;

 private:
  sigset_t signals_;
  sigset_t before_;
  int signal_descriptor_ = -1;
  int wake_descriptor_ = -1;
};

}  // namespace espalier
